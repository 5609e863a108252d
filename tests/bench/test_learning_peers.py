"""Peers' methods: what makes each of them what it is."""

from statistics import fmean, pstdev

import pytest
from bench.learning.peers import PEERS, MixedOutcome, WithTargets
from bench.learning.ppo import generalised_advantages, reweighted
from bench.learning.trial import informs
from hypothesis import given
from hypothesis import strategies as st

from focus import Grpo, TreeGrpo
from focus.records.records import ActorRecord, RecordKey
from focus.search import View
from focus.testing.trees import build_tree, end, fork
from focus.tree import Evidence, Identity

shares = st.floats(0, 1)


def rollout(outcome, mask=(1, 1, 1, 1)):
    """A rollout of four tokens."""
    return ActorRecord(
        source=RecordKey(
            identity=Identity(run="t"), problem=0, key="0", policy_version="", critic_version=""
        ),
        nodes=(1,),
        prefix=(5,),
        response=(0, 1, 0, 1),
        loss_mask=mask,
        log_probs=(-0.5,) * 4,
        weights=(9.0,) * 4,
        outcome=outcome,
        truncated=False,
        temperature=1.0,
        top_p=1.0,
        top_k=None,
    )


outcomes = st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=2, max_size=8)


@given(outcomes, st.sampled_from(["grpo", "grpo-drop", "grpo-filter", "rloo"]))
def test_a_group_is_left_out_exactly_if_its_outcomes_agree(group, method):
    tree = build_tree(fork(None, *map(end, group)))
    assert informs(PEERS[method].credit.estimate(tree)) == (len(set(group)) > 1)


@given(st.lists(shares, min_size=1, max_size=12), shares, shares)
def test_generalised_advantages_lie_between_outcomes_and_differences(values, outcome, decay):
    whole = generalised_advantages(values, outcome, decay=1.0)
    steps = generalised_advantages(values, outcome, decay=0.0)
    assert whole == pytest.approx([outcome - value for value in values])
    assert sum(steps) == pytest.approx(outcome - values[0])
    mixed = generalised_advantages(values, outcome, decay=decay)
    behind = [sum(decay**k * d for k, d in enumerate(steps[t:])) for t in range(len(steps))]
    assert mixed == pytest.approx(behind)


@given(st.lists(shares, min_size=2, max_size=6), st.data())
def test_ppo_whitens_its_weights_and_regresses_on_lambda_returns(results, data):
    batch = [rollout(result) for result in results]
    values = [data.draw(st.lists(shares, min_size=4, max_size=4)) for _ in batch]
    fresh, targets = reweighted(batch, values, decay=1.0)
    weights = [weight for one in fresh for weight in one.weights]
    assert fmean(weights) == pytest.approx(0, abs=1e-6)
    assert pstdev(weights) == pytest.approx(1, abs=1e-2) or pstdev(weights) < 1
    for column, result in zip(targets, results, strict=True):
        assert column == pytest.approx([result] * 4)


def test_masked_tokens_keep_no_weight():
    one = rollout(1.0, mask=(1, 0, 0, 1))
    (fresh,), _ = reweighted([one], [[0.2, 0.9]], decay=1.0)
    assert fresh.weights[1:3] == (0.0, 0.0)
    assert fresh.weights[0] > fresh.weights[3]


@given(st.lists(shares, min_size=2, max_size=5))
def test_the_most_open_prefix_is_continued_first(values):
    tree = build_tree(fork(0.5, *[fork(value, end(0.0)) for value in values]))
    session = MixedOutcome().session(View(tree, Evidence(tree.header.returns), {}))
    heads = tree.children(0)
    ranked = max(heads, key=session.score)
    spread = [tree[head].value * (1 - tree[head].value) for head in heads]
    chosen = tree[ranked].value * (1 - tree[ranked].value)
    assert chosen == pytest.approx(max(spread))


@given(outcomes)
def test_targets_are_added_and_weights_stay(group):
    tree = build_tree(fork(0.5, *map(end, group)))
    plain, found = TreeGrpo().estimate(tree), WithTargets(weights=TreeGrpo()).estimate(tree)
    assert found.advantages == plain.advantages
    assert found.targets[0].value == pytest.approx(fmean(group))
    assert WithTargets(weights=Grpo()).prior_strength is None
