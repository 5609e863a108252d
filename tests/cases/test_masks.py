"""Family (b): mask, lengths and borders are those of the ids that were sent and sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policies.loopback import ByteTokenizer
from tests.slime.host.sample import Sample

from focus import DirectBranchTd, Problem
from focus.errors import ProblemError, RecordError
from focus.integrations.slime import to_sample
from focus.records import ActorRecord, RecordKey, actor_records
from focus.testing.envs import WalkEnv
from focus.testing.trees import build_tree, fork
from focus.tree import Identity

from .servers import Engine, collect, grow, sampled, served, written

pytestmark = pytest.mark.anyio

SOURCE = Sample(index=3, group_index=3, prompt="p")


def spliced(lengths: Sequence[int]) -> ActorRecord:
    """One sample of several continuations, as path packing joins them."""
    ids = tuple(range(sum(lengths)))
    return ActorRecord(
        source=RecordKey(
            identity=Identity(), problem=3, key="k", policy_version="v1", critic_version="c"
        ),
        nodes=tuple(range(1, 1 + len(lengths))),
        prefix=(7, 8),
        response=ids,
        loss_mask=(1,) * len(ids),
        log_probs=(-0.5,) * len(ids),
        weights=tuple(float(k) for k, size in enumerate(lengths) for _ in range(size)),
        outcome=1.0,
        truncated=False,
        temperature=1.0,
        top_p=1.0,
        top_k=None,
    )


@given(lengths=st.lists(st.integers(1, 200), min_size=1, max_size=4))
def test_b13_columns_of_a_continued_response_have_its_length(lengths: list[int]) -> None:
    made = to_sample(spliced(lengths), SOURCE)
    assert made.response_length == len(made.loss_mask) == len(made.rollout_log_probs)
    assert made.response_length == sum(lengths)


@pytest.mark.parametrize("column", ["loss_mask", "log_probs", "weights"])
@pytest.mark.parametrize("size", [0, 100, 159, 161])
def test_b13_a_column_that_kept_its_old_length_never_becomes_a_sample(
    column: str, size: int
) -> None:
    """A segment of 100 ids and a continuation of 60: every column has 160, or nothing leaves."""
    record = spliced([100, 60])
    stale = (getattr(record, column) * 2)[:size]
    with pytest.raises(RecordError, match="problem 3"):
        to_sample(replace(record, **{column: stale}), SOURCE)


@settings(max_examples=40)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=5),
)
def test_b14_a_sample_is_conditioned_on_what_was_sent_observations_included(
    sizes: list[tuple[int, int]],
) -> None:
    """Two tool results in a row are the ids of the one request; nothing is rendered again."""
    sketch = fork(0.5)
    for sample_size, observed in reversed(sizes):
        sketch = fork(0.5, replace(sketch, sampled=sample_size, observed=observed))
    tree = build_tree(sketch)
    for record in actor_records(tree, DirectBranchTd().estimate(tree)):
        (node,) = record.nodes
        parent = tree[node].parent
        assert parent is not None
        made = to_sample(record, SOURCE)
        border = len(made.tokens) - made.response_length
        assert tuple(made.tokens[:border]) == tree.context(parent)
        assert set(made.loss_mask) == {1}


class Joining(ByteTokenizer):
    """Would encode "international" as one id, across the border of prompt and reply."""

    def __len__(self) -> int:
        return 258

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        head, word, tail = text.partition("international")
        if not word:
            return list(text.encode())
        return [*head.encode(), 257, *self.encode(tail)]

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> list[int]:
        return self.encode(messages[-1]["content"])


@pytest.mark.parametrize("reply", ["national", "national law", "nationalinternational"])
@pytest.mark.parametrize("size", [1, 4, 64])
async def test_b16_the_border_is_where_the_request_ended(reply: str, size: int) -> None:
    """response_length counts the reply's ids; what stands before them is input_ids."""
    assert Joining().encode("inter" + reply)[0] == 257
    engine = Engine(written(reply))
    problem = Problem(id=3, prompt="inter")
    found = await grow(engine, WalkEnv(), tokenizer=Joining(), problem=problem, segment=size)
    made = [to_sample(record, SOURCE) for record in found.actor]
    assert sum(sample.response_length for sample in made) == len(reply) + 1
    for sample, sent in zip(made, engine.prefixes, strict=True):
        assert sample.tokens[: -sample.response_length] == sent


LONG = "x" * 4980
"""With its role and turn marks some 5,000 ids of the byte vocabulary."""


@pytest.mark.parametrize("limit", [None, 8192, 5100])
async def test_b17_a_long_prefix_is_in_the_row_as_a_whole(limit: int | None) -> None:
    def twelve(asked: Mapping[str, Any], number: int) -> dict[str, Any]:
        return sampled(asked, [65] * 11 + [256])

    engine = Engine(twelve)
    async with served(engine, context_limit=limit) as policy:
        found = await collect(policy, WalkEnv(), problem=Problem(id=3, prompt=LONG), segment=16)
    (record,) = found.actor
    made = to_sample(record, SOURCE)
    (sent,) = engine.prefixes
    assert len(sent) >= len(LONG)
    assert made.tokens == [*sent, *[65] * 11, 256]
    assert made.response_length == 12


async def test_b17_a_prefix_that_does_not_fit_is_refused_before_any_request() -> None:
    engine = Engine(written("never"))
    async with served(engine, context_limit=4096) as policy:
        with pytest.raises(ProblemError, match=r"problem 3.*4096"):
            await collect(policy, WalkEnv(), problem=Problem(id=3, prompt=LONG))
    assert engine.payloads == []
