"""S4: secrets planted everywhere a user may put one, looked for in everything that comes out."""

from __future__ import annotations

import base64
import io
import logging
import os
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio

from focus import (
    Agent,
    Allowance,
    Collector,
    Critic,
    Execution,
    Problem,
    Sampling,
    Search,
    Segments,
)
from focus.errors import CollectionFailed, FocusError
from focus.policies.http import HttpServer
from focus.policies.retry import RetryPolicy
from focus.policies.sglang import SGLangPolicy
from focus.promises.base import Measured, Stand
from focus.promises.hostile_replies import PROMPT, VERSION, honest
from focus.records import JsonlDirectory, save_tree
from focus.tasks import Grader
from focus.testing.envs import WalkEnv
from focus.testing.loopback import Answer, Ask, ByteTokenizer, Cut, Loopback

__all__ = ("BEHAVIOURS", "CANARIES", "Output", "canaries_in", "nothing_leaks")

CANARIES: Mapping[str, str] = {
    place: f"canary-{place}-{number:04x}"
    for number, place in enumerate(("bearer", "user", "password", "query", "environment"), 40_961)
}
_BASIC = base64.b64encode(f"{CANARIES['user']}:{CANARIES['password']}".encode()).decode()
_ENVIRONMENT = "FOCUS_PROMISES_API_KEY"
_CALM = RetryPolicy(attempts=2, base_s=0.0, most_s=0.0)


class Output:
    """Everything that one attempt left: logs, tracebacks with locals, reprs, files."""

    def __init__(self) -> None:
        self._texts: list[tuple[str, str]] = []

    def add(self, where: str, text: str) -> None:
        self._texts.append((where, text))

    def leaks(self) -> Iterator[str]:
        """Where each canary was found."""
        for where, text in self._texts:
            yield from (f"{name} in {where}" for name in canaries_in(text))


def canaries_in(text: str) -> list[str]:
    """Names of the canaries that stand in a text."""
    found = [name for name, canary in CANARIES.items() if canary in text]
    return [*found, "packed credentials"] if _BASIC in text else found


def nothing_leaks(stand: Stand) -> Measured:
    """Every way to give a secret, against servers that echo it in every way they have."""
    found: list[str] = []
    looked = 0
    for client in _CLIENTS:
        for name, behaviour in BEHAVIOURS.items():
            output = Output()
            folder = stand.folder / f"{looked}"
            anyio.run(_attempt, client, behaviour, output, folder)
            found += [f"{client}, {name}: {leak}" for leak in output.leaks()]
            looked += 1
            stand.progress(looked, len(_CLIENTS) * len(BEHAVIOURS) + 1)
    found += anyio.run(_grader_leaks)
    return Measured(len(found), looked + 1, {"attempts": looked + 1, "found": found[:20]})


def _echo(ask: Ask) -> str:
    """All of a request, as a server might quote it; credentials are unpacked too."""
    kind, _, credentials = ask.headers.get("authorization", "").partition(" ")
    unpacked = base64.b64decode(credentials).decode() if kind == "Basic" else credentials
    return f"{unpacked} for {ask.path} with {dict(ask.headers)}"


def _status(status: int) -> Callable[[Ask], Answer]:
    return lambda ask: Answer(_echo(ask).encode(), status, {"x-echo": _echo(ask)})


def _well_formed(ask: Ask) -> Answer:
    reply = honest(ask.json.get("rid", ""))
    return Answer.of({**reply, "text": _echo(ask)}, 200, x_echo=_echo(ask))


