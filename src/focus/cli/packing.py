"""How a tree becomes training samples, as a choice on the command line."""

from __future__ import annotations

from enum import StrEnum

__all__ = ("PackingName",)


class PackingName(StrEnum):
    """Values of focus.records.Packing."""

    SEGMENT = "segment"
    PATH = "path"
    TREE = "tree"
