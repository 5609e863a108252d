"""Make the n-th call of environment, policy or critic fail, for every n there is."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from focus import (
    AdmissionPool,
    Agent,
    Allowance,
    Collection,
    Collector,
    Execution,
    ExecutionServices,
    Fifo,
    Phase,
    Problem,
    RetryPolicy,
    Sampling,
    Search,
    Segments,
)
from focus.errors import CollectionFailed, FocusError
from focus.testing.envs import LiveEnv, walk_script
from focus.testing.fuses import Fuse, FusedEnv, FusedGate, FusedPolicy, causes, fused_critic
from focus.testing.policies import ScriptedPolicy

PROBLEM = Problem(id="walk", prompt="Walk.")


GROWN = pytest.mark.parametrize("grow", [Search.two_phase, Search.cascade])


def attempt(
    part: str, fuse: Fuse, *, allow_partial: bool, grow: Callable[..., Search] = Search.two_phase
) -> Collection | BaseException:
    """A collection, or what it raised; nothing is left open in either case."""
    unlit = Fuse(0, RuntimeError)
    env = FusedEnv(fuse if part == "env" else unlit)
    services = ExecutionServices(AdmissionPool(2))

    async def main() -> Collection:
        agent = Agent(
            FusedPolicy(fuse if part == "policy" else unlit, fuse if part == "decode" else unlit),
            parser=Segments(3),
            sampling=Sampling(seed=7),
            allowance=Allowance(tokens=7),
            execution=Execution(services=services, retry=RetryPolicy(base_s=0.0)),
        )
        collector = Collector(
            agent=agent,
            env=env,
            search=grow(tokens=30, concurrency=3),
            critic=fused_critic(fuse if part == "critic" else unlit),
        )
        async with collector:
            try:
                return await collector.collect(PROBLEM, allow_partial=allow_partial)
            finally:
                (alone,) = asyncio.all_tasks()
                assert alone is asyncio.current_task()

    try:
        result: Collection | BaseException = asyncio.run(main())
    except Exception as error:
        result = error
    assert env.opened == env.released
    pool = services.pool.statistics
    assert (pool.in_use, pool.waiting) == (0, 0)
    return result


@GROWN
@pytest.mark.parametrize("part", ["env", "policy", "decode", "critic"])
def test_the_nth_fault_is_named_kept_as_the_cause_and_leaves_nothing_open(
    part: str, grow: Callable[..., Search]
) -> None:
    for n in range(1, 1000):
        fuse = Fuse(n, lambda: RuntimeError("blown"))
        result = attempt(part, fuse, allow_partial=False, grow=grow)
        if not fuse.blown:
            assert isinstance(result, Collection)
            assert result.ledger.balances
            break
        assert isinstance(result, FocusError) or result is fuse.error, repr(result)
        assert fuse.error in causes(result), f"call {n}: {result!r} hides its cause"
    assert n > 4


@GROWN
@pytest.mark.parametrize("part", ["env", "policy", "decode", "critic"])
def test_a_partial_tree_closes_its_books_whatever_failed(
    part: str, grow: Callable[..., Search]
) -> None:
    kept = 0
    for n in range(1, 1000):
        fuse = Fuse(n, lambda: RuntimeError("blown"))
        result = attempt(part, fuse, allow_partial=True, grow=grow)
        if not fuse.blown:
            break
        if not isinstance(result, Collection):
            assert fuse.error in causes(result)
            continue
        kept += 1
        assert len(result.failures) == 1
        assert "blown" in result.failures[0].message
        assert result.ledger.balances
        assert result.ledger.tokens_generated == (
            result.tree.sampled_tokens() + result.ledger.tokens_wasted
        )
    assert kept > 2


def test_a_release_that_fails_is_a_failure_of_the_collection() -> None:
    class Stuck(LiveEnv):
        async def release(self, state: Any) -> None:
            await super().release(state)
            raise OSError("stuck")

    def collector() -> Collector:
        agent = Agent(
            ScriptedPolicy(walk_script(7)), parser=Segments(3), allowance=Allowance(tokens=7)
        )
        return Collector(agent=agent, env=Stuck(), search=Search.flat(3))

    async def main(allow_partial: bool) -> Collection:
        async with collector() as opened:
            return await opened.collect(PROBLEM, allow_partial=allow_partial)

    found = asyncio.run(main(True))
    assert [(f.stage, f.kind) for f in found.failures] == [("release", "EnvError")]
    assert len(found.tree.terminals()) == 3
    with pytest.raises(CollectionFailed, match="stuck"):
        asyncio.run(main(False))


@pytest.mark.parametrize("part", ["env", "policy", "critic"])
def test_a_stray_cancellation_hangs_nobody(part: str) -> None:
    for n in range(1, 1000):
        fuse = Fuse(n, asyncio.CancelledError)
        result = attempt(part, fuse, allow_partial=True)
        if not fuse.blown:
            break
        assert isinstance(result, Collection | FocusError), repr(result)
    assert n > 4


def test_an_error_of_the_search_comes_out_as_itself_and_leaves_nothing_open() -> None:
    for n in range(1, 1000):
        fuse, env = Fuse(n, lambda: RuntimeError("blown")), LiveEnv()
        agent = Agent(
            ScriptedPolicy(walk_script(7)), parser=Segments(3), allowance=Allowance(tokens=7)
        )
        search = Search((Phase(Fifo(), tokens=30, gate=FusedGate(fuse)),), concurrency=3)
        collector = Collector(agent=agent, env=env, search=search)

        async def main(collector: Collector = collector) -> BaseException | None:
            async with collector:
                try:
                    await collector.collect(PROBLEM, allow_partial=True)
                except RuntimeError as error:
                    return error
            return None

        assert asyncio.run(main()) is (fuse.error if fuse.blown else None)
        assert env.opened == env.released > 0
        if not fuse.blown:
            break
    assert n > 5


class Flipping(ScriptedPolicy):
    """Its weights change just before it answers the n-th request."""

    def __init__(self, n: int) -> None:
        super().__init__(walk_script(7))
        self._n = n

    async def generate(self, *args: Any, **options: Any) -> Any:
        if self.requests + 1 == self._n:
            self.version = "other weights"
        return await super().generate(*args, **options)


def test_weights_that_change_at_any_request_of_a_tree_are_found_out() -> None:
    for n in range(1, 1000):
        policy = Flipping(n)
        agent = Agent(policy, parser=Segments(3), allowance=Allowance(tokens=7))
        search = Search.two_phase(tokens=30, concurrency=3)

        async def main(
            agent: Agent = agent, search: Search = search
        ) -> Collection | CollectionFailed:
            async with Collector(agent=agent, env=LiveEnv(), search=search) as collector:
                try:
                    return await collector.collect(PROBLEM, allow_partial=True)
                except CollectionFailed as error:
                    return error

        found = asyncio.run(main())
        if isinstance(found, CollectionFailed):
            assert found.failures[0].kind == "FatalError"
            assert "other weights" in str(found)
            continue
        assert {e.incoming.provenance.policy_version for e in found.tree.edges()} == {"scripted"}
        assert policy.requests < n
        break
    assert n > 10
