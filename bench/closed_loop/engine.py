"""The actor's inference server: SGLang's endpoints over the table policy.

python -m bench.closed_loop.engine        prints its port
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.policies.loopback import Answer, Ask, FakeEngine, Loopback

from .walk import HEIGHTS, TablePolicy, theta_of

__all__ = ("WalkEngine",)


class WalkEngine:
    """Samples, and takes new weights from a file, as SGLang takes them from a folder."""

    def __init__(self) -> None:
        self._take([0.0] * (2 * HEIGHTS + 1), "untrained")

    async def __call__(self, ask: Ask) -> Answer | bytes | None:
        if ask.path != "/update_weights_from_disk":
            return await self._engine(ask)
        self._take(theta_of(Path(ask.json["model_path"])), ask.json["weight_version"])
        return Answer.of({"success": True})

    def _take(self, theta: list[float], version: str) -> None:
        self._engine = FakeEngine(TablePolicy(theta, version=version))
        self._engine.version = version


async def main() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Loopback(WalkEngine()) as server:
        print(server.port, flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
