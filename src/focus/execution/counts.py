"""The books of requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from focus.errors import RequestError, TransientError

__all__ = ("RequestCounts",)


@dataclass(slots=True)
class RequestCounts:
    """Books of the requests of one collection.

    Attributes:
        sent: tries sent; = accepted + failed + cancelled + late once nothing is in flight.
        calls: calls of the policy that carried them; siblings may share one.
        late: tries given up at the deadline; a reply that still comes is dropped.
        discarded_tokens: ids of replies that arrived and were refused.
        prompt_tokens: ids submitted as prefixes of replies that arrived.
        cached_tokens: how many of them the server had cached; None once a reply did not tell.
        faults: failed and late tries by kind of fault.
    """

    sent: int = 0
    calls: int = 0
    accepted: int = 0
    failed: int = 0
    cancelled: int = 0
    late: int = 0
    discarded_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int | None = 0
    faults: dict[str, int] = field(default_factory=dict)

    def fail(self, error: RequestError) -> None:
        """Close one try that ended in `error`."""
        is_late = isinstance(error, TransientError) and error.is_late
        self.late += is_late
        self.failed += not is_late
        self._count_faults(type(error).__name__, 1)

    def add(self, other: RequestCounts) -> None:
        """Take in another book."""
        self.sent += other.sent
        self.calls += other.calls
        self.accepted += other.accepted
        self.failed += other.failed
        self.cancelled += other.cancelled
        self.late += other.late
        self.discarded_tokens += other.discarded_tokens
        for kind, count in other.faults.items():
            self._count_faults(kind, count)
        self.count_prompt(other.prompt_tokens, other.cached_tokens)

    def _count_faults(self, kind: str, count: int) -> None:
        self.faults[kind] = self.faults.get(kind, 0) + count

    def count_prompt(self, prompt: int, cached: int | None) -> None:
        """Add one reply's prompt to the books."""
        self.prompt_tokens += prompt
        if self.cached_tokens is not None:
            self.cached_tokens = None if cached is None else self.cached_tokens + cached
