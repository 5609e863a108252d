"""Branch where the policy was unsure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from focus.errors import ConfigError
from focus.search.allocators.base import Allocator, Session, View
from focus.tree import NodeId

__all__ = ("TokenEntropy", "windowed_entropy")


def windowed_entropy(log_probs: Sequence[float], *, window: int) -> float | None:
    """Largest mean of u = −l·eˡ over `window` neighbouring sampled tokens.

    u is the sampled token's own term of the entropy: 0 for a certain token and for an
    impossible one, at most 1/e. A shorter sequence is one window. Non-finite log-probs
    are left out, because 0 would call them certain.

    Args:
        log_probs: natural-log probabilities of the sampled tokens of one edge.
        window: tokens per window, ≥ 1.

    Returns:
        A number in [0, 1/e], or None without a usable token.

    >>> round(windowed_entropy([-1.0, -1.0, -0.01, -3.0], window=2), 6)
    0.367879
    """
    terms = [-value * math.exp(value) for value in log_probs if math.isfinite(value)]
    if not terms:
        return None
    width = min(window, len(terms))
    total = best = sum(terms[:width])
    for entering, leaving in zip(terms[width:], terms[:-width], strict=True):
        total += entering - leaving
        best = max(best, total)
    return best / width


@dataclass(frozen=True, kw_only=True)
class TokenEntropy(Allocator):
    """Ranks a checkpoint by the mean windowed entropy of its branches.

    score(h) = mean over children of `windowed_entropy` ÷ (1 + children + pending).
    A checkpoint without a scored child is +inf: untried tips go first, the oldest first;
    one whose purchase failed and left nothing is 0 instead, and goes last.
    The divisor keeps one unsure checkpoint from absorbing the whole budget;
    ``count_penalty=False`` gives the undivided mean.

    Every sampled token counts, also those of folds: they follow the same sampling law.

    Raises:
        ConfigError: `window` < 1.
    """

    window: int = 8
    count_penalty: bool = True

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ConfigError(f"window must be >= 1, got {self.window}")

    def session(self, view: View) -> Session:
        return _Ranking(self, view)


class _Ranking(Session):
    def __init__(self, config: TokenEntropy, view: View) -> None:
        self._config = config
        self._view = view
        self._sums: dict[NodeId, tuple[float, int]] = {}
        self._barren: set[NodeId] = set()
        self._add(node.id for node in view.tree.edges())

    def score(self, node_id: NodeId) -> float:
        total, count = self._sums.get(node_id, (0.0, 0))
        if not count:
            return 0.0 if node_id in self._barren else math.inf
        mean = total / count
        return mean / (1 + self._view.branches_at(node_id)) if self._config.count_penalty else mean

    def settled(self, launched_from: NodeId, chain: Sequence[NodeId]) -> Sequence[NodeId]:
        if not chain:
            self._barren.add(launched_from)
        self._add(chain)
        return ()

    def _add(self, node_ids: Iterable[NodeId]) -> None:
        for node_id in node_ids:
            node = self._view.tree[node_id]
            entropy = windowed_entropy(node.incoming.log_probs, window=self._config.window)
            if entropy is None:
                continue
            assert node.parent is not None
            total, count = self._sums.get(node.parent, (0.0, 0))
            self._sums[node.parent] = (total + entropy, count + 1)
