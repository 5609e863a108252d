"""The rollout tree: checkpoints, edges, returns and evidence. Pure values, no I/O."""

from focus.tree.columns import TreeColumns
from focus.tree.evidence import Evidence, Stats, SuffixMeans, suffix_returns
from focus.tree.node import Edge, Identity, Node, NodeId, Provenance, Selection
from focus.tree.returns import Returns
from focus.tree.tree import Tree, TreeHeader

__all__ = (
    "Edge",
    "Evidence",
    "Identity",
    "Node",
    "NodeId",
    "Provenance",
    "Returns",
    "Selection",
    "Stats",
    "SuffixMeans",
    "Tree",
    "TreeColumns",
    "TreeHeader",
    "suffix_returns",
)