BEHAVIOURS: Mapping[str, Callable[[Ask], Answer | bytes | None]] = {
    **{f"status {s}": _status(s) for s in (302, 400, 401, 403, 404, 413, 429, 500, 503)},
    "no JSON": lambda ask: Answer(_echo(ask).encode()),
    "broken JSON": lambda ask: Answer(b'{"meta_info": "' + _echo(ask).encode()),
    "error object": lambda ask: Answer.of({"error": {"message": _echo(ask)}}),
    "error object with code": lambda ask: Answer.of(
        {"error": {"code": 400, "message": _echo(ask)}}
    ),
    "keys": lambda ask: Answer.of({_echo(ask): 1}),
    "abort": lambda ask: Answer.of(
        {"meta_info": {"finish_reason": {"type": "abort", "message": _echo(ask)}}}
    ),
    "finish reason": lambda ask: Answer.of({"meta_info": {"finish_reason": {"type": _echo(ask)}}}),
    "another's reply": lambda ask: Answer.of(honest(_echo(ask))),
    "well-formed": _well_formed,
    "reset": lambda ask: None,
    "cut": lambda ask: Cut(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n" + _echo(ask).encode()),
    "no HTTP": lambda ask: Cut(_echo(ask).encode() + b"\r\n\r\n"),
}
"""How a server answers; in each of them it says what it was told."""

_CLIENTS = ("bearer", "userinfo", "query", "served critic")


def _server(client: str, url: str) -> HttpServer:
    """A server given with a secret. In a function of its own: its locals hold it."""
    if client == "userinfo":
        credentials = f"{CANARIES['user']}:{CANARIES['password']}"
        return HttpServer(url.replace("http://", f"http://{credentials}@"))
    if client == "query":
        return HttpServer(f"{url}/?key={CANARIES['query']}")
    return HttpServer(url, api_key=CANARIES["bearer"])


async def _attempt(
    client: str, behaviour: Callable[[Ask], Any], output: Output, folder: Path
) -> None:
    """Ask, collect and store against one server; keep everything that comes out."""

    async def answer(ask: Ask) -> Any:
        return behaviour(ask)

    with _logged(output), _environment():
        async with Loopback(answer) as loopback:
            await _use(client, loopback.url, output, folder)


async def _use(client: str, url: str, output: Output, folder: Path) -> None:
    critic = _critic(client, url)
    async with _policy(client, url) as policy:
        output.add("repr", f"{policy!r} {critic!r} {policy.url}")
        with _caught(output, "a request"):
            await policy.generate(PROMPT, Sampling(max_tokens=8))
        with _caught(output, "a collection"):
            await _collect(policy, critic, output, folder)


@asynccontextmanager
async def _policy(client: str, url: str) -> AsyncIterator[SGLangPolicy]:
    server = _server(client, url)
    policy = SGLangPolicy(server, tokenizer=ByteTokenizer(), version=VERSION, context_limit=4096)
    try:
        yield policy
    finally:
        await server.aclose()


def _critic(client: str, url: str) -> Critic:
    if client != "served critic":
        return Critic.constant(0.5)
    return Critic.served(url, version=VERSION, api_key=CANARIES["bearer"], retry=_CALM)


async def _collect(policy: SGLangPolicy, critic: Critic, output: Output, folder: Path) -> None:
    agent = Agent(
        policy,
        parser=Segments(8),
        allowance=Allowance(tokens=16),
        execution=Execution(retry=_CALM),
    )
    collector = Collector(
        agent=agent, env=WalkEnv(), search=Search.two_phase(tokens=32), critic=critic
    )
    try:
        async with collector:
            found = await collector.collect(Problem(id="p", prompt="Walk."))
    except CollectionFailed as error:
        found = error.collection
        output.add("failures", repr(error.failures))
        raise
    finally:
        output.add("ledger", repr(collector))
    save_tree(found.tree, folder / "tree.json", failures=found.failures)
    JsonlDirectory(folder / "critic").write(found.critic)
    _add_files(output, folder)


def _add_files(output: Output, folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            output.add(path.name, path.read_text("utf-8"))


@contextmanager
def _caught(output: Output, doing: str) -> Iterator[None]:
    """An error's text, repr, fields and traceback, with the locals of every frame."""
    try:
        yield
    except (FocusError, BaseExceptionGroup) as error:
        output.add(f"repr of the error of {doing}", f"{error!r} {error} {vars(error)}")
        shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        output.add(f"traceback of {doing}", "".join(_own_frames_hidden(shown)))


def _own_frames_hidden(shown: traceback.TracebackException) -> Iterator[str]:
    """This module holds the canaries to look for; its frames say nothing of a user's."""
    seen: list[traceback.TracebackException | None] = [shown]
    while seen:
        one = seen.pop()
        if one is None:
            continue
        for frame in one.stack:
            if frame.filename == __file__:
                frame.locals = {}
        seen += [one.__cause__, one.__context__, *(one.exceptions or ())]
    yield from shown.format()


@contextmanager
def _logged(output: Output) -> Iterator[None]:
    """Every logger at debug level."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        output.add("log", stream.getvalue())


@contextmanager
def _environment() -> Iterator[None]:
    os.environ[_ENVIRONMENT] = CANARIES["environment"]
    try:
        yield
    finally:
        del os.environ[_ENVIRONMENT]


async def _grader_leaks() -> list[str]:
    """What a grading process can see of its client's environment."""
    with _environment():
        async with Grader() as grader:
            await grader.check("1")
            seen = _surroundings(grader.pids[0])
    return [f"{name} in a grading process" for name in canaries_in(seen)]


def _surroundings(pid: int) -> str:
    return "".join(Path(f"/proc/{pid}/{name}").read_text() for name in ("environ", "cmdline"))
