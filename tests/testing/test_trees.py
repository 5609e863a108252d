import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.checkpoint import Allowance
from focus.errors import ConfigError
from focus.testing.trees import build_tree, chain, end, fork, preorder, random_sketch, shapes
from focus.tokens import FinishReason


@given(seed=st.integers(0, 2**32), nodes=st.integers(2, 60), eagerness=st.floats(0, 1))
def test_ids_are_places_in_preorder(seed, nodes, eagerness):
    drawing = random_sketch(random.Random(seed), nodes=nodes, eagerness=eagerness)
    tree = build_tree(drawing)
    assert len(tree) == nodes
    for node, sketch in zip(tree, preorder(drawing), strict=True):
        assert node.value == sketch.value
        assert node.is_terminal == sketch.is_terminal
        assert len(tree.children(node.id)) == len(sketch.children)


@given(seed=st.integers(0, 2**32), nodes=st.integers(2, 60))
def test_tokens_and_payloads_fit_together(seed, nodes):
    tree = build_tree(random_sketch(random.Random(seed), nodes=nodes))
    ids = [token for node in tree.edges() for token in node.incoming.ids]
    assert len(set(ids)) == len(ids)
    for node in tree:
        assert node.payload.context.ids() == tree.context(node.id)
    assert all(value <= 0 for node in tree.edges() for value in node.incoming.log_probs)


@given(seed=st.integers(0, 2**32), nodes=st.integers(2, 60))
def test_expansions_are_unbroken_chains(seed, nodes):
    tree = build_tree(random_sketch(random.Random(seed), nodes=nodes))
    launched = -1
    for node in tree.edges():
        here = node.incoming.provenance
        if here.index == 0:
            launched += 1
            assert here.expansion == launched
        else:
            above = tree[node.parent].incoming.provenance
            assert (above.expansion, above.index + 1) == (here.expansion, here.index)


def test_allowance_runs_down():
    tree = build_tree(
        fork(0.5, fork(0.5, end(1.0, sampled=2), sampled=3)), allowance=Allowance(tokens=10)
    )
    assert [node.payload.allowance.tokens for node in tree] == [10, 7, 5]


def test_an_open_chain_and_a_truncated_end():
    tree = build_tree(fork(0.5, chain([0.6], outcome=None), end(0.0, truncated=True), end(1.0)))
    assert [node.incoming.finish for node in tree.edges()] == [
        FinishReason.LENGTH,
        FinishReason.LENGTH,
        FinishReason.STOP,
    ]
    assert [node.is_terminal for node in tree] == [False, False, True, True]


def test_a_deep_drawing_needs_no_recursion():
    assert len(build_tree(chain([0.5] * 5000, outcome=1.0))) == 5001


@pytest.mark.parametrize(
    "draw",
    [
        lambda: end(1.0, children=(end(0.0),)),
        lambda: fork(0.5, truncated=True),
        lambda: build_tree(end(1.0)),
    ],
)
def test_impossible_drawings_are_refused(draw):
    with pytest.raises(ConfigError):
        draw()


def test_shapes_are_distinct():
    for nodes in range(1, 8):
        assert len(set(shapes(nodes))) == len(shapes(nodes))
