"""Trouble behind the router: Slime gets a right batch or an exception that says where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.policies.loopback import Answer, Loopback

from focus import (
    Agent,
    Allowance,
    Collector,
    Execution,
    Policy,
    Problem,
    RetryPolicy,
    Search,
    Segments,
)
from focus.errors import CollectionFailed, FocusError, RequestError
from focus.integrations import JsonlDirectory
from focus.integrations.slime import make_generate
from focus.records import read_critic_records
from focus.testing.envs import WalkEnv

from .engines import Writer
from .host.arguments import slime_args
from .host.rollout import GenerateState
from .host.sample import Sample
from .walks import prompt

pytestmark = pytest.mark.anyio

WALKS = ["++-++--+-+++", "+-+-+-+-+-+-", "---+++--++--"]


def collector_for(policy: Policy, problem: Problem) -> Collector:
    agent = Agent(
        policy,
        parser=Segments(3),
        allowance=Allowance(tokens=16),
        execution=Execution(retry=RetryPolicy(attempts=2, base_s=0.0)),
    )
    search = Search.two_phase(tokens=120, concurrency=4)
    return Collector(agent=agent, env=WalkEnv(), search=search)


async def collected(writer: Writer, folder: Path) -> list[Sample]:
    hook = make_generate(
        collector_for, profile="token_chunk", critic_sink=JsonlDirectory(folder / "targets")
    )
    async with Loopback(writer) as server:
        args = slime_args(sglang_router_port=server.port)
        samples: list[Sample] = await hook(args, prompt(6), {})
    return samples


async def test_a_whole_tree_over_http(tmp_path: Path) -> None:
    writer = Writer(WALKS)
    made = await collected(writer, tmp_path)
    assert {sample.rollout_id for sample in made} == {6}
    assert {version for s in made for version in s.weight_versions} == {"step-0"}
    assert {value for s in made for value in s.rollout_log_probs or ()} == {-0.25}
    assert {r.source.problem for r in read_critic_records(tmp_path / "targets")} == {6}


def spoiled(after: int, spoil: Any) -> Any:
    """Every reply from the n-th on is spoiled."""
    return lambda number, body: spoil(body) if number >= after else body


def with_meta(**changes: Any) -> Any:
    return lambda body: {**body, "meta_info": {**body["meta_info"], **changes}}


def null_log_prob(body: dict[str, Any]) -> dict[str, Any]:
    first, *rest = body["meta_info"]["output_token_logprobs"]
    pairs = [[None, *first[1:]], *rest]
    return with_meta(output_token_logprobs=pairs)(body)


FAULTS = {
    "worker lost": lambda body: None,
    "no worker": lambda body: Answer.of({"error": "no_available_workers"}, status=503),
    "HTML with 200": lambda body: Answer(b"<html>gateway</html>", 200),
    "error object with 200": lambda body: {"error": {"code": 504, "message": "upstream"}},
    "null log-prob": null_log_prob,
    "abort": with_meta(finish_reason={"type": "abort"}),
    "abort without log-probs": lambda body: {
        "text": "",
        "meta_info": {"id": body["meta_info"]["id"], "finish_reason": {"type": "abort"}},
    },
    "other weights": with_meta(weight_version="step-1"),
    "ids of another count": with_meta(completion_tokens=99),
    "bad request": lambda body: Answer.of({"error": "too long"}, status=400),
}


@pytest.mark.parametrize("after", [0, 1, 7])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_that_stays_ends_the_prompt_and_names_it(
    fault: str, after: int, tmp_path: Path
) -> None:
    writer = Writer(WALKS, change=spoiled(after, FAULTS[fault]))
    with pytest.raises(CollectionFailed, match=r"problem 6: .*request=slime/1/0/") as caught:
        await collected(writer, tmp_path)
    assert isinstance(caught.value.__cause__, FocusError)
    assert not (tmp_path / "targets").exists()
    assert writer.replies < 30


@pytest.mark.parametrize("fault", ["worker lost", "no worker", "HTML with 200", "null log-prob"])
async def test_a_fault_that_passes_leaves_a_right_batch(fault: str, tmp_path: Path) -> None:
    def once(number: int, body: dict[str, Any]) -> Any:
        return FAULTS[fault](body) if number == 5 else body  # type: ignore[no-untyped-call]

    made = await collected(Writer(WALKS, change=once), tmp_path)
    assert all(value == -0.25 for s in made for value in s.rollout_log_probs or ())
    assert all(len(s.rollout_log_probs or ()) == s.response_length for s in made)


async def test_no_router_is_named_before_a_token_is_spent(tmp_path: Path) -> None:
    async with Loopback(Writer(WALKS)) as server:
        port = server.port
    sink = JsonlDirectory(tmp_path / "targets")
    hook = make_generate(collector_for, profile="token_chunk", critic_sink=sink)
    with pytest.raises(RequestError, match="problem=6"):
        await hook(slime_args(sglang_router_port=port), prompt(6), {})
    assert not sink.path.exists()


async def test_once_slime_ends_its_rollout_nothing_more_is_sent(tmp_path: Path) -> None:
    args = slime_args()
    state = GenerateState(args)

    def end(number: int, body: dict[str, Any]) -> dict[str, Any]:
        state.aborted = number >= 3
        return body

    writer = Writer(WALKS, change=end)
    with pytest.raises(CollectionFailed, match="ending this rollout"):
        await collected(writer, tmp_path)
    assert writer.replies <= 3 + 4
    assert not (tmp_path / "targets").exists()
