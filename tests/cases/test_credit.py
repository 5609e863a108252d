"""Family (i): weights are what the estimator says, whatever group or order they came in."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import anyio
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.slime.host.arguments import slime_args
from tests.slime.host.sample import Sample
from tests.slime.walks import Walks, prompt

from focus import Critic, DirectBranchTd, Grpo, RefinedTd, Rloo, Search
from focus.agent import SegmentAction, StepResult
from focus.errors import CollectionFailed, EnvError, RecordError
from focus.integrations.slime import make_generate, preserve_advantages
from focus.records.records import CriticContext
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy
from focus.testing.trees import build_tree, chain, end, fork, random_sketch

from .servers import collect

pytestmark = pytest.mark.anyio

weights = st.floats(-2, 2, allow_nan=False)


@given(st.lists(st.lists(weights, min_size=1, max_size=6), min_size=1, max_size=5))
def test_b70_prepared_weights_come_out_as_they_went_in(trees: list[list[float]]) -> None:
    """Element by element, whatever number of samples each prompt has."""
    samples = [
        Sample(index=index, rollout_id=index, reward=weight)
        for index, tree in enumerate(trees)
        for weight in tree
    ]
    _, kept = preserve_advantages(slime_args(), samples)
    assert kept == [weight for tree in trees for weight in tree]


def test_b70_a_tree_of_equal_values_weighs_exactly_nothing() -> None:
    """Trees with 4, 3 and 4 segments; the middle one's values and outcome are all equal."""
    shapes = [
        fork(0.5, chain([0.5, 0.7], outcome=1.0), end(0.0)),
        fork(0.3, chain([0.3, 0.3], outcome=0.3)),
        fork(0.5, chain([0.2, 0.1], outcome=0.0), end(1.0)),
    ]
    credits = [DirectBranchTd().estimate(build_tree(shape)) for shape in shapes]
    assert [len(credit.advantages) for credit in credits] == [4, 3, 4]
    samples = [
        Sample(index=index, rollout_id=index, reward=advantage)
        for index, credit in enumerate(credits)
        for advantage in credit.advantages.values()
    ]
    _, kept = preserve_advantages(slime_args(), samples)
    assert kept[4:7] == [0.0, 0.0, 0.0]
    assert kept == [sample.reward for sample in samples]


@pytest.mark.parametrize("segments", range(1, 6))
def test_b71_a_rollout_counts_once_however_many_segments_it_has(segments: int) -> None:
    tree = build_tree(
        fork(
            0.5, chain([0.5] * (segments - 1), outcome=1.0) if segments > 1 else end(1.0), end(0.0)
        )
    )
    assert Grpo().estimate(tree).diagnostics[0]["baseline"] == 0.5
    plain = Grpo(scale=False).estimate(tree).advantages
    assert set(plain.values()) == {0.5, -0.5}
    assert set(Rloo().estimate(tree).advantages.values()) == {1.0, -1.0}


def test_b71_segments_move_a_direct_branch_target_through_the_prior_alone() -> None:
    """κ = 1, V = 0.5 everywhere: 3 segments to a success, 1 to a failure."""
    tree = build_tree(fork(0.5, chain([0.5, 0.5], outcome=1.0), end(0.0)))
    credit = DirectBranchTd(prior_strength=1.0).estimate(tree)
    assert credit.targets[0].value == 0.3125
    assert credit.values[0] == 0.375


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), kind=st.sampled_from([DirectBranchTd(), RefinedTd()]))
def test_b73_every_number_of_every_tree_is_finite(seed: int, kind: Any) -> None:
    """Single children and children that failed are trees like others."""
    tree = build_tree(random_sketch(random.Random(seed), nodes=8))
    credit = kind.estimate(tree, allow_partial=True)
    numbers = [*credit.advantages.values(), *credit.values.values()]
    numbers += [target.value for target in credit.targets.values()]
    assert all(map(math.isfinite, numbers))


def test_b73_a_single_child_gets_the_difference_of_values() -> None:
    tree = build_tree(fork(0.5, fork(0.8)))
    credit = DirectBranchTd(prior_strength=1.0).estimate(tree)
    assert credit.values == {0: pytest.approx(0.65), 1: 0.8}
    assert credit.advantages == {1: pytest.approx(credit.values[1] - credit.values[0])}
    far = DirectBranchTd(prior_strength=1e9).estimate(tree)
    assert far.advantages[1] == pytest.approx(0.8 - 0.5)


def test_b73_a_group_of_one_says_nothing() -> None:
    tree = build_tree(fork(0.5, end(1.0)))
    assert Grpo().estimate(tree).advantages == {1: 0.0}
    alone = Rloo().estimate(tree).advantages
    assert all(map(math.isfinite, alone.values()))


