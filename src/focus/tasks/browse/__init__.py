"""Browsing: questions of several hops over a library of made-up documents."""

from focus.tasks.browse.library import Library
from focus.tasks.browse.world import RELATIONS, Document, World

__all__ = ("RELATIONS", "Document", "Library", "World")
