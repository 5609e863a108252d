"""One grader process, seen from the client: a pipe with deadlines.

Blocking and thread-bound; nothing here knows an event loop, so a worker outlives loops.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import IO, Any

__all__ = ("GraderWorker",)

_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_SET = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONIOENCODING": "utf-8",
}
_CHUNK = 65_536


class GraderWorker:
    """A running grader process.

    `ask` and `close` belong to one thread at a time; `kill` may come from any thread.
    The process sees the client's import path and no secrets of its environment, leads a
    session of its own (so Ctrl-C does not reach it) and ends when its stdin does.
    """

    def __init__(self, *, memory_mb: int) -> None:
        self.loaded: set[str] = set()
        self._buffer = b""
        self._lock = threading.Lock()
        self._is_reaped = False
        self._process = subprocess.Popen(
            (
                sys.executable,
                "-B",
                "-P",
                "-W",
                "ignore",
                "-m",
                "focus.tasks.grader",
                f"{memory_mb}",
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=_environment(),
            bufsize=0,
        )
        for pipe in self._pipes():
            os.set_blocking(pipe.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Send one request and wait for its reply.

        Raises:
            EOFError: the process ended; the message has the end of its stderr.
            TimeoutError: no reply within `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        pending = memoryview(json.dumps(request).encode() + b"\n")
        while b"\n" not in self._buffer:
            readable, writable = self._wait(bool(pending), deadline)
            if writable:
                pending = pending[self._send(pending) :]
            if readable:
                self._receive()
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def kill(self) -> None:
        """End the process and whatever it forked; returns at once."""
        with self._lock:
            if self._is_reaped:
                return
            # Unreaped, its group id cannot be reused; and the group outlives its leader,
            # so the child of a worker that died is reached too.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill, reap, and close the pipes."""
        self.kill()
        with self._lock:
            self._process.wait()
            self._is_reaped = True
        for pipe in self._pipes():
            pipe.close()

    def _pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        return process.stdin, process.stdout, process.stderr

    def _wait(self, has_pending: bool, deadline: float) -> tuple[bool, bool]:
        stdin, stdout, _ = self._pipes()
        poller = select.poll()
        poller.register(stdout, select.POLLIN)
        if has_pending:
            poller.register(stdin, select.POLLOUT)
        left_ms = max(0.0, deadline - time.monotonic()) * 1000
        ready = {descriptor for descriptor, _ in poller.poll(left_ms)}
        if not ready:
            raise TimeoutError("no reply by the deadline")
        return stdout.fileno() in ready, stdin.fileno() in ready

    def _send(self, pending: memoryview) -> int:
        try:
            return os.write(self._pipes()[0].fileno(), pending[:_CHUNK])
        except BlockingIOError:
            return 0
        except BrokenPipeError as error:
            raise EOFError(self._last_words()) from error

    def _receive(self) -> None:
        received = os.read(self._pipes()[1].fileno(), _CHUNK)
        if not received:
            raise EOFError(self._last_words())
        self._buffer += received

    def _last_words(self) -> str:
        """Why it ended, as far as its stderr tells (it is silent once it serves)."""
        try:
            said = os.read(self._pipes()[2].fileno(), _CHUNK)
        except BlockingIOError:
            said = b""
        return said.decode(errors="replace").strip()[-500:] or "it left no message"


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return kept | _SET | {"PYTHONPATH": path}
