"""What a tree's requests cost an engine with a prefix cache, counted three ways."""

from __future__ import annotations

import doctest
import os
import random

import pytest
from bench.overhead import prefill
from bench.overhead.prefill import apart, floor, paid, prefill_figures, requests
from hypothesis import given
from hypothesis import strategies as st

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    OpenAIPolicy,
    Problem,
    Sampling,
    Search,
    Segments,
)
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.loopback import ByteTokenizer, Loopback
from focus.testing.policies import ScriptedPolicy
from focus.testing.trees import build_tree, random_sketch
from focus.testing.vllm import VLLMStandIn

PYTHON = os.environ.get("FOCUS_VLLM_PYTHON", "")


def test_examples() -> None:
    assert doctest.testmod(prefill).failed == 0


async def collected(
    stand_in: VLLMStandIn, *, segment: int, concurrency: int, page: int | None = None
) -> Collection:
    async with (
        Loopback(stand_in) as server,
        OpenAIPolicy(server.url, tokenizer=ByteTokenizer()) as policy,
    ):
        agent = Agent(
            policy,
            parser=Segments(segment, page=page),
            sampling=Sampling(seed=7),
            allowance=Allowance(tokens=40),
        )
        search = Search.two_phase(tokens=300, concurrency=concurrency)
        async with Collector(agent=agent, env=WalkEnv(), search=search) as collector:
            return await collector.collect(Problem(id="walk", prompt="Walk, and mind the gap."))


@pytest.mark.anyio
@pytest.mark.parametrize("page", [1, 4, 16, 64])
@pytest.mark.parametrize(("segment", "concurrency"), [(3, 1), (7, 1), (7, 4)])
async def test_what_pages_leave_is_what_a_server_computes(
    page: int, segment: int, concurrency: int
) -> None:
    """The count from the tree alone is that of the server's own counters."""
    stand_in = VLLMStandIn(ScriptedPolicy(walk_script(30)), page=page)
    found = await collected(stand_in, segment=segment, concurrency=concurrency)
    computed = stand_in.queried - stand_in.hits
    assert computed == found.ledger.tokens_submitted - (found.ledger.tokens_cached or 0)
    assert paid(requests(found.tree), page=page) == computed
    assert len(list(requests(found.tree))) == found.ledger.requests_accepted
    assert floor(requests(found.tree)) == found.ledger.tokens_needed


@pytest.mark.anyio
@pytest.mark.parametrize("page", [1, 4, 7])
async def test_segments_cut_at_pages_cost_one_token_to_continue(page: int) -> None:
    """Beside the prompt; branches at the root find its whole pages."""
    stand_in = VLLMStandIn(ScriptedPolicy(walk_script(30)), page=page)
    found = await collected(stand_in, segment=8, concurrency=4, page=page)
    prompt = len(found.tree.header.prompt_ids)
    sent = list(requests(found.tree))
    roots = sum(1 for one in sent if len(one.prefix) == prompt)
    assert 1 < roots < len(sent)
    again = prompt - (prompt - 1) // page * page
    owed = prompt + (roots - 1) * again + len(sent) - roots
    assert stand_in.queried - stand_in.hits == owed


@given(seed=st.integers(0, 10_000), page=st.integers(1, 40), prompt=st.integers(1, 50))
def test_a_tree_costs_at_least_its_floor_and_at_most_independent_rollouts(
    seed: int, page: int, prompt: int
) -> None:
    sketch = random_sketch(random.Random(seed), nodes=30)
    tree = build_tree(sketch, prompt_ids=range(prompt))
    sent = list(requests(tree))
    least, trees, rollouts = floor(sent), paid(sent, page=page), paid(apart(tree), page=page)
    assert least <= paid(sent, page=1) <= trees <= rollouts
    assert trees <= sum(len(one.prefix) for one in sent)
    assert trees - paid(sent, page=1) <= (page - 1) * len(sent)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.skipif(not PYTHON, reason="FOCUS_VLLM_PYTHON does not name an interpreter with vLLM")
def test_a_real_engine_is_measured() -> None:
    figures = list(prefill_figures(PYTHON, prompts=2))
    shares = [figure.value for figure in figures if figure.what.startswith("what pages of")]
    assert len(shares) == 4
    assert min(shares) >= 0.98
