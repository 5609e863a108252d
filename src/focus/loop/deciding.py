"""Decides a round's critic once the critic has seen enough, and serving it changed nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread

from focus.critic import Critic
from focus.critic.consistency import (
    Consistency,
    Tolerance,
    compare,
    found_consistency,
    note_consistency,
    ruling,
)
from focus.critic.snapshot import Snapshot
from focus.critic.store import SnapshotStore
from focus.errors import CriticError, FatalError, StoreError
from focus.loop.settings import LoopSettings
from focus.loop.tags import RoundTag
from focus.policies.retry import RetryPolicy
from focus.records.jsonl import accepted_attempts

__all__ = ("Decider", "Decision")

_ONCE = RetryPolicy(attempts=1, corrupt_attempts=1)


@dataclass(frozen=True, slots=True)
class Decision:
    """A tag, or what it waits for."""

    tag: RoundTag | None
    waits_for: str = ""


class Decider:
    """Reads what trainer and hooks left on disk; holds no state of its own.

    Args:
        settings: of the loop.
    """

    def __init__(self, settings: LoopSettings) -> None:
        self._settings = settings
        self._store = SnapshotStore(settings.store)
        self._records = Path(settings.records)
        self._tolerance: Tolerance = settings.consistency

    def last_trained_round(self) -> int:
        """The last round that a published critic was trained on; -1 for none.

        The newest version says it, be it current or not: a critic that may not steer does
        not take the wheel from one that may.

        Raises:
            StoreError: the store is damaged.
        """
        versions = self._store.versions()
        if not versions:
            return -1
        rounds = self._store.manifest(versions[-1]).facts.records.rounds
        return max((last for _, last in rounds.values()), default=-1)

    def last_accepted_round(self) -> int:
        """The last round whose records count; -1 for none.

        Raises:
            StoreError: the directory is unreadable.
        """
        if not self._records.exists():
            return -1
        marks = accepted_attempts(self._records)
        return max((round for round, attempt in marks.items() if attempt is not None), default=-1)

    async def decide(self, round: int, *, url: str) -> Decision:
        """The tag of `round`, unless the critic is behind or cannot be compared yet.

        Raises:
            StoreError: records or store are damaged.
        """
        accepted = await anyio.to_thread.run_sync(self.last_accepted_round)
        needed = min(accepted, round - 1 - self._settings.staleness)
        if await anyio.to_thread.run_sync(self.last_trained_round) < needed:
            return Decision(None, f"a critic trained on round {needed}")
        snapshot = await anyio.to_thread.run_sync(self._candidate)
        if snapshot is None:
            return Decision(self._without_critic(round, url))
        found = await anyio.to_thread.run_sync(
            found_consistency, self._store.path, snapshot.version
        )
        if snapshot.verdict.steering and found is None:
            found = await self._compared(snapshot, url)
            if found is None:
                return Decision(None, f"{snapshot.version} to be served at {url}")
        return Decision(self._with_critic(round, snapshot, found, url))

    def _candidate(self) -> Snapshot | None:
        """The current version, or the newest one where none was made current.

        A version is there a moment before it is made current: whoever is at it ends first.
        """
        if not self._store.versions():
            return None
        with self._store.undisturbed():
            return self._store.current() or self._store.manifest(self._store.versions()[-1])

    def _without_critic(self, round: int, url: str) -> RoundTag:
        return RoundTag(
            round=round,
            steering=False,
            snapshot=None,
            constant=self._settings.first_constant,
            reason="nothing is published yet",
            url=url,
        )

    def _with_critic(
        self, round: int, snapshot: Snapshot, found: Consistency | None, url: str
    ) -> RoundTag:
        verdict = ruling(snapshot, found, tolerance=self._tolerance)
        constant = snapshot.facts.constant
        tag = replace(
            self._without_critic(round, url),
            steering=verdict.steering,
            snapshot=snapshot.version,
            reason=verdict.reason,
            renderer=snapshot.facts.renderer,
            value_range=snapshot.facts.value_range,
        )
        return tag if constant is None else replace(tag, constant=constant)

    async def _compared(self, snapshot: Snapshot, url: str) -> Consistency | None:
        """Served against trained values, noted in the store; None while nobody serves it."""
        probes = await anyio.to_thread.run_sync(snapshot.probes)
        critic = Critic.served(
            url,
            version=snapshot.version,
            value_range=snapshot.facts.value_range,
            renderer=snapshot.facts.renderer,
            retry=_ONCE,
        )
        try:
            await critic.ready()
            found = await compare(critic, probes)
        except FatalError as error:
            raise StoreError(f"{snapshot.version} cannot be served: {error}") from error
        except CriticError:
            return None
        finally:
            await critic.aclose()
        await anyio.to_thread.run_sync(note_consistency, self._store.path, found)
        return found
