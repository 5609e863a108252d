"""First tries of siblings, carried by one call of the policy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from typing import TypeVar

from focus.errors import Aborted, RequestError
from focus.execution.counts import RequestCounts
from focus.policies.base import Ask
from focus.tokens import Generation

__all__ = ("Member", "Together", "own_error")

E = TypeVar("E", bound=Exception)


@dataclass(eq=False, slots=True)
class Member:
    """One request of the call.

    Attributes:
        ask: what it wants.
        counts: its own books.
        answer: its reply or its own error.
        is_sent: the call that carries it was sent.
    """

    ask: Ask
    counts: RequestCounts
    answer: asyncio.Future[Generation | RequestError]
    is_sent: bool = False

    def settle(self, answer: Generation | RequestError) -> None:
        """Take the answer, unless there is one or nobody waits any more."""
        if not self.answer.done():
            self.answer.set_result(answer)


class Together:
    """Gathers the first tries of requests that continue one checkpoint.

    Each of `names` joins with its request or leaves without one, in any order. Whoever joins
    first carries the call for all, once nobody is missing. Retries are made alone.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._missing = set(names)
        self._nobody_missing = asyncio.Event()
        self.members: list[Member] = []

    def join(self, name: str, ask: Ask, counts: RequestCounts) -> Member:
        """Add a request; the first of `members` must `carry` it."""
        member = Member(ask, counts, asyncio.get_running_loop().create_future())
        self.members.append(member)
        self.leave(name)
        return member

    def leave(self, name: str) -> None:
        """Stop waiting for `name`. Safe to call again, and after it joined."""
        self._missing.discard(name)
        if not self._missing:
            self._nobody_missing.set()

    async def gathered(self) -> list[Member]:
        """The members, once nobody is missing."""
        await self._nobody_missing.wait()
        return self.members

    def abandon(self) -> None:
        """The call was cancelled: whoever still waits hears of it."""
        for member in self.members:
            member.settle(Aborted("the call that carried this request was cancelled"))


def own_error(error: E) -> E:
    """An error of one's own for each who shared a call: each is told where it happened."""
    own = copy(error)
    if isinstance(own, RequestError):
        own.where = dict(own.where)
    own.__cause__ = error
    return own
