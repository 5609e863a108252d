"""The grader process: ``python -m focus.tasks.grader MEMORY_MB``.

One JSON line in, one JSON line out:

    {"op": "load", "kind": "math"}                       → {"ok": true}
    {"op": "score", "kind": …, "text": …, "reference": …, "limit_s": 5.0}
                                        → {"score": 1.0, "unverifiable": false, "reason": ""}
    {"op": "check", "kind": …, "reference": …, "limit_s": 5.0}
                                                         → {"ok": true} or {"refused": "…"}
    any of them                              → {"error": "…"}, {"refused": "…"}, {"crashed": "…"}

`load` imports the kind's packages and grades its known pairs; the other two are done in a
child that is forked for one request and then gone, so that

- the kernel ends it at `limit_s` (the default action of SIGALRM), whatever it is doing and
  even when nobody is left to ask for it;
- a crash, a spent memory cap (RLIMIT_AS) or a damaged cache never reaches the next answer;
- the imported packages are shared, which makes a fresh child cost milliseconds.

The child works in its main thread, inherits no socket and, before it reads the answer, is
forbidden (by an audit hook) to start processes, open sockets or write files. Answers are
never printed or logged.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import signal
import sys
from dataclasses import asdict
from typing import Any, BinaryIO

from focus.errors import FocusError, ProblemError
from focus.tasks.answers import Verdict
from focus.tasks.scoring import Scorer, scorer_for

__all__ = ("main", "serve")

_FORBIDDEN = ("ctypes.", "os.", "pty.", "shutil.", "socket.", "subprocess.", "urllib.")
_ALLOWED = ("os.listdir", "os.scandir")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MOST_OPEN_FILES = 256


def main(arguments: list[str]) -> None:
    """Serve requests from stdin until it ends."""
    memory = int(arguments[0]) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable(logging.CRITICAL)
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)  # packages print; a reply must stand alone on its line
    os.dup2(nowhere, 2)
    serve(sys.stdin.buffer, replies)


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer each line of `requests` with one line to `replies`."""
    scorers: dict[str, Scorer] = {}
    for line in requests:
        request = json.loads(line)
        try:
            reply = _reply(request, scorers)
        except (FocusError, MemoryError) as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply).encode() + b"\n")


def _reply(request: dict[str, Any], scorers: dict[str, Scorer]) -> dict[str, Any]:
    kind = request["kind"]
    if kind not in scorers:
        scorers[kind] = scorer_for(kind)
        gc.collect()
        gc.freeze()
    if request["op"] == "load":
        return {"ok": True}
    return _in_child(request, scorers[kind])


def _in_child(request: dict[str, Any], scorer: Scorer) -> dict[str, Any]:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        _work(request, scorer, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        answer = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        return _beyond(request, f"longer than {request['limit_s']:g} s")
    if status != 0 or not answer:
        return {"crashed": f"the grading child ended with status {status}"}
    reply: dict[str, Any] = json.loads(answer)
    return reply


def _work(request: dict[str, Any], scorer: Scorer, write_end: int) -> None:
    """Grade one request and leave the process; runs in the child."""
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, request["limit_s"])
        os.closerange(0, write_end)
        os.closerange(write_end + 1, _MOST_OPEN_FILES)
        sys.addaudithook(_forbid)
        reply = _attempt(request, scorer)
        os.write(write_end, json.dumps(reply).encode())
        status = 0
    finally:
        os._exit(status)


def _attempt(request: dict[str, Any], scorer: Scorer) -> dict[str, Any]:
    """One request's reply; of unexpected errors only the type, since a message may quote."""
    try:
        return _graded(request, scorer)
    except ProblemError as error:
        return {"refused": str(error)}
    except FocusError as error:
        return {"error": str(error)}
    except ImportError as error:
        return {"error": f"{type(error).__name__} while grading"}
    except MemoryError:
        return _beyond(request, "more memory than the cap allows")
    except RecursionError:
        return _beyond(request, "nested too deeply")
    except Exception as error:
        return _beyond(request, f"unscorable: {type(error).__name__}")


def _graded(request: dict[str, Any], scorer: Scorer) -> dict[str, Any]:
    if request["op"] == "check":
        scorer.check(request["reference"])
        return {"ok": True}
    return asdict(scorer.score(request["text"], request["reference"]))


def _beyond(request: dict[str, Any], reason: str) -> dict[str, Any]:
    """What an answer, or a reference, beyond the limits gets."""
    if request["op"] == "check":
        return {"refused": f"the reference could not be read: {reason}"}
    return asdict(Verdict(0.0, unverifiable=True, reason=reason))


def _forbid(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        denied = bool(arguments[2] & _WRITING)
    else:
        denied = event.startswith(_FORBIDDEN) and event not in _ALLOWED
    if denied:
        raise PermissionError(f"grading must not cause {event}")


if __name__ == "__main__":
    main(sys.argv[1:])
