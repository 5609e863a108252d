"""`OpenAIPolicy` against a real vLLM, where one is installed in an environment of its own.

FOCUS_VLLM_PYTHON names that environment's interpreter (`focus.testing.vllm_process`).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import httpx
import pytest
import torch

from focus import (
    Agent,
    Allowance,
    Collector,
    OpenAIPolicy,
    Sampling,
    Search,
    Segments,
    TransformersPolicy,
    Tree,
)
from focus.errors import FatalError, Refused
from focus.models import BUILTIN
from focus.policies.convention import LogProbConvention
from focus.problem import Message
from focus.tasks.registry import load_task
from focus.testing.vllm import PagedCache
from focus.testing.vllm_process import vllm_server
from focus.tokens import FinishReason, Generation, TokenIds

PYTHON = os.environ.get("FOCUS_VLLM_PYTHON", "")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.full,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not PYTHON, reason="FOCUS_VLLM_PYTHON does not name an interpreter with vLLM"
    ),
]

NAME = "actor-0001"
PAGE = 32
PROMPT = [Message("user", "Compute 3 + 5 * 2.")]
both = pytest.mark.parametrize("names_weights", [False, True], ids=["completions", "generate"])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A vLLM server of the shipped model, ready to answer."""
    words = "--enable-scale-out --enable-prompt-tokens-details --max-num-seqs 16"
    words += f" --logprobs-mode processed_logprobs --block-size {PAGE}"
    with vllm_server(PYTHON, BUILTIN, served_model=NAME, words=words.split()) as address:
        yield address


@pytest.fixture
async def policy(url: str, names_weights: bool) -> AsyncIterator[OpenAIPolicy]:
    async with OpenAIPolicy(url, model="builtin", names_weights=names_weights) as made:
        yield made


def recomputed(
    model: torch.nn.Module, prefix: TokenIds, reply: Generation, t: float
) -> list[float]:
    """Log-probs of the ids by one plain forward pass over the whole sequence."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*prefix, *reply.ids]])).logits[0]
    rows = torch.log_softmax(logits[len(prefix) - 1 : -1] / t, dim=-1)
    return [rows[place, token].item() for place, token in enumerate(reply.ids)]


@both
@pytest.mark.parametrize("temperature", [1.0, 0.5])
async def test_log_probs_are_those_of_the_law_that_was_sampled(
    policy: OpenAIPolicy, temperature: float
) -> None:
    prefix = policy.render(PROMPT)
    sampling = Sampling(temperature=temperature, max_tokens=40)
    replies = [
        await policy.generate(prefix, sampling.merged(Sampling(seed=seed))) for seed in range(6)
    ]
    assert len({reply.ids for reply in replies}) > 1
    async with TransformersPolicy("builtin", device="cpu") as local:
        assert local.render(PROMPT) == prefix
        for reply in replies:
            expected = recomputed(local.model, prefix, reply, temperature)
            assert reply.log_probs == pytest.approx(expected, abs=1e-3)


@both
async def test_a_seed_fixes_the_ids_and_a_stop_id_is_the_last_of_them(policy: OpenAIPolicy) -> None:
    prefix = policy.render(PROMPT)
    sampling = Sampling(max_tokens=60, seed=3)
    first, again = [await policy.generate(prefix, sampling) for _ in range(2)]
    assert first.ids == again.ids
    assert first.finish is FinishReason.STOP
    assert policy.decode(first.ids[-1:], keep_special=True) == "<|im_end|>"
    middle = first.ids[len(first.ids) // 2]
    cut = await policy.generate(prefix, sampling.merged(Sampling(stop=(middle,))))
    assert cut.ids == first.ids[: first.ids.index(middle) + 1]
    assert cut.finish is FinishReason.STOP
    short = await policy.generate(prefix, sampling.merged(Sampling(max_tokens=5)))
    assert (short.ids, short.finish) == (first.ids[:5], FinishReason.LENGTH)


@both
async def test_a_probe_finds_what_the_server_runs(
    policy: OpenAIPolicy, names_weights: bool
) -> None:
    report = await policy.probe()
    assert report.convention is LogProbConvention.PROCESSED
    assert report.context_limit == 512
    assert report.version == ("default" if names_weights else NAME)
    assert report.model == str(BUILTIN)


@both
async def test_refusals_are_typed(url: str, policy: OpenAIPolicy, names_weights: bool) -> None:
    async with OpenAIPolicy(
        url, model="builtin", served_model="actor-0002", names_weights=names_weights
    ) as other:
        with pytest.raises(FatalError, match=r"actor-0002.* does not exist"):
            await other.generate((1,), Sampling(max_tokens=1))
    with pytest.raises(Refused, match="at least 1"):
        await policy.generate((1,) * 512, Sampling(max_tokens=1))


@both
async def test_callers_that_go_free_their_places(url: str, policy: OpenAIPolicy) -> None:
    """Replies that would take hundreds of tokens: the server stops, and not all were finished."""
    prefix, count = policy.render(PROMPT), 8
    samplings = [Sampling(max_tokens=450, temperature=2.0, seed=seed) for seed in range(count)]
    async with httpx.AsyncClient(base_url=url) as metrics:
        before = await _counter(metrics, "request_success_total{.*}")
        tasks = [asyncio.create_task(policy.generate(prefix, each)) for each in samplings]
        with anyio.fail_after(300):
            while not await _counter(metrics, "num_requests_running{.*}"):
                assert not all(task.done() for task in tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            while await _counter(metrics, "num_requests_(running|waiting){.*}"):
                pass
        finished = await _counter(metrics, "request_success_total{.*}") - before
    assert finished < count


async def test_a_tree_pays_for_prefill_exactly_what_pages_leave(url: str) -> None:
    """Each request computes what no earlier one did, rounded up to pages, and its last token."""
    task = load_task("demo")
    (problem,) = task.problems("train", 1)
    search = Search.two_phase(tokens=400, concurrency=1)
    names = ("prefix_cache_queries_total{.*}", "prefix_cache_hits_total{.*}")
    async with (
        httpx.AsyncClient(base_url=url) as metrics,
        OpenAIPolicy(url, model="builtin") as policy,
    ):
        agent = Agent(
            policy, parser=Segments(12), sampling=Sampling(seed=7), allowance=Allowance(tokens=96)
        )
        before = [await _counter(metrics, name) for name in names]
        async with Collector(agent=agent, env=task.env_for(problem), search=search) as collector:
            found = await collector.collect(problem)
        after = [await _counter(metrics, name) for name in names]
    queried, hits = (late - early for late, early in zip(after, before, strict=True))
    assert (found.ledger.tokens_submitted, found.ledger.tokens_cached) == (queried, hits)
    assert queried - hits == _owed(found.tree)


def _owed(tree: Tree[Any]) -> int:
    """Prompt tokens of the tree's requests, one after another, that no earlier one left."""
    cache, owed = PagedCache(PAGE), 0
    for node in tree.edges():
        assert node.parent is not None
        prefix = tree.context(node.parent)
        owed += len(prefix) - cache.found(prefix)
        cache.store((*prefix, *node.incoming.ids[:-1]))
    return owed


async def _counter(client: httpx.AsyncClient, name: str) -> float:
    """One of vLLM's metrics, by its name without the prefix and its labels; 0 before it counts."""
    text = (await client.get("/metrics")).text
    told = re.finditer(rf"^vllm:{name} (?P<value>\S+)$", text, re.MULTILINE)
    return sum(float(one["value"]) for one in told)
