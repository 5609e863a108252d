"""What every kind of environment promises, whatever its states are."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from focus.agent.env import fork_state, release_states
from focus.errors import LifecycleError

from .kinds import KINDS, PROBLEM, makers


async def closed(env: Any) -> None:
    if hasattr(env, "aclose"):
        await env.aclose()


@pytest.mark.parametrize("kind", KINDS)
def test_branches_are_apart_and_come_back_from_a_snapshot(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        make = makers(tmp_path)[kind]
        env, later = make(), make()
        root, messages = await env.reset(PROBLEM)
        assert messages == PROBLEM.messages
        first = await env.step(await fork_state(env, root), "+", None)
        other = await env.step(await fork_state(env, root), "x", None)
        again = await env.step(await fork_state(env, root), "+", None)
        assert first.messages == again.messages != other.messages
        kept = await env.snapshot(first.state)
        onward = await env.step(await fork_state(env, first.state), "y", None)
        restored = await later.restore(kept)
        assert (await later.step(restored, "y", None)).messages == onward.messages
        ended = await env.step(await fork_state(env, first.state), "stop", None)
        assert ended.done
        assert ended.reward > 0 == await env.finish(other.state, None, "context")
        for each in (root, first.state, other.state, again.state, onward.state, ended.state):
            await release_states(env, [each])
        await release_states(later, [restored])
        if hasattr(env, "open_states"):
            assert env.open_states == later.open_states == 0
            await env.release(root)
            with pytest.raises(LifecycleError):
                await env.fork(root)
        await closed(env)
        await closed(later)

    anyio.run(main)
