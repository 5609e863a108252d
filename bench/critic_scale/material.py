"""Records and fresh outcomes of scripted chains, on disk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from focus.records import JsonlDirectory
from focus.records.records import CriticRecord, RecordKey
from focus.training.outcomes import fresh_records
from focus.training.solving import FreshOutcome
from focus.tree import Identity

from .chains import context, path

__all__ = ("fresh", "training_records", "write_material")


def training_records(numbers: range, *, terms: int) -> Iterator[list[CriticRecord]]:
    """Mean outcomes of 1, 2 or 4 continuations from each checkpoint, with their counts."""
    for number in numbers:
        problem, chains = path(number, terms=terms)
        rng = random.Random(f"outcomes/{number}")
        source = RecordKey(
            identity=Identity(run="critic-scale"),
            problem=problem.id,
            key=problem.key,
            policy_version="scripted",
            critic_version="constant-0.5",
        )
        records = []
        for depth, chain in enumerate(chains):
            count = rng.choice((1, 2, 4))
            mean = sum(chain.outcome(rng) for _ in range(count)) / count
            records.append(
                CriticRecord(
                    source=source,
                    node=depth,
                    context=context(chain),
                    target=mean,
                    count=count,
                    prior=0.5,
                    depth=depth,
                )
            )
        yield records


def fresh(numbers: range, *, terms: int) -> tuple[list[FreshOutcome], list[float]]:
    """Fresh outcomes, and the true value behind each."""
    found, values = [], []
    for number in numbers:
        problem, chains = path(number, terms=terms)
        rng = random.Random(f"fresh/{number}")
        for depth, chain in enumerate(chains):
            found.append(FreshOutcome(problem, depth, context(chain), 0.5, chain.outcome(rng)))
            values.append(chain.value())
    return found, values


def write_material(folder: Path, *, problems: int, judged: int, terms: int) -> tuple[int, float]:
    """Write ``records`` and ``outcomes``; number of records, and the truth's own error."""
    count = 0
    sink = JsonlDirectory(folder / "records")
    for records in training_records(range(problems), terms=terms):
        sink.write(records)
        count += len(records)
    outcomes, values = fresh(range(problems, problems + judged), terms=terms)
    judge_sink = JsonlDirectory(folder / "outcomes")
    identity = Identity(run="critic-scale-fresh")
    for group in fresh_records(
        outcomes, identity=identity, policy_version="scripted", critic_version="none"
    ):
        judge_sink.write(group)
    errors = [(v - one.outcome) ** 2 for v, one in zip(values, outcomes, strict=True)]
    return count, sum(errors) / len(errors)
