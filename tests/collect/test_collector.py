"""One problem in, one exact tree out: order, books, failures, ownership."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from focus import (
    AdmissionPool,
    Agent,
    Allowance,
    Collection,
    Collector,
    Critic,
    DirectBranchTd,
    Execution,
    ExecutionServices,
    Phase,
    Problem,
    RetryPolicy,
    Returns,
    Sampling,
    Search,
    Segments,
    ValueRefinement,
    save_tree,
)
from focus.errors import (
    CollectionFailed,
    ConfigError,
    CriticError,
    EnvError,
    LifecycleError,
    ProblemError,
    TransientError,
)
from focus.policies.base import Policy
from focus.records.codec import encode_actor, encode_critic
from focus.records.records import CriticContext
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import RecordedPolicy, RecordingPolicy, ScriptedPolicy, Shuffled

pytestmark = pytest.mark.anyio

PROBLEM = Problem(id="walk", prompt="Walk.", label="secret")
STEPS = 12


async def by_height(contexts: Sequence[CriticContext]) -> list[float]:
    heights = [c.text.count("+") - c.text.count("-") for c in contexts]
    return [min(0.95, max(0.05, 0.5 + 0.1 * height)) for height in heights]


def make_collector(
    policy: Policy | None = None,
    *,
    env: Any = None,
    critic: Critic | None = None,
    execution: Execution | None = None,
    search: Search | None = None,
    allowance: int = STEPS + 1,
    **options: Any,
) -> Collector:
    agent = Agent(
        policy or ScriptedPolicy(walk_script(STEPS)),
        parser=Segments(3),
        sampling=Sampling(seed=7),
        allowance=Allowance(tokens=allowance),
        execution=execution or Execution(retry=RetryPolicy(base_s=0.0)),
    )
    return Collector(
        agent=agent,
        env=env or WalkEnv(),
        search=search or Search.two_phase(tokens=400, concurrency=4),
        critic=critic or Critic.function(by_height, version="height/1"),
        **options,
    )


async def collected(collector: Collector, **options: Any) -> Collection:
    async with collector:
        return await collector.collect(PROBLEM, **options)


def as_bytes(collection: Collection, folder: Path) -> tuple[bytes, str]:
    save_tree(collection.tree, folder / "tree.json", credit=collection.credit)
    records = (
        [encode_actor(r) for r in collection.actor],
        [encode_critic(r) for r in collection.critic],
    )
    return (folder / "tree.json").read_bytes(), repr(records)


async def test_a_tree_is_grown_credited_and_exported() -> None:
    found = await collected(make_collector())
    assert len(found.tree.terminals()) > 5
    assert {record.nodes for record in found.actor} == {(node,) for node in found.credit.advantages}
    assert {record.node for record in found.critic} == set(found.credit.targets)
    assert found.ledger.balances
    assert found.ledger.tokens_generated == found.tree.sampled_tokens()
    least = Search.two_phase(tokens=400).phases[0].budget.least
    assert 400 - 2 * least < found.ledger.tokens_generated <= 400 + 2 * 4 * (STEPS + 1)


@pytest.mark.parametrize("capacity", [1, 8, 64])
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_timing_never_changes_a_byte(capacity: int, seed: int, tmp_path: Path) -> None:
    plain = as_bytes(await collected(make_collector()), tmp_path)
    policy = Shuffled(ScriptedPolicy(walk_script(STEPS)), seed=seed)
    services = ExecutionServices(AdmissionPool(capacity))
    shuffled = await collected(make_collector(policy, execution=Execution(services=services)))
    assert as_bytes(shuffled, tmp_path) == plain


async def test_recorded_replies_give_the_same_bytes(tmp_path: Path) -> None:
    recording = RecordingPolicy(ScriptedPolicy(walk_script(STEPS)))
    first = as_bytes(await collected(make_collector(recording)), tmp_path)
    recording.save(tmp_path / "replies.json")

    def silent(*_: object) -> str:
        raise AssertionError("a recorded policy never asks its inner policy to generate")

    recorded = RecordedPolicy.load(ScriptedPolicy(silent), tmp_path / "replies.json")
    again = await collected(make_collector(Shuffled(recorded, seed=5)))
    assert as_bytes(again, tmp_path) == first


@pytest.mark.parametrize(
    "search", [Search.two_phase(tokens=200), Search.cascade(tokens=200), Search.flat(6)]
)
async def test_a_tree_goes_with_its_last_reader_without_the_garbage_collector(
    search: Search,
) -> None:
    gc.collect()
    gc.disable()
    try:
        found = await collected(make_collector(search=search))
        tree = weakref.ref(found.tree)
        del found
        assert tree() is None
    finally:
        gc.enable()


async def test_children_extend_their_parents_exactly() -> None:
    tree = (await collected(make_collector())).tree
    for node in tree.edges():
        assert node.parent is not None
        parent = tree[node.parent].payload
        assert node.payload.context.ids() == parent.context.ids() + node.incoming.ids
        assert node.payload.context.ids() == tree.context(node.id)
        left, before = node.payload.allowance.tokens, parent.allowance.tokens
        assert left is not None
        assert before is not None
        assert left == before - len(node.incoming.ids)


class Doubtful(ScriptedPolicy):
    """Every fourth reply carries a log-prob too few, after its tokens were generated."""

    async def generate(self, *args: Any, **options: Any) -> Any:
        spoiled = self.requests % 4 == 3
        reply = await super().generate(*args, **options)
        return replace(reply, log_probs=reply.log_probs[1:]) if spoiled else reply


async def test_a_hard_cap_counts_refused_replies_too() -> None:
    search = Search.two_phase(tokens=200, concurrency=4, cap="hard")
    for policy in (ScriptedPolicy(walk_script(STEPS)), Doubtful(walk_script(STEPS))):
        execution = Execution(retry=RetryPolicy(base_s=0.0, corrupt_attempts=5))
        found = await collected(make_collector(policy, search=search, execution=execution))
        one_segment_per_active_request = 3 * 4
        assert 0 < found.ledger.tokens_generated <= 200 + one_segment_per_active_request
        assert found.ledger.tokens_wasted == found.ledger.tokens_generated - (
            found.tree.sampled_tokens()
        )
        assert sum(phase.tokens for phase in found.phases) == found.ledger.tokens_generated
        assert found.ledger.balances


async def test_the_label_is_nowhere_in_what_the_critic_reads() -> None:
    found = await collected(make_collector())
    assert all("secret" not in record.context.text for record in found.critic)


async def test_a_full_allowance_asks_the_env_and_is_truncated() -> None:
    env = WalkEnv()
    found = await collected(make_collector(env=env, allowance=9))
    leaves = [found.tree[node] for node in found.tree.terminals()]
    assert leaves
    assert all(leaf.is_truncated for leaf in leaves)
    assert env.finishes == ["allowance"] * len(leaves)
    assert all(leaf.id in found.credit.advantages for leaf in leaves)


async def test_a_full_context_asks_the_env_and_is_truncated() -> None:
    env = WalkEnv()
    prompt = len(ScriptedPolicy(walk_script()).render(PROBLEM.messages))
    policy = ScriptedPolicy(walk_script(STEPS), context_limit=prompt + 5)
    found = await collected(make_collector(policy, env=env))
    assert set(env.finishes) == {"context"}
    assert all(len(found.tree.context(n.id)) <= prompt + 5 for n in found.tree)


class FailsAt(ScriptedPolicy):
    """Raises on chosen requests, by running number."""

    def __init__(self, *numbers: int, error: Exception) -> None:
        super().__init__(walk_script(STEPS))
        self._numbers = set(numbers)
        self._error = error

    async def generate(self, *args: Any, **options: Any) -> Any:
        fails = self.requests + 1 in self._numbers
        reply = await super().generate(*args, **options)
        if fails:
            raise self._error
        return reply


async def test_a_failed_expansion_raises_and_nothing_stays_behind() -> None:
    boom, before = KeyError("boom"), asyncio.all_tasks()
    with pytest.raises(CollectionFailed) as caught:
        await collected(make_collector(FailsAt(9, error=boom)))
    cause = caught.value.__cause__
    assert cause is not None
    assert cause.__cause__ is boom
    assert caught.value.failures[0].stage == "expansion"
    assert asyncio.all_tasks() == before


async def test_the_error_of_a_request_names_problem_node_and_try() -> None:
    with pytest.raises(CollectionFailed) as caught:
        await collected(make_collector(FailsAt(9, error=KeyError("boom"))))
    said = caught.value.failures[0].message
    for part in ("problem='walk'", "node=", "request=", "attempts=1", "elapsed_s="):
        assert part in said


async def test_what_is_no_request_names_its_expansion_and_node_too() -> None:
    with pytest.raises(CollectionFailed) as caught:
        await collected(make_collector(env=FailsIn("step")))
    assert caught.value.failures  # of those that failed in the same turn of the loop, each
    for failure in caught.value.failures:
        assert failure.kind == "EnvError"
        assert failure.message.endswith(f"expansion={failure.expansion}, node={failure.node}]")


async def test_a_failed_collection_keeps_its_books_and_what_stands() -> None:
    with pytest.raises(CollectionFailed) as caught:
        await collected(make_collector(FailsAt(30, error=KeyError("boom"))))
    found = caught.value.collection
    assert found.ledger.balances
    assert found.ledger.expansions_failed == 1
    assert found.failures == caught.value.failures
    assert len(found.tree) > 1


async def test_partial_trees_keep_good_edges_and_count_the_failure() -> None:
    found = await collected(make_collector(FailsAt(9, error=KeyError("boom"))), allow_partial=True)
    assert [failure.kind for failure in found.failures] == ["Refused"]
    assert found.ledger.expansions_failed == 1
    assert found.ledger.balances


async def test_transient_faults_are_retried_under_the_same_identity() -> None:
    policy = FailsAt(3, 7, error=TransientError("busy"))
    found = await collected(make_collector(policy))
    assert found.ledger.requests_failed == 2
    assert {n.incoming.provenance.tries for n in found.tree.edges()} == {1, 2}
    assert found.ledger.balances


class FailsIn(WalkEnv):
    """Raises in one method."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method

    async def reset(self, problem: Problem) -> Any:
        self._raise("reset")
        return await super().reset(problem)

    async def step(self, *args: Any) -> Any:
        self._raise("step")
        return await super().step(*args)

    async def finish(self, *args: Any) -> Any:
        self._raise("finish")
        return await super().finish(*args)

    def _raise(self, method: str) -> None:
        if method == self._method:
            raise RuntimeError(f"bad {method}")


