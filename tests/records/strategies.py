"""Random trees, credit and records for the laws of this package."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from focus.credit.base import Credit, Target
from focus.problem import Problem
from focus.records.records import CriticContext, CriticRecord
from focus.sampling import Sampling
from focus.testing.records import critic_record
from focus.tokens import FinishReason, Span, TokenIds
from focus.tree import Edge, Identity, Provenance, Selection, Tree, TreeHeader

VOCABULARY = 6


def random_tree(rng: random.Random, *, nodes: int, folds: bool = True) -> Tree[None]:
    """Any shape; edges of zero to three spans in any order, some without sampled ids."""
    header = TreeHeader(
        problem=Problem(id=rng.choice([7, "7", "x/../y"]), prompt="2+2?", label="4"),
        identity=Identity(run="test", round=rng.randrange(3), attempt=rng.randrange(2)),
        prompt_ids=_ids(rng, 1 + rng.randrange(3)),
        sampling=Sampling(temperature=rng.choice([0.7, 1.0]), max_tokens=16, seed=-1),
        policy_version="policy-3",
        critic_version="critic-2",
        vocab_size=VOCABULARY,
        context_limit=10_000,
    )
    tree: Tree[None] = Tree(header, None, value=rng.random())
    for number in range(1, nodes):
        _grow(tree, rng, number, folds=folds)
    return tree


def _grow(tree: Tree[None], rng: random.Random, number: int, *, folds: bool) -> None:
    open_nodes = [node.id for node in tree if not node.is_terminal]
    is_end = len(open_nodes) > 1 and rng.random() < 0.4
    parent = open_nodes[-1] if rng.random() < 0.5 else rng.choice(open_nodes)
    is_fold = folds and not is_end and rng.random() < 0.15
    edge = Edge(
        spans=tuple(_span(rng) for _ in range(rng.randrange(4))),
        provenance=Provenance(
            expansion=number,
            index=0,
            phase=rng.randrange(2),
            request_id=f"request-{number}",
            policy_version=tree.header.policy_version,
        ),
        reward=float(rng.randrange(2)) if is_end else 0.0,
        step_reward=rng.choice([0.0, -0.25]),
        duration=rng.randrange(2),
        finish=FinishReason.STOP if is_end else FinishReason.LENGTH,
        kind="fold" if is_fold else "turn",
    )
    tree.selections.append(
        Selection(
            expansion=number,
            node=parent,
            phase=0,
            score=rng.choice([float("inf"), rng.random()]),
            rivals=rng.randrange(4),
            free_tokens=rng.choice([None, 100, -3]),
        )
    )
    tree.attach(
        parent,
        edge,
        None,
        value=None if is_end else rng.random(),
        is_terminal=is_end,
        is_truncated=is_end and rng.random() < 0.3,
        rebased=_ids(rng, 1 + rng.randrange(3)) if is_fold else None,
    )


def _ids(rng: random.Random, count: int) -> TokenIds:
    return tuple(rng.randrange(VOCABULARY) for _ in range(count))


def _span(rng: random.Random) -> Span:
    ids = _ids(rng, rng.randrange(4))
    if rng.random() < 0.3:
        return Span(ids)
    return Span(ids, tuple(-rng.expovariate(1.0) for _ in ids))


def random_credit(tree: Tree[Any], rng: random.Random, *, share: float = 0.8) -> Credit:
    """Weights for about `share` of the edges, zero among them; targets for some checkpoints."""
    return Credit(
        estimator="random",
        advantages={
            node.id: rng.choice([0.0, rng.gauss(0, 1)])
            for node in tree.edges()
            if rng.random() < share
        },
        targets={
            node.id: Target(rng.random(), 1 + rng.randrange(4))
            for node in tree
            if not node.is_terminal and rng.random() < share
        },
        values={node.id: rng.random() for node in tree},
        diagnostics={0: {"prior": 0.5, "branches": 2}},
    )


def contexts_of(tree: Tree[Any]) -> dict[int, CriticContext]:
    return {
        node.id: CriticContext(
            renderer="token_chunk/1",
            text=f"context of {node.id}",
            ids=tree.context(node.id),
            tokenizer_hash="abc",
            remaining_tokens=10,
        )
        for node in tree
    }


@st.composite
def trees(draw: st.DrawFn, *, folds: bool = True, most: int = 14) -> Tree[None]:
    nodes = draw(st.integers(1, most))
    return random_tree(random.Random(draw(st.integers(0, 2**32))), nodes=nodes, folds=folds)


@st.composite
def credited_trees(draw: st.DrawFn, *, folds: bool = True) -> tuple[Tree[None], Credit]:
    tree = draw(trees(folds=folds))
    return tree, random_credit(tree, random.Random(draw(st.integers(0, 2**32))))


any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
"""All of Unicode but halves of surrogate pairs."""

finite = st.floats(allow_nan=False, allow_infinity=False)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | any_text,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(any_text, below, max_size=3),
    max_leaves=8,
)


@st.composite
def critic_records_of_one_prompt(draw: st.DrawFn) -> list[CriticRecord]:
    problem = draw(st.integers(-3, 3) | any_text)
    count = draw(st.integers(1, 4))
    return [
        critic_record(node=node, problem=problem, text=draw(any_text), target=draw(st.floats(0, 1)))
        for node in range(count)
    ]
