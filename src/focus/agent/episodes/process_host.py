"""The process that episodes are forked from: ``python -m focus.agent.episodes.process_host FD``.

It imports the episode's module once and stays without threads, which makes `os.fork` safe.
Each episode is a process of its own with a socket to FOCUS. To fork, an episode's process
forks twice: the middle one ends at once, so that the new process belongs to this one, the
only reaper (Linux: PR_SET_CHILD_SUBREAPER). An episode leads a process group; letting go of
it ends the group. Only the episode's own process holds its socket, so that its end is heard
whatever it left behind.

On the host's socket: ``start`` (load the module), ``open`` (a process with a new episode),
``adopt`` and ``reap`` (a process that was forked; end it). On an episode's: ``reset``,
``play`` (a recording), ``step``, ``finish``, ``fork`` (brings the socket of the new process),
``close``. Whoever loses his socket ends; the host takes all episodes with it.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from focus.agent.episodes.episode import Episode
from focus.agent.episodes.plain import decode_action, encode_messages, encode_transition
from focus.agent.episodes.recording import Recording, close_episode
from focus.agent.episodes.wire import Wire
from focus.errors import NondeterminismError, RecordError
from focus.records.codec import decode_problem

__all__ = ("main",)

_PR_SET_CHILD_SUBREAPER = 36

Make = Callable[[], Episode]


def main(arguments: list[str]) -> None:
    """Serve until the socket closes, then end every episode."""
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    _become_reaper()
    host = _Host(control)
    try:
        host.serve()
    finally:
        host.end_all()


def _become_reaper() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {errno.errorcode.get(number, number)}")


class _Host:
    """Loads the factory, starts episodes, ends them."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._wire = Wire(control)
        self._live: set[int] = set()
        self._make: Make | None = None

    def serve(self) -> None:
        while (request := self._wire.receive()) is not None:
            asked, descriptor = request
            try:
                reply = self._answer(asked, descriptor)
            except Exception as error:
                reply = _fault(error)
            self._wire.send(reply)

    def _answer(self, asked: dict[str, Any], descriptor: int) -> dict[str, Any]:
        if asked["call"] == "start":
            self._make = _factory(asked["factory"], asked["arguments"], asked["path"])
            gc.collect()
            gc.freeze()
        elif asked["call"] == "open":
            return {"pid": self._open(descriptor)}
        elif asked["call"] == "adopt":
            self._live.add(asked["pid"])
        else:
            self._end(asked["pid"])
        return {}

    def _open(self, descriptor: int) -> int:
        assert self._make is not None, "start comes first"
        try:
            pid = os.fork()
            if pid == 0:
                _in_child(self._control, descriptor, self._make)
        finally:
            os.close(descriptor)
        with suppress(OSError):  # the child does it too; whoever is first
            os.setpgid(pid, pid)
        self._live.add(pid)
        return pid

    def _end(self, pid: int) -> None:
        """End an episode with what it started, and reap whatever has ended."""
        if pid in self._live:
            self._live.discard(pid)
            _end_group(pid)
        self._reap_orphans()

    def _reap_orphans(self) -> None:
        """Reap what has ended; an episode that ended by itself takes its group with it.

        The group is ended before its leader is reaped: until then nobody else has its number.
        """
        with suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if found.si_pid in self._live:
                    self._live.discard(found.si_pid)
                    _end_group(found.si_pid)
                else:
                    os.waitpid(found.si_pid, 0)

    def end_all(self) -> None:
        for pid in tuple(self._live):
            self._end(pid)


def _end_group(leader: int) -> None:
    """Kill a group and reap all of it.

    Whoever loses his parent becomes this process's child before that parent can be reaped, so
    the last one has gone when there is nothing left to wait for.
    """
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-leader, 0)


def _in_child(parents: socket.socket, descriptor: int, make: Make) -> None:
    """Be an episode's process; never returns."""
    status = 1
    try:
        os.setpgid(0, 0)
        parents.close()
        wire = Wire(socket.socket(fileno=descriptor))
        _EpisodeProcess(wire, make).serve()
        status = 0
    except BrokenPipeError:  # whoever asked is gone
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


class _EpisodeProcess:
    """One episode, and the socket it is asked on."""

    def __init__(self, wire: Wire, make: Make) -> None:
        self._wire = wire
        self._make = make
        self._episode: Episode | None = None
        os.register_at_fork(after_in_child=lambda: self._wire.close())

    def serve(self) -> None:
        while (request := self._wire.receive()) is not None:
            asked, descriptor = request
            try:
                reply = self._fork(descriptor) if asked["call"] == "fork" else self._answer(asked)
            except NondeterminismError as error:
                reply = {"nondeterminism": str(error)}
            except Exception as error:
                reply = _fault(error)
            if reply is not None:
                self._send(reply)

    def _send(self, reply: dict[str, Any]) -> None:
        try:
            self._wire.send(reply)
        except RecordError as error:
            self._wire.send(_fault(error))

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        match asked["call"]:
            case "reset":
                self._episode = self._make()
                messages = self._episode.reset(decode_problem(asked["problem"]))
                return {"messages": encode_messages(tuple(messages))}
            case "play":
                self._episode = Recording.from_plain(asked["recording"]).play(self._make)
                return {}
            case "step":
                return encode_transition(self._it.step(decode_action(asked["action"])))
            case "finish":
                return {"outcome": float(self._it.finish(asked["reason"]))}
        if self._episode is not None:
            close_episode(self._episode)
        return {}

    @property
    def _it(self) -> Episode:
        assert self._episode is not None, "reset or play comes first"
        return self._episode

    def _fork(self, descriptor: int) -> dict[str, Any] | None:
        """A second process of this episode, on the socket `descriptor`; None in that process."""
        read_end, write_end = os.pipe()
        middle = os.fork()
        if middle == 0:
            self._leave_child(descriptor, read_end, write_end)
            return None
        os.close(write_end)
        os.close(descriptor)
        with os.fdopen(read_end, "rb") as pipe:
            told = pipe.read()
        os.waitpid(middle, 0)
        if not told:
            raise OSError("the episode's process could not be forked")
        return {"pid": int(told)}

    def _leave_child(self, descriptor: int, read_end: int, write_end: int) -> None:
        """In the middle process: fork once more and end; only the new one returns."""
        try:
            if os.fork() != 0:
                os._exit(0)
        except BaseException:
            os._exit(1)
        os.setpgid(0, 0)
        os.close(read_end)
        self._wire = Wire(socket.socket(fileno=descriptor))
        os.write(write_end, str(os.getpid()).encode())
        os.close(write_end)


def _factory(name: str, arguments: dict[str, Any], path: list[str]) -> Make:
    sys.path[:] = path
    module, _, attribute = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)

    def make() -> Episode:
        episode: Episode = found(**arguments)
        return episode

    return make


def _fault(error: Exception) -> dict[str, Any]:
    """What is told of an error: itself, and the place that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return {"error": f"raised {error!r}{place}"}


if __name__ == "__main__":
    main(sys.argv[1:])
