"""P9, eta_prefill: what a real engine with a prefix cache computes of the prompts it is sent.

python -m bench.overhead.prefill PYTHON --json FILE     # PYTHON has vLLM
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
from bench.learning.tasks.browsing import BROWSING
from bench.learning.tasks.family import searched
from bench.overhead.figure import Figure

from focus import Collection, Critic, ExecutionServices, RefinedTd, Search, VLLMPolicy
from focus.collect import Ledger, total
from focus.execution import AdmissionPool
from focus.models import resolve
from focus.tasks.registry import Task, load_task
from focus.testing.vllm import PagedCache
from focus.testing.vllm_process import vllm_server
from focus.tokens import TokenIds
from focus.training.making import make_collector
from focus.tree import Identity, Tree

__all__ = ("Sent", "apart", "floor", "paid", "prefill_figures", "requests")

PAGE = 32
"""Tokens of a page; vLLM's CPU kernels take multiples of this only."""
_BUDGET = 640
_OTHER = 2**20
"""Beyond every vocabulary: ids that another rollout sampled."""


@dataclass(frozen=True)
class Sent:
    """One request: the ids it continued, and those it sampled."""

    prefix: TokenIds
    reply: TokenIds


def requests(tree: Tree[Any], path: Iterable[int] | None = None) -> Iterator[Sent]:
    """The requests for the edges of a tree, or of one path, in the order of their edges."""
    nodes = tree.edges() if path is None else map(tree.__getitem__, path)
    for node in nodes:
        if node.parent is None:
            continue
        prefix = tree.context(node.parent)
        for span in node.incoming.spans:
            if span.is_sampled:
                yield Sent(prefix, span.ids)
            prefix += span.ids


def apart(tree: Tree[Any]) -> Iterator[Sent]:
    """The requests of independent rollouts with the tree's leaves: they share the prompt only."""
    prompt = len(tree.header.prompt_ids)
    for number, leaf in enumerate(tree.leaves(), start=1):

        def own(ids: TokenIds, number: int = number) -> TokenIds:
            return tuple(token + number * _OTHER for token in ids)

        for sent in requests(tree, tree.path(leaf)):
            head, rest = sent.prefix[:prompt], sent.prefix[prompt:]
            yield Sent(head + own(rest), own(sent.reply))


def paid(sent: Iterable[Sent], *, page: int) -> int:
    """Prompt tokens that an engine computes which keeps every whole page.

    >>> first = Sent(tuple(range(40)), tuple(range(40, 101)))
    >>> paid([first, Sent(tuple(range(101)), (7,))], page=16)
    45
    """
    cache, computed = PagedCache(page), 0
    for one in sent:
        computed += len(one.prefix) - cache.found(one.prefix)
        # The last sampled id was not fed back.
        cache.store(one.prefix + one.reply[:-1])
    return computed


def floor(sent: Iterable[Sent]) -> int:
    """Distinct prompt and observation tokens, each after the ids before it.

    >>> floor([Sent((1, 2), (3, 4)), Sent((1, 2, 3, 4, 9), (5,)), Sent((1, 2), (6,))])
    3
    """
    cache, needed = PagedCache(1), 0
    for one in sent:
        needed += len(one.prefix) - cache.found((*one.prefix, -1))
        cache.store(one.prefix + one.reply)
    return needed


@dataclass(frozen=True)
class _Measured:
    """Trees from one server, and what its counters say it computed for them."""

    what: str
    found: Sequence[Collection]
    computed: int

    @property
    def books(self) -> Ledger:
        return total([one.ledger for one in self.found])

    def figures(self) -> Iterator[Figure]:
        trees = [one.tree for one in self.found]
        sent = [request for tree in trees for request in requests(tree)]
        chains = [request for tree in trees for request in apart(tree)]
        ideal, rollouts = paid(sent, page=PAGE), paid(chains, page=PAGE)
        books, computed = self.books, self.computed
        where = f"{self.what}; {len(sent)} requests, {computed} prompt tokens computed"
        yield _share(f"eta_prefill on vLLM: {where}", books.tokens_needed / computed, 0.9)
        yield _share("the same, what trees share counted once", floor(sent) / computed, 0.9)
        yield _share(
            f"what pages of {PAGE} tokens leave to compute, of that", ideal / computed, 0.98
        )
        yield _share(
            f"the same over what independent rollouts with these leaves compute ({rollouts})",
            rollouts / computed,
            1.0,
        )


def _share(what: str, value: float, goal: float) -> Figure:
    return Figure(
        id="P9", what=what, value=value, unit="share", goal=goal, floor=1.0, better="higher"
    )


def prefill_figures(python: str, *, prompts: int) -> Iterator[Figure]:
    """Trees of the shipped models, sampled by a vLLM server that `python` has."""
    search, browsing = Search.two_phase(tokens=_BUDGET), BROWSING["browse"]
    cases = (
        (
            "agents with tools (browse)",
            "agent",
            browsing.profile,
            searched(browsing.make_task(), search),
        ),
        ("segments of 12 tokens (demo)", "builtin", "token_chunk", load_task("demo")),
    )
    words = ("--enable-prompt-tokens-details", "--block-size", str(PAGE), "--max-num-seqs", "64")
    for what, model, profile, task in cases:
        with vllm_server(python, resolve(model), served_model=model, words=words) as url:
            yield from anyio.run(_measure, url, what, model, profile, task, prompts).figures()


async def _measure(
    url: str, what: str, model: str, profile: str, task: Task, prompts: int
) -> _Measured:
    found: list[Collection] = []
    async with (
        httpx.AsyncClient(base_url=url) as metrics,
        VLLMPolicy(url, model=model, profile=profile) as policy,
        ExecutionServices(AdmissionPool(64)) as services,
    ):
        await policy.probe()
        before = await _computed(metrics)

        async def one(problem: Any) -> None:
            collector = make_collector(
                policy,
                task,
                problem,
                search=Search.two_phase(tokens=_BUDGET),
                critic=Critic.constant(0.5),
                credit=RefinedTd(),
                packing="path",
                seed=1,
                services=services,
            )
            async with collector:
                found.append(await collector.collect(problem, identity=Identity(run="bench")))

        async with anyio.create_task_group() as group:
            for problem in task.problems("train", prompts):
                group.start_soon(one, problem)
        computed = await _computed(metrics) - before
    books = total([one.ledger for one in found])
    assert books.tokens_cached is not None
    assert computed == books.tokens_submitted - books.tokens_cached
    return _Measured(what, found, computed)


async def _computed(metrics: httpx.AsyncClient) -> int:
    """Prompt tokens that the engine has computed so far, by its own counters."""
    text = (await metrics.get("/metrics")).text
    queried, hit = (
        sum(map(float, re.findall(rf"^vllm:prefix_cache_{name}_total\S* (\S+)$", text, re.M)))
        for name in ("queries", "hits")
    )
    return round(queried - hit)


def main() -> int:
    from bench.overhead.__main__ import facts, table
    from rich.console import Console

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", help="an interpreter that has vLLM")
    parser.add_argument("--prompts", type=int, default=8, help="trees of each task")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    figures = list(prefill_figures(options.python, prompts=options.prompts))
    Console().print(table(figures))
    if options.json is not None:
        command = "python -m bench.overhead.prefill /tmp/vllm/bin/python --json=prefill.json"
        told = {
            **facts("Prefill on a real engine", command),
            "figures": [f.to_dict() for f in figures],
        }
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
