"""Siblings in one request to SGLang: lists on the wire, one check per continuation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from focus import (
    AdmissionPool,
    Agent,
    Allowance,
    Collector,
    Edges,
    Execution,
    ExecutionServices,
    FixedWidth,
    Phase,
    Problem,
    RetryPolicy,
    Sampling,
    Search,
    Segments,
    SGLangPolicy,
)
from focus.errors import CorruptReply, Refused, RequestError, TransientError
from focus.policies.base import Ask as Continuation
from focus.policies.base import RequestTag
from focus.testing.chaos import ChaosServer, NonceTokenizer, survivable
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy
from focus.tokens import Generation

from .loopback import Answer, Ask, ByteTokenizer, FakeEngine, Loopback

pytestmark = pytest.mark.anyio

PREFIX = tuple(b"user: Walk.\nassistant: ")
ASKS = [
    Continuation(Sampling(max_tokens=2 + n, seed=n), RequestTag(f"run/{n}/0/1", "run"))
    for n in range(3)
]


class ListEngine(FakeEngine):
    """Also answers bodies whose fields are lists."""

    def __init__(self, spoil: Any = lambda bodies: bodies) -> None:
        super().__init__(ScriptedPolicy(walk_script(6)))
        self.bodies: list[Mapping[str, Any]] = []
        self.aborted: list[str] = []
        self._spoil = spoil

    async def __call__(self, ask: Ask) -> Answer | bytes | None:
        if ask.path == "/abort_request":
            self.aborted.append(ask.json["rid"])
            return Answer(status=200)
        if ask.path != "/generate" or not isinstance(ask.json["rid"], list):
            return await super().__call__(ask)
        asked = ask.json
        self.bodies.append(asked)
        found = self._spoil(
            [
                await self.reply({"rid": rid, "input_ids": ids, "sampling_params": params})
                for rid, ids, params in zip(
                    asked["rid"], asked["input_ids"], asked["sampling_params"], strict=True
                )
            ]
        )
        return found if isinstance(found, Answer) else Answer.of(found)


def policy_at(url: str) -> SGLangPolicy:
    return SGLangPolicy(url, tokenizer=ByteTokenizer(), together=True)


async def test_each_continuation_is_what_it_would_be_alone() -> None:
    engine = ListEngine()
    async with Loopback(engine) as server, policy_at(server.url) as policy:
        together = await policy.generate_group(PREFIX, ASKS)
        alone = [await policy.generate(PREFIX, ask.sampling, tag=ask.tag) for ask in ASKS]
    assert list(together) == alone
    (body,) = engine.bodies
    assert len(set(body["rid"])) == 3
    assert body["input_ids"] == [list(PREFIX)] * 3
    assert [params["sampling_seed"] for params in body["sampling_params"]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("spoil", "kinds"),
    [
        (lambda bodies: [{}, *bodies[1:]], [CorruptReply, Generation, Generation]),
        (
            lambda bodies: [bodies[1], bodies[0], bodies[2]],
            [CorruptReply, CorruptReply, Generation],
        ),
        (
            lambda bodies: [*bodies[:2], {"error": {"code": 503}}],
            [Generation, Generation, TransientError],
        ),
    ],
)
async def test_a_bad_reply_concerns_its_own_ask(spoil: Any, kinds: list[type]) -> None:
    async with Loopback(ListEngine(spoil)) as server, policy_at(server.url) as policy:
        found = await policy.generate_group(PREFIX, ASKS)
    assert [type(one) for one in found] == kinds


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda bodies: bodies[:2], CorruptReply),
        (lambda bodies: bodies[0], CorruptReply),
        (lambda bodies: {"error": {"code": 503, "message": "full"}}, TransientError),
        (lambda bodies: Answer(b"no lists here", status=422), Refused),
    ],
)
async def test_a_body_that_is_no_list_of_them_concerns_all(
    spoil: Any, kind: type[RequestError]
) -> None:
    async with Loopback(ListEngine(spoil)) as server, policy_at(server.url) as policy:
        with pytest.raises(kind):
            await policy.generate_group(PREFIX, ASKS)


async def test_cancelling_aborts_every_continuation() -> None:
    engine, arrived = ListEngine(), asyncio.Event()

    async def never(ask: Ask) -> Answer | bytes | None:
        if ask.path == "/generate":
            engine.bodies.append(ask.json)
            arrived.set()
            await asyncio.Event().wait()
        return await engine(ask)

    async with Loopback(never) as server, policy_at(server.url) as policy:
        task = asyncio.create_task(policy.generate_group(PREFIX, ASKS))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sorted(engine.aborted) == sorted(engine.bodies[0]["rid"])


@pytest.mark.parametrize("seed", range(4))
async def test_under_faults_every_edge_is_a_reply_that_was_sampled_for_it(seed: int) -> None:
    search = Search(
        [Phase(FixedWidth((3, 3, 2)), attempts=30, extent=Edges(1), siblings=3)], concurrency=6
    )
    async with ChaosServer(survivable(seed)) as server:
        policy = SGLangPolicy(server.url, tokenizer=NonceTokenizer(), together=True)
        agent = Agent(
            policy,
            parser=Segments(5),
            allowance=Allowance(tokens=25),
            execution=Execution(
                services=ExecutionServices(AdmissionPool(4)),
                retry=RetryPolicy(attempts=12, corrupt_attempts=4, base_s=0.0),
                deadline_s=60.0,
            ),
        )
        collector = Collector(agent=agent, env=WalkEnv(), search=search, own=False)
        async with policy, collector:
            found = await collector.collect(Problem(id=seed, prompt="Walk."))
        sampled = {entry.rid.partition("~")[0]: entry.sample for entry in server.ledger.entries}
    for node in found.tree.edges():
        edge = node.incoming
        truth = sampled[edge.provenance.request_id]
        assert (edge.ids, edge.log_probs) == (truth.ids, truth.log_probs)
    ledger = found.ledger
    assert ledger.balances
    assert ledger.requests_accepted == len(found.tree) - 1
    assert ledger.requests_failed > 0
    assert ledger.policy_calls < ledger.requests_sent
