"""Highest reward, mean return or critic value first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from focus.errors import ConfigError
from focus.search.allocators.base import INELIGIBLE, Allocator, Session, View
from focus.tree import NodeId, Stats, suffix_returns

__all__ = ("BestFirst",)

Key = Literal["reward", "mean_return", "critic"]


@dataclass(frozen=True, kw_only=True)
class BestFirst(Allocator):
    """score = base + explore / (1 + visits), where `key` names the base.

    - ``"reward"``: Σ r(e) from the root to the checkpoint.
    - ``"mean_return"``: mean whole-episode return of the finished rollouts through it;
      0 before the first one.
    - ``"critic"``: its value V; a checkpoint without one is never bought, and a tree
      without any declines the phase.

    Visits are the expansions that attached something at or below the checkpoint,
    finished or not.

    Raises:
        ConfigError: an unknown key, or `explore` is negative or not finite.
    """

    key: Key = "mean_return"
    explore: float = 0.0

    def __post_init__(self) -> None:
        if self.key not in get_args(Key):
            raise ConfigError(f"key must be one of {', '.join(get_args(Key))}, got {self.key!r}")
        if not (math.isfinite(self.explore) and self.explore >= 0):
            raise ConfigError(f"explore must be finite and >= 0, got {self.explore}")

    def session(self, view: View) -> Session | None:
        if self.key == "critic" and all(node.value is None for node in view.tree):
            return None
        return _Ranking(self, view)


class _Ranking(Session):
    def __init__(self, config: BestFirst, view: View) -> None:
        self._config = config
        self._tree = view.tree
        self._rewards: dict[NodeId, float] = {0: 0.0}
        self._visits: dict[NodeId, int] = {}
        self._episodes: dict[NodeId, Stats] = {}
        tips = {node.incoming.provenance.expansion: node.id for node in self._tree.edges()}
        for tip in tips.values():
            self._visit(tip)

    def score(self, node_id: NodeId) -> float:
        return self._base(node_id) + self._config.explore / (1 + self._visits.get(node_id, 0))

    def settled(self, launched_from: NodeId, chain: Sequence[NodeId]) -> Iterable[NodeId]:
        if not chain or not (self._config.explore or self._config.key == "mean_return"):
            return ()
        return self._visit(chain[-1])

    def _base(self, node_id: NodeId) -> float:
        if self._config.key == "reward":
            return self._reward(node_id)
        if self._config.key == "mean_return":
            return self._episodes.get(node_id, Stats()).mean
        value = self._tree[node_id].value
        return INELIGIBLE if value is None else value

    def _reward(self, node_id: NodeId) -> float:
        unknown = []
        while node_id not in self._rewards:
            unknown.append(self._tree[node_id])
            node_id = unknown[-1].parent or 0
        reward = self._rewards[node_id]
        for node in reversed(unknown):
            reward += self._tree.header.returns.edge_reward(node.incoming)
            self._rewards[node.id] = reward
        return reward

    def _visit(self, tip: NodeId) -> Sequence[NodeId]:
        path = self._tree.path(tip)
        for node_id in path:
            self._visits[node_id] = self._visits.get(node_id, 0) + 1
        if self._tree[tip].is_terminal:
            episode = suffix_returns(self._tree, path[1:], self._tree.header.returns)[0]
            for node_id in path:
                self._episodes[node_id] = self._episodes.get(node_id, Stats()).with_sample(episode)
        return path
