"""The tabular game: values and gradients that are exact, and estimates that converge to them."""

from itertools import product

import anyio
import numpy as np
import pytest
from bench.learning import trial as trials
from bench.learning.gradients import gradient_quality, study
from bench.learning.peers import PEERS
from bench.learning.tabular.game import (
    Game,
    exact_gradient,
    probabilities,
    state_values,
    successes,
)
from bench.learning.tabular.learner import TabularLearner, TokenTable, estimated_gradient
from bench.learning.tabular.policy import TabularPolicy
from bench.learning.trial import TrialSpec, run_trial
from hypothesis import given, settings
from hypothesis import strategies as st

from focus import Rloo
from focus.errors import ConfigError
from focus.records.records import ActorRecord, RecordKey
from focus.sampling import Sampling
from focus.testing.trees import build_tree, end, fork
from focus.training.settings import ActorSettings
from focus.tree import Identity

CLIP = (0.2, 0.2)
SMALL = Game(games=2, horizon=4, actions=2, slack=1, start=0.6)
games = st.builds(
    Game,
    games=st.integers(1, 3),
    horizon=st.sampled_from([2, 4, 6]),
    actions=st.integers(2, 4),
    slack=st.integers(0, 2),
    repair=st.booleans(),
    start=st.floats(0.3, 0.9),
    seed=st.integers(0, 99),
)


def record(game, place, actions, weight, policy):
    """An episode as a path record, its weight on every token."""
    wrong = [game.wrong_after(place, actions[:step]) for step in range(len(actions))]
    chances = [policy[place, t, w, a] for t, (w, a) in enumerate(zip(wrong, actions, strict=True))]
    key = RecordKey(
        identity=Identity(run="t"),
        problem=place,
        key=str(place),
        policy_version="",
        critic_version="",
    )
    return ActorRecord(
        source=key,
        nodes=(1,),
        prefix=(game.actions + place,),
        response=tuple(actions),
        loss_mask=(1,) * len(actions),
        log_probs=tuple(np.log(chances).tolist()),
        weights=(weight,) * len(actions),
        outcome=None,
        truncated=False,
        temperature=1.0,
        top_p=1.0,
        top_k=None,
    )


def episodes(game, policy, place):
    """Every episode of a game: actions, chance, outcome."""
    for actions in product(range(game.actions), repeat=game.horizon):
        one = record(game, place, actions, 1.0, policy)
        chance = float(np.exp(sum(one.log_probs)))
        yield one, chance, float(game.wrong_after(place, actions) <= game.slack)


@given(games)
@settings(max_examples=25, deadline=None)
def test_the_exact_gradient_is_that_of_finite_differences(game):
    logits = game.starting_logits()
    gradient = exact_gradient(game, probabilities(logits))
    rng = np.random.default_rng(0)
    for _ in range(4):
        way = rng.standard_normal(game.shape)
        ahead, behind = (
            successes(game, probabilities(logits + step * way)) for step in (1e-5, -1e-5)
        )
        assert (ahead - behind) / 2e-5 == pytest.approx(float((gradient * way).sum()), abs=1e-8)


@given(games)
@settings(max_examples=25, deadline=None)
def test_values_are_those_of_all_episodes(game):
    policy = probabilities(game.starting_logits())
    if game.actions**game.horizon > 300:
        return
    for place in range(game.games):
        exact = sum(chance * won for _, chance, won in episodes(game, policy, place))
        assert state_values(game, policy)[place, 0, 0] == pytest.approx(exact)


def test_records_weighted_by_outcome_give_the_exact_gradient_on_average():
    policy = probabilities(SMALL.starting_logits())
    total = np.zeros(SMALL.shape)
    for place in range(SMALL.games):
        for one, chance, won in episodes(SMALL, policy, place):
            total += chance * won * estimated_gradient(SMALL, policy, [one], clip=CLIP)
    assert total / SMALL.games == pytest.approx(exact_gradient(SMALL, policy), abs=1e-12)


def test_leave_one_out_over_all_pairs_of_rollouts_is_unbiased():
    policy = probabilities(SMALL.starting_logits())
    total = np.zeros(SMALL.shape)
    for place in range(SMALL.games):
        known = list(episodes(SMALL, policy, place))
        for (one, p, won), (other, q, won_too) in product(known, repeat=2):
            weights = Rloo().estimate(build_tree(fork(None, end(won), end(won_too)))).advantages
            pair = [
                record(SMALL, place, one.response, weights[1], policy),
                record(SMALL, place, other.response, weights[2], policy),
            ]
            total += p * q * estimated_gradient(SMALL, policy, pair, clip=CLIP) / 2
    assert total / SMALL.games == pytest.approx(exact_gradient(SMALL, policy), abs=1e-12)


def test_a_clipped_token_has_no_gradient():
    policy = probabilities(SMALL.starting_logits())
    one = record(SMALL, 0, (0, 0, 0, 0), 1.0, policy)
    far = probabilities(SMALL.starting_logits() + 9 * np.eye(SMALL.actions)[0])
    assert not estimated_gradient(SMALL, far, [one], clip=CLIP).any()


