"""Questions, collector and evaluation of the browsing walkthrough, for any policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio

from focus import Collection, Collector, Critic, Problem, RefinedTd, Search
from focus.execution import ExecutionServices
from focus.policies.base import Policy
from focus.sampling import derive_seed
from focus.tasks.browse import Library
from focus.tasks.browse.habits import FOLD_AT, browsing_agent
from focus.tree import Identity

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Browsing:
    """One policy in one library.

    Attributes:
        fold_at: prompt length beyond which the next reply is notes.
        reply_tokens: most ids per reply.
        dialect: how the model writes calls.
    """

    policy: Policy
    library: Library
    services: ExecutionServices = field(default_factory=ExecutionServices)
    fold_at: int = FOLD_AT
    reply_tokens: int = 48
    dialect: str = "hermes"

    def collector(
        self, problem: Problem, search: Search, *, seed: int, value: float = 0.5
    ) -> Collector:
        """A collector for one question; everything here is borrowed."""
        agent = browsing_agent(
            self.policy,
            seed=seed,
            services=self.services,
            fold_at=self.fold_at,
            reply_tokens=self.reply_tokens,
            dialect=self.dialect,
        )
        return Collector(
            agent=agent,
            env=self.library.env(problem),
            search=search,
            critic=Critic.constant(value),
            credit=RefinedTd(),
            packing="path",
            own=False,
        )

    async def success(self, problems: Sequence[Problem], *, seed: int, progress: Progress) -> float:
        """Mean outcome of one unbranched solution of each question."""
        outcomes: list[float] = []

        async def solve(problem: Problem) -> None:
            async with self.collector(problem, Search.flat(1), seed=seed) as collector:
                outcomes.append((await collector.evaluate(problem)).outcome)
            progress(len(outcomes), len(problems))

        async with anyio.create_task_group() as group:
            for problem in problems:
                group.start_soon(solve, problem)
        return sum(outcomes) / len(outcomes)

    async def collect(
        self,
        problems: Sequence[Problem],
        *,
        round_index: int,
        tokens: int,
        value: float,
        progress: Progress,
    ) -> list[Collection]:
        """A tree per question."""
        found: dict[int, Collection] = {}
        search = Search.two_phase(tokens=tokens, concurrency=4)
        identity = Identity(run="browsecomp", round=round_index)

        async def one(index: int, problem: Problem) -> None:
            seed = derive_seed(round_index, "collect")
            async with self.collector(problem, search, seed=seed, value=value) as collector:
                found[index] = await collector.collect(problem, identity=identity)
            progress(len(found), len(problems))

        async with anyio.create_task_group() as group:
            for index, problem in enumerate(problems):
                group.start_soon(one, index, problem)
        return [found[index] for index in range(len(problems))]
