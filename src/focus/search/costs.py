"""What a purchase may cost at most, and what it is expected to cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from focus.tree import NodeId, Tree

__all__ = ("Costs", "Rooms")

BANDS = 16
"""Resolution of the estimate: one running mean per sixteenth of the root's room."""


class Rooms(dict[NodeId, int | None]):
    """Tokens that each checkpoint may still sample, 0 where its episode ended; asked once each."""

    def __init__(self, tree: Tree[Any], remaining_tokens: Callable[[NodeId], int | None]) -> None:
        super().__init__()
        self._tree = tree
        self._remaining_tokens = remaining_tokens

    def __missing__(self, node_id: NodeId) -> int | None:
        is_over = self._tree[node_id].is_terminal
        room = self[node_id] = 0 if is_over else self._remaining_tokens(node_id)
        return room

    def is_forkable(self, node_id: NodeId) -> bool:
        """The episode goes on and at least one more token fits."""
        room = self[node_id]
        return room is None or room > 0


class Costs:
    """Expected tokens from a checkpoint to the end of an expansion.

    A checkpoint with R tokens of room lies in band ⌈16·R/A⌉, A being the root's room. The
    expectation is the rounded-up mean over the finished expansions and suffixes that
    started in the same band; a band without data expects min(R, N/8), R taken at the
    band's upper edge and N being the token budget of all phases together, and never more
    than the asking phase's whole budget. With unlimited room there is one band.
    Expansions of n edges at most are counted apart from those that run to the end, and
    from launch only: a suffix of one is not n edges long.

    >>> costs = Costs(root_room=4096, total_tokens=16_384)
    >>> costs.expected(costs.band(4096), budget=8192), costs.expected(costs.band(256), budget=8192)
    (2048, 256)
    >>> costs.learn([4096, 3840], [256, 100], reached_end=True)
    >>> costs.expected(costs.band(4096), budget=8192), costs.expected(costs.band(3840), budget=8192)
    (356, 100)
    """

    def __init__(self, *, root_room: int | None, total_tokens: int) -> None:
        self._root_room = root_room
        self._eighth = total_tokens // 8
        self._bands: dict[int | None, int] = {}
        self._sums: defaultdict[tuple[int | None, int], list[int]] = defaultdict(lambda: [0, 0])

    def band(self, room: int | None) -> int:
        """Band of a checkpoint that may still sample `room` tokens (None: without limit)."""
        band = self._bands.get(room)
        if band is None:
            band = BANDS
            if room is not None and self._root_room:
                band = min(BANDS, max(1, -(-BANDS * room // self._root_room)))
            self._bands[room] = band
        return band

    def expected(self, band: int, *, budget: int, extent: int | None = None) -> int:
        """Tokens that a launch from `band` is expected to sample, in a phase of `budget`; ≥ 1."""
        total, count = self._sums.get((extent, band), (0, 0))
        if count:
            return max(1, -(-total // count))
        guess = min(self._eighth, budget)
        if self._root_room is not None:
            guess = min(guess, band * self._root_room // BANDS)
        return max(1, guess)

    def learn(
        self,
        rooms: Sequence[int | None],
        sizes: Sequence[int],
        *,
        extent: int | None = None,
        reached_end: bool,
    ) -> None:
        """Take in one settled expansion; one that was cut short or failed teaches nothing.

        Args:
            rooms: tokens of room where each of its edges began.
            sizes: tokens sampled on each edge.
            extent: edges it was limited to.
            reached_end: its last checkpoint ended the episode.
        """
        if not reached_end and (extent is None or len(sizes) < extent):
            return
        tokens = sum(sizes)
        for room, size in zip(rooms, sizes, strict=True):
            sums = self._sums[extent, self.band(room)]
            sums[0] += tokens
            sums[1] += 1
            tokens -= size
            if extent is not None:
                break
