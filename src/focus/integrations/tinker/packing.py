"""Records as rows of a Tinker batch: each root-to-leaf path once, each edge trained in one.

Tinker bills every token of a datum. A record per segment repeats its prefix, which costs the
square of the depth; where one record's tokens begin another's, both fit into one row with
weights per token. A token-wise loss that is summed does not change by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from focus.records.records import ActorRecord
from focus.tokens import LogProbs, TokenIds

__all__ = ("PathRow", "pack_paths")


@dataclass(frozen=True, slots=True)
class PathRow:
    """One row: tokens from the prompt on, with aligned columns.

    Attributes:
        tokens: ids.
        log_probs: behaviour log-probs of ids that are trained here, 0.0 elsewhere.
        weights: their advantages, none of them 0.0; 0.0 elsewhere.
    """

    tokens: TokenIds
    log_probs: LogProbs
    weights: tuple[float, ...]

    @property
    def trained(self) -> list[int]:
        """Places of the trained ids; never 0."""
        return [place for place, weight in enumerate(self.weights) if weight]


class _Row:
    """A row while it takes in records that begin it."""

    def __init__(self, tokens: TokenIds) -> None:
        self.tokens = tokens
        self.log_probs = [0.0] * len(tokens)
        self.weights = [0.0] * len(tokens)

    def takes(self, record: ActorRecord) -> bool:
        """Whether the record's places are free; a twin of a sibling finds them taken."""
        places = _places(record)
        if any(self.weights[place] for place, _ in places):
            return False
        for place, offset in places:
            self.log_probs[place] = record.log_probs[offset]
            self.weights[place] = record.weights[offset]
        return True

    def done(self) -> PathRow:
        return PathRow(self.tokens, tuple(self.log_probs), tuple(self.weights))


def pack_paths(records: Sequence[ActorRecord]) -> list[PathRow]:
    """As few tokens as exact prefixes allow; what would not move the weights is left out.

    A record whose tokens are not literally the beginning of another's (a folded context, a
    chat that was rendered again) has a row of its own. Σ over rows of (tokens − 1) is what a
    service bills.

    >>> from focus.credit.base import Credit
    >>> from focus.records import actor_records
    >>> from focus.testing.trees import build_tree, end, fork
    >>> tree = build_tree(fork(0.5, fork(0.5, end(1.0), end(0.0))))
    >>> credit = Credit(estimator="by hand", advantages={1: 0.1, 2: 0.25, 3: -0.25})
    >>> for row in pack_paths(actor_records(tree, credit, packing="segment")):
    ...     print(row.tokens, row.weights)
    (1, 2, 3, 100, 101) (0.0, 0.0, 0.0, 0.1, 0.25)
    (1, 2, 3, 100, 102) (0.0, 0.0, 0.0, 0.0, -0.25)
    """
    rows: list[_Row] = []
    whole = [(_needed(record), record) for record in records if any(record.weights)]
    # Behind each sequence stand, in sorted order, all those that it begins, and nothing else.
    for tokens, record in sorted(whole, key=lambda pair: pair[0], reverse=True):
        if not _joined(rows, tokens, record):
            row = _Row(tokens)
            row.takes(record)
            rows.append(row)
    return [row.done() for row in reversed(rows)]


def _joined(rows: Sequence[_Row], tokens: TokenIds, record: ActorRecord) -> bool:
    """Put the record into the latest row that it begins and that has room for it."""
    for row in reversed(rows):
        if row.tokens[: len(tokens)] != tokens:
            return False
        if row.takes(record):
            return True
    return False


def _needed(record: ActorRecord) -> TokenIds:
    """Its tokens up to the last one with a weight: what follows conditions nothing here."""
    last = max(offset for offset, weight in enumerate(record.weights) if weight)
    return record.tokens[: len(record.prefix) + last + 1]


def _places(record: ActorRecord) -> list[tuple[int, int]]:
    """(place in the row, place in the response) of each id with a weight."""
    start = len(record.prefix)
    return [(start + offset, offset) for offset, weight in enumerate(record.weights) if weight]