async def _sampled(policy):
    found = []
    for seed in range(4000):
        found.append(await policy.generate((SMALL.actions,), Sampling(seed=seed, max_tokens=4)))
    return found


def test_a_policy_plays_what_its_table_says():
    policy = TabularPolicy(SMALL, SMALL.starting_logits())
    replies = anyio.run(_sampled, policy)
    won = [SMALL.wrong_after(0, reply.ids) <= SMALL.slack for reply in replies]
    expected = state_values(SMALL, policy.table)[0, 0, 0]
    assert np.mean(won) == pytest.approx(expected, abs=4 * 0.5 / 4000**0.5)
    for reply in replies[:20]:
        one = record(SMALL, 0, reply.ids, 1.0, policy.table)
        assert reply.log_probs == pytest.approx(one.log_probs)


def test_segments_divide_the_horizon():
    with pytest.raises(ConfigError, match="does not divide"):
        Game(horizon=12, segment=5)


def test_updates_along_the_exact_advantages_raise_the_chance_of_success():
    learner = TabularLearner(SMALL, ActorSettings(learning_rate=0.1, minibatches=1))
    before = learner.success
    for index in range(5):
        table = learner.policy.table
        batch = [
            record(SMALL, place, one.response, (won - 0.5) * chance, table)
            for place in range(SMALL.games)
            for one, chance, won in episodes(SMALL, table, place)
        ]
        learner.update_actor(batch, seed=index)
        learner.publish(index)
    assert learner.success > before + 0.1


def test_a_rate_that_rises_takes_its_part_of_the_first_step():
    def moved(warmup):
        settings = ActorSettings(learning_rate=0.1, minibatches=1, warmup=warmup)
        learner = TabularLearner(SMALL, settings)
        batch = [record(SMALL, 0, (0, 1, 0, 1), 1.0, learner.policy.table)]
        before = learner.logits.copy()
        learner.update_actor(batch, seed=0)
        return learner.logits - before

    assert moved(0).any()
    assert moved(8) == pytest.approx(moved(0) / 8)


def test_a_bound_that_a_table_would_ignore_is_refused():
    with pytest.raises(ConfigError, match="step_kl"):
        TabularLearner(SMALL, ActorSettings(step_kl=1e-4))


def test_a_token_table_comes_to_its_targets():
    table, policy = TokenTable(SMALL), probabilities(SMALL.starting_logits())
    batch = [record(SMALL, 0, (0, 1, 0, 1), 1.0, policy)] * 8
    targets = [[0.1, 0.2, 0.3, 0.4]] * 8
    for seed in range(40):
        table.update(batch, targets, seed=seed)
    assert table.values(batch)[0] == pytest.approx(targets[0], abs=1e-4)


@given(st.floats(0.1, 10), st.integers(2, 6))
def test_exact_estimates_have_no_bias_and_no_noise(scale, rounds):
    truth = exact_gradient(SMALL, probabilities(SMALL.starting_logits()))
    found = gradient_quality([scale * truth] * rounds, truth, tokens=100)
    assert (found.cosine, found.scale) == pytest.approx((1.0, scale))
    assert found.skew == pytest.approx(0.0, abs=1e-6)
    assert found.noise == pytest.approx(0.0, abs=1e-12)


def test_leave_one_out_points_along_the_true_gradient_as_far_as_noise_lets_it():
    spec = TrialSpec(
        task="tabular",
        method="rloo",
        prompts=4,
        tokens_per_prompt=96,
        budget=6_000,
        evaluations=2,
        frozen=True,
    )
    found = anyio.run(study, spec)
    assert found.skew < 3 * found.skew_floor
    assert found.scale == pytest.approx(8, rel=0.5)


@pytest.mark.anyio
@pytest.mark.parametrize("method", [*PEERS, "focus"])
async def test_methods_of_all_kinds_run_through_the_same_harness(method, tmp_path):
    spec = TrialSpec(
        task="tabular",
        method=method,
        learning_rate=0.1,
        prompts=2,
        minibatches=1,
        tokens_per_prompt=96,
        budget=300,
        evaluations=2,
    )
    out = tmp_path / "one.s0.json"
    await run_trial(spec, out)
    assert out.exists()
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.anyio
async def test_a_trial_keeps_what_it_has_at_each_point(tmp_path):
    kept = []
    spec = TrialSpec(
        task="tabular", method="ppo", prompts=2, tokens_per_prompt=96, budget=600, evaluations=3
    )
    trial = trials.Trial(spec, on_point=lambda points: kept.append(len(points)))
    async with trials.ExecutionServices(trials.AdmissionPool(8)) as services:
        points = await trial.run(services)
    assert kept == list(range(1, len(points) + 1))
    assert points[-1]["critic_trained"] > 0
    assert [p["tokens"] for p in points] == sorted(p["tokens"] for p in points)