class Telling(WalkEnv):
    """Says `outcome` where the walk of one problem ends."""

    def __init__(self, outcome: Any) -> None:
        super().__init__()
        self._outcome = outcome

    async def step(self, state: int, action: SegmentAction, workspace: object) -> StepResult:
        result = await super().step(state, action, workspace)
        return StepResult(result.state, reward=self._outcome, done=True) if result.done else result


@pytest.mark.parametrize("outcome", [None, math.nan, math.inf, "many", [1.0]])
async def test_b74_an_outcome_that_is_no_number_ends_its_collection(outcome: Any) -> None:
    policy = ScriptedPolicy(walk_script(4))
    with pytest.raises(CollectionFailed) as caught:
        await collect(policy, Telling(outcome), search=Search.flat(4), segment=8)
    assert isinstance(caught.value.__cause__, EnvError)
    assert "reward" in str(caught.value)


@pytest.mark.parametrize("outcome", [True, np.float32(0.25), np.int64(1), np.bool_(True)])
async def test_b74_numbers_of_other_libraries_become_floats(outcome: Any) -> None:
    policy = ScriptedPolicy(walk_script(4))
    found = await collect(policy, Telling(outcome), segment=8, credit=Grpo())
    assert [type(value) for value in found.root_outcomes] == [float]
    assert found.root_outcomes == [float(outcome)]
    assert {type(record.outcome) for record in found.actor} == {float}


@pytest.mark.usefixtures("slime")
async def test_b74_other_prompts_of_the_batch_are_what_they_are_without_the_bad_one() -> None:
    hook = make_generate(Walks(), profile="token_chunk")
    alone = [await hook(slime_args(), prompt(index), {}) for index in (0, 2)]
    beside: dict[int, Any] = {}
    broken = make_generate(Walks(env=lambda: Telling(None)), profile="token_chunk")

    async def one(index: int) -> None:
        if index == 1:
            with pytest.raises(CollectionFailed):
                await broken(slime_args(), prompt(1), {})
        else:
            beside[index] = await hook(slime_args(), prompt(index), {})

    async with anyio.create_task_group() as group:
        for index in range(3):
            group.start_soon(one, index)
    assert [beside[0], beside[2]] == alone


class OutOfOrder:
    """A critic whose calls end in a random order; V depends on the text alone."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    async def __call__(self, contexts: Sequence[CriticContext]) -> list[float]:
        for _ in range(self._rng.randrange(12)):
            await anyio.lowlevel.checkpoint()
        return [0.5 + 0.04 * (c.text.count("+") - c.text.count("-")) for c in contexts]


async def test_b76_the_order_of_a_critics_replies_changes_no_bit() -> None:
    policy = ScriptedPolicy(walk_script(9))
    seen = set()
    for seed in range(100):
        critic = Critic.function(OutOfOrder(seed), version="v", batch=1 + seed % 3)
        found = await collect(
            policy, WalkEnv(), search=Search.two_phase(tokens=40), critic=critic, segment=3
        )
        seen.add((repr(found.credit), repr(found.critic), repr([n.value for n in found.tree])))
    assert len(seen) == 1


def test_b76_values_stand_at_their_own_checkpoints() -> None:
    """V = 0.5, 0.6, 0.9 and an outcome of 1: the two limits of the prior strength by hand."""
    tree = build_tree(chain([0.5, 0.6, 0.9], outcome=1.0))
    weak = DirectBranchTd(prior_strength=1.0).estimate(tree).advantages
    assert list(weak.values()) == pytest.approx([0.1375, 0.175, 0.05])
    strong = DirectBranchTd(prior_strength=1e9).estimate(tree).advantages
    assert list(strong.values()) == pytest.approx([0.1, 0.3, 0.1], abs=1e-6)


def of_prompts(*identities: tuple[int, Any]) -> list[Sample]:
    return [Sample(index=index, rollout_id=known, reward=0.5) for index, known in identities]


@pytest.mark.parametrize(
    "samples",
    [
        of_prompts((0, 7), (1, 7)),
        of_prompts((0, 0), (0, None), (1, 1)),
        of_prompts((0, 0), (0, 5), (1, 1)),
        of_prompts((0, 0), (1, 1), (2, 0)),
    ],
    ids=["two prompts, one id", "one id missing", "one prompt, two ids", "a later prompt"],
)
def test_b77_prompts_that_cannot_be_told_apart_are_refused(samples: list[Sample]) -> None:
    with pytest.raises(RecordError, match="rollout_id"):
        preserve_advantages(slime_args(), samples)


@pytest.mark.usefixtures("slime")
async def test_b77_all_segments_of_a_prompt_share_one_id() -> None:
    hook = make_generate(Walks(), profile="token_chunk")
    made = [await hook(slime_args(), prompt(index), {}) for index in range(3)]
    identities = [{sample.rollout_id for sample in samples} for samples in made]
    assert identities == [{0}, {1}, {2}]
    preserve_advantages(slime_args(), [sample for samples in made for sample in samples])
