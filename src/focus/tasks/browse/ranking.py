"""How a search of the library orders its documents."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from focus._extras import require

__all__ = ("RANKINGS", "Bm25", "Ranking", "WordCounts", "words")

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Words in lower case.

    >>> words("The mayor of Talmor.")
    ['the', 'mayor', 'of', 'talmor']
    """
    return [word.lower() for word in _WORD.findall(text)]


class Ranking(Protocol):
    """Orders documents by how well they fit a query."""

    def best(self, query: str, most: int) -> list[int]:
        """Places of at most `most` documents that share a word with `query`, best first."""
        ...


class Bm25:
    """BM25, by the package bm25s.

    Raises:
        MissingExtra: it is not installed.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        bm25s: Any = require("bm25s", extra="agents")
        self._ranking = bm25s.BM25()
        self._ranking.index([words(text) for text in texts], show_progress=False)

    def best(self, query: str, most: int) -> list[int]:
        found, scores = self._ranking.retrieve([words(query)], k=most, show_progress=False)
        pairs = zip(found[0], scores[0], strict=True)
        return [int(place) for place, score in pairs if score > 0]


class WordCounts:
    """How often the query's words occur; the earlier of two equals. Needs no package.

    >>> WordCounts(["a b", "b b", "c"]).best("b", 3)
    [1, 0]
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._counts: dict[str, Counter[int]] = defaultdict(Counter)
        for place, text in enumerate(texts):
            for word in words(text):
                self._counts[word][place] += 1

    def best(self, query: str, most: int) -> list[int]:
        total: Counter[int] = Counter()
        for word in words(query):
            total.update(self._counts.get(word, {}))
        return sorted(total, key=lambda place: (-total[place], place))[:most]


RANKINGS: dict[str, Callable[[Sequence[str]], Ranking]] = {"bm25": Bm25, "counts": WordCounts}
"""By the name that scripts take."""
