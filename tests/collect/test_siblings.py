"""Siblings that share a call of the policy: the same trees, exact books, faults of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from focus import (
    AdmissionPool,
    Agent,
    Allowance,
    Collection,
    Collector,
    Concurrency,
    Critic,
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
    ValueRefinement,
    save_tree,
)
from focus.agent.journal import Journal
from focus.errors import (
    CollectionFailed,
    CorruptReply,
    FatalError,
    RequestError,
    TransientError,
)
from focus.policies.base import Ask, Policy, RequestTag
from focus.records.records import CriticContext
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import Grouped, ScriptedPolicy, Shuffled, Wrapper
from focus.tokens import Generation, TokenIds

pytestmark = pytest.mark.anyio

PROBLEM = Problem(id="walk", prompt="Walk.", label="secret")
STEPS = 12
FIXED = Search(
    [Phase(FixedWidth((3, 3, 2)), attempts=3 + 9 + 18, extent=Edges(1), siblings=3)],
    concurrency=6,
)
SEARCHES = {
    "default": Search.two_phase(tokens=400),
    "siblings": Search.two_phase(tokens=400, siblings=3),
    "hard": Search.two_phase(tokens=400, siblings=2, cap="hard"),
    "flat": Search.flat(6),
    "fixed": FIXED,
    "cascade": Search.cascade(tokens=400),
}


class Steady(Wrapper):
    """Gives every try of a request the same reply, so that retries change no token."""

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        assert tag is not None
        first = RequestTag(tag.request.rpartition("/")[0] + "/1", tag.tree)
        return await self.inner.generate(prefix, sampling, tag=first)


def scripted() -> Policy:
    return Steady(ScriptedPolicy(walk_script(STEPS)))


async def collected(
    policy: Policy,
    search: Search,
    *,
    capacity: int = 8,
    deadline_s: float = 60.0,
    allow_partial: bool = False,
    journal: Journal | None = None,
    critic: Critic | None = None,
) -> Collection:
    agent = Agent(
        policy,
        parser=Segments(3),
        sampling=Sampling(seed=7),
        allowance=Allowance(tokens=STEPS + 1),
        execution=Execution(
            services=ExecutionServices(AdmissionPool(capacity)),
            retry=RetryPolicy(base_s=0.0),
            deadline_s=deadline_s,
        ),
        journal=journal,
    )
    collector = Collector(
        agent=agent,
        env=WalkEnv(),
        search=search,
        critic=critic or Critic.constant(0.5),
        own=False,
    )
    async with collector:
        return await collector.collect(PROBLEM, allow_partial=allow_partial)


def as_bytes(collection: Collection, folder: Path) -> bytes:
    save_tree(collection.tree, folder / "tree.json", credit=collection.credit)
    return (folder / "tree.json").read_bytes()


def tokens(collection: Collection) -> list[tuple[int, ...]]:
    return [node.incoming.ids for node in collection.tree.edges()]


# The same tree


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
async def test_sharing_a_call_changes_no_byte(search: Search, tmp_path: Path) -> None:
    alone = await collected(scripted(), search)
    together = await collected(Grouped(scripted()), search)
    assert as_bytes(together, tmp_path) == as_bytes(alone, tmp_path)
    assert together.actor == alone.actor
    assert together.ledger.policy_calls < alone.ledger.policy_calls == alone.ledger.requests_sent
    assert together.ledger.requests_sent == alone.ledger.requests_sent


@pytest.mark.parametrize("capacity", [1, 2, 64])
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
async def test_neither_timing_nor_capacity_does(
    search: Search, capacity: int, tmp_path: Path
) -> None:
    plain = as_bytes(await collected(Grouped(scripted()), search), tmp_path)
    for seed in (1, 2):
        shuffled = Shuffled(scripted(), seed=seed)
        for policy in (Grouped(shuffled), shuffled):
            found = await collected(policy, search, capacity=capacity)
            assert as_bytes(found, tmp_path) == plain


async def test_a_fixed_tree_takes_one_call_per_checkpoint() -> None:
    policy = Grouped(scripted())
    found = await collected(policy, FIXED)
    assert found.ledger.ratios()["eta_req"] == 1.0
    assert found.ledger.policy_calls == len(policy.calls) == found.ledger.requests_needed
    assert sum(policy.calls) == found.ledger.requests_sent == len(found.tree) - 1


@pytest.mark.parametrize("valued", [True, False])
async def test_a_cascade_takes_one_call_per_checkpoint_and_one_more_per_new_start(
    valued: bool,
) -> None:
    critic = Critic.function(_by_length, version="length/1") if valued else Critic.constant(0.5)
    found = await collected(Grouped(scripted()), Search.cascade(tokens=400), critic=critic)
    wide = [node.id for node in found.tree if len(found.tree.children(node.id)) > 1]
    assert len(wide) > 1
    starts = _runs([selection.node == 0 for selection in found.tree.selections])
    assert found.ledger.policy_calls <= found.ledger.requests_needed + starts - 1
    assert found.ledger.expansions_started == len(found.tree.selections)
    assert found.ledger.expansions_started == found.ledger.expansions_completed
    assert found.ledger.balances


async def _by_length(contexts: Sequence[CriticContext]) -> list[float]:
    return [0.1 + 0.8 * (len(context.text) * 37 % 100) / 100 for context in contexts]


def _runs(at_the_root: Sequence[bool]) -> int:
    return sum(
        now and not before for before, now in zip([False, *at_the_root], at_the_root, strict=False)
    )


async def test_rollouts_that_wait_are_those_that_do_not() -> None:
    """Same names, same seeds, so the same ids: waiting changes time and where branches may grow."""
    gate = Concurrency(6)
    refine = ValueRefinement(gain="preposterior")
    waiting = Search([Phase(refine, attempts=6, gate=gate, lockstep=True)], concurrency=18)
    found, flat = [
        await collected(Grouped(scripted()), search) for search in (waiting, Search.flat(6))
    ]
    assert _rollouts(found) == _rollouts(flat)
    assert found.opening_outcomes == found.root_outcomes
    assert sorted(found.root_outcomes) == sorted(flat.root_outcomes)
    assert sorted(t.value for t in found.credit.targets.values()) == sorted(
        t.value for t in flat.credit.targets.values()
    )


def _rollouts(collection: Collection) -> dict[tuple[int, int], tuple[int, ...]]:
    return {
        (edge.provenance.expansion, edge.provenance.index): edge.ids
        for edge in (node.incoming for node in collection.tree.edges())
    }


async def test_a_permit_is_held_per_call() -> None:
    services = AdmissionPool(1)
    execution = Execution(services=ExecutionServices(services))
    agent = Agent(
        Grouped(scripted()),
        parser=Segments(3),
        sampling=Sampling(seed=7),
        allowance=Allowance(tokens=STEPS + 1),
        execution=execution,
    )
    async with Collector(agent=agent, env=WalkEnv(), search=FIXED, own=False) as collector:
        await collector.collect(PROBLEM)
    assert services.statistics.peak == 1
    assert services.statistics.in_use == services.statistics.waiting == 0


# Faults


class Troubled(Grouped):
    """Shared calls whose answers a function spoils; lone calls are honest."""

    def __init__(self, spoil: Callable[[list[Any]], Any]) -> None:
        super().__init__(scripted())
        self._spoil = spoil

    async def generate_group(
        self, prefix: TokenIds, asks: Sequence[Ask]
    ) -> Sequence[Generation | RequestError]:
        answers = list(await super().generate_group(prefix, asks))
        found: Sequence[Generation | RequestError] = self._spoil(answers)
        return found


def _first_fails(answers: list[Any]) -> list[Any]:
    return [TransientError("no room"), *answers[1:]]


def _last_is_no_reply(answers: list[Any]) -> list[Any]:
    return [*answers[:-1], None]


def _all_fail(answers: list[Any]) -> list[Any]:
    raise ConnectionResetError("gone")


def _one_is_missing(answers: list[Any]) -> list[Any]:
    return answers[1:]


def _one_is_cut(answers: list[Any]) -> list[Any]:
    first = answers[0]
    spoiled = Generation(
        first.ids, first.log_probs[:-1], first.finish, first.version, first.request_id
    )
    return [spoiled, *answers[1:]]


@pytest.mark.parametrize(
    ("spoil", "struck", "kind"),
    [
        (_first_fails, 1, TransientError),
        (_last_is_no_reply, 1, CorruptReply),
        (_one_is_cut, 1, CorruptReply),
        (_all_fail, 3, TransientError),
        (_one_is_missing, 3, CorruptReply),
    ],
)
async def test_whoever_got_no_reply_asks_again_alone(
    spoil: Callable[[list[Any]], Any], struck: int, kind: type[RequestError]
) -> None:
    honest = await collected(Grouped(scripted()), FIXED)
    policy = Troubled(spoil)
    found = await collected(policy, FIXED)
    assert tokens(found) == tokens(honest)
    shared = [size for size in policy.calls if size > 1]
    lone = [size for size in policy.calls if size == 1]
    failed = sum(min(struck, size) if struck == 1 else size for size in shared)
    assert found.ledger.requests_failed == len(lone) == failed
    assert found.ledger.requests_sent == sum(shared) + len(lone)
    assert found.ledger.policy_calls == len(policy.calls)
    assert found.ledger.balances
    spoiled = struck == 1 and kind is CorruptReply and spoil is _one_is_cut
    assert (found.ledger.tokens_wasted > 0) is spoiled
    tries = [node.incoming.provenance.tries for node in found.tree.edges()]
    assert sorted(set(tries)) == ([1, 2] if failed < sum(shared) else [2])


async def test_a_fatal_answer_ends_the_tree_with_closed_books() -> None:
    def fatal(answers: list[Any]) -> list[Any]:
        return [*answers[:-1], FatalError("other weights")]

    with pytest.raises(CollectionFailed) as caught:
        await collected(Troubled(fatal), FIXED)
    assert isinstance(caught.value.__cause__, FatalError)


async def test_a_call_past_its_deadline_is_late_for_everyone() -> None:
    class Hanging(Grouped):
        async def generate_group(
            self, prefix: TokenIds, asks: Sequence[Ask]
        ) -> Sequence[Generation | RequestError]:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")

    honest = await collected(Grouped(scripted()), FIXED)
    found = await collected(Hanging(scripted()), FIXED, deadline_s=0.02)
    assert tokens(found) == tokens(honest)
    assert found.ledger.requests_late == found.ledger.requests_accepted
    assert found.ledger.balances


@pytest.mark.parametrize("turns", range(12))
async def test_cancelling_leaves_no_permit_behind(turns: int) -> None:
    pool = AdmissionPool(1)
    agent = Agent(
        Grouped(Shuffled(scripted(), seed=turns)),
        parser=Segments(3),
        allowance=Allowance(tokens=STEPS + 1),
        execution=Execution(services=ExecutionServices(pool)),
    )
    async with Collector(agent=agent, env=WalkEnv(), search=FIXED, own=False) as collector:
        task = asyncio.ensure_future(collector.collect(PROBLEM))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert pool.statistics.in_use == pool.statistics.waiting == 0


@pytest.mark.parametrize("name", ["fixed", "cascade"])
async def test_a_journal_answers_for_some_and_the_rest_ask(name: str, tmp_path: Path) -> None:
    search = SEARCHES[name]
    honest = await collected(Grouped(scripted()), search)

    class Stopping(Grouped):
        """Ends the tree once a few shared calls were answered."""

        async def generate_group(
            self, prefix: TokenIds, asks: Sequence[Ask]
        ) -> Sequence[Generation | RequestError]:
            if len(self.calls) < 3:
                return await super().generate_group(prefix, asks)
            first, *_ = await super().generate_group(prefix, asks)
            return [first, *(FatalError("stopped") for _ in asks[1:])]

    with pytest.raises(CollectionFailed):
        await collected(Stopping(scripted()), search, journal=Journal(tmp_path))
    policy = Grouped(scripted())
    found = await collected(policy, search, journal=Journal(tmp_path))
    assert tokens(found) == tokens(honest)
    assert sum(policy.calls) < honest.ledger.requests_sent
    assert found.ledger.balances
