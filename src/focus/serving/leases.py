"""Which snapshots are in memory: each one that a session holds, and the last one asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.to_thread

from focus.critic import Critic
from focus.errors import ConfigError, Refused, TransientError

__all__ = ("Leases",)


@dataclass(slots=True)
class _Lease:
    version: str
    until: float


class Leases:
    """Critics by version, loaded once and kept while sessions use them.

    A session holds one version from its first request to its last: that is what makes a
    swap of the current version harmless to trees that are being collected. A session that
    has not asked for `lease_s` seconds holds nothing any more.

    Args:
        load: reads one version; blocks, is called in a worker thread.
        most: most versions in memory.
        lease_s: seconds without a request after which a session ends.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        load: Callable[[str], Critic],
        *,
        most: int = 3,
        lease_s: float = 600.0,
        clock: Callable[[], float],
    ) -> None:
        if most < 1 or not lease_s > 0:
            raise ConfigError(f"most must be >= 1 and lease_s > 0, got {most} and {lease_s}")
        self._load = load
        self._most = most
        self.lease_s = lease_s
        self._clock = clock
        self._loaded: dict[str, Critic] = {}
        self._sessions: dict[str, _Lease] = {}
        self._loading = anyio.Lock()

    @property
    def loaded(self) -> tuple[str, ...]:
        """Versions in memory, the least recently loaded first."""
        return tuple(self._loaded)

    @property
    def sessions(self) -> dict[str, str]:
        """The version that each live session holds."""
        self._expire()
        return {name: lease.version for name, lease in self._sessions.items()}

    async def critic(self, session: str, version: str) -> Critic:
        """The critic that `session` holds, from now for `lease_s` more seconds.

        Raises:
            Refused: the session holds another version.
            StoreError: there is no such version, or it is damaged.
            TransientError: no room: every version in memory is held by a session.
        """
        self._expire()
        lease = self._sessions.get(session)
        if lease is not None and lease.version != version:
            raise Refused(f"session {session!r} holds {lease.version}, not {version}")
        critic = self._loaded.get(version) or await self._read(version)
        self._sessions[session] = _Lease(version, self._clock() + self.lease_s)
        return critic

    def close(self, session: str) -> None:
        """End a session; an unknown one has ended already."""
        self._sessions.pop(session, None)

    async def _read(self, version: str) -> Critic:
        async with self._loading:
            if version not in self._loaded:
                self._make_room(version)
                load = partial(self._load, version)
                self._loaded[version] = await anyio.to_thread.run_sync(load)
            return self._loaded[version]

    def _make_room(self, version: str) -> None:
        held = {lease.version for lease in self._sessions.values()}
        idle = [name for name in self._loaded if name not in held]
        while len(self._loaded) >= self._most:
            if not idle:
                raise TransientError(
                    f"no room for {version}: sessions hold {', '.join(sorted(held))}"
                )
            del self._loaded[idle.pop(0)]

    def _expire(self) -> None:
        now = self._clock()
        self._sessions = {n: lease for n, lease in self._sessions.items() if lease.until > now}
