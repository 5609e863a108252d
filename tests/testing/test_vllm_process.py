"""A server process in another interpreter ends with its block, whatever it does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import httpx
import pytest

from focus.errors import ConfigError
from focus.testing.vllm_process import vllm_server

DEAF = """
import os, signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()

class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(os.getpgid(0)).encode())

class Shared(HTTPServer):
    allow_reuse_port = True

Shared(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Health).serve_forever()
"""


def interpreter(folder: Path, program: str) -> str:
    """An executable that runs this program, whatever it is asked to run."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{program}")
    path.chmod(0o755)
    return str(path)


def test_a_server_that_hears_nothing_is_killed_with_all_it_started(tmp_path: Path) -> None:
    python = interpreter(tmp_path, DEAF)
    with vllm_server(python, tmp_path, served_model="m", leave_s=0.1) as url:
        group = int(httpx.get(f"{url}/group").text)
    with pytest.raises(ProcessLookupError):
        watch(group)


def watch(group: int) -> None:
    """Returns never; raises when no process of the group is left."""
    while True:
        os.killpg(group, 0)


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "raise SystemExit('no such model')")
    server = vllm_server(python, tmp_path, served_model="m")
    with pytest.raises(ConfigError, match="vLLM did not start: no such model"), server:
        pass


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "import signal; signal.pause()")
    server = vllm_server(python, tmp_path, served_model="m", start_s=0.2)
    with pytest.raises(ConfigError, match="did not start"), server:
        pass
