"""A tree of checkpoints as indented lines: figures first, then what the edge says.

Only forks indent. Checkpoints that follow each other without a fork stand below each
other at one level, so a tree is as wide as it branches and not as deep as it is long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree as Branches

from focus.records.tree_store import StoredTree
from focus.tree import NodeId, Selection, Tree
from focus.viz.glyphs import UNICODE, Glyphs
from focus.viz.numbers import fraction, signed
from focus.viz.text import visible

__all__ = ("Strand", "TreeView", "selection_line", "strands")

_FADED_BELOW = 0.05
_STRONG_FROM = 0.35


@dataclass(frozen=True, slots=True)
class Strand:
    """Checkpoints drawn at one level.

    Attributes:
        nodes: each the only child of the one before.
        branches: one strand per child of the last node.
        hidden: nodes below the last one that are not drawn.
    """

    nodes: tuple[NodeId, ...]
    branches: tuple[Strand, ...] = ()
    hidden: int = 0


def strands(
    tree: Tree[Any], start: NodeId, *, depth: int | None = None, limit: int, levels: int
) -> Strand:
    """The part of `tree` below `start` that is drawn, `start` included.

    Args:
        tree: any tree.
        start: where to begin.
        depth: most edges below `start`; None is no limit.
        limit: most nodes, in preorder.
        levels: most forks above each other.

    >>> from focus.testing.trees import build_tree, chain, end, fork
    >>> tree = build_tree(fork(0.5, chain([0.5, 0.5], outcome=1.0), end(0.0)))
    >>> drawn = strands(tree, 0, limit=9, levels=9)
    >>> drawn.nodes, [branch.nodes for branch in drawn.branches]
    ((0,), [(1, 2, 3), (4,)])
    """
    deepest = None if depth is None else tree[start].depth + depth
    return _Drawing(tree, deepest, limit).strand(start, levels)


class _Drawing:
    """Counts down the nodes that may still be drawn."""

    def __init__(self, tree: Tree[Any], deepest: int | None, limit: int) -> None:
        self._tree = tree
        self._deepest = deepest
        self._left = limit
        self._sizes = _subtree_sizes(tree)

    def strand(self, first: NodeId, levels: int) -> Strand:
        run = [first]
        self._left -= 1
        while len(children := self._tree.children(run[-1])) == 1 and self._may_descend(run[-1]):
            run.append(children[0])
            self._left -= 1
        branches: list[Strand] = []
        hidden = 0
        for child in children:
            if levels > 0 and self._may_descend(run[-1]):
                branches.append(self.strand(child, levels - 1))
            else:
                hidden += self._sizes[child]
        return Strand(tuple(run), tuple(branches), hidden)

    def _may_descend(self, node_id: NodeId) -> bool:
        within = self._deepest is None or self._tree[node_id].depth < self._deepest
        return within and self._left > 0


def _subtree_sizes(tree: Tree[Any]) -> list[int]:
    sizes = [1] * len(tree)
    for node in reversed(list(tree)):
        if node.parent is not None:
            sizes[node.parent] += sizes[node.id]
    return sizes


class TreeView:
    """Draws one stored tree.

    Args:
        stored: the tree with texts and credit.
        glyphs: signs to use.
    """

    def __init__(self, stored: StoredTree, *, glyphs: Glyphs = UNICODE) -> None:
        self.stored = stored
        self.glyphs = glyphs
        advantages = stored.credit.advantages.values() if stored.credit else ()
        self._largest = max((abs(advantage) for advantage in advantages), default=0.0)
        self._launches = {launch.expansion: launch for launch in stored.tree.selections}

    def below(
        self, start: NodeId = 0, *, depth: int | None = None, limit: int, levels: int
    ) -> RenderableType:
        """Everything from `start` down, as far as the limits of `strands` allow."""
        drawn = strands(self.stored.tree, start, depth=depth, limit=limit, levels=levels)
        branches = Branches(self._label(drawn), guide_style="dim")
        self._grow(branches, drawn)
        return branches

    def _grow(self, branches: Branches, strand: Strand) -> None:
        for below in strand.branches:
            self._grow(branches.add(self._label(below)), below)
        if strand.hidden:
            branches.add(
                Text(
                    f"{self.glyphs.open} {strand.hidden} more below node {strand.nodes[-1]} "
                    f"(--node {strand.nodes[-1]})",
                    style="dim italic",
                )
            )

    def _label(self, strand: Strand) -> Group:
        lines: list[Text] = []
        for node_id in strand.nodes:
            launch = self.launch_of(node_id)
            if launch is not None:
                lines.append(
                    Text(
                        selection_line(launch),
                        style="dim",
                        no_wrap=True,
                        overflow=self.glyphs.overflow,
                    )
                )
            lines.append(self.line(node_id))
        return Group(*lines)

    def launch_of(self, node_id: NodeId) -> Selection | None:
        """Why the expansion that begins with this node was bought; None inside one."""
        edge = self.stored.tree[node_id].edge
        if edge is None or edge.provenance.index:
            return None
        return self._launches.get(edge.provenance.expansion)

    def line(self, node_id: NodeId) -> Text:
        """One node: number, advantage, value or outcome, tokens, text."""
        node = self.stored.tree[node_id]
        text = Text(no_wrap=True, overflow=self.glyphs.overflow)
        text.append(f"{node_id:>3} ", style="bold")
        if node.edge is not None:
            text.append(f" A {signed(self.advantage(node_id)):>6} ", style=self.style(node_id))
        text.append_text(self._worth(node_id))
        if node.edge is not None:
            text.append(f" {node.edge.sampled_tokens:>3} tok  ", style="dim")
            style = self.style(node_id)
            text.append(self.said(node_id), style=style if style.startswith("bold") else "")
        return text

    def _worth(self, node_id: NodeId) -> Text:
        """Value before and after the evidence, or the outcome of an ended episode."""
        node = self.stored.tree[node_id]
        if node.is_terminal:
            return self._outcome(node_id)
        refined = self.stored.credit.values.get(node_id) if self.stored.credit else None
        after = f" {self.glyphs.arrow} {fraction(refined, digits=2)}" if refined is not None else ""
        worth = Text(f" V {fraction(node.value, digits=2)}{after}".ljust(15), style="cyan")
        if not self.stored.tree.children(node_id):
            worth.append("unfinished ", style="yellow")
        return worth

    def _outcome(self, node_id: NodeId) -> Text:
        outcome = self.stored.tree.outcome(node_id)
        sign = self.glyphs.right if outcome > 0 else self.glyphs.wrong
        style = "bold green" if outcome > 0 else "bold red"
        text = Text(f" {sign} {outcome:g}".ljust(15), style=style)
        if self.stored.tree[node_id].is_truncated:
            text.append("truncated ", style="yellow")
        return text

    def advantage(self, node_id: NodeId) -> float | None:
        """Weight that the edge into this node is trained with."""
        credit = self.stored.credit
        return None if credit is None else credit.advantages.get(node_id)

    def style(self, node_id: NodeId) -> str:
        """Green above zero, red below, stronger the larger it is within this tree."""
        advantage = self.advantage(node_id)
        if advantage is None or self._share(advantage) < _FADED_BELOW:
            return "dim"
        strength = "bold " if self._share(advantage) >= _STRONG_FROM else ""
        return strength + ("green" if advantage > 0 else "red")

    def _share(self, advantage: float) -> float:
        return abs(advantage) / self._largest if self._largest else 0.0

    def said(self, node_id: NodeId) -> str:
        """The edge's text, safe to print; its ids where no text was stored."""
        text = self.stored.texts.get(node_id)
        if text is not None:
            return visible(text, ascii_only=self.glyphs.ascii_only)
        edge = self.stored.tree[node_id].edge
        ids = self.stored.tree.header.prompt_ids if edge is None else edge.ids
        return "ids " + " ".join(map(str, ids))


def selection_line(selection: Selection) -> str:
    """Why one expansion was bought when it was.

    >>> selection_line(
    ...     Selection(expansion=7, node=2, phase=1, score=0.03125, rivals=12, free_tokens=220)
    ... )
    'launch 7 from node 2, phase 1: score 0.0312, 12 rivals, 220 tokens free'
    """
    parts = [f"score {selection.score:.3g}", f"{selection.rivals} rivals"]
    if selection.free_tokens is not None:
        parts.append(f"{selection.free_tokens} tokens free")
    place = f"launch {selection.expansion} from node {selection.node}, phase {selection.phase}"
    return f"{place}: {', '.join(parts)}"
