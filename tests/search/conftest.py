"""A tiny world without clocks: fake expansions that finish in any order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings

from focus.problem import Problem
from focus.search import Done, Launch, Scheduler, Search, Wait
from focus.tokens import Span
from focus.tree import Edge, NodeId, Provenance, Returns, Tree, TreeHeader

# A slow machine is no fault of a law.
settings.register_profile("laws", deadline=None)
settings.load_profile("laws")


@dataclass(frozen=True, kw_only=True)
class World:
    """Everything that decides what an expansion brings; no order, no time.

    A node's payload is the number of tokens it may still sample, or None.
    """

    seed: int = 0
    allowance: int | None = 64
    segment: int = 8
    stop: float = 0.3
    fail: float = 0.0
    waste: float = 0.0
    no_value: float = 0.0
    success: float = 0.5

    def result(self, launch: Launch, room: int | None) -> Result:
        rng = random.Random(f"{self.seed}/{launch.expansion}/{launch.node}")
        return Result(rng=rng, room=room, quota=launch.quota)

    def advance(self, launch: Launch, result: Result) -> None:
        """To the end, or to the next checkpoint where it pauses."""
        before = len(result.edges)
        while not result.is_over:
            self._one_edge(result.rng, result)
            result.cut = not (result.is_terminal or result.failed) and (
                result.quota == 0 or len(result.edges) == launch.extent
            )
            if launch.pauses and len(result.edges) > before:
                return

    def _one_edge(self, rng: random.Random, result: Result) -> None:
        if rng.random() < self.waste:
            result.spend(rng.randint(1, self.segment))
        if result.quota == 0:
            return
        if rng.random() < self.fail:
            result.failed = True
            return
        most = min(n for n in (self.segment, result.room, result.quota) if n is not None)
        stops = rng.random() < self.stop
        count = rng.randint(1, most) if stops else most
        result.edges.append(tuple(-3 * rng.random() for _ in range(count)))
        result.values.append(None if rng.random() < self.no_value else rng.random())
        result.spend(count)
        result.room = None if result.room is None else result.room - count
        result.is_terminal = stops or result.room == 0
        result.outcome = float(rng.random() < self.success)


@dataclass
class Result:
    """What one expansion brought, and what it may still use."""

    rng: random.Random
    room: int | None
    quota: int | None
    edges: list[tuple[float, ...]] = field(default_factory=list)
    values: list[float | None] = field(default_factory=list)
    tokens: int = 0
    outcome: float = 0.0
    is_terminal: bool = False
    failed: bool = False
    cut: bool = False
    attached: list[NodeId] = field(default_factory=list)
    told: int = 0

    @property
    def is_over(self) -> bool:
        return self.is_terminal or self.failed or self.cut

    def stands_at(self, launch: Launch) -> NodeId:
        return self.attached[-1] if self.attached else launch.node

    def spend(self, count: int) -> None:
        """Sample `count` tokens, or what the quota leaves of them."""
        if self.quota is not None:
            count = min(count, self.quota)
            self.quota -= count
        self.tokens += count


@dataclass
class Run:
    """A search played to its end."""

    scheduler: Scheduler
    tree: Tree[int | None]
    launches: list[Launch] = field(default_factory=list)
    results: dict[int, Result] = field(default_factory=dict)
    settled_before: list[int] = field(default_factory=list)
    continued: dict[NodeId, list[tuple[int, int]]] = field(default_factory=dict)
    """By checkpoint: expansions that went on from it, each with the nodes known before."""

    def tokens(self, phase: int) -> int:
        """Tokens that a phase really sampled."""
        return sum(
            self.results[launch.expansion].tokens
            for launch in self.launches
            if launch.phase == phase
        )


Watcher = Callable[[Tree[int | None], Counter[NodeId], Launch], None]


class Play:
    """Plays a search in a world, finishing expansions in an order of its own."""

    def __init__(
        self,
        search: Search,
        world: World,
        *,
        order: int = 0,
        root_value: float | None = 0.5,
        returns: Returns | None = None,
        watch: Watcher | None = None,
    ) -> None:
        header = TreeHeader(
            problem=Problem(id=1, prompt="2+2?"), prompt_ids=(1,), returns=returns or Returns()
        )
        self._world = world
        self._order = random.Random(order)
        self._watch = watch
        self._pending: Counter[NodeId] = Counter()
        tree: Tree[int | None] = Tree(header, world.allowance, value=root_value)
        scheduler = Scheduler(search, tree, remaining_tokens=lambda node: tree[node].payload)
        self.run = Run(scheduler, tree)

    def to_the_end(self) -> Run:
        running: list[int] = []
        while not isinstance(step := self.run.scheduler.next(), Done):
            if isinstance(step, Launch):
                self._launch(step)
                running.append(step.expansion)
            else:
                self._finish_until(step, running)
                self._settle(step.expansion)
        assert not running
        return self.run

    def _finish_until(self, wait: Wait, running: list[int]) -> None:
        while wait.expansion in running:
            running.remove(self._order.choice(running))

    def _launch(self, launch: Launch) -> None:
        run = self.run
        known = run.continued.setdefault(launch.node, [])
        known.append((launch.expansion, len(run.tree)))
        if launch.resumes:
            assert launch.node == run.results[launch.expansion].attached[-1]
        else:
            if self._watch is not None:
                self._watch(run.tree, self._pending, launch)
            run.settled_before.append(len(run.launches) - run.scheduler.in_flight + 1)
            run.launches.append(launch)
            self._pending[launch.node] += 1
            room = run.tree[launch.node].payload
            run.results[launch.expansion] = self._world.result(launch, room)
        self._world.advance(launch, run.results[launch.expansion])

    def _settle(self, expansion: int) -> None:
        launch, result = self.run.launches[expansion], self.run.results[expansion]
        self._pending[result.stands_at(launch)] -= 1
        chain = self._attach(launch, result)
        result.attached += chain
        tokens, result.told = result.tokens - result.told, result.tokens
        if not result.is_over:
            self._pending[chain[-1]] += 1
        self.run.scheduler.settle(
            expansion,
            chain=chain,
            tokens=tokens,
            failed=result.failed,
            cut=result.cut,
            paused=not result.is_over,
        )

    def _attach(self, launch: Launch, result: Result) -> list[NodeId]:
        tree, chain = self.run.tree, []
        parent = result.stands_at(launch)
        for index, log_probs in enumerate(result.edges):
            if index < len(result.attached):
                continue
            is_last = index == len(result.edges) - 1
            ends = is_last and result.is_terminal
            edge = Edge(
                spans=(Span(tuple(range(len(log_probs))), log_probs),),
                provenance=Provenance(expansion=launch.expansion, index=index, phase=launch.phase),
                reward=result.outcome if ends else 0.0,
            )
            room = tree[parent].payload
            parent = tree.attach(
                parent,
                edge,
                None if room is None else room - len(log_probs),
                value=None if ends else result.values[index],
                is_terminal=ends,
            )
            chain.append(parent)
        return chain


@pytest.fixture(scope="session")
def world() -> type[World]:
    return World


@pytest.fixture(scope="session")
def play() -> Callable[..., Run]:
    """``play(search, world, ...) -> Run``."""

    def play(search: Search, world: World, **options: Any) -> Run:
        return Play(search, world, **options).to_the_end()

    return play
