"""Records by the tree they came from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from focus.records.records import ActorRecord, CriticRecord

__all__ = ("by_prompt",)

R = TypeVar("R", ActorRecord, CriticRecord)


def by_prompt(records: Iterable[R]) -> list[list[R]]:
    """Records of each prompt; the order of prompts depends on their names only."""
    groups: dict[str, list[R]] = {}
    for record in records:
        source = record.source
        groups.setdefault(repr((source.identity, source.problem, source.key)), []).append(record)
    return [groups[name] for name in sorted(groups)]
