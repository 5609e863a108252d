"""Claims and non-claims about bias, by enumerating every tree of a small game."""

import dataclasses
import random

import pytest

from focus.credit import (
    DirectBranchTd,
    Grpo,
    RefinedTd,
    Rloo,
    SpoTree,
    TreeGrpo,
    TreeRl,
    VinePpo,
)
from focus.testing.exact_gradient import (
    TabularTask,
    exact_gradient,
    expected_branches,
    expected_update,
    fixed_widths,
    gradient_at,
    probed_rollouts,
    relative_bias,
    skew,
    stop_at_success,
    stop_when_mixed,
)

EXACT = 1e-10
CLEAR = 1e-3
"""Relative; a bias may be small by luck, never seven orders smaller."""

UNBIASED = DirectBranchTd(leave_one_out=True, reach=True, mc_backup=True)


def task(seed, *, depth=2, actions=2):
    return TabularTask.random(random.Random(seed), depth=depth, actions=actions)


def scaled(gradient, factor):
    return {logit: factor * value for logit, value in gradient.items()}


def distance(one, other):
    return max(abs(one.get(k, 0.0) - other.get(k, 0.0)) for k in one.keys() | other.keys())


def widest_where_unsure(game):
    """Two branches at the root and at the least certain checkpoint of each level, else one.

    As a cascade does: a level is complete before the next one is bought, and all branches of
    a checkpoint are decided before the first of them is drawn.
    """

    def next_purchase(growth):
        for depth in range(game.depth):
            level = [node for node, h in enumerate(growth.histories) if len(h) == depth]
            doubt = {node: -abs(game.critic[growth.histories[node]] - 0.5) for node in level}
            widest = max(level, key=doubt.__getitem__)
            for node in level:
                if len(growth.children[node]) < 1 + (node == widest):
                    return node
        return None

    return next_purchase


class TestUnbiased:
    @pytest.mark.parametrize(("rollouts", "depth"), [(2, 1), (2, 2), (3, 2), (4, 2), (2, 3)])
    def test_rloo_on_chains(self, rollouts, depth):
        game = task(1, depth=depth)
        widths = (rollouts, *[1] * (depth - 1))
        update = expected_update(Rloo(), game, fixed_widths(*widths))
        assert distance(scaled(update, 1 / rollouts), exact_gradient(game)) < EXACT

    @pytest.mark.parametrize(
        ("rollouts", "depth", "probes"), [(1, 1, 1), (1, 2, 1), (1, 2, 2), (2, 2, 1)]
    )
    def test_vine_ppo_on_probed_rollouts(self, rollouts, depth, probes):
        game = task(2, depth=depth)
        rule = probed_rollouts(game, rollouts=rollouts, probes=probes)
        update = expected_update(VinePpo(), game, rule, first_phase=rollouts * depth)
        assert distance(scaled(update, 1 / rollouts), exact_gradient(game)) < EXACT

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize(
        "widths", [(1, 1), (2, 1), (1, 3), (2, 2), (3, 2), (2, 1, 2), (1, 2, 2)]
    )
    def test_direct_branch_td_on_fixed_widths_with_any_critic(self, widths, seed):
        game = task(seed, depth=len(widths))
        update = expected_update(UNBIASED, game, fixed_widths(*widths))
        assert distance(update, exact_gradient(game)) < EXACT

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("depth", [2, 3])
    def test_direct_branch_td_where_values_place_the_branches_beforehand(self, seed, depth):
        game = task(seed, depth=depth)
        update = expected_update(UNBIASED, game, widest_where_unsure(game))
        assert distance(update, exact_gradient(game)) < EXACT

    @pytest.mark.parametrize("strength", [0.1, 1.0, 10.0])
    def test_any_prior_strength_will_do(self, strength):
        game = task(5, actions=3)
        estimator = DirectBranchTd(
            prior_strength=strength, leave_one_out=True, reach=True, mc_backup=True
        )
        update = expected_update(estimator, game, fixed_widths(2, 2))
        assert distance(update, exact_gradient(game)) < EXACT

    def test_a_right_critic_may_stand_in_the_back_up(self):
        game = task(4)
        game = dataclasses.replace(game, critic={h: game.value(h) for h in game.critic})
        estimator = DirectBranchTd(leave_one_out=True, reach=True)
        update = expected_update(estimator, game, fixed_widths(3, 2))
        assert distance(update, exact_gradient(game)) < EXACT

    def test_earlier_siblings_with_reach_on_fixed_widths(self):
        game = task(6)
        estimator = DirectBranchTd(baseline="earlier", reach=True, mc_backup=True)
        update = expected_update(estimator, game, fixed_widths(3, 2))
        assert distance(update, exact_gradient(game)) < EXACT


