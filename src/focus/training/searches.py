"""The searches that a training run can be told by name."""

from __future__ import annotations

from focus.search import Concurrency, Phase, RootOnly, Search, ValueRefinement
from focus.training.settings import TrainSettings

__all__ = ("search_of",)


def search_of(settings: TrainSettings) -> Search:
    """`settings.search` with its budget.

    >>> search_of(TrainSettings(search="flat", tokens_per_prompt=320)).tokens
    320
    >>> search_of(TrainSettings(search="cascade")).phases[0].lockstep
    True
    """
    tokens, concurrency = settings.tokens_per_prompt, settings.concurrency
    gate = Concurrency(concurrency)
    if settings.search == "two-phase":
        return Search.two_phase(tokens=tokens, concurrency=concurrency)
    if settings.search == "cascade":
        return Search.cascade(tokens=tokens, concurrency=concurrency)
    if settings.search == "flat":
        return Search([Phase(RootOnly(), tokens=tokens, gate=gate)], concurrency=concurrency)
    return Search(
        [
            Phase(RootOnly(), tokens=tokens // 2, gate=gate),
            Phase(ValueRefinement(gain="preposterior"), tokens=tokens - tokens // 2, gate=gate),
        ],
        concurrency=concurrency,
    )
