"""What a closed loop's last critic is worth: held-out problems, the last policy, one budget.

Two critics collect the same held-out problems under the same token budget: the newest
published one, and the constant that was fitted to the outcomes it was trained on. Both
also value the checkpoints of fresh, unbranched solutions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus import AdmissionPool, Critic, ExecutionServices, Problem
from focus._cancellation import siblings
from focus.collect import Collection
from focus.critic.loading import load_value_model
from focus.critic.snapshot import Snapshot
from focus.critic.store import SnapshotStore
from focus.records.records import CriticContext
from focus.tree import Identity

from .walk import TablePolicy, collector, problems, theta_of

__all__ = ("Measured", "measure")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One seed's figures.

    Attributes:
        versions: published critics, oldest first.
        brier_by_version: squared error of each on the same fresh checkpoints.
        brier_constant: that of the fitted constant.
        mixed_ratio, mixed_ratio_constant: share of problems with both outcomes among their
            finished leaves.
        tokens, tokens_constant: generated per problem.
        constant: the fitted constant.
    """

    versions: tuple[str, ...]
    brier_by_version: tuple[float, ...]
    brier_constant: float
    mixed_ratio: float
    mixed_ratio_constant: float
    tokens: float
    tokens_constant: float
    constant: float


@dataclass(frozen=True)
class _Fresh:
    """A checkpoint of a held-out problem, and how one continuation from it ended."""

    context: CriticContext
    outcome: float


async def measure(folder: Path, *, rounds: int, seed: int, count: int) -> Measured:
    """Figures of the loop in `folder`, whose last policy is that of `rounds`."""
    store = SnapshotStore(folder / "critics")
    snapshots = [store.load(version) for version in store.versions()]
    theta = theta_of(folder / "weights" / f"step-{rounds - 1}.json")
    policy = TablePolicy(theta, version="last")
    found = problems("heldout", count, seed=seed)
    constant = snapshots[-1].facts.constant
    assert constant is not None, "a trained critic brings its constant"
    async with ExecutionServices(AdmissionPool(capacity=64)) as services:
        fresh = await _fresh(policy, found, services)
        steered = await _collect(policy, found, _local(snapshots[-1]), services)
        plain = await _collect(policy, found, Critic.constant(constant), services)
    return Measured(
        versions=store.versions(),
        brier_by_version=tuple([await _brier(_local(one), fresh) for one in snapshots]),
        brier_constant=await _brier(Critic.constant(constant), fresh),
        mixed_ratio=_mean(_is_mixed, steered),
        mixed_ratio_constant=_mean(_is_mixed, plain),
        tokens=_mean(_tokens, steered),
        tokens_constant=_mean(_tokens, plain),
        constant=constant,
    )


def _local(snapshot: Snapshot) -> Critic:
    return Critic.local(load_value_model(snapshot))


async def _fresh(
    policy: TablePolicy, found: Sequence[Problem], services: ExecutionServices
) -> list[_Fresh]:
    made: list[_Fresh] = []
    for problem in found:
        async with collector(policy, Critic.constant(0.5), services) as solving:
            solution = await solving.evaluate(
                problem, identity=Identity(run="fresh"), with_contexts=True
            )
        made += [_Fresh(context, solution.outcome) for context in solution.contexts]
    return made


async def _collect(
    policy: TablePolicy, found: Sequence[Problem], critic: Critic, services: ExecutionServices
) -> list[Collection]:
    """Trees of all problems; equal names draw equal replies, whichever critic values them."""
    made: list[Collection] = []

    async def one(problem: Problem) -> None:
        async with collector(policy, critic, services) as growing:
            made.append(await growing.collect(problem, identity=Identity(run="measure")))

    async with siblings() as group:
        for problem in found:
            group.start_soon(one, problem)
    return made


async def _brier(critic: Critic, fresh: Sequence[_Fresh]) -> float:
    values = await critic.score([one.context for one in fresh])
    return sum((v - f.outcome) ** 2 for v, f in zip(values, fresh, strict=True)) / len(fresh)


def _is_mixed(collection: Collection) -> float:
    tree = collection.tree
    return float(len({tree.outcome(leaf) for leaf in tree.terminals()}) == 2)


def _tokens(collection: Collection) -> float:
    return float(collection.ledger.tokens_generated)


def _mean(of: Callable[[Collection], Any], collections: Sequence[Collection]) -> float:
    return float(sum(of(collection) for collection in collections) / len(collections))
