"""Everything a stored tree knows about one node."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from focus.tree import Node, NodeId
from focus.viz.facts import Facts
from focus.viz.numbers import fraction, signed
from focus.viz.text import visible
from focus.viz.tree import TreeView, selection_line

__all__ = ("node_view",)


def node_view(view: TreeView, node_id: NodeId) -> RenderableType:
    """Figures of one node, then its whole context with the last edge set apart.

    Raises:
        KeyError: there is no such node.
    """
    node = view.stored.tree[node_id]
    return Group(Facts(_facts(view, node)), Text(), *_context(view, node_id))


def _facts(view: TreeView, node: Node[None]) -> Iterator[tuple[str, str]]:
    tree = view.stored.tree
    yield "node", _place(node)
    yield from _worth(view, node)
    if node.edge is not None:
        yield "edge", _edge(node)
        yield "request", _request(view, node)
    launch = view.launch_of(node.id)
    if launch is not None:
        yield "bought", selection_line(launch)
    children = tree.children(node.id)
    if children:
        listed = (f"{child} (A {signed(view.advantage(child))})" for child in children)
        yield "children", ", ".join(listed)
    diagnostics = view.stored.credit.diagnostics.get(node.id, {}) if view.stored.credit else {}
    if diagnostics:
        yield "diagnostics", ", ".join(f"{k} {v:.4g}" for k, v in sorted(diagnostics.items()))


def _place(node: Node[None]) -> str:
    if node.edge is None:
        return f"{node.id}, the root"
    source = node.edge.provenance
    return (
        f"{node.id}, depth {node.depth}, below node {node.parent}; "
        f"edge {source.index} of launch {source.expansion}, phase {source.phase}"
    )


def _worth(view: TreeView, node: Node[None]) -> Iterator[tuple[str, str]]:
    credit, glyphs = view.stored.credit, view.glyphs
    if node.edge is not None:
        yield "advantage", signed(view.advantage(node.id), digits=4)
    if node.is_terminal:
        ended = ", ran out of allowance or context" if node.is_truncated else ""
        yield "outcome", f"{view.stored.tree.outcome(node.id):g}{ended}"
        return
    refined = credit.values.get(node.id) if credit else None
    after = (
        "" if refined is None else f" {glyphs.arrow} {glyphs.refined} {fraction(refined, digits=4)}"
    )
    yield "value", f"V {fraction(node.value, digits=4)}{after}"
    target = credit.targets.get(node.id) if credit else None
    if target is not None:
        yield "target", f"{glyphs.target} {target.value:.4f} from {target.count} returns"


def _edge(node: Node[None]) -> str:
    edge = node.incoming
    parts = [f"{edge.kind} of {edge.sampled_tokens} sampled tokens, ended by {edge.finish.value!r}"]
    others = len(edge.ids) - edge.sampled_tokens
    if others:
        parts.append(f"{others} observed tokens")
    if edge.log_probs:
        mean = sum(edge.log_probs) / len(edge.log_probs)
        parts.append(f"log-prob mean {mean:.3f}, lowest {min(edge.log_probs):.3f}")
    if edge.step_reward:
        parts.append(f"step reward {edge.step_reward:g}")
    return "; ".join(parts)


def _request(view: TreeView, node: Node[None]) -> str:
    source = node.incoming.provenance
    tries = "1 try" if source.tries == 1 else f"{source.tries} tries"
    name = visible(source.request_id, ascii_only=view.glyphs.ascii_only)
    return f"{name} ({tries}, policy {visible(source.policy_version)})"


def _context(view: TreeView, node_id: NodeId) -> Iterator[Text]:
    path = view.stored.tree.path(node_id)
    text = Text(overflow="fold")
    for above in path[:-1]:
        text.append(_lines(view, above), style="dim")
    text.append(_lines(view, path[-1]), style=f"bold {view.style(path[-1])}")
    yield text


def _lines(view: TreeView, node_id: NodeId) -> str:
    text = view.stored.texts.get(node_id)
    if text is None:
        return f"[{view.said(node_id)}] "
    return visible(text, ascii_only=view.glyphs.ascii_only, keep_lines=True)
