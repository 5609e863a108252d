"""Values are asked for while expansions go on, and for each context once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import anyio
import pytest

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Critic,
    Problem,
    Sampling,
    Search,
    Segments,
)
from focus.errors import CollectionFailed
from focus.policies.base import Policy, RequestTag
from focus.records.records import CriticContext
from focus.testing.envs import WalkEnv, walk_script
from focus.testing.policies import ScriptedPolicy, Wrapper
from focus.tokens import Generation, TokenIds

pytestmark = pytest.mark.anyio

STEPS = 12


async def collected(
    policy: Policy, critic: Critic, *, search: Search | None = None, allow_partial: bool = False
) -> Collection:
    agent = Agent(
        policy,
        parser=Segments(3),
        sampling=Sampling(seed=7),
        allowance=Allowance(tokens=STEPS + 1),
    )
    collector = Collector(
        agent=agent, env=WalkEnv(), search=search or Search.two_phase(tokens=300), critic=critic
    )
    async with collector:
        problem = Problem(id="walk", prompt="Walk.")
        return await collector.collect(problem, allow_partial=allow_partial)


async def test_contexts_that_look_the_same_are_predicted_once() -> None:
    seen: Counter[CriticContext] = Counter()

    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        seen.update(contexts)
        return [0.5 + 0.001 * len(context.text) for context in contexts]

    # Replies that often agree: three bytes of two kinds.
    found = await collected(
        ScriptedPolicy(walk_script(STEPS)), Critic.function(predict, version="v")
    )
    tree, ledger = found.tree, found.ledger
    still_open = [node for node in tree if not node.is_terminal]
    distinct = {tree.context(node.id) for node in still_open}
    assert max(seen.values()) == 1
    assert {context.ids for context in seen} == distinct
    assert ledger.critic_calls == ledger.critic_needed == len(distinct) < len(still_open)
    assert ledger.ratios()["eta_critic"] == 1.0
    for node in still_open:
        text = found_text(tree.context(node.id))
        assert node.value == 0.5 + 0.001 * len(text)


def found_text(ids: TokenIds) -> str:
    return ScriptedPolicy(walk_script()).decode(ids, keep_special=True)


async def test_the_next_segment_does_not_wait_for_the_value_of_the_last() -> None:
    """Each prediction ends only after the request behind it: waiting for values would hang."""
    asked = {index: asyncio.Event() for index in range(STEPS)}

    class Telling(Wrapper):
        async def generate(
            self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
        ) -> Generation:
            asked[len(prefix)] = asked.get(len(prefix), asyncio.Event())
            asked[len(prefix)].set()
            return await super().generate(prefix, sampling, tag=tag)

    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        for context in contexts:
            length = len(context.ids or ())
            if length > root:
                await asked.setdefault(length, asyncio.Event()).wait()
        return [0.5] * len(contexts)

    policy = Telling(ScriptedPolicy(walk_script(STEPS)))
    root = len(policy.render(Problem(id=0, prompt="Walk.").messages))
    critic = Critic.function(predict, version="v", batch=1)
    with anyio.fail_after(60):
        found = await collected(policy, critic, search=Search.flat(1, concurrency=1))
    assert len(found.tree) == 6
    assert all(node.value == 0.5 for node in found.tree if not node.is_terminal)


async def test_a_critic_that_fails_is_noted_once_per_expansion() -> None:
    async def predict(contexts: Sequence[CriticContext]) -> list[float]:
        if any(context.text.endswith("assistant: ") for context in contexts):
            return [0.5] * len(contexts)
        raise RuntimeError("no critic today")

    critic = Critic.function(predict, version="v")
    policy = ScriptedPolicy(walk_script(STEPS))
    found = await collected(policy, critic, search=Search.flat(3), allow_partial=True)
    assert [failure.stage for failure in found.failures] == ["prediction"] * 3
    assert [node.value for node in found.tree if not node.is_terminal] == [0.5] + [None] * 12
    with pytest.raises(CollectionFailed, match="no critic today"):
        await collected(policy, critic, search=Search.flat(3))
