"""Install each library into an environment of its own, use it, harvest, store: ``python -m wild.run [NAME...]``."""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

from autograd_cookbook.harvest.sources import functions_in, is_reached
from wild.libraries import Library, differences, libraries

BUDGET = "400"


def main(names: list[str]) -> int:
    """Run all, or some; the exit status is 1 if a finding appeared or disappeared, 2 for an unknown name."""
    changed = []
    try:
        chosen = libraries(names)
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2
    for library in chosen:
        library.store(harvested(library))
        row = library.found
        print(
            f"{library.name} {library.version}: {row['reached']} of {row['functions']} functions reached, "
            f"{len(row['findings'])} findings, {row['seconds']:.0f} s",
            flush=True,
        )
        changed += differences(library)
    print(*changed, sep="\n")
    return 1 if changed else 0


def harvested(library: Library) -> dict[str, Any]:
    """What the harvest says of a library, in an environment that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        packages = installed(library, Path(folder, "env"))
        report, start = Path(folder, "report.json"), time.monotonic()
        command = [*("-m", "autograd_cookbook", "harvest", "--budget", BUDGET, "--report", str(report)), "use.py"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        python = str(Path(folder, "env", "bin", "python"))
        done = subprocess.run([python, *command], cwd=library.folder, env=environment, text=True, capture_output=True)
        if "Traceback" in done.stderr or not report.exists():
            raise SystemExit(f"{library.name}: {done.stdout}\n{done.stderr}")
        seconds = time.monotonic() - start
        return summary(library, json.loads(report.read_text()), packages, seconds)


def installed(library: Library, environment: Path) -> Path:
    """Where the packages of a new environment are; it also has all that this one has, torch above all."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-cache-dir")
    # A dependency that is not pinned would bring another torch.
    subprocess.run([*pip, "--no-deps", *library.pins], check=True)
    packages = next((environment / "lib").glob("python*")) / "site-packages"
    shared = sysconfig.get_path("purelib")
    (packages / "shared.pth").write_text(f"import site; site.addsitedir({shared!r})\n")
    return packages


def summary(library: Library, report: dict[str, Any], packages: Path, seconds: float) -> dict[str, Any]:
    """What is stored of a report; places are relative to the packages."""
    packages = packages.resolve()
    # Not those of a library that this one needs: it has a folder of its own.
    package = packages / library.package
    own = [each for each in report["functions"] if each["reached"] and Path(each["file"]).is_relative_to(package)]
    reached = {(each["file"], each["name"]) for each in own}
    listed = list(functions_in([str(packages / library.package)]))
    return {
        "version": library.version,
        "torch": report["torch"],
        "seconds": round(seconds, 1),
        "functions": len(listed),
        "reached": sum(is_reached(file, name, reached) for file, _, name in listed),
        "audited": sum(bool(each["audited"]) for each in own),
        "not_audited": {each["name"]: each["not_audited"] for each in own if not each["audited"]},
        "surrogates": sorted(
            each["name"]
            for each in own
            if any(f["summary"].startswith("looks like a surrogate") for f in each["findings"])
        ),
        "problems": report["problems"],
        "findings": [
            {
                "function": each["name"],
                "file": Path(each["file"]).relative_to(packages).as_posix(),
                "line": each["line"],
            }
            | {key: finding[key] for key in ("check", "severity", "summary", "cause", "fix", "program")}
            for each in own
            for finding in each["findings"]
            if finding["severity"] != "info"
        ],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
