"""S3: replies of a hostile server against the real client, in memory and over sockets."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import httpx

from focus.errors import RequestError, SchemaError
from focus.execution.checks import check_generation, check_shape
from focus.policies.base import Policy
from focus.policies.sglang import SGLangPolicy
from focus.policies.sglang_wire import Asked, read_reply
from focus.promises.base import Measured, Stand
from focus.promises.floods import floods
from focus.promises.hostile_replies import MAX_TOKENS, PROMPT, VERSION, fuzzed
from focus.records.strict_json import loads
from focus.sampling import Sampling
from focus.testing.loopback import Answer, Ask, ByteTokenizer, Loopback

__all__ = ("Findings", "ask", "flood", "fuzz_bodies", "fuzz_client", "hostile_server")

_SAMPLING = Sampling(temperature=1.0, max_tokens=MAX_TOKENS)
_VOCABULARY = 257
_WHOLE_CLIENT_ONE_IN = 50
_DEADLINE_S = 2.0
_CAP_BYTES = 2**20 + 512 * MAX_TOKENS
_EXTRA_BYTES = 64 * 2**20


class Findings:
    """What hostile replies led to.

    Attributes:
        outcomes: error classes, "accepted" replies, and "deadline".
        crashes: errors that are none of ours.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.crashes: list[str] = []

    def crashed(self, where: str, error: BaseException) -> None:
        self.crashes.append(f"{where}: {type(error).__name__}: {str(error)[:200]}")


def hostile_server(stand: Stand) -> Measured:
    """Fuzzed replies through the parser, one in fifty through the HTTP client, and floods.

    Counts errors that are not ours, connections to another server, and once the memory this
    process took at its peak above the reply cap plus 64 MiB.
    """
    inputs = stand.pick(quick=20_000, full=1_000_000)
    findings, rng = Findings(), random.Random(0)
    before = _resident_bytes()
    fuzz_bodies(inputs, rng, findings, stand)
    through_client = inputs // _WHOLE_CLIENT_ONE_IN
    anyio.run(fuzz_client, through_client, rng, findings)
    rounds = stand.pick(quick=1, full=5)
    strangers, flooded = anyio.run(flood, rounds, findings)
    peak = _peak_bytes() - before
    bloated = peak > _CAP_BYTES + _EXTRA_BYTES
    detail = {
        "fuzzed": inputs,
        "through_the_client": through_client,
        "over_sockets": flooded,
        "outcomes": dict(findings.outcomes),
        "crashes": findings.crashes[:10],
        "other_hosts_contacted": strangers,
        "peak_extra_mib": round(peak / 2**20, 1),
    }
    broken = len(findings.crashes) + strangers + bloated
    return Measured(broken, inputs + through_client + flooded, detail)


def fuzz_bodies(inputs: int, rng: random.Random, findings: Findings, stand: Stand) -> None:
    """Bodies through strict JSON, the reader of replies and the checks of every reply."""
    asked = Asked("rid", "request", len(PROMPT), VERSION)
    for number in range(inputs):
        body = fuzzed(rng, asked.rid)
        try:
            _accept(read_reply(loads(body, where="the reply"), asked))
        except (RequestError, SchemaError) as error:
            findings.outcomes[type(error).__name__] += 1
        except Exception as error:
            findings.crashed(f"{body[:80]!r}", error)
        else:
            findings.outcomes["accepted"] += 1
        if number % 1_000 == 0:
            stand.progress(number, inputs)


def _accept(reply: Any) -> None:
    """Every check between a reply and a tree."""
    check_shape(reply)
    check_generation(reply, _SAMPLING, version=VERSION, vocab_size=_VOCABULARY)


async def fuzz_client(inputs: int, rng: random.Random, findings: Findings) -> None:
    """Bodies through the whole client, over a transport in memory."""

    async def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=fuzzed(rng, loads(request.content, where="")["rid"]))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        policy = _policy("http://127.0.0.1:9", client=client)
        for number in range(inputs):
            await ask(policy, f"fuzzed {number}", findings)


async def flood(rounds: int, findings: Findings) -> tuple[int, int]:
    """Every flood over a socket; returns connections to a stranger, and how many were tried."""
    tried = 0
    current: list[Any] = [None]

    async def answer(ask: Ask) -> Any:
        return current[0] if ask.path == "/generate" else Answer.of({})

    async def nobody(ask: Ask) -> Answer:
        return Answer.of({"stolen": True})

    async with Loopback(nobody) as stranger, Loopback(answer) as server:
        for _ in range(rounds):
            for name, said in floods(stranger.url).items():
                current[0] = said
                async with _policy(server.url) as policy:
                    await ask(policy, name, findings)
                tried += 1
        return stranger.connections, tried


async def ask(policy: Policy, where: str, findings: Findings) -> None:
    """One request with every check of its reply; notes how it ended."""
    with anyio.move_on_after(_DEADLINE_S) as scope:
        try:
            _accept(await policy.generate(PROMPT, _SAMPLING))
        except RequestError as error:
            findings.outcomes[type(error).__name__] += 1
        except Exception as error:
            findings.crashed(where, error)
        else:
            findings.outcomes["accepted"] += 1
    findings.outcomes["deadline"] += scope.cancelled_caught


def _policy(url: str, *, client: httpx.AsyncClient | None = None) -> SGLangPolicy:
    return SGLangPolicy(
        url, tokenizer=ByteTokenizer(), version=VERSION, context_limit=4096, client=client
    )


def _resident_bytes() -> int:
    return _status("VmRSS")


def _peak_bytes() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
