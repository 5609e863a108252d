"""Which states are open: given out and not yet released."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from focus.errors import ConfigError, EnvError, LifecycleError

__all__ = ("OpenStates",)

S = TypeVar("S")


class OpenStates:
    """The open states of one environment, by identity.

    Args:
        most: as many may be open at once; None is no limit.

    Raises:
        ConfigError: `most` is below 1.

    >>> states = OpenStates()
    >>> state = states.add(["a state"])
    >>> len(states), states.drop(state), states.drop(state)
    (1, True, False)
    """

    def __init__(self, *, most: int | None = None) -> None:
        if most is not None and most < 1:
            raise ConfigError(f"at least one state must be open, got most={most}")
        self._most = most
        self._coming = 0
        self._by_id: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, state: S) -> S:
        """Count a state as open."""
        self._by_id[id(state)] = state
        return state

    def drop(self, state: Any) -> bool:
        """Count it as released; whether it was open."""
        return self._by_id.pop(id(state), None) is not None

    def check(self, state: Any) -> None:
        """Refuse one that is not open.

        Raises:
            LifecycleError: it was released, or comes from another environment.
        """
        if self._by_id.get(id(state)) is not state:
            raise LifecycleError(
                "this state was released, or belongs to another environment: it cannot be used"
            )

    def drop_all(self) -> list[Any]:
        """Count all as released; those that were open."""
        states = list(self._by_id.values())
        self._by_id.clear()
        return states

    @contextmanager
    def room(self) -> Iterator[None]:
        """Room for one more, while it is made.

        Raises:
            EnvError: as many are open, or being made, as may be.
        """
        if self._most is not None and len(self._by_id) + self._coming >= self._most:
            raise EnvError(
                f"{self._most} states are open, the most this environment may hold; give it "
                "more (most=...), or collect smaller trees or fewer at once"
            )
        self._coming += 1
        try:
            yield
        finally:
            self._coming -= 1
