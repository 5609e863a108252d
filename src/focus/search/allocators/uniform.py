"""Any checkpoint, with equal chance."""

from __future__ import annotations

import math
from dataclasses import dataclass

from focus.sampling import derive_seed
from focus.search.allocators.base import Allocator, Session, View
from focus.tree import NodeId

__all__ = ("UniformRandom",)

_STEPS = 2**31
"""Values that `derive_seed` can take."""


@dataclass(frozen=True, kw_only=True)
class UniformRandom(Allocator):
    """Buys a checkpoint drawn uniformly, with replacement, from those that are open.

    Each open checkpoint rings at the times of its own Poisson clock, and the next to ring is
    bought. Clocks have no memory, so every purchase is a fresh uniform draw, however many
    checkpoints have joined. The draws depend on `seed` and the tree's problem and identity.

    Attributes:
        seed: of the draws.
    """

    seed: int = 0

    def session(self, view: View) -> Session:
        return _Clocks(self, view)


class _Clocks(Session):
    def __init__(self, config: UniformRandom, view: View) -> None:
        header = view.tree.header
        identity = header.identity
        self._seed = derive_seed(
            config.seed, header.problem.key, identity.run, identity.round, identity.attempt
        )
        self._view = view
        self._now = 0.0
        self._rings: dict[NodeId, tuple[int, float]] = {}

    def entered(self, node_id: NodeId) -> None:
        branches = self._view.branches_at(node_id)
        self._rings[node_id] = (branches, self._now + self._gap(node_id, branches))

    def score(self, node_id: NodeId) -> float:
        seen, ring = self._rings[node_id]
        branches = self._view.branches_at(node_id)
        if branches > seen:
            self._now = max(self._now, ring)
            ring += self._gap(node_id, branches)
            self._rings[node_id] = (branches, ring)
        return -ring

    def _gap(self, node_id: NodeId, purchase: int) -> float:
        drawn = (derive_seed(self._seed, node_id, purchase) + 0.5) / _STEPS
        return -math.log(drawn)
