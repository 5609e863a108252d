"""Critic records are the credit's targets, in range, with the context that was scored."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given

from focus.credit.base import Credit, Target
from focus.errors import RecordError
from focus.records import CriticContext, critic_records
from focus.testing.trees import build_tree, chain, end, fork
from focus.tree import Tree

from .strategies import contexts_of, credited_trees


def credit_of(**targets: Target) -> Credit:
    return Credit(
        estimator="by hand",
        advantages={},
        targets={int(name[1:]): target for name, target in targets.items()},
    )


@given(credited_trees())
def test_one_record_per_target_in_node_order(case: tuple[Tree[None], Credit]) -> None:
    tree, credit = case
    records = critic_records(tree, credit, contexts_of(tree))
    assert [record.node for record in records] == sorted(credit.targets)
    for record in records:
        assert (record.target, record.count) == (
            credit.targets[record.node].value,
            credit.targets[record.node].count,
        )
        assert record.prior == tree[record.node].value
        assert record.context.ids == tree.context(record.node)
        own = credit.diagnostics.get(record.node, {}).items()
        assert own <= record.diagnostics.items()


def test_a_target_without_its_context_is_refused() -> None:
    tree = build_tree(fork(0.5, end(1.0)))
    with pytest.raises(RecordError, match=r"node 0: .*no stored context"):
        critic_records(tree, credit_of(n0=Target(0.5, 1)), {})


def test_a_target_of_a_terminal_or_of_nothing_is_refused() -> None:
    tree = build_tree(fork(0.5, end(1.0)))
    with pytest.raises(RecordError, match=r"node 1: .*terminal"):
        critic_records(tree, credit_of(n1=Target(0.0, 1)), contexts_of(tree))
    with pytest.raises(RecordError, match="node 9"):
        critic_records(tree, credit_of(n9=Target(0.0, 1)), contexts_of(tree))


def test_a_checkpoint_whose_prediction_failed_has_no_record() -> None:
    tree = build_tree(fork(None, end(1.0)))
    with pytest.raises(RecordError, match=r"node 0: .*without critic value"):
        critic_records(tree, credit_of(n0=Target(0.5, 1)), contexts_of(tree))


@pytest.mark.parametrize("value", [-0.25, 1.0001])
def test_a_target_outside_the_critics_range_is_refused(value: float) -> None:
    tree = build_tree(fork(0.5, end(1.0)))
    with pytest.raises(RecordError, match=r"critic's range \[0.0, 1.0\]"):
        critic_records(tree, credit_of(n0=Target(value, 1)), contexts_of(tree))


def test_a_wider_range_admits_step_penalties() -> None:
    tree = build_tree(fork(0.5, end(1.0)), critic_range=(-1.0, 1.0))
    [record] = critic_records(tree, credit_of(n0=Target(-0.25, 1)), contexts_of(tree))
    assert record.target == -0.25


def test_rounding_past_the_range_is_taken_back() -> None:
    tree = build_tree(fork(0.5, end(1.0)))
    [record] = critic_records(tree, credit_of(n0=Target(1.0 + 2**-52, 1)), contexts_of(tree))
    assert record.target == 1.0


def test_truncation_below_is_marked_on_every_checkpoint_above_it() -> None:
    tree = build_tree(
        fork(0.5, chain([0.5], outcome=0.0, truncated=False), fork(0.5, end(0.0, truncated=True)))
    )
    targets = credit_of(n0=Target(0.0, 2), n1=Target(0.0, 1), n3=Target(0.0, 1))
    records = critic_records(tree, targets, contexts_of(tree))
    assert {record.node: record.truncated for record in records} == {0: True, 1: False, 3: True}


def test_a_text_context_without_ids_is_enough() -> None:
    tree = build_tree(fork(0.5, end(1.0)))
    context = CriticContext(renderer="text/1", text="state")
    [record] = critic_records(tree, credit_of(n0=Target(1.0, 1)), {0: context})
    assert record.context is context


def test_suffix_outcomes_travel_with_every_estimator() -> None:
    tree = build_tree(fork(0.5, chain([0.25], outcome=1.0), end(0.0)))
    targets = credit_of(n0=Target(0.5, 2), n1=Target(0.5, 1))
    records = critic_records(tree, targets, contexts_of(tree))
    assert [record.diagnostics for record in records] == [
        {"samples": 2.0, "mean": 0.5},
        {"samples": 1.0, "mean": 1.0},
    ]


def test_where_nothing_finished_there_is_no_mean() -> None:
    tree = build_tree(fork(0.5, chain([0.25], outcome=None)))
    [record] = critic_records(tree, credit_of(n0=Target(0.25, 1)), contexts_of(tree))
    assert record.diagnostics == {"samples": 0.0}


def test_diagnostics_are_copied() -> None:
    tree = build_tree(fork(0.5, end(1.0)))
    named = {"branches": 1.0}
    credit = dataclasses.replace(credit_of(n0=Target(1.0, 1)), diagnostics={0: named})
    [record] = critic_records(tree, credit, contexts_of(tree))
    named["branches"] = 2.0
    assert record.diagnostics == {"branches": 1.0, "samples": 1.0, "mean": 1.0}
