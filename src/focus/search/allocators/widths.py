"""Trees and probes of a size fixed beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from focus.errors import ConfigError
from focus.search.allocators.base import INELIGIBLE, Allocator, Session, View
from focus.tree import NodeId

__all__ = ("EachCheckpoint", "FixedWidth")


@dataclass(frozen=True)
class FixedWidth(Allocator):
    """Gives every checkpoint of depth d `widths[d]` branches, one beyond the last of them.

    The shallowest goes first, then the oldest. With ``extent=Edges(1)`` this is the b-b-b
    tree of SPO; without, a rollout passes through and its checkpoints are filled up.
    A terminal ends its branch early.

    Raises:
        ConfigError: no width, or one below 1.
    """

    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        if not self.widths or any(width < 1 for width in self.widths):
            raise ConfigError(f"widths must be numbers >= 1, got {self.widths}")

    def session(self, view: View) -> Session:
        return _Levels(self, view)


class _Levels(Session):
    def __init__(self, config: FixedWidth, view: View) -> None:
        self._widths = config.widths
        self._view = view

    def score(self, node_id: NodeId) -> float:
        depth = self._view.tree[node_id].depth
        width = self._widths[depth] if depth < len(self._widths) else 1
        return -float(depth) if self._view.branches_at(node_id) < width else INELIGIBLE


@dataclass(frozen=True)
class EachCheckpoint(Allocator):
    """Buys `count` more branches of each checkpoint that exists when its phase begins.

    Checkpoints that those branches make are never bought. A failed purchase is repeated.
    This measures every state of earlier rollouts alike, as VinePPO's probes do.

    Raises:
        ConfigError: `count` < 1.
    """

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(f"count must be >= 1, got {self.count}")

    def session(self, view: View) -> Session:
        return _Probes(self, view)


class _Probes(Session):
    def __init__(self, config: EachCheckpoint, view: View) -> None:
        self._view = view
        self._wanted = {
            node.id: view.branches_at(node.id) + config.count
            for node in view.tree
            if not node.is_terminal
        }

    def score(self, node_id: NodeId) -> float:
        wanted = self._wanted.get(node_id, 0)
        return float(wanted > self._view.branches_at(node_id)) or INELIGIBLE
