"""How failed calls are repeated, by kind of fault: one rule for policies and critics."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import anyio

from focus.errors import Aborted, ConfigError, CorruptReply, RequestError, TransientError
from focus.policies.faults import classify_exception

__all__ = ("RetryPolicy", "name_of_try", "persist")

T = TypeVar("T")

_MOST_DOUBLINGS = 64
"""More than any pause needs, and far below where a float overflows."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often and how patiently a request is repeated.

    Attributes:
        attempts: tries for transient faults and aborts, ≥ 1.
        corrupt_attempts: tries when replies break their contract, ≥ 1.
        base_s: first pause; doubles each time, plus up to the same again of jitter.
        most_s: longest pause, but for a longer wish of the server.
    """

    attempts: int = 5
    corrupt_attempts: int = 2
    base_s: float = 0.25
    most_s: float = 30.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.corrupt_attempts < 1:
            raise ConfigError("a request needs at least one attempt")
        if not (self.base_s >= 0 and self.most_s >= 0):
            raise ConfigError("pauses must be >= 0 seconds")

    def allows(self, error: RequestError, tries: int) -> bool:
        """Whether to send again after `tries` tries, the last of which ended in `error`."""
        if isinstance(error, Aborted) and error.is_final:
            return False
        if isinstance(error, TransientError | Aborted):
            return tries < self.attempts
        return isinstance(error, CorruptReply) and tries < self.corrupt_attempts

    def pause_s(self, error: RequestError, tries: int, *, name: str) -> float:
        """Seconds to wait; the server's own wish is a lower bound."""
        backoff = self.base_s * 2.0 ** min(tries - 1, _MOST_DOUBLINGS)
        jitter = random.Random(f"{name}/{tries}").random() * backoff
        wish = error.retry_after_s or 0.0 if isinstance(error, TransientError) else 0.0
        return max(wish, min(self.most_s, backoff + jitter))

    def after(self, error: Exception, tries: int, *, name: str, elapsed_s: float) -> float:
        """Seconds to wait before the request `name` is sent again; called where `error` is caught.

        What was raised counts as the fault that `classify_exception` takes it for.

        Raises:
            RequestError: that fault, with request, tries and seconds, if it is the last.
        """
        fault = classify_exception(error).located(
            request=name_of_try(name, tries), attempts=tries, elapsed_s=round(elapsed_s, 3)
        )
        if self.allows(fault, tries):
            return self.pause_s(fault, tries, name=name)
        if fault is error:
            raise fault
        raise fault from error


def name_of_try(name: str, tries: int) -> str:
    """Name of the n-th try of a request, n from 1."""
    return f"{name}/{tries}"


async def persist(
    attempt: Callable[[str], Awaitable[T]], *, retry: RetryPolicy, name: str
) -> tuple[T, int]:
    """The first result of `attempt`, and the tries it took.

    `attempt` is given the request's name with the number of the try.

    Raises:
        RequestError: the last try's fault; see `RetryPolicy.after`.
    """
    started, tries = time.monotonic(), 0
    while True:
        tries += 1
        try:
            return await attempt(name_of_try(name, tries)), tries
        except Exception as error:
            elapsed_s = time.monotonic() - started
            pause_s = retry.after(error, tries, name=name, elapsed_s=elapsed_s)
        await anyio.sleep(pause_s)
