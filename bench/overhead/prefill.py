"""P9, eta_prefill: what a real engine with a prefix cache computes of the prompts it is sent.

python -m bench.overhead.prefill PYTHON --json FILE     # PYTHON has vLLM
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import httpx
from bench.learning.tasks.browsing import BROWSING
from bench.learning.tasks.family import searched
from bench.overhead.figure import Figure

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Critic,
    ExecutionServices,
    OpenAIPolicy,
    Policy,
    Problem,
    RefinedTd,
    Search,
    Segments,
)
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
_LEAVE_S = 5.0
"""Less than what `focus bench` waits for a measurement that it ends."""
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
    engine: str
    found: Sequence[Collection]
    computed: int
    earlier: Sequence[Sent]
    """Requests for earlier trees, whose pages the server still has."""

    @property
    def books(self) -> Ledger:
        return total([one.ledger for one in self.found])

    def figures(self) -> Iterator[Figure]:
        """The share by its definition, and beside what whole pages leave to an engine."""
        sent = [request for one in self.found for request in requests(one.tree)]
        needed, earlier = self.books.tokens_needed, self.earlier
        ideal = paid([*earlier, *sent], page=PAGE) - paid(earlier, page=PAGE)
        most = needed / paid(sent, page=1)
        where = f"{self.what}, {len(sent)} requests; {most:.2f} if pages held one token"
        yield _share(f"eta_prefill on vLLM {self.engine}: {where}", needed / self.computed, 0.9)
        yield _share(
            f"what pages of {PAGE} tokens leave to compute, of that", ideal / self.computed, 0.98
        )

    def beside(self) -> Iterator[Figure]:
        """The same with what trees have in common counted once, and independent rollouts."""
        sent = [request for one in self.found for request in requests(one.tree)]
        chains = [request for one in self.found for request in apart(one.tree)]
        rollouts = paid(chains, page=PAGE)
        yield _share("what trees share counted once", floor(sent) / self.computed, 0.9)
        yield _share(
            f"what independent rollouts with these leaves compute ({rollouts} tokens), over that",
            rollouts / self.computed,
            1.0,
            bound=None,
        )


def _share(what: str, value: float, goal: float, *, bound: float | None = 1.0) -> Figure:
    return Figure(
        id="P9", what=what, value=value, unit="share", goal=goal, floor=bound, better="higher"
    )


def prefill_figures(python: str, *, prompts: int) -> Iterator[Figure]:
    """Trees of the shipped models, sampled by a vLLM server that `python` has."""
    search, browsing = Search.two_phase(tokens=_BUDGET), BROWSING["browse"]
    browse, demo = searched(browsing.make_task(), search), load_task("demo")
    segments = _segmented(demo, Segments(PAGE), search)
    paged = _segmented(demo, Segments(PAGE, page=PAGE), search)
    with _served(python, "agent", browsing.profile) as server:
        measured = server.trees("agents with tools (browse)", browse, prompts)
        yield from (*measured.figures(), *measured.beside())
    with _served(python, "builtin", "token_chunk") as server:
        measured = server.trees("segments of 12 tokens (demo)", demo, prompts)
        yield from (*measured.figures(), *measured.beside())
        yield from server.trees(f"segments of {PAGE} tokens", segments, prompts).figures()
        yield from server.trees(f"the same, cut at pages of {PAGE}", paged, prompts).figures()


def _segmented(task: Task, parser: Segments, search: Search) -> Task:
    """The task with other segments."""

    def collector_for(policy: Policy, problem: Problem) -> Collector:
        agent = Agent(policy, parser=parser, allowance=Allowance(tokens=task.allowance_tokens))
        return Collector(agent=agent, env=task.env_for(problem), search=search)

    return replace(task, collector_for=collector_for)


@contextmanager
def _served(python: str, model: str, profile: str) -> Iterator[_Server]:
    words = ("--enable-prompt-tokens-details", "--block-size", str(PAGE), "--max-num-seqs", "64")
    server = vllm_server(python, resolve(model), served_model=model, words=words, leave_s=_LEAVE_S)
    with _ended_by_signals(), server as url:
        yield _Server(url, model, profile)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Told to end, this process unwinds, and takes the server with it."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class _Server:
    url: str
    model: str
    profile: str
    sent: list[Sent] = field(default_factory=list)

    def trees(self, what: str, task: Task, prompts: int) -> _Measured:
        """Trees of that many problems, all at once; other problems each time."""
        measured = anyio.run(self._trees, what, task, prompts)
        self.sent.extend(request for one in measured.found for request in requests(one.tree))
        return measured

    async def _trees(self, what: str, task: Task, prompts: int) -> _Measured:
        found: list[Collection] = []
        async with (
            httpx.AsyncClient(base_url=self.url) as metrics,
            OpenAIPolicy(self.url, model=self.model, profile=self.profile) as policy,
            ExecutionServices(AdmissionPool(64)) as services,
        ):
            engine = (await metrics.get("/version")).json()["version"]
            await policy.probe()
            before = await _computed(metrics)

            async def one(problem: Problem) -> None:
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
                for problem in task.problems("train", prompts, seed=len(what)):
                    group.start_soon(one, problem)
            computed = await _computed(metrics) - before
        books = total([one.ledger for one in found])
        assert books.tokens_cached is not None
        assert computed == books.tokens_submitted - books.tokens_cached
        return _Measured(what, engine, found, computed, tuple(self.sent))


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
