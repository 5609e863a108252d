"""Stop an expansion that the critic holds to be hopeless, and keep the books honest.

Stopping by value looks at what is about to fail. A mean over the rollouts that were
finished would then be too good: those cut off are missing because they were going badly.
So a coin decides: a hopeless checkpoint is passed with chance `keep`, and a rollout that
passed j of them stands for 1/keep^j. With R the return of a rollout that was never stopped,

    E[ R · 1(finished) / keep^j ] = E[R]

whatever the critic says (Horvitz and Thompson 1952), because each coin is independent of
what follows. `unstopped_outcomes` averages these, with a stopped rollout counted as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from focus.errors import ConfigError
from focus.tree.evidence import Stats, suffix_returns
from focus.tree.node import NodeId
from focus.tree.tree import Tree

__all__ = ("EarlyStop", "unstopped_outcomes")


@dataclass(frozen=True, kw_only=True)
class EarlyStop:
    """When an expansion may be given up.

    Its tip is then an unfinished checkpoint: valued by the critic, without evidence, and
    forkable, as if an extent had ended it. Estimators that back values up see the critic's
    value there, which is below `below`. The search's own evidence holds finished rollouts
    once each, survivors too: it is too good where much is stopped, and so are targets made
    of mean outcomes. Leave it off while those are what you train on.

    Attributes:
        below: values under this are hopeless, in the critic's units.
        keep: chance to go on all the same, > 0, so that the critic can be found wrong.

    Raises:
        ConfigError: `keep` is no chance in (0, 1], or `below` is not finite.
    """

    below: float = 0.05
    keep: float = 0.25

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise ConfigError(f"keep must lie in (0, 1], got {self.keep}")
        if not abs(self.below) < float("inf"):
            raise ConfigError(f"below must be finite, got {self.below}")

    def goes_on(self, value: float, *, coin: float) -> bool:
        """Whether an expansion passes a checkpoint.

        Args:
            value: the critic's.
            coin: uniform on [0, 1), drawn for this checkpoint alone.
        """
        return value >= self.below or coin < self.keep


def unstopped_outcomes(tree: Tree[Any], stop: EarlyStop) -> dict[NodeId, Stats]:
    """Suffix returns per checkpoint, as if nothing had been stopped, without bias.

    A sample is R/keep^j for a rollout that finished after passing j hopeless checkpoints,
    and 0 for one that was stopped; so samples may exceed the range of returns. Only nodes
    from which an expansion was launched get samples: further down, being there at all
    depends on the coins before. Use it on trees whose every phase stopped by `stop`, and
    whose expansions ended by finishing or stopping only.
    """
    chains: dict[int, list[NodeId]] = {}
    for node in tree.edges():
        chains.setdefault(node.incoming.provenance.expansion, []).append(node.id)
    found: dict[NodeId, Stats] = {}
    for chain in chains.values():
        start = tree[chain[0]].parent
        assert start is not None
        found[start] = found.get(start, Stats()).with_sample(_sample(tree, chain, stop))
    return found


def _sample(tree: Tree[Any], chain: Sequence[NodeId], stop: EarlyStop) -> float:
    if not tree[chain[-1]].is_terminal:
        return 0.0
    values = (tree[node].value for node in chain[:-1])
    passed = sum(1 for value in values if value is not None and value < stop.below)
    return suffix_returns(tree, chain, tree.header.returns)[0] / stop.keep**passed
