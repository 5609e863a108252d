"""One thing is spoiled at a time, and the check that guards it says so by name."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from focus.credit.base import Credit, Target
from focus.errors import RecordError
from focus.problem import Problem
from focus.records import (
    ActorRecord,
    CriticRecord,
    RecordKey,
    actor_records,
    check_actor_record,
    check_critic_export,
    check_critic_record,
    check_export,
    check_tree,
    critic_records,
)
from focus.sampling import Sampling
from focus.tokens import FinishReason, Span
from focus.tree import Edge, Identity, Provenance, Tree, TreeHeader

from .strategies import contexts_of, credited_trees

HEADER = TreeHeader(
    problem=Problem(id=7, prompt="2+2?", label="4"),
    prompt_ids=(1, 2),
    sampling=Sampling(temperature=0.7),
    policy_version="policy-3",
    critic_version="critic-2",
    vocab_size=50,
    context_limit=20,
)
EDGE = Edge(
    spans=(Span((3,)), Span((4, 5), (-0.1, -0.2)), Span((6,)), Span((7,), (-0.3,))),
    provenance=Provenance(expansion=0, index=0, phase=0, request_id="r", policy_version="policy-3"),
)
CREDIT = Credit(
    estimator="by hand",
    advantages={1: 0.25, 2: -0.5, 3: 0.125},
    targets={0: Target(0.75, 2), 1: Target(0.5, 2)},
    diagnostics={0: {"branches": 2.0}},
)
BIT = 2.0**-50


def tree_of(*, header: TreeHeader = HEADER, edge: Edge = EDGE, **last: Any) -> Tree[None]:
    """Root, one checkpoint, a truncated wrong leaf and a finished right one."""
    tree: Tree[None] = Tree(header, None, value=0.5)
    tree.attach(0, EDGE, None, value=0.6)
    tree.attach(1, EDGE, None, value=None, is_terminal=True, is_truncated=True)
    settings = {"value": None, "is_terminal": True} | last
    tree.attach(1, dataclasses.replace(edge, reward=1.0), None, **settings)
    return tree


def path_record() -> ActorRecord:
    """Edges 1 and 2 in one row: response 4 5 6 7, 3 4 5 6 7."""
    return actor_records(tree_of(), CREDIT, packing="path")[0]


def changed(column: tuple[Any, ...], position: int, value: Any) -> tuple[Any, ...]:
    return (*column[:position], value, *column[position + 1 :])


def replaced(**fields: Any) -> Callable[[ActorRecord], ActorRecord]:
    return lambda record: dataclasses.replace(record, **fields)


def altered(name: str, position: int, value: Any) -> Callable[[ActorRecord], ActorRecord]:
    return lambda record: dataclasses.replace(
        record, **{name: changed(getattr(record, name), position, value)}
    )


def resized(size: int) -> Callable[[ActorRecord], ActorRecord]:
    """All columns cut, or filled up with masked-out positions, to `size`."""

    def spoil(record: ActorRecord) -> ActorRecord:
        fill = max(0, size - len(record.response))
        return dataclasses.replace(
            record,
            response=record.response[:size] + (9,) * fill,
            loss_mask=record.loss_mask[:size] + (0,) * fill,
            log_probs=record.log_probs[:size] + (0.0,) * fill,
            weights=record.weights[:size] + (0.0,) * fill,
        )

    return spoil


def shortened(name: str) -> Callable[[ActorRecord], ActorRecord]:
    return lambda record: dataclasses.replace(record, **{name: getattr(record, name)[:-1]})


def test_the_sound_record_passes_and_is_what_the_cases_below_assume() -> None:
    record = path_record()
    assert record.nodes == (1, 2)
    assert record.prefix == (1, 2, 3)
    assert record.response == (4, 5, 6, 7, 3, 4, 5, 6, 7)
    assert record.loss_mask == (1, 1, 0, 1, 0, 1, 1, 0, 1)
    check_actor_record(record, tree_of(), CREDIT)


@pytest.mark.parametrize(
    ("invariant", "spoil"),
    [
        ("I1", altered("response", 0, True)),
        ("I1", altered("prefix", 0, True)),
        ("I1", altered("prefix", 0, 1.0)),
        ("I2", shortened("loss_mask")),
        ("I2", shortened("log_probs")),
        ("I2", shortened("weights")),
        ("I2", shortened("request_ids")),
        ("I2", altered("loss_mask", 0, True)),
        ("I2", replaced(response=(), loss_mask=(), log_probs=(), weights=())),
        ("I3", replaced(prefix=(2, 3))),
        ("I3", replaced(prefix=(9, 1, 2, 3))),
        ("I3", altered("prefix", 2, 9)),
        ("I3", replaced(prefix=())),
        ("I3", replaced(prefix=(3,))),
        ("I4", altered("response", 1, 9)),
        ("I4", resized(8)),
        ("I4", resized(4)),
        ("I4", resized(10)),
        ("I4", altered("log_probs", 1, -0.2 - BIT)),
        ("I4", altered("loss_mask", 0, 0)),
        ("I4", altered("loss_mask", 2, 1)),
        ("I5", altered("log_probs", 2, -0.1)),
        ("I5", altered("weights", 2, 0.25)),
        ("I6", altered("log_probs", 0, math.nan)),
        ("I6", altered("log_probs", 0, -math.inf)),
        ("I6", altered("log_probs", 0, None)),
        ("I6", altered("log_probs", 2, False)),
        ("I8", replaced(nodes=(2, 1))),
        ("I8", replaced(nodes=(2, 3))),
        ("I8", replaced(nodes=(1, 9))),
        ("I8", replaced(nodes=(0, 2))),
        ("I11", altered("weights", 0, math.inf)),
        ("I11", altered("weights", 0, None)),
        ("I12", altered("weights", 0, 0.25 + BIT)),
        ("I14", replaced(truncated=False)),
        ("I16", replaced(temperature=1.0)),
        ("I16", replaced(top_p=0.9)),
        ("I16", replaced(top_k=50)),
        ("I17", replaced(outcome=1.0)),
        ("I17", replaced(outcome=None)),
    ],
)
def test_a_spoiled_actor_record_is_refused(
    invariant: str, spoil: Callable[[ActorRecord], ActorRecord]
) -> None:
    with pytest.raises(RecordError, match=rf"problem 7, node.*\[{invariant}\]"):
        check_actor_record(spoil(path_record()), tree_of(), CREDIT)


@pytest.mark.parametrize(
    "identity", [Identity(run="other"), Identity(round=1), Identity(attempt=1)]
)
def test_a_record_of_another_collection_is_refused(identity: Identity) -> None:
    tree = tree_of()
    source = dataclasses.replace(RecordKey.of(tree), identity=identity)
    record = dataclasses.replace(path_record(), source=source)
    with pytest.raises(RecordError, match=r"\[I13\]"):
        check_actor_record(record, tree, CREDIT)


def test_a_record_across_a_fold_is_refused() -> None:
    tree: Tree[None] = Tree(HEADER, None, value=0.5)
    tree.attach(0, EDGE, None, value=0.6, rebased=(1, 2, 3, 4, 5, 6, 7))
    tree.attach(1, EDGE, None, value=None, is_terminal=True, is_truncated=True)
    with pytest.raises(RecordError, match=r"\[I8\]"):
        check_actor_record(path_record(), tree, CREDIT)


def test_an_edge_trained_twice_or_never_is_refused() -> None:
    tree = tree_of()
    records = actor_records(tree, CREDIT)
    with pytest.raises(RecordError, match=r"nodes? .*2.* trained twice \[I10\]"):
        check_export([*records, records[1]], tree, CREDIT)
    with pytest.raises(RecordError, match=r"node 3: has credit and is in no record \[I10\]"):
        check_export(records[:2], tree, CREDIT)


@pytest.mark.parametrize("node", [0, 4, -1])
def test_credit_for_no_edge_of_the_tree_is_refused(node: int) -> None:
    credit = dataclasses.replace(CREDIT, advantages={**CREDIT.advantages, node: 0.5})
    with pytest.raises(RecordError, match=r"\[I10\]"):
        actor_records(tree_of(), credit)


def spans(*, ids: Any = (4,), log_probs: Any = (-0.1,)) -> Edge:
    return dataclasses.replace(EDGE, spans=(Span(ids, log_probs),))


@pytest.mark.parametrize(
    ("invariant", "edge"),
    [
        ("I1", spans(ids=(50,))),
        ("I1", spans(ids=(-1,))),
        ("I1", spans(ids=(True,))),
        ("I6", spans(log_probs=(math.nan,))),
        ("I6", spans(log_probs=(-math.inf,))),
        ("I6", spans(log_probs=(1e-5,))),
        ("I6", spans(log_probs=(None,))),
        ("I6", spans(log_probs=(False,))),
        ("I7", spans(log_probs=())),
        ("I7", spans(log_probs=(-0.1, -0.1))),
        ("I14", dataclasses.replace(EDGE, finish=FinishReason.ABORT)),
        (
            "I15",
            dataclasses.replace(
                EDGE, provenance=dataclasses.replace(EDGE.provenance, policy_version="policy-4")
            ),
        ),
        ("I17", dataclasses.replace(EDGE, step_reward=math.nan)),
    ],
)
def test_a_spoiled_tree_exports_nothing(invariant: str, edge: Edge) -> None:
    with pytest.raises(RecordError, match=rf"problem 7, node 3: .*\[{invariant}\]"):
        actor_records(tree_of(edge=edge), CREDIT)


@pytest.mark.parametrize("outcome", [None, math.nan, True])
def test_an_outcome_that_is_no_number_exports_nothing(outcome: Any) -> None:
    tree: Tree[None] = Tree(HEADER, None, value=0.5)
    tree.attach(0, dataclasses.replace(EDGE, reward=outcome), None, value=None, is_terminal=True)
    with pytest.raises(RecordError, match=r"node 1: .*\[I17\]"):
        check_tree(tree)


def test_log_probs_may_pass_zero_by_rounding_only() -> None:
    actor_records(tree_of(edge=spans(log_probs=(1e-6,))), CREDIT)


def test_a_live_checkpoint_cannot_be_truncated() -> None:
    tree = tree_of(value=0.5, is_terminal=False, is_truncated=True)
    with pytest.raises(RecordError, match=r"\[I14\]"):
        check_tree(tree)


@pytest.mark.parametrize("limit", [11, 7, 3])
def test_tokens_past_the_context_limit_are_refused(limit: int) -> None:
    tree = tree_of(header=dataclasses.replace(HEADER, context_limit=limit))
    with pytest.raises(RecordError, match=rf"context limit {limit} \[I18\]"):
        actor_records(tree, CREDIT)


def test_a_context_that_is_just_full_passes() -> None:
    tree = tree_of(header=dataclasses.replace(HEADER, context_limit=12))
    longest = max(len(record.tokens) for record in actor_records(tree_of(), CREDIT))
    assert longest == 12
    actor_records(tree, CREDIT)


def test_greedy_replies_cannot_be_trained_on() -> None:
    tree = tree_of(header=dataclasses.replace(HEADER, sampling=Sampling(temperature=0)))
    with pytest.raises(RecordError, match=r"temperature 0 *.*\[I16\]"):
        check_tree(tree)


def critic(node: int = 1) -> CriticRecord:
    tree = tree_of()
    return critic_records(tree, CREDIT, contexts_of(tree))[node]


@pytest.mark.parametrize(
    ("invariant", "fields"),
    [
        ("C1", {"context": dataclasses.replace(critic().context, ids=())}),
        ("C1", {"context": dataclasses.replace(critic().context, ids=(1, 2))}),
        ("C1", {"context": dataclasses.replace(critic().context, ids=(1, 2, 3, 4, 5, 6, 8))}),
        ("C2", {"target": 0.51}),
        ("C2", {"target": 1.5}),
        ("C2", {"target": math.nan}),
        ("C2", {"target": None}),
        ("C2", {"count": 3}),
        ("C3", {"prior": 0.61}),
        ("C3", {"prior": None}),
        ("C4", {"node": 9}),
        ("C5", {"depth": 2}),
        ("C5", {"truncated": False}),
        ("C5", {"diagnostics": {"x": math.inf}}),
    ],
)
def test_a_spoiled_critic_record_is_refused(invariant: str, fields: dict[str, Any]) -> None:
    record = dataclasses.replace(critic(), **fields)
    with pytest.raises(RecordError, match=rf"problem 7, node.*\[{invariant}\]"):
        check_critic_record(record, tree_of(), CREDIT)


def test_a_critic_record_of_another_collection_is_refused() -> None:
    other = dataclasses.replace(HEADER, identity=Identity(run="other"))
    with pytest.raises(RecordError, match=r"\[C4\]"):
        check_critic_record(critic(), tree_of(header=other), CREDIT)


def test_one_critic_record_per_target() -> None:
    tree = tree_of()
    records = critic_records(tree, CREDIT, contexts_of(tree))
    with pytest.raises(RecordError, match=r"\[C4\]"):
        check_critic_export([*records, records[0]], tree, CREDIT)
    with pytest.raises(RecordError, match=r"\[C4\]"):
        check_critic_export(records[:1], tree, CREDIT)


@given(credited_trees())
def test_every_exported_record_passes_again_by_itself(case: tuple[Tree[None], Credit]) -> None:
    tree, credit = case
    for record in actor_records(tree, credit, packing="path"):
        check_actor_record(record, tree, credit)
    for target in critic_records(tree, credit, contexts_of(tree)):
        check_critic_record(target, tree, credit)
