"""Kernels that start at once: copies of one process that has imported what most pages import.

A page with code runs in a kernel of its own. Started the usual way, each of some forty would import PyTorch again,
which takes longer than many a page. Here the build starts one process that imports it, and each kernel is a copy of
that process, made before anything has run in it.

Jupyter starts a kernel by a command, and takes the process of the command for the kernel. So the command asks for a
copy and stays as long as the copy does. It passes interrupts on, and when it is killed, so is the copy::

    python -m docs._ext.kernels serve
    python -m docs._ext.kernels copy -f CONNECTION_FILE
"""

import contextlib
import functools
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

ADDRESS = "AUTOGRAD_COOKBOOK_KERNELS"  # the variable that says where the process listens
COMMAND = (sys.executable, "-m", "docs._ext.kernels")
IMPORTED = ("ipykernel.kernelapp", "matplotlib.pyplot", "torch._dynamo")
LOOK = 0.1  # seconds between two looks at which copies have ended
PATIENCE = 600.0  # seconds until the process has imported all that, on a busy machine

# --- The build ---


def start(app: "Sphinx", env: "BuildEnvironment", names: list[str]) -> None:
    """Start the process if a page with code is to be read, and have Jupyter take its copies for kernels."""
    if not any("{code-cell}" in env.doc2path(name).read_text(encoding="utf-8") for name in names):
        return
    folder = Path(tempfile.mkdtemp(prefix="kernels"))
    specification = folder / "kernels" / "copied" / "kernel.json"
    specification.parent.mkdir(parents=True)
    argv = [*COMMAND, "copy", "--log-level=CRITICAL", "-f", "{connection_file}"]
    specification.write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
    # Jupyter's own limit is a minute, and on a busy machine the imports can take longer.
    executors = importlib.import_module("jupyter_cache.executors.utils")
    executors.executenb = functools.partial(executors.executenb, startup_timeout=int(PATIENCE))
    os.environ[ADDRESS] = str(folder / "socket")
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("JUPYTER_PATH")]))
    # It ends when its standard input does, so that it does not outlive the build, however that ends.
    server = subprocess.Popen([*COMMAND, "serve"], stdin=subprocess.PIPE)

    def stop(app: "Sphinx", exception: Exception | None) -> None:
        server.kill()  # what it has copied has ended, and it may still be importing
        server.wait()
        shutil.rmtree(folder)

    app.connect("build-finished", stop)


def setup(app: "Sphinx") -> dict[str, bool]:
    app.connect("env-before-read-docs", start)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


# --- The process ---


def serve() -> None:
    """Make a copy for each that connects, until standard input ends."""
    for name in IMPORTED:
        importlib.import_module(name)
    copies: dict[socket.socket, int] = {}
    with selectors.DefaultSelector() as selector, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.environ[ADDRESS])
        listener.listen()
        for each in (sys.stdin, listener):
            selector.register(each, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(LOOK):
                if key.fileobj is sys.stdin:
                    for process in copies.values():
                        os.killpg(process, signal.SIGKILL)
                    return
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    process = copied(connection, [listener, *copies])
                    connection.sendall(f"{process}\n".encode())
                    selector.register(connection, selectors.EVENT_READ)
                    copies[connection] = process
                else:  # who asked for it is gone
                    os.killpg(copies[key.fileobj], signal.SIGKILL)
            for connection, process in list(copies.items()):
                if os.waitpid(process, os.WNOHANG)[0]:
                    selector.unregister(connection)
                    connection.close()
                    del copies[connection]


def copied(connection: socket.socket, others: list[socket.socket]) -> int:
    """The process number of a copy that has become the kernel that is asked for."""
    asked: dict[str, Any] = json.loads(connection.makefile().readline())
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        os.setsid()
        for each in (connection, *others):
            each.close()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ |= asked["environment"]
        from ipykernel.kernelapp import launch_new_instance

        launch_new_instance(argv=asked["argv"])
        status = 0
    finally:
        os._exit(status)


# --- The command that stands for a copy ---


def copy(argv: list[str]) -> None:
    """Ask for a copy, and stay until it ends."""
    connection = connected(os.environ[ADDRESS])
    asked = {"argv": argv, "folder": os.getcwd(), "environment": dict(os.environ)}
    connection.sendall(json.dumps(asked).encode() + b"\n")
    process = int(connection.makefile().readline())
    signal.signal(signal.SIGINT, lambda *_: os.kill(process, signal.SIGINT))
    while connection.recv(1):
        pass


def connected(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            connection.connect(address)
            return connection
        time.sleep(LOOK)
    raise SystemExit(f"no process has listened at {address} within {PATIENCE:.0f} s")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case ["copy", *argv]:
            copy(argv)
