"""Context parallelism: which positions of a sample a rank holds.

A sample of T tokens is padded to 2·cp equal chunks; rank r holds chunk r from the front and
chunk r from the back. The log-prob of token t stands at position t − 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch

__all__ = ("Layout", "Rank", "current_rank", "cut_log_probs", "held_positions", "on_rank")


@dataclass(frozen=True)
class Layout:
    """How many data-parallel replicas, and ranks per sample."""

    dp: int = 1
    cp: int = 1


@dataclass(frozen=True)
class Rank:
    cp_rank: int = 0
    cp_size: int = 1


_ALONE = Rank()
_rank: ContextVar[Rank] = ContextVar("rank", default=_ALONE)


def current_rank() -> Rank:
    return _rank.get()


@contextmanager
def on_rank(rank: Rank) -> Iterator[None]:
    """Everything inside runs as that rank's process."""
    token = _rank.set(rank)
    try:
        yield
    finally:
        _rank.reset(token)


def held_positions(total_length: int, response_length: int) -> list[int]:
    """Response positions whose log-probs the current rank computes, in its own order."""
    rank, size = current_rank().cp_rank, current_rank().cp_size
    first = total_length - response_length
    if size == 1:
        return list(range(response_length))
    chunk = math.ceil(total_length / (2 * size))
    held = []
    for number in (rank, 2 * size - rank - 1):
        for position in range(number * chunk, (number + 1) * chunk):
            if first - 1 <= position < total_length - 1:
                held.append(position - (first - 1))
    return held


def cut_log_probs(log_probs: torch.Tensor, total_length: int, response_length: int) -> torch.Tensor:
    """The current rank's part of a tensor over the whole response."""
    assert len(log_probs) == response_length, "not one entry per response token"
    return log_probs[torch.tensor(held_positions(total_length, response_length), dtype=torch.long)]
