"""What an actor's process asks: the critic of this round."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from focus.collect import Collector
from focus.credit import RefinedTd
from focus.critic import Critic
from focus.errors import ConfigError, LifecycleError
from focus.loop.tags import RoundTag, RoundTags

__all__ = ("FOLDER_VARIABLE", "RoundCritic", "RoundCritics")

FOLDER_VARIABLE = "FOCUS_LOOP"
"""Names the loop's folder to the processes that ``focus loop`` starts."""

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class RoundCritic:
    """One round's critic, ready to be asked."""

    tag: RoundTag
    critic: Critic

    def steer(self, collector: Collector) -> Collector:
        """The same collector with this round's critic.

        Until a snapshot steers, credit and critic targets are RefinedTd's: with a constant
        critic the back-up of direct branches would fade along the chain
        (docs/concepts/critic.md).
        """
        credit = None if self.tag.steering else RefinedTd()
        return collector.steered(critic=self.critic, credit=credit)


class RoundCritics:
    """Critics by round, one per process and round, each pinned to one snapshot.

    Args:
        folder: the loop's folder.
        patience_s: how long a round waits for its tag before it refuses to start.

    Raises:
        ConfigError: `patience_s` is not positive.
    """

    def __init__(self, folder: str | os.PathLike[str], *, patience_s: float = 1800.0) -> None:
        if not patience_s > 0:
            raise ConfigError(f"patience_s must be > 0, got {patience_s}")
        self.folder: Path = Path(folder)
        self._tags = RoundTags(self.folder)
        self._patience_s = patience_s
        self._known: dict[int, RoundCritic] = {}
        self._asking = anyio.Lock()

    @classmethod
    def from_environment(cls, *, patience_s: float = 1800.0) -> RoundCritics:
        """Those of the loop that started this process.

        Raises:
            ConfigError: no loop did.
        """
        folder = os.environ.get(FOLDER_VARIABLE)
        if not folder:
            raise ConfigError(
                f"{FOLDER_VARIABLE} is not set: start the job with focus loop CONFIG (on Ray, "
                "set it in the job's runtime environment too), or name the loop's folder with "
                "RoundCritics(folder)"
            )
        return cls(folder, patience_s=patience_s)

    async def of(self, round: int) -> RoundCritic:
        """The critic of a round, waited for if it is not decided yet.

        Raises:
            LifecycleError: it was not decided in time.
            FatalError: the snapshot it names is not served.
        """
        async with self._asking:
            if round not in self._known:
                tag = await self._tag(round)
                critic = _critic(tag)
                try:
                    await critic.ready()
                except BaseException:
                    with anyio.CancelScope(shield=True):
                        await critic.aclose()
                    raise
                await self._forget_earlier()
                self._known[round] = RoundCritic(tag, critic)
            return self._known[round]

    async def aclose(self) -> None:
        """Give sessions back."""
        while self._known:
            _, known = self._known.popitem()
            await known.critic.aclose()

    async def _tag(self, round: int) -> RoundTag:
        tag = await anyio.to_thread.run_sync(self._tags.read, round)
        if tag is not None:
            return tag
        await anyio.to_thread.run_sync(self._tags.want, round)
        with anyio.move_on_after(self._patience_s):
            while True:
                tag = await anyio.to_thread.run_sync(self._tags.read, round)
                if tag is not None:
                    return tag
                await anyio.sleep(_POLL_S)
        raise LifecycleError(
            f"round {round} has no critic after {self._patience_s:g} s: is focus loop running on "
            f"{self.folder}? Its status says what it waits for."
        )

    async def _forget_earlier(self) -> None:
        """Keep the last round's critic: one of its trees may still be running."""
        for round in sorted(self._known)[:-1]:
            await self._known.pop(round).critic.aclose()


def _critic(tag: RoundTag) -> Critic:
    if tag.steering and tag.snapshot is not None:
        return Critic.served(
            tag.url,
            version=tag.snapshot,
            value_range=tag.value_range,
            renderer=tag.renderer,
        )
    return Critic.constant(tag.constant, value_range=tag.value_range)
