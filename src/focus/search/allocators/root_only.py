"""Independent rollouts from the prompt."""

from __future__ import annotations

from dataclasses import dataclass

from focus.search.allocators.base import INELIGIBLE, Allocator, Session, View
from focus.tree import NodeId

__all__ = ("RootOnly",)


@dataclass(frozen=True)
class RootOnly(Allocator):
    """Buys the root and nothing else, so that every rollout is an independent sample.

    Group estimators (GRPO, RLOO) need exactly that: checkpoints in the middle of a
    rollout are kept and trained, never branched.
    """

    def session(self, view: View) -> Session:
        return _Root()


class _Root(Session):
    def score(self, node_id: NodeId) -> float:
        return 0.0 if node_id == 0 else INELIGIBLE
