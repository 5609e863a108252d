"""Fresh outcomes for the critic's judgement, from the solutions that Slime evaluates.

Each checkpoint of an unbranched solution is stored with the solution's outcome: what one
continuation by the current policy led to from there, marked ``fresh`` as
focus.training.outcomes asks. Those of one solution share it, so a judge must treat a
problem, not a checkpoint, as its unit (focus.training.gate does).
"""

from __future__ import annotations

import itertools
from typing import Any

from focus.collect import Collector, Evaluation
from focus.integrations.slime._rounds import last_begun, run_name
from focus.problem import Problem
from focus.records import JsonlDirectory
from focus.records.records import CriticRecord, RecordKey
from focus.tree import Identity

__all__ = ("Outcomes",)


class Outcomes:
    """Writes one file per evaluated solution and accepts its round at once."""

    def __init__(self, sink: JsonlDirectory) -> None:
        self._sink = sink
        self._calls = itertools.count()
        self._accepted: set[tuple[int, int]] = set()

    def note(self, args: Any, problem: Problem, found: Evaluation, collector: Collector) -> None:
        """Store a solution's checkpoints. Blocks.

        Raises:
            StoreError: they could not be stored.
        """
        begun = last_begun()
        round, attempt = (0, 0) if begun is None else (begun.round, begun.attempt)
        source = RecordKey(
            identity=Identity(run=run_name(args), round=round, attempt=attempt),
            # One prompt is solved several times, and data sets number theirs alike.
            problem=f"{problem.id}/{next(self._calls)}",
            key=problem.key,
            policy_version=collector.agent.policy.version,
            critic_version="none",
        )
        self._sink.write(
            [
                CriticRecord(
                    source=source,
                    node=depth,
                    context=context,
                    target=found.outcome,
                    count=1,
                    prior=found.outcome,
                    depth=depth,
                    truncated=found.truncated,
                    diagnostics={"fresh": 1.0},
                )
                for depth, context in enumerate(found.contexts)
            ]
        )
        if (round, attempt) not in self._accepted:
            self._sink.accept(round=round, attempt=attempt)
            self._accepted.add((round, attempt))
