"""Browsing: questions of several hops over a library of made-up documents."""

from focus.tasks.browse.library import Library
from focus.tasks.browse.ranking import RANKINGS, Bm25, Ranking, WordCounts
from focus.tasks.browse.world import RELATIONS, Document, World

__all__ = (
    "RANKINGS",
    "RELATIONS",
    "Bm25",
    "Document",
    "Library",
    "Ranking",
    "WordCounts",
    "World",
)
