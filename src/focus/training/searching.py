"""Test-time search: does a critic pick better answers than a vote, for the same tokens?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from focus._cancellation import siblings
from focus.collect import Collection, Collector
from focus.credit import RefinedTd
from focus.critic import Critic
from focus.errors import ConfigError, ProblemError
from focus.execution import ExecutionServices
from focus.policies.base import Policy
from focus.problem import Problem
from focus.search import BestFirst, Concurrency, Phase, RootOnly, Search
from focus.tasks.answers import last_box
from focus.tasks.registry import Task
from focus.training.bootstrap import ClusterBootstrap
from focus.training.making import make_agent
from focus.tree import Identity

__all__ = ("METHODS", "Leaf", "MethodResult", "SearchReport", "compare_searches", "pick")

METHODS = ("unbranched", "majority", "best of n", "guided search")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One finished solution.

    Attributes:
        answer: what is voted on: the last box, else the whole text.
        value: the critic's V of the last checkpoint before the end.
        outcome: as graded.
    """

    answer: str
    value: float
    outcome: float


@dataclass(frozen=True, kw_only=True)
class MethodResult:
    """One method over all problems.

    Attributes:
        accuracy, ci95: mean outcome of what it picks, with a bootstrap interval.
        gain, gain_ci95: minus unbranched, on the same problems.
        tokens: generated per problem.
        solutions: finished per problem.
    """

    accuracy: float
    ci95: tuple[float, float]
    gain: float
    gain_ci95: tuple[float, float]
    tokens: float
    solutions: float


@dataclass(frozen=True, kw_only=True)
class SearchReport:
    """All methods, under one token budget per problem.

    Attributes:
        methods: by name, in the order of `METHODS`.
        problems: solved.
        tokens: the budget.
        critic_version: who valued.
    """

    methods: Mapping[str, MethodResult]
    problems: int
    tokens: int
    critic_version: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "methods": {name: asdict(result) for name, result in self.methods.items()},
            "n": self.problems,
            "tokens_per_problem": self.tokens,
            "critic_version": self.critic_version,
        }


def pick(leaves: Sequence[Leaf], method: str) -> float:
    """Outcome of what `method` picks among finished solutions; first ones win ties.

    ``"unbranched"`` takes one at random, so its outcome is the mean. ``"majority"`` takes
    the most frequent answer. Anything else takes the highest value.

    >>> leaves = [Leaf("3", 0.2, 1.0), Leaf("5", 0.9, 0.0), Leaf("3", 0.1, 1.0)]
    >>> pick(leaves, "majority"), pick(leaves, "best of n")
    (1.0, 0.0)
    """
    if method == "unbranched":
        return sum(leaf.outcome for leaf in leaves) / len(leaves)
    if method == "majority":
        votes = Counter(leaf.answer for leaf in leaves)
        return max(leaves, key=lambda leaf: votes[leaf.answer]).outcome
    return max(leaves, key=lambda leaf: leaf.value).outcome


@dataclass(frozen=True, slots=True)
class _Solved:
    leaves: tuple[Leaf, ...]
    tokens: int


async def compare_searches(
    policy: Policy,
    critic: Critic,
    task: Task,
    problems: Sequence[Problem],
    *,
    tokens: int,
    seed: int,
    services: ExecutionServices,
    concurrency: int = 4,
    progress: Progress = lambda done, of: None,
) -> SearchReport:
    """Solve each problem twice under `tokens`: by independent rollouts, and by a guided tree.

    The rollouts serve unbranched, majority and best of n. The guided tree spends the first
    half on rollouts too, the second on continuing the checkpoints that the critic values
    most; the answer is the leaf it values most.

    Raises:
        ConfigError: the budget buys nothing.
        ProblemError: a problem has no finished solution within the budget.
        CollectionFailed: a request failed.
    """
    if tokens < 2:
        raise ConfigError(f"a budget of {tokens} tokens buys nothing")
    gate = Concurrency(concurrency)
    half = Phase(RootOnly(), tokens=tokens // 2, gate=gate)
    searches = {
        "flat": Search((Phase(RootOnly(), tokens=tokens, gate=gate),), concurrency=concurrency),
        "guided": Search(
            (half, Phase(_GREEDY, tokens=tokens - tokens // 2, gate=gate)), concurrency=concurrency
        ),
    }
    found: dict[str, dict[int, _Solved]] = {name: {} for name in searches}

    async def solve(name: str, index: int, problem: Problem) -> None:
        agent, env = make_agent(policy, task, problem, seed=seed, services=services)
        growing = Collector(
            agent=agent,
            env=env,
            search=searches[name],
            critic=critic,
            credit=RefinedTd(),
            own=False,
        )
        async with growing as collector:
            collection = await collector.collect(problem, identity=Identity(run=f"search-{name}"))
        found[name][index] = _solved(collection, policy)
        progress(sum(map(len, found.values())), len(searches) * len(problems))

    async with siblings() as group:
        for index, problem in enumerate(problems):
            for name in searches:
                group.start_soon(solve, name, index, problem)
    return _report(problems, found, tokens=tokens, critic=critic)


_GREEDY = BestFirst(key="critic", explore=0.25)
"""Visits count against a checkpoint, or the best-valued one would get everything."""


def _solved(collection: Collection, policy: Policy) -> _Solved:
    tree = collection.tree
    start = len(tree.header.prompt_ids)
    leaves = []
    for node in tree.terminals():
        parent = tree[node].parent
        assert parent is not None
        value = tree[parent].value
        assert value is not None, "a strict collection values every checkpoint"
        text = policy.decode(tree.context(node)[start:])
        answer = last_box(text) or text.strip()
        leaves.append(Leaf(answer, value, tree.outcome(node)))
    if not leaves:
        raise ProblemError(
            f"problem {tree.header.problem.id!r}: no solution was finished within the budget; "
            "raise --tokens"
        )
    return _Solved(tuple(leaves), collection.ledger.tokens_generated)


def _report(
    problems: Sequence[Problem],
    found: Mapping[str, Mapping[int, _Solved]],
    *,
    tokens: int,
    critic: Critic,
) -> SearchReport:
    bootstrap = ClusterBootstrap([problem.key for problem in problems])
    order = range(len(problems))
    by_method = {
        name: [found["guided" if name == "guided search" else "flat"][i] for i in order]
        for name in METHODS
    }
    outcomes = {
        name: [pick(one.leaves, name) for one in solved] for name, solved in by_method.items()
    }
    results = {}
    for name, solved in by_method.items():
        gains = [a - b for a, b in zip(outcomes[name], outcomes["unbranched"], strict=True)]
        results[name] = MethodResult(
            accuracy=_mean(outcomes[name]),
            ci95=bootstrap.interval(outcomes[name]),
            gain=_mean(gains),
            gain_ci95=bootstrap.interval(gains),
            tokens=_mean([one.tokens for one in solved]),
            solutions=_mean([len(one.leaves) for one in solved]),
        )
    return SearchReport(
        methods=results, problems=len(problems), tokens=tokens, critic_version=critic.version
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
