"""What each edge of a tree says."""

from __future__ import annotations

from typing import Any

from focus.policies.base import Policy
from focus.tree import NodeId, Tree

__all__ = ("edge_texts",)


def edge_texts(tree: Tree[Any], policy: Policy) -> dict[NodeId, str]:
    """Text that each node's incoming edge adds; the prompt's for the root. Specials kept.

    An edge's text is what its whole context decodes to beyond its parent's context, so a
    character whose bytes fall into two edges belongs to the second; where the parent's
    text is no prefix of the child's (the seam cut a character) the edge is decoded alone.
    """
    whole: dict[NodeId, str] = {}
    texts: dict[NodeId, str] = {}
    for node in tree:
        whole[node.id] = policy.decode(tree.context(node.id), keep_special=True)
        if node.parent is None:
            texts[node.id] = whole[node.id]
        elif whole[node.id].startswith(whole[node.parent]):
            texts[node.id] = whole[node.id][len(whole[node.parent]) :]
        else:
            texts[node.id] = policy.decode(node.incoming.ids, keep_special=True)
    return texts
