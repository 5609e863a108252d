"""Numbers worked out on paper, one block per estimator."""

import math

import pytest

from focus.credit import DirectBranchTd, Grpo, RefinedTd, Rloo, Target
from focus.errors import ConfigError, CreditError
from focus.testing.trees import build_tree, chain, end, fork
from focus.tree import Returns

UNEQUAL_LENGTHS = fork(0.5, chain([0.5, 0.5], outcome=1.0), end(0.0))
"""Two rollouts from the root: three edges with outcome 1, one edge with outcome 0."""


class TestDirectBranchTd:
    def test_worked_example(self):
        credit = DirectBranchTd().estimate(build_tree(fork(0.5, end(0.5), end(1.0))))
        assert credit.estimator == "direct_branch_td"
        assert credit.targets == {0: Target(0.75, 2)}
        assert credit.values == {0: pytest.approx(2 / 3), 1: 0.0, 2: 0.0}
        assert credit.advantages == {1: pytest.approx(-1 / 6), 2: pytest.approx(1 / 3)}

    def test_each_direct_branch_counts_once_however_long(self):
        credit = DirectBranchTd().estimate(build_tree(UNEQUAL_LENGTHS))
        assert credit.targets[0] == Target(0.3125, 2)
        assert credit.values[0] == 0.375

    def test_different_priors_along_a_path(self):
        credit = DirectBranchTd().estimate(build_tree(chain([0.5, 0.6, 0.9], outcome=1.0)))
        assert list(credit.advantages.values()) == pytest.approx([0.1375, 0.175, 0.05])

    def test_a_strong_prior_leaves_differences_of_the_critic(self):
        tree = build_tree(chain([0.5, 0.6, 0.9], outcome=1.0))
        credit = DirectBranchTd(prior_strength=1e12).estimate(tree)
        assert list(credit.advantages.values()) == pytest.approx([0.1, 0.3, 0.1])

    def test_a_long_chain_passes_on_next_to_nothing(self):
        credit = DirectBranchTd().estimate(build_tree(chain([0.5] * 16, outcome=1.0)))
        assert credit.advantages[1] == pytest.approx(7.6e-6, rel=0.01)
        assert credit.advantages[16] == 0.25
        assert credit.targets[0].value == pytest.approx(0.500015, abs=5e-7)

    def test_a_single_child_is_finite(self):
        credit = DirectBranchTd(leave_one_out=True).estimate(build_tree(fork(0.4, end(1.0))))
        assert credit.advantages == {1: 0.6}

    def test_leave_one_out(self):
        tree = build_tree(fork(0.5, end(0.5), end(1.0)))
        credit = DirectBranchTd(leave_one_out=True).estimate(tree)
        assert credit.advantages == {1: -0.25, 2: 0.5}

    def test_earlier_siblings_only(self):
        tree = build_tree(fork(0.5, end(0.0), end(1.0), end(1.0)))
        credit = DirectBranchTd(baseline="earlier").estimate(tree)
        assert list(credit.advantages.values()) == pytest.approx([-0.5, 0.75, 0.5])

    def test_plain_mean_is_backed_up_on_request(self):
        tree = build_tree(fork(0.5, fork(0.9, end(1.0), end(0.0)), end(0.0)))
        credit = DirectBranchTd(mc_backup=True).estimate(tree)
        assert credit.values == {0: 0.25, 1: 0.5, 2: 0.0, 3: 0.0, 4: 0.0}
        assert credit.advantages[1] == pytest.approx(0.5 - (0.5 + 0.5) / 3)
        assert credit.advantages[2] == pytest.approx(1.0 - (0.9 + 1.0) / 3)

    def test_reach_divides_by_the_branches_above(self):
        tree = build_tree(fork(0.5, fork(0.5, end(1.0), end(1.0), end(0.0)), end(0.0)))
        plain = DirectBranchTd().estimate(tree).advantages
        weighted = DirectBranchTd(reach=True).estimate(tree).advantages
        above = {1: 2, 2: 6, 3: 6, 4: 6, 5: 2}
        assert weighted == {node: pytest.approx(a / above[node]) for node, a in plain.items()}

    def test_discount_and_shaping(self):
        tree = build_tree(
            fork(0.5, fork(0.5, end(1.0, duration=2), duration=1, step_reward=-0.1)),
            returns=Returns(discount=0.5, step_weight=2.0),
            critic_range=(-1.0, 1.0),
        )
        credit = DirectBranchTd().estimate(tree)
        inner = (0.5 + 1.0) / 2
        outer = (0.5 + (-0.2 + 0.5 * inner)) / 2
        assert credit.values[0] == pytest.approx(outer)
        assert credit.advantages[1] == pytest.approx(-0.2 + 0.5 * inner - outer)
        assert credit.targets[0].value == pytest.approx(-0.2 + 0.5 * inner)

    def test_mc_backup_refuses_an_unfinished_leaf(self):
        with pytest.raises(CreditError, match="node 2 is an unfinished leaf"):
            DirectBranchTd(mc_backup=True).estimate(build_tree(fork(0.5, end(1.0), fork(0.5))))


