"""The host of episode processes as FOCUS sees it: started when first asked, ended for good."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import weakref
from typing import Any

import anyio
import anyio.to_thread

from focus.agent.episodes.wire import AsyncWire
from focus.errors import ConfigError, EnvError, LifecycleError

__all__ = ("HostProcess",)

_START_S = 120.0
"""Longest wait for the import of the episode's module."""

_FORK_S = 30.0
"""Longest wait for a fork, which no cancellation cuts short."""

_END_S = 10.0

_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class HostProcess:
    """One host, and the sockets to what it forks.

    Raises:
        ConfigError: not Linux, or the factory's name is not ``module:name``.
    """

    def __init__(self, factory: str, arguments: dict[str, Any]) -> None:
        if sys.platform != "linux":
            raise ConfigError("forking processes needs Linux; fork by copy, directory or replay")
        if not _NAME.fullmatch(factory) or factory.startswith("__main__:"):
            raise ConfigError(
                f"{factory!r} names no factory that another process can import; "
                "write it as 'package.module:name'"
            )
        self._start = {"call": "start", "factory": factory, "arguments": arguments}
        self._whose = f"episode {factory}"
        self._wire: AsyncWire | None = None
        self._turn = anyio.Lock()
        self._is_closed = False
        self._end: weakref.finalize[Any, Any] | None = None

    async def opened(self) -> tuple[AsyncWire, int]:
        """A process for a new episode.

        Raises:
            EnvError: the host does not start or has ended.
            LifecycleError: it was closed.
        """
        host = await self._started()
        return await self._connected(host)

    async def forked(self, wire: AsyncWire) -> tuple[AsyncWire, int]:
        """A second process of the episode at the other end of `wire`."""
        host = await self._started()
        new, pid = await self._connected(wire)
        try:
            await host.ask({"call": "adopt", "pid": pid})
        except BaseException:
            new.close()
            raise
        return new, pid

    async def reaped(self, pid: int) -> None:
        """End a process and what it started; none is left when this returns."""
        if self._wire is not None:
            await self._wire.ask({"call": "reap", "pid": pid})

    async def aclose(self) -> None:
        """End the host and every episode."""
        self._is_closed = True
        self._wire = None
        if self._end is not None:
            await anyio.to_thread.run_sync(self._end)

    async def _connected(self, asked: AsyncWire) -> tuple[AsyncWire, int]:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                call = "open" if asked is self._wire else "fork"
                with anyio.fail_after(_FORK_S):
                    reply = await asked.ask({"call": call}, bring=theirs.fileno())
            except BaseException as error:
                ours.close()
                if isinstance(error, TimeoutError):
                    raise EnvError(f"{self._whose} did not fork in {_FORK_S:g} s") from error
                raise
        return AsyncWire(ours, self._whose), int(reply["pid"])

    async def _started(self) -> AsyncWire:
        async with self._turn:
            if self._is_closed:
                raise LifecycleError("this environment was closed")
            if self._wire is None:
                self._wire = await self._launched()
            return self._wire

    async def _launched(self) -> AsyncWire:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await anyio.to_thread.run_sync(_launch, theirs.fileno())
        end = weakref.finalize(self, _end, ours, process)
        wire = AsyncWire(ours, "the host of " + self._whose)
        try:
            with anyio.fail_after(_START_S):
                await wire.ask({**self._start, "path": sys.path})
        except BaseException as error:
            end()
            if isinstance(error, TimeoutError):
                raise EnvError(f"{self._whose} was not imported in {_START_S:g} s") from error
            raise
        self._end = end
        return wire


def _launch(descriptor: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "focus.agent.episodes.process_host", str(descriptor)],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=sys.__stderr__.fileno() if sys.__stderr__ is not None else subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for FOCUS, which then closes the socket
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )


def _end(ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Close the socket, which ends the host; wait for it."""
    ours.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