@pytest.mark.parametrize("stop", [stop_at_success, stop_when_mixed])
class TestAdaptiveStopping:
    @pytest.mark.parametrize("seed", range(4))
    def test_earlier_siblings_give_the_mean_count_times_the_gradient(self, seed, stop):
        game = task(seed)
        rule = stop(game, most=3)
        update = expected_update(DirectBranchTd(baseline="earlier", mc_backup=True), game, rule)
        for history, count in expected_branches(game, rule).items():
            part = {logit: value for logit, value in update.items() if logit[0] == history}
            assert distance(part, scaled(gradient_at(game, history), count)) < EXACT

    @pytest.mark.parametrize("seed", range(4))
    def test_siblings_that_came_later_break_it(self, seed, stop):
        game = task(seed)
        rule = stop(game, most=3)
        update = expected_update(DirectBranchTd(leave_one_out=True, mc_backup=True), game, rule)
        count = expected_branches(game, rule)[()]
        part = {logit: value for logit, value in update.items() if logit[0] == ()}
        assert relative_bias(part, scaled(gradient_at(game, ()), count)) > CLEAR

    @pytest.mark.parametrize("seed", range(4))
    def test_reach_weights_do_not_repair_it(self, seed, stop):
        game = task(seed)
        update = expected_update(UNBIASED, game, stop(game, most=3))
        assert relative_bias(update, exact_gradient(game)) > CLEAR


class TestBiased:
    """Each of these differs from the gradient by more than a step size can explain."""

    @pytest.mark.parametrize(
        "estimator",
        [
            DirectBranchTd(),
            DirectBranchTd(reach=True),
            DirectBranchTd(leave_one_out=True, reach=True),
            DirectBranchTd(leave_one_out=True, mc_backup=True),
            RefinedTd(),
            SpoTree(),
            TreeGrpo(),
            TreeRl(),
        ],
        ids=[
            "default",
            "reach only",
            "critic in the back-up",
            "no reach",
            "refined",
            "spo",
            "tree grpo",
            "tree rl",
        ],
    )
    def test_on_a_two_by_two_tree(self, estimator):
        game = task(1)
        update = expected_update(estimator, game, fixed_widths(2, 2))
        assert relative_bias(update, exact_gradient(game)) > 0.1
        assert skew(update, exact_gradient(game)) > 0.1

    def test_grpo_scaled_is_skewed_and_unscaled_is_short(self):
        game = task(1)
        gradient = exact_gradient(game)
        plain = expected_update(Grpo(scale=False), game, fixed_widths(3, 1))
        assert distance(scaled(plain, 1 / 3), scaled(gradient, 1 - 1 / 3)) < EXACT
        assert skew(expected_update(Grpo(), game, fixed_widths(3, 1)), gradient) > 0.1

    def test_an_edge_in_its_own_baseline_only_shortens_the_step(self):
        game = task(1)
        estimator = DirectBranchTd(reach=True, mc_backup=True)
        update = expected_update(estimator, game, fixed_widths(2, 2))
        assert distance(update, scaled(exact_gradient(game), (1 + 2 - 1) / (1 + 2))) < EXACT