class TestRefinedTd:
    def test_every_checkpoint_of_a_rollout_learns_the_outcome(self):
        credit = RefinedTd().estimate(build_tree(UNEQUAL_LENGTHS))
        assert credit.estimator == "refined_td"
        assert credit.values == {0: 0.5, 1: 0.75, 2: 0.75, 3: 0.0, 4: 0.0}
        assert credit.advantages == {1: 0.25, 2: 0.0, 3: 0.25, 4: -0.5}
        assert credit.targets == {0: Target(0.5, 2), 1: Target(1.0, 1), 2: Target(1.0, 1)}

    def test_blend_aims_at_the_refined_value(self):
        credit = RefinedTd(targets="blend").estimate(build_tree(UNEQUAL_LENGTHS))
        assert credit.targets == {0: Target(0.5, 2), 1: Target(0.75, 1), 2: Target(0.75, 1)}

    def test_a_long_chain_has_the_outcome_at_its_root(self):
        credit = RefinedTd().estimate(build_tree(chain([0.5] * 16, outcome=1.0)))
        assert credit.targets[0] == Target(1.0, 1)
        assert credit.values[0] == 0.75

    def test_launched_rollouts_do_not_reach_above_their_start(self):
        tree = build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0), end(0.0))))
        credit = RefinedTd().estimate(tree)
        assert credit.targets == {0: Target(1.0, 1), 1: Target(pytest.approx(1 / 3), 3)}

    def test_an_unfinished_rollout_is_no_evidence(self):
        credit = RefinedTd().estimate(build_tree(fork(0.4, fork(0.7, fork(0.6)), end(1.0))))
        assert credit.values == {0: 0.7, 1: 0.7, 2: 0.6, 3: 0.0}
        assert credit.targets == {0: Target(1.0, 1)}
        assert credit.advantages == pytest.approx({1: 0.0, 2: -0.1, 3: 0.3})


class TestGrpo:
    def test_baseline_counts_rollouts_not_segments(self):
        credit = Grpo(scale=False).estimate(build_tree(UNEQUAL_LENGTHS))
        assert credit.diagnostics[0]["baseline"] == 0.5
        assert credit.advantages == {1: 0.5, 2: 0.5, 3: 0.5, 4: -0.5}
        assert credit.targets == {}

    def test_scaled_by_the_sample_deviation(self):
        credit = Grpo().estimate(build_tree(UNEQUAL_LENGTHS))
        assert credit.estimator == "grpo"
        assert credit.advantages[1] == pytest.approx(0.5 / (math.sqrt(0.5) + 1e-6))

    @pytest.mark.parametrize("outcome", [0.0, 0.1, 1 / 3, 1.0])
    def test_equal_returns_give_exactly_zero(self, outcome):
        tree = build_tree(fork(None, *[end(outcome)] * 3))
        assert set(Grpo().estimate(tree).advantages.values()) == {0.0}
        assert set(Rloo().estimate(tree).advantages.values()) == {0.0}

    def test_one_rollout_is_zero_not_nan(self):
        assert Grpo().estimate(build_tree(fork(None, end(1.0)))).advantages == {1: 0.0}

    def test_discounts_once_per_transition(self):
        tree = build_tree(
            fork(None, fork(None, end(1.0, duration=1), duration=1), end(0.0)),
            returns=Returns(discount=0.5),
        )
        assert Grpo(scale=False).estimate(tree).advantages == {1: 0.25, 2: 0.25, 3: -0.25}


class TestRloo:
    def test_others_are_the_baseline(self):
        tree = build_tree(fork(None, chain([0.5, 0.5], outcome=1.0), end(0.0), end(0.5)))
        credit = Rloo().estimate(tree)
        assert credit.estimator == "rloo"
        assert credit.advantages == pytest.approx({1: 0.75, 2: 0.75, 3: 0.75, 4: -0.75, 5: 0.0})

    def test_one_rollout_has_nothing_to_be_compared_with(self):
        assert Rloo().estimate(build_tree(fork(None, end(1.0)))).advantages == {}


@pytest.mark.parametrize("estimator", [Grpo(), Rloo()])
class TestIndependentRollouts:
    def test_a_fork_below_the_root_is_refused(self, estimator):
        with pytest.raises(CreditError, match="node 1 has 2 children"):
            estimator.estimate(build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0)))))

    def test_unfinished_rollouts_are_left_out(self, estimator):
        whole = build_tree(fork(None, end(1.0), end(0.0)))
        cut = build_tree(fork(None, end(1.0), end(0.0), fork(None, fork(None))))
        assert estimator.estimate(cut).advantages == estimator.estimate(whole).advantages

    def test_nothing_finished_trains_nothing(self, estimator):
        assert estimator.estimate(build_tree(fork(None, fork(None)))).advantages == {}


class TestSettings:
    @pytest.mark.parametrize("strength", [0.0, -1.0, math.nan, math.inf])
    @pytest.mark.parametrize("estimator", [DirectBranchTd, RefinedTd])
    def test_prior_strength_must_be_positive(self, estimator, strength):
        with pytest.raises(ConfigError, match="prior_strength"):
            estimator(prior_strength=strength)

    def test_two_baselines_contradict(self):
        with pytest.raises(ConfigError, match="two baselines"):
            DirectBranchTd(leave_one_out=True, baseline="earlier")

    @pytest.mark.parametrize(
        ("estimator", "setting"), [(DirectBranchTd, "baseline"), (RefinedTd, "targets")]
    )
    def test_unknown_names_are_refused(self, estimator, setting):
        with pytest.raises(ConfigError, match=setting):
            estimator(**{setting: "later"})

    @pytest.mark.parametrize("estimator", [DirectBranchTd, RefinedTd])
    def test_own_strength_wins_over_the_tree(self, estimator):
        drawing = fork(0.5, chain([0.3], outcome=1.0), end(0.0))
        plain, stated = build_tree(drawing), build_tree(drawing, returns=Returns(prior_strength=3))
        assert estimator(prior_strength=3.0).estimate(plain) == estimator().estimate(stated)
        assert estimator().estimate(plain) != estimator().estimate(stated)
