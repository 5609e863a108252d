"""What a trial has spent, in tokens of each kind, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from focus.collect import Collection, Ledger
from focus.training.settings import CriticSettings

__all__ = ("PRICES", "Books", "priced", "trained_by_critic")

PRICES: Mapping[str, float] = {
    "tokens": 1.0,
    "prefill": 0.1,
    "critic_read": 0.1,
    "critic_trained": 0.3,
}
"""Of a token, one that the policy samples being 1: reading many at once is cheaper than
sampling one after another, and a training pass costs three readings."""


@dataclass(slots=True)
class Books:
    """Running totals.

    Attributes:
        tokens: sampled by the policy.
        prefill: prompt tokens that it had to compute.
        calls, calls_needed: of the policy; checkpoints that were continued.
        learner: read by the actor's trainer.
        critic_calls: checkpoints valued to steer the search.
        critic_read: distinct tokens that a critic read, to steer or to be judged.
        critic_trained: tokens of its training passes.
    """

    tokens: int = 0
    prefill: int = 0
    calls: int = 0
    calls_needed: int = 0
    learner: int = 0
    critic_calls: int = 0
    critic_read: int = 0
    critic_trained: int = 0

    def enter(self, ledger: Ledger, *, steered: bool) -> None:
        """One collection's books; `steered`: a learned critic valued its checkpoints."""
        self.tokens += ledger.tokens_generated
        self.prefill += ledger.tokens_submitted - (ledger.tokens_cached or 0)
        self.calls += ledger.policy_calls
        self.calls_needed += ledger.requests_needed
        self.learner += ledger.tokens_learner
        if steered:
            self.critic_calls += ledger.critic_calls
            self.critic_read += ledger.tokens_distinct

    def to_dict(self) -> dict[str, int]:
        return asdict(self)


def priced(spent: Mapping[str, float], prices: Mapping[str, float] = PRICES) -> float:
    """Sampled tokens, plus prefill and critic compute at their prices.

    >>> priced({"tokens": 100, "prefill": 50, "critic_trained": 10})
    108.0
    """
    return sum(price * spent.get(name, 0) for name, price in prices.items())


def trained_by_critic(
    collections: Sequence[Collection], records: int, settings: CriticSettings
) -> int:
    """Tokens that one update reads: its steps take whole trees until they have a batch."""
    distinct = sum(collection.ledger.tokens_distinct for collection in collections)
    share = min(1.0, settings.batch_contexts / max(1, records))
    return round(settings.steps * share * distinct) if records else 0