@pytest.mark.parametrize("method", ["reset", "step", "finish"])
async def test_the_environments_own_error_is_the_cause(method: str) -> None:
    collector = make_collector(env=FailsIn(method), allowance=9)
    with pytest.raises((EnvError, CollectionFailed)) as caught:
        await collected(collector)
    error: BaseException = caught.value
    chain = [error]
    while error.__cause__ is not None:
        error = error.__cause__
        chain.append(error)
    assert str(error) == f"bad {method}"
    assert any(isinstance(link, EnvError) for link in chain)


@pytest.mark.parametrize("reward", [None, float("nan"), float("inf"), "1"])
async def test_an_unusable_reward_is_an_error_and_not_zero(reward: Any) -> None:
    class Odd(WalkEnv):
        async def finish(self, *args: Any) -> Any:
            return reward

    if reward == "1":
        assert len((await collected(make_collector(env=Odd(), allowance=9))).tree) > 1
        return
    with pytest.raises(CollectionFailed, match="reward"):
        await collected(make_collector(env=Odd(), allowance=9))


@pytest.mark.parametrize("value", [float("nan"), 1.2, -0.1, None])
async def test_a_bad_critic_is_named_before_a_token_is_spent(value: Any) -> None:
    async def predict(contexts: Sequence[CriticContext]) -> Any:
        return [value] * len(contexts)

    policy = ScriptedPolicy(walk_script(STEPS))
    critic = Critic.function(predict, version="odd/3")
    with pytest.raises(CriticError, match="odd/3"):
        await collected(make_collector(policy, critic=critic))
    assert policy.requests == 0


