"""A tree's columns are its nodes' numbers, however it grew."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from focus.testing.trees import build_tree, random_sketch
from focus.tree import Returns

grown = st.builds(
    lambda seed, nodes: build_tree(random_sketch(random.Random(seed), nodes=nodes, shaping=0.5)),
    st.integers(0, 2**32),
    st.integers(2, 60),
)


@given(tree=grown)
def test_columns_are_what_the_nodes_say(tree):
    columns, edges = tree.columns, list(tree.edges())
    assert columns.parents == [-1, *(node.parent for node in edges)]
    assert columns.values == [node.value for node in tree]
    assert columns.live == [node.id for node in tree if not node.is_terminal]
    expected = [node.value for node in tree if not node.is_terminal]
    assert columns.priors == expected
    assert columns.terminals == [node.id for node in tree if node.is_terminal]
    assert columns.trained == [node.id for node in edges if node.incoming.sampled_tokens]
    assert columns.rewards == [0.0, *(node.incoming.reward for node in edges)]
    assert columns.step_rewards == [0.0, *(node.incoming.step_reward for node in edges)]
    assert columns.durations == [0, *(node.incoming.duration for node in edges)]
    assert columns.spans == [(), *(node.incoming.spans for node in edges)]
    for node in tree:
        below = [child.id for child in edges if child.parent == node.id]
        assert columns.children[node.id] == below
        own = node.edge.provenance.expansion if node.edge is not None else None
        went_on = [id_ for id_ in below if tree[id_].incoming.provenance.expansion == own]
        assert columns.continued[node.id] == (went_on[0] if went_on else 0)
        assert len(went_on) <= 1


@given(tree=grown, discount=st.sampled_from([1.0, 0.9]), weight=st.sampled_from([0.0, 1.0, -0.5]))
def test_terms_are_those_of_the_returns(tree, discount, weight):
    returns = Returns(discount=discount, step_weight=weight)
    gained, carried = tree.columns.gained(returns), tree.columns.carried(returns)
    assert (gained[0], carried[0]) == (0.0, 1.0)
    for node in tree.edges():
        assert gained[node.id] == returns.edge_reward(node.incoming)
        assert gained[node.id] + carried[node.id] * 0.7 == returns.backed_up(node.incoming, 0.7)
