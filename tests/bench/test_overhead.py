"""The overhead bench: shapes of its trees, and what its lines say."""

import doctest

import pytest
from bench.overhead import timing, trees
from bench.overhead.conversion import conversion_figures
from bench.overhead.figure import Figure
from bench.overhead.growth import growth_figures, memory_per_token
from bench.overhead.packing import packing_figures
from bench.overhead.peers import peer_figures

from focus.credit import DirectBranchTd
from focus.records import actor_records


@pytest.mark.parametrize("module", [timing, trees])
def test_examples(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("rollouts", [1, 2, 9])
def test_rollouts_end_at_one_depth_and_each_is_an_expansion(rollouts):
    tree = trees.rollout_tree(rollouts, depth=5, segment=2)
    assert [tree[leaf].depth for leaf in tree.leaves()] == [5] * rollouts
    assert {node.incoming.provenance.expansion for node in tree.edges()} == set(range(rollouts))


def test_each_turn_calls_both():
    called = []
    assert timing.side_by_side(lambda: called.append("ours"), lambda: called.append("floor")) > 0
    assert called.count("ours") > 1 < called.count("floor")


@pytest.mark.parametrize("nodes", [2, 50, 400])
def test_random_trees_end_everywhere_and_can_be_exported(nodes):
    tree = trees.random_tree(nodes, segment=2)
    assert len(tree) == nodes
    assert all(tree[leaf].is_terminal for leaf in tree.leaves())
    assert actor_records(tree, DirectBranchTd().estimate(tree), packing="path")


@pytest.mark.parametrize(
    ("better", "value", "met"),
    [("lower", 1.0, True), ("lower", 3.0, False), ("higher", 3.0, True), ("higher", 1.0, False)],
)
def test_a_figure_knows_which_way_is_better(better, value, met):
    figure = Figure(
        id="P0", what="a test", value=value, unit="ratio", goal=2.0, floor=1.0, better=better
    )
    line = figure.to_dict()
    assert line["met"] is met
    assert {"id", "what", "value", "unit", "goal", "floor", "met"} <= line.keys()


@pytest.mark.full
def test_conversion_and_growth_are_measured():
    found = [figure.id for figure in (*conversion_figures(), *growth_figures())]
    assert found == [*["P3"] * 6, "P4", "P4", "P7", "P7", "P7", "P7", "P8", "P8"]


@pytest.mark.full
def test_packing_is_measured():
    figures = list(packing_figures(quick=True))
    assert [figure.id for figure in figures] == ["P5", "P5", "P7", "P9"]
    assert figures[-1].met


@pytest.mark.full
def test_other_libraries_are_measured_or_said_to_be_missing(capfd):
    figures = list(peer_figures())
    said = capfd.readouterr().err
    assert len(figures) + said.count("n/a: not installed") == 2
    assert all(figure.value > 0 for figure in figures)


def test_memory_per_token_does_not_depend_on_length():
    assert memory_per_token(60) == pytest.approx(memory_per_token(20), rel=0.1)