async def test_a_wrong_number_of_predictions_is_an_error() -> None:
    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        return [0.5] * (len(contexts) + 1)

    with pytest.raises(CriticError, match="short/1"):
        await collected(make_collector(critic=Critic.function(predict, version="short/1")))


async def test_a_late_prediction_failure_is_a_failure_of_the_collection() -> None:
    calls = 0

    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("critic gone")
        return [0.5] * len(contexts)

    with pytest.raises(CollectionFailed) as caught:
        await collected(make_collector(critic=Critic.function(predict, version="c")))
    assert caught.value.failures[0].stage == "prediction"


async def test_a_partial_tree_with_an_unvalued_checkpoint_is_still_credited() -> None:
    calls = 0

    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("critic gone")
        return [0.5] * len(contexts)

    critic = Critic.function(predict, version="c")
    found = await collected(make_collector(critic=critic), allow_partial=True)
    unvalued = {n.id for n in found.tree if n.value is None and not n.is_terminal}
    assert unvalued
    assert not unvalued & set(found.credit.targets)
    assert found.credit.advantages
    assert [failure.stage for failure in found.failures] == ["prediction"]


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0.7), Sampling(top_p=0.9), Sampling(top_k=5)]
)
async def test_a_law_other_than_the_trainers_is_refused(sampling: Sampling) -> None:
    policy = ScriptedPolicy(walk_script())
    agent = Agent(policy, parser=Segments(3), sampling=sampling, allowance=Allowance(tokens=9))
    collector = Collector(agent=agent, env=WalkEnv(), search=Search.two_phase(tokens=100))
    with pytest.raises(ConfigError, match="trainer"):
        await collected(collector)
    assert policy.requests == 0


