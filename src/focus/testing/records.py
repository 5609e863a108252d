"""Fixed values: those behind the golden files, and the simplest critic records."""

from __future__ import annotations

from pathlib import Path

from focus.credit.base import Credit, Target
from focus.errors import Failure
from focus.problem import Message, Problem, ToolCall
from focus.records import CriticContext, CriticRecord, RecordKey
from focus.sampling import Sampling
from focus.tokens import FinishReason, Span
from focus.tree import (
    Edge,
    Identity,
    Provenance,
    Returns,
    Selection,
    Tree,
    TreeHeader,
)

__all__ = (
    "CONTEXTS",
    "CREDIT",
    "FAILURES",
    "GOLDEN",
    "TEXTS",
    "critic_record",
    "golden_contexts",
    "golden_tree",
    "three",
)

GOLDEN = Path(__file__).with_name("golden")
"""One file of every released format, as it was written."""

TEXTS = {0: "2+2?", 1: "It is\u2028", 3: " four 😀"}
FAILURES = (Failure(stage="expansion", expansion=3, node=1, kind="Aborted", message="gone"),)
CREDIT = Credit(
    estimator="by hand",
    advantages={1: 0.1, 2: -0.0, 3: 1 / 3},
    targets={0: Target(2 / 3, 2), 1: Target(0.5, 1)},
    values={0: 0.1 + 0.2},
    diagnostics={0: {"branches": 2.0}},
)
CONTEXTS = {
    0: CriticContext(renderer="token_chunk/1", text="2+2?", ids=(1, 2), tokenizer_hash="t0"),
    1: CriticContext(
        renderer="text/1",
        text="line\u2028two\x85\x00\ufeff",
        remaining_tokens=0,
        remaining_turns=3,
        workspace={"notes/é": "a\nb"},
    ),
}


def golden_tree() -> Tree[None]:
    """A fold, an observation, a truncated leaf, tool calls, an untried selection."""
    prompt = (
        Message("system", "Answer."),
        Message("assistant", "", (ToolCall("add", '{"a": 2}', "call-1"),)),
        Message("user", "2+2?"),
    )
    header = TreeHeader(
        problem=Problem(
            id="math/7", prompt=prompt, label=["4", 4, 4.0], metadata={"level": 5, "tags": [None]}
        ),
        prompt_ids=(1, 2),
        identity=Identity(run="golden", round=3, attempt=1),
        sampling=Sampling(temperature=0.7, top_k=20, max_tokens=16, stop=(9,), seed=-4),
        policy_version="policy-3",
        critic_version="critic-2",
        critic_range=(-1.0, 1.0),
        returns=Returns(discount=0.99, step_weight=0.5, prior_strength=2.0),
        vocab_size=100,
        context_limit=64,
    )
    tree: Tree[None] = Tree(header, None, value=0.5)
    tree.attach(0, _edge(0, (3, 4)), None, value=0.25)
    tree.attach(1, _edge(1, (5,), kind="fold"), None, value=0.125, rebased=(1, 2, 99))
    tree.attach(
        2,
        _edge(2, (6, 9), reward=1.0, finish=FinishReason.STOP),
        None,
        value=None,
        is_terminal=True,
        is_truncated=True,
    )
    tree.selections.append(
        Selection(expansion=0, node=0, phase=0, score=float("inf"), rivals=0, free_tokens=None)
    )
    tree.selections.append(
        Selection(expansion=1, node=1, phase=1, score=0.03125, rivals=1, free_tokens=-3)
    )
    return tree


def golden_contexts() -> dict[int, CriticContext]:
    """Contexts of the golden tree's checkpoints, some with unusual parts."""
    tree = golden_tree()
    plain = {
        node.id: CriticContext(
            renderer="token_chunk/1",
            text=f"context of {node.id}",
            ids=tree.context(node.id),
            tokenizer_hash="abc",
            remaining_tokens=10,
        )
        for node in tree
    }
    return {**plain, **CONTEXTS}


def _edge(
    number: int,
    ids: tuple[int, ...],
    *,
    kind: str = "turn",
    reward: float = 0.0,
    finish: FinishReason = FinishReason.LENGTH,
) -> Edge:
    return Edge(
        spans=(Span(ids, tuple(-1 / (token + 1) for token in ids)), Span((7, 8))),
        provenance=Provenance(
            expansion=number,
            index=0,
            phase=min(number, 1),
            request_id=f"golden/3/1/{number}",
            tries=2,
            policy_version="policy-3",
        ),
        reward=reward,
        step_reward=-0.01,
        duration=1,
        finish=finish,
        kind=kind,
    )


def critic_record(
    *,
    node: int = 0,
    problem: int | str = 7,
    text: str = "2+2?",
    run: str = "test",
    round: int = 0,
    attempt: int = 0,
    target: float = 0.5,
) -> CriticRecord:
    """A critic record of one node."""
    return CriticRecord(
        source=RecordKey(
            identity=Identity(run=run, round=round, attempt=attempt),
            problem=problem,
            key="0" * 32,
            policy_version="policy-3",
            critic_version="critic-2",
        ),
        node=node,
        context=CriticContext(renderer="token_chunk/1", text=text, ids=(1, 2)),
        target=target,
        count=1,
        prior=0.5,
        depth=node,
    )


def three(
    problem: int | str = 7, *, run: str = "test", round: int = 0, attempt: int = 0
) -> list[CriticRecord]:
    """All records of one prompt."""
    return [
        critic_record(node=node, problem=problem, run=run, round=round, attempt=attempt)
        for node in range(3)
    ]
