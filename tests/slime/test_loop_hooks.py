"""The hooks inside `focus loop`: a round's critic is the loop's, outcomes reach the judge."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from focus import DirectBranchTd
from focus.errors import LifecycleError
from focus.integrations import JsonlDirectory
from focus.integrations.slime import make_evaluate, make_generate
from focus.loop.rounds import RoundCritics
from focus.loop.tags import RoundTag, RoundTags
from focus.records import read_critic_records

from .host.arguments import slime_args
from .host.rollout import DataSource, SlimeLoop, generate_rollout
from .walks import Walks, hook_module, prompt

pytestmark = pytest.mark.anyio

ROWS = [{"problem": f"Walk {index}.", "solution": "secret"} for index in range(12)]


def tag(round: int, constant: float) -> RoundTag:
    return RoundTag(
        round=round, steering=False, snapshot=None, constant=constant, reason="so", url=""
    )


@pytest.fixture
def loop() -> Iterator[SlimeLoop]:
    slime = SlimeLoop()
    yield slime
    slime.close()


def test_every_tree_of_a_round_has_the_critic_decided_for_it(
    tmp_path: Path, loop: SlimeLoop
) -> None:
    tags, critics = RoundTags(tmp_path), RoundCritics(tmp_path, patience_s=60)
    for round in range(3):
        tags.write(tag(round, 0.25 + round / 8))
    sink = JsonlDirectory(tmp_path / "targets")
    generate = make_generate(
        Walks(credit=DirectBranchTd()), profile="token_chunk", critic_sink=sink, critics=critics
    )
    args = slime_args()
    source = DataSource(args, ROWS)
    with hook_module(generate=generate) as module:
        args.custom_generate_function_path = f"{module}.generate"
        for _ in range(3):
            loop.run(generate_rollout(args, source))
    records = list(read_critic_records(sink.path))
    versions = {(r.source.identity.round, r.source.critic_version) for r in records}
    assert versions == {(0, "constant-0.25"), (1, "constant-0.375"), (2, "constant-0.5")}
    assert {record.prior for record in records} == {0.25, 0.375, 0.5}


async def test_a_round_that_nobody_decided_does_not_start(tmp_path: Path) -> None:
    walks = Walks()
    critics = RoundCritics(tmp_path, patience_s=0.01)
    generate = make_generate(walks, profile="token_chunk", critics=critics)
    with pytest.raises(LifecycleError, match=r"problem 9.*round 2 has no critic"):
        await generate(slime_args(), prompt(9), {})
    assert walks.requests == 0
    assert RoundTags(tmp_path).wanted() == (2,)


async def test_solutions_reach_the_judge_with_their_outcome_at_every_checkpoint(
    tmp_path: Path,
) -> None:
    outcomes = JsonlDirectory(tmp_path / "outcomes")
    walks = Walks(allowance=13)
    generate = make_generate(walks, profile="token_chunk")
    evaluate = make_evaluate(walks, profile="token_chunk", outcome_sink=outcomes)
    args = slime_args()
    await generate(args, prompt(9), {})
    samples = await asyncio.gather(*(evaluate(args, prompt(7), {}) for _ in range(3)))
    records = list(read_critic_records(outcomes.path))
    by_solution = {r.source.problem: [] for r in records}
    for record in records:
        by_solution[record.source.problem].append(record)
    assert len(by_solution) == 3
    assert sorted(rs[0].target for rs in by_solution.values()) == sorted(
        float(s.reward) for s in samples
    )
    for found in by_solution.values():
        assert len({record.target for record in found}) == 1
        assert [record.depth for record in found] == list(range(len(found)))
        texts = [record.context.text for record in found]
        assert all(b.startswith(a) and len(b) > len(a) for a, b in itertools.pairwise(texts))
        assert all((r.count, r.diagnostics) == (1, {"fresh": 1.0}) for r in found)
        assert {record.source.identity.round for record in found} == {2}
        assert len({record.source.key for record in found}) == 1
        assert not any("secret" in text for text in texts)
