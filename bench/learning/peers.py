"""Other people's methods, written anew from their formulas as searches and estimators of FOCUS."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from bench.learning.plans import Method, alone, flat, rollouts_then, three_levels, vine

from focus import Grpo, Rloo, SpoTree, TokenEntropy, TreeGrpo, TreeRl, UniformRandom, VinePpo
from focus.credit import Credit, Estimator, LambdaTd
from focus.credit.base import outcome_targets
from focus.search import Allocator, BetaBernoulli, Calibration, Session, View
from focus.tree import NodeId, SuffixMeans, Tree

__all__ = ("OUTCOME", "PEERS", "MixedOutcome", "WithTargets")


@dataclass(frozen=True, kw_only=True)
class MixedOutcome(Allocator):
    """Continues prefixes whose outcome is most open: p·(1 − p) ÷ (1 + children + pending).

    p is the predicted chance of success, that of the critic moved by the outcomes seen from
    there (κ of them for the critic). This is the allocation of TRACE, whose abstract names a
    learned success predictor and mixed outcomes; the count penalty is ours.
    """

    model: Calibration = field(default_factory=BetaBernoulli)

    def session(self, view: View) -> Session:
        return _Openness(self.model, view)


class _Openness(Session):
    def __init__(self, model: Calibration, view: View) -> None:
        self._model = model
        self._view = view
        self._strength = view.tree.header.returns.prior_strength

    def score(self, node_id: NodeId) -> float:
        value = self._view.tree[node_id].value
        seen = self._view.evidence[node_id]
        if value is None:
            return float("-inf")
        chance = self._model.posterior(value, seen, prior_strength=self._strength).mean
        return chance * (1 - chance) / (1 + self._view.branches_at(node_id))


@dataclass(frozen=True, kw_only=True)
class WithTargets:
    """Another estimator's weights, and mean suffix outcomes for a predictor to learn from."""

    weights: Estimator

    @property
    def prior_strength(self) -> float | None:
        return self.weights.prior_strength

    def estimate(self, tree: Tree[Any], *, allow_partial: bool = False) -> Credit:
        credit = self.weights.estimate(tree, allow_partial=allow_partial)
        live = [node.id for node in tree if not node.is_terminal]
        return replace(
            credit, targets=outcome_targets(SuffixMeans.of(tree, tree.header.returns), live)
        )


OUTCOME = LambdaTd(decay=1.0)
"""The outcome less the value before the edge; that of a constant critic where none is trained."""

PEERS: dict[str, Method] = {
    "grpo": Method(search=flat, credit=Grpo(), about="GRPO"),
    "grpo-drop": Method(
        search=flat, credit=Grpo(), refills=0, about="GRPO, groups without variance left out"
    ),
    "grpo-filter": Method(
        search=flat, credit=Grpo(), refills=3, about="GRPO, such groups drawn anew (DAPO)"
    ),
    "rloo": Method(search=flat, credit=Rloo(), about="RLOO"),
    "reinforce": Method(
        search=alone, credit=OUTCOME, about="REINFORCE, the mean outcome of two rounds as baseline"
    ),
    "ppo": Method(search=alone, credit=OUTCOME, critic="token", about="PPO, GAE 0.95 over tokens"),
    "vine-ppo": Method(search=vine(1), credit=VinePpo(), about="VinePPO, one probe a checkpoint"),
    "spo-tree": Method(
        search=three_levels,
        credit=SpoTree(),
        joined=2,
        about="SPO-tree, three levels of widths that fit the budget",
    ),
    "tree-grpo": Method(
        search=rollouts_then(UniformRandom()), credit=TreeGrpo(), about="Tree-GRPO"
    ),
    "tree-rl": Method(
        search=rollouts_then(TokenEntropy()), credit=TreeRl(), about="TreeRL, entropy-guided"
    ),
    "trace": Method(
        search=rollouts_then(MixedOutcome()),
        credit=WithTargets(weights=TreeGrpo()),
        critic="learned",
        about="TRACE, prefixes of open outcome",
    ),
}
