"""One tree as a page: what it is of, how it went, and its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from focus.records.tree_store import StoredTree
from focus.tree import NodeId
from focus.viz.facts import Facts
from focus.viz.glyphs import UNICODE, Glyphs
from focus.viz.node import node_view
from focus.viz.numbers import fraction
from focus.viz.text import clipped, visible
from focus.viz.tree import TreeView

__all__ = ("PageOptions", "best_example", "tree_page")

_PROMPT_CHARACTERS = 300
_LEAST_WIDTH = 56
_GUIDE_WIDTH = 4
_FAILURES_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """What to draw of a tree.

    Attributes:
        node: start here, with all that is known about it; None is the whole tree.
        depth: most edges below the start; None is no limit.
        limit: most nodes; 0 is no limit.
        width: columns at hand; forks that would need more are summed up.
        glyphs: signs to use.
    """

    node: NodeId | None = None
    depth: int | None = None
    limit: int = 200
    width: int = 100
    glyphs: Glyphs = UNICODE


def tree_page(stored: StoredTree, options: PageOptions) -> RenderableType:
    """Facts, then the tree, or one node and what is below it.

    Raises:
        KeyError: there is no such node.
    """
    view = TreeView(stored, glyphs=options.glyphs)
    start = 0 if options.node is None else options.node
    head = _facts(stored, options.glyphs) if options.node is None else node_view(view, start)
    nodes = view.below(
        start,
        depth=options.depth,
        limit=options.limit or len(stored.tree),
        levels=max(1, (options.width - _LEAST_WIDTH) // _GUIDE_WIDTH),
    )
    return Group(head, Text(), Text(_legend(options.glyphs), style="dim"), nodes)


def _legend(glyphs: Glyphs) -> str:
    return (
        f"node, A advantage, V value {glyphs.arrow} {glyphs.refined} after the evidence "
        f"(or {glyphs.right} {glyphs.wrong} outcome), tokens, text"
    )


def _facts(stored: StoredTree, glyphs: Glyphs) -> RenderableType:
    failures = [
        ("failed", f"{failure.kind}: {visible(failure.message, ascii_only=glyphs.ascii_only)}")
        for failure in stored.failures[:_FAILURES_SHOWN]
    ]
    left = len(stored.failures) - len(failures)
    if left:
        failures.append(("failed", f"and {left} more"))
    return Group(Facts(_rows(stored, glyphs)), Facts(failures, style="red"))


def _rows(stored: StoredTree, glyphs: Glyphs) -> Iterator[tuple[str, str]]:
    tree = stored.tree
    header = tree.header
    prompt = " / ".join(m.content for m in header.problem.messages if m.role != "system")
    shown = visible(prompt, ascii_only=glyphs.ascii_only)
    start = clipped(shown, _PROMPT_CHARACTERS, ellipsis=glyphs.open)
    yield "problem", f"{visible(str(header.problem.id))}: {start}"
    if isinstance(header.problem.label, str | int | float):
        label = visible(str(header.problem.label), ascii_only=glyphs.ascii_only)
        yield "reference", clipped(label, _PROMPT_CHARACTERS, ellipsis=glyphs.open)
    identity = header.identity
    yield (
        "collected",
        f"run {visible(identity.run)}, round {identity.round}, attempt {identity.attempt}; "
        f"policy {visible(header.policy_version)}, critic {visible(header.critic_version)}",
    )
    yield "tree", _shape(stored)
    yield "outcomes", _outcomes(stored, glyphs)


def _shape(stored: StoredTree) -> str:
    tree = stored.tree
    forks = sum(1 for node in tree if len(tree.children(node.id)) > 1)
    return (
        f"{len(tree)} nodes, {forks} forks, {len(tree.leaves())} leaves, "
        f"{len(tree.selections)} launches, {tree.sampled_tokens()} tokens"
    )


def _outcomes(stored: StoredTree, glyphs: Glyphs) -> str:
    tree = stored.tree
    outcomes = [tree.outcome(node) for node in tree.terminals()]
    right = sum(1 for outcome in outcomes if outcome > 0)
    text = f"{right} {glyphs.right}  {len(outcomes) - right} {glyphs.wrong}"
    if stored.credit is None:
        return text
    refined = stored.credit.values.get(0)
    values = f"root V {fraction(tree.root.value)}"
    if refined is not None:
        values += f" {glyphs.arrow} {glyphs.refined} {fraction(refined)}"
    return f"{text}  {values}  credit by {visible(stored.credit.estimator)}"


def best_example(trees: dict[str, StoredTree]) -> str | None:
    """The tree that shows most: mixed outcomes first, then the largest advantages.

    >>> best_example({}) is None
    True
    """

    def telling(name: str) -> tuple[bool, float]:
        stored = trees[name]
        outcomes = {stored.tree.outcome(node) for node in stored.tree.terminals()}
        advantages = stored.credit.advantages.values() if stored.credit else ()
        return len(outcomes) > 1, max((abs(a) for a in advantages), default=0.0)

    return max(trees, key=telling, default=None)