async def test_a_prompt_that_fills_the_context_is_refused() -> None:
    policy = ScriptedPolicy(walk_script(), context_limit=5)
    with pytest.raises(ProblemError, match="fills the context"):
        await collected(make_collector(policy))
    assert policy.requests == 0


def test_an_allowance_below_one_segment_is_refused() -> None:
    with pytest.raises(ConfigError, match="smaller than one segment"):
        make_collector(allowance=2)


def test_parts_that_name_another_prior_strength_are_refused() -> None:
    search = Search(phases=(Phase(allocator=ValueRefinement(prior_strength=2.0), tokens=10),))
    with pytest.raises(ConfigError, match="prior_strength"):
        make_collector(search=search, credit=DirectBranchTd(prior_strength=1.0))
    with pytest.raises(ConfigError, match="prior_strength"):
        make_collector(credit=DirectBranchTd(prior_strength=1.0), returns=Returns(prior_strength=3))


async def test_a_collector_is_used_once_and_inside_async_with() -> None:
    collector = make_collector()
    with pytest.raises(LifecycleError):
        await collector.collect(PROBLEM)
    await collected(collector)
    with pytest.raises(LifecycleError):
        await collected(collector)


async def test_concurrent_owners_share_a_critic_and_both_finish() -> None:
    critic = Critic.function(by_height, version="height/1")
    first, second = make_collector(critic=critic), make_collector(critic=critic)
    found: list[Collection] = []

    async def run(collector: Collector) -> None:
        found.append(await collected(collector))

    async with asyncio.TaskGroup() as group:
        group.create_task(run(first))
        group.create_task(run(second))
    assert len(found[0].tree) == len(found[1].tree)


async def test_shared_services_outlive_collectors_that_borrow_them() -> None:
    services = ExecutionServices(pool=AdmissionPool(capacity=8))
    for own in (False, True):
        execution = Execution(services=services)
        await collected(make_collector(execution=execution, own=own))
    assert services.pool.statistics.in_use == 0
    assert services.pool.statistics.peak <= 8
    async with services.pool.permit():
        pass


async def test_owned_services_are_closed_with_the_collector() -> None:
    execution = Execution()
    pool = execution.shared.pool
    await collected(make_collector(execution=execution))
    with pytest.raises(LifecycleError):
        async with pool.permit():
            pass


def test_three_event_loops_in_a_row_share_one_set_of_services() -> None:
    services = ExecutionServices(pool=AdmissionPool(capacity=2))
    critic = Critic.function(by_height, version="height/1")
    trees = [
        asyncio.run(
            collected(make_collector(execution=Execution(services=services), critic=critic))
        ).tree
        for _ in range(3)
    ]
    assert len({len(tree) for tree in trees}) == 1


async def test_an_unbranched_collection_is_an_evaluation() -> None:
    search = Search.flat(rollouts=1)
    tree = (await collected(make_collector(search=search))).tree
    collector = make_collector(search=search)
    async with collector:
        solution = await collector.evaluate(PROBLEM)
    assert len(tree.leaves()) == 1
    assert solution.prefix + solution.ids
    assert solution.tokens == STEPS + 1
    assert solution.outcome == float(solution.text.count("+") > solution.text.count("-"))


async def test_copies_of_a_prompt_are_different_trees() -> None:
    found = []
    for name in (1, 2, 1):
        collector = make_collector()
        async with collector:
            found.append(await collector.collect(Problem(id=name, prompt="Walk.")))
    ids = [[node.incoming.ids for node in collection.tree.edges()] for collection in found]
    assert ids[0] == ids[2] != ids[1]


async def test_opening_outcomes_are_those_of_the_first_launches() -> None:
    found = await collected(make_collector())
    assert found.opening == 4
    assert len(found.opening_outcomes) == 4
    assert found.root_outcomes[:4] == found.opening_outcomes
    assert all(s.node == 0 for s in found.tree.selections[:4])


async def test_a_group_of_rollouts_is_an_opening_as_a_whole() -> None:
    found = await collected(make_collector(search=Search.flat(9, concurrency=2)))
    assert found.opening_outcomes == found.root_outcomes
    assert len(found.opening_outcomes) == 9
