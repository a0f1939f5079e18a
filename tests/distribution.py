"""What is published, tried as its users will: ``python -m tests.distribution build/dist``, run by ``nox -s release``.

The wheel goes into an environment that has torch and nothing else, and must leave torch as it is. The README's examples
and the commands then run from an empty folder, and all of it again for the sdist.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = {
    path.relative_to(ROOT / "src").as_posix()
    for path in (ROOT / "src/autograd_cookbook").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}
MAXIMUM = 1_000_000  # bytes
UNRELEASED = 1.015  # times as large without zopfli, which only a release has: see hatch_build.py
MINE = "def scale(x, factor):\n    return x * factor\n"
MESSAGE = "TypeError: save_for_backward can only save variables, but argument 3 is of type str"


def check_contents(wheel: Path, sdist: Path, maximum: float = MAXIMUM) -> None:
    """Both hold the package with its error index; the sdist also what it is built by."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = {f"{name}.packed" if name.endswith(".json") else name for name in PACKAGE}  # by hatch_build.py
    assert held == package, f"the wheel differs from the package: {sorted(held ^ package)}"
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {f"src/{name}" for name in package} | {"pyproject.toml", "hatch_build.py", "LICENSE", "PKG-INFO"}
    assert held - {".gitignore"} == wanted, f"the sdist holds other files: {sorted(held ^ wanted)}"
    for file in (wheel, sdist):
        assert file.stat().st_size < maximum, f"{file.name} has {file.stat().st_size:,} bytes"


class Environment:
    """An empty one, with the torch that this project pins."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.python = folder / "bin" / "python"
        self.pip("install", "-c", str(ROOT / "constraints.txt"), "torch")
        (self.packages,) = folder.glob("lib/python*/site-packages")

    def run(self, *arguments: str, cwd: Path, said: str = "") -> str:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [str(self.python), *arguments]
        done = subprocess.run(command, cwd=cwd, env=env, input=said, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def pip(self, *arguments: str) -> None:
        with tempfile.TemporaryDirectory() as empty:
            self.run("-m", "pip", *arguments, cwd=Path(empty))

    def files(self) -> dict[str, tuple[int, int]]:
        """Everything that is installed, torch's RECORD included, with sizes and times; compiled files come and go."""
        found = (path for path in self.packages.rglob("*") if path.is_file() and path.suffix != ".pyc")
        return {
            path.relative_to(self.packages).as_posix(): (path.stat().st_size, path.stat().st_mtime_ns) for path in found
        }


def check_use(environment: Environment) -> None:
    """What the README shows, from a folder that has nothing else."""
    with tempfile.TemporaryDirectory() as name:
        empty = Path(name)
        readme = (ROOT / "README.md").read_text()
        examples = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
        (audit,) = re.findall(r"`python (-m autograd_cookbook audit) (\w+\.py):(\w+) --inputs \"(.*?)\"`", readme)
        assert examples
        for example in examples:
            environment.run("-c", example, cwd=empty)
        command, file, function, inputs = audit
        (empty / file).write_text(MINE.replace("scale", function))
        said = environment.run(*command.split(), f"{file}:{function}", "--inputs", inputs, cwd=empty)
        assert f"{function}: ok" in said, said
        usage = environment.run("-m", "autograd_cookbook", "--help", cwd=empty)
        commands = re.findall(r"^    (\w+)  ", usage, re.MULTILINE)
        assert {"audit", "explain"} <= set(commands)
        for each in commands:
            assert each in environment.run("-m", "autograd_cookbook", each, "--help", cwd=empty)
        assert "This is it" in environment.run("-m", "autograd_cookbook", "explain", cwd=empty, said=MESSAGE)


def main(folder: Path) -> None:
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    check_contents(wheel, sdist)
    with tempfile.TemporaryDirectory() as name:
        environment = Environment(Path(name))
        before = environment.files()
        assert any(re.fullmatch(r"torch-[^/]*\.dist-info/RECORD", file) for file in before)
        for distribution in (wheel, sdist):
            environment.pip("install", str(distribution))
            after = environment.files()
            changed = {file for file in before if before[file] != after.get(file)}
            assert not changed, f"installing {distribution.name} has touched {sorted(changed)[:9]}"
            added = {file for file in after.keys() - before.keys() if ".dist-info/" not in file}
            assert added == PACKAGE, f"{distribution.name} has installed {sorted(added ^ PACKAGE)}"
            check_use(environment)
            environment.pip("uninstall", "-y", "autograd-cookbook")
            size = distribution.stat().st_size / 1000
            print(f"{distribution.name}: {size:.0f} kB; installs next to torch, and runs what the README shows")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
