"""Credit of rollouts whose checkpoints were measured by rollouts of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from focus.credit.base import Credit, CriticFree, check_returns, edge_terms, is_trained
from focus.errors import ConfigError, CreditError
from focus.tree import Node, NodeId, Tree, suffix_returns
from focus.tree.returns import added

__all__ = ("VinePpo",)

_NAME = "vine_ppo"


@dataclass(frozen=True, kw_only=True)
class VinePpo(CriticFree):
    """A(e) = r(e) + γ^d(e)·V(h') − V(h), V(h) the mean return of the probes of h.

    The rollouts of the search's first phase are trained. Every later expansion is a probe
    of the checkpoint that it starts from: only its return counts, its tokens do not train.
    V is 0 at a terminal. No critic is read, and there are no targets for one. Collect with
    `RootOnly` for the rollouts, then `EachCheckpoint` for the probes.
    Source: docs/concepts/credit.md, eq. 11.

    Unbiased: yes, for γ = 1 and probes that no outcome has decided: V(h) is an estimate
    that is independent of the branch taken at h, and V(h') one of what the branch is worth.
    The mean of the rollouts' sums is then an estimate of the gradient.

    Attributes:
        rollouts: phase whose expansions are trained.

    Raises:
        ConfigError: `rollouts` is negative.

    >>> from focus.testing.trees import build_tree, end, fork
    >>> probes = [end(1.0, phase=1), end(0.0, phase=1)]
    >>> tree = build_tree(fork(None, fork(None, end(1.0), *probes), end(0.0, phase=1)))
    >>> VinePpo().estimate(tree).advantages
    {1: 0.5, 2: 0.5}
    """

    rollouts: int = 0

    def __post_init__(self) -> None:
        if self.rollouts < 0:
            raise ConfigError(f"rollouts names a phase of the search, got {self.rollouts}")

    def estimate(self, tree: Tree[Any], *, allow_partial: bool = False) -> Credit:
        """Weights of the rollouts' edges.

        Args:
            tree: rollouts and probes.
            allow_partial: leave out edges at a checkpoint without a finished probe.

        Raises:
            CreditError: a checkpoint of a rollout has no finished probe (unless
                `allow_partial`), or a return is not finite.
        """
        probed = self._probe_means(tree)
        gained, carried = edge_terms(tree, tree.header.returns)
        terms = enumerate(zip(gained, carried, strict=True))
        over = [own + share * probed.get(node, 0.0) for node, (own, share) in terms]
        check_returns(over, estimator=_NAME)
        advantages: dict[NodeId, float] = {}
        for node in tree.edges():
            if node.incoming.provenance.phase != self.rollouts or not is_trained(node):
                continue
            assert node.parent is not None
            ends = (tree[node.parent], node)
            values = [self._value(end, probed, may_miss=allow_partial) for end in ends]
            if values[0] is None or values[1] is None:
                continue
            advantages[node.id] = over[node.id] - values[0]
        return Credit(estimator=_NAME, advantages=advantages, values=probed)

    def _value(
        self, node: Node[Any], probed: Mapping[NodeId, float], *, may_miss: bool
    ) -> float | None:
        if node.is_terminal:
            return 0.0
        if node.id not in probed and not may_miss:
            raise CreditError(f"{_NAME}: node {node.id} of a rollout has no finished probe")
        return probed.get(node.id)

    def _probe_means(self, tree: Tree[Any]) -> dict[NodeId, float]:
        chains: dict[int, list[NodeId]] = {}
        for node in tree.edges():
            if node.incoming.provenance.phase > self.rollouts:
                chains.setdefault(node.incoming.provenance.expansion, []).append(node.id)
        returns: dict[NodeId, list[float]] = {}
        for chain in chains.values():
            start = tree[chain[0]].parent
            if start is not None and tree[chain[-1]].is_terminal:
                total = suffix_returns(tree, chain, tree.header.returns)[0]
                returns.setdefault(start, []).append(total)
        return {start: added(sample) / len(sample) for start, sample in returns.items()}
