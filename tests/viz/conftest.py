"""Stored trees to draw, and a console that writes to a string."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable

import pytest
from rich.console import Console, RenderableType

from focus.credit import RefinedTd
from focus.records.tree_store import StoredTree
from focus.testing.trees import build_tree, random_sketch

Draw = Callable[..., str]

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def stored_tree(seed: int, nodes: int, text: str = "so\n") -> StoredTree:
    """A random credited tree whose every edge says `text`."""
    tree = build_tree(random_sketch(random.Random(seed), nodes=nodes, eagerness=0.4))
    texts = {node.id: text for node in tree}
    return StoredTree(tree=tree, texts=texts, credit=RefinedTd().estimate(tree))


@pytest.fixture(scope="session")
def draw() -> Draw:
    """Prints to a colour terminal and gives what stands there, styles taken away."""

    def drawn(renderable: RenderableType, *, width: int = 100, styled: bool = False) -> str:
        console = Console(
            file=io.StringIO(), width=width, force_terminal=True, legacy_windows=False
        )
        console.print(renderable)
        assert isinstance(console.file, io.StringIO)
        text = console.file.getvalue()
        return text if styled else _STYLE.sub("", text)

    return drawn
