"""Faults of critic, grader and environment: each is a typed failure, and nothing stays open."""

from __future__ import annotations

import asyncio

import pytest

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Critic,
    Execution,
    Problem,
    Search,
    Segments,
)
from focus.errors import CriticError
from focus.testing.chaos.parts import CRITIC_FAULTS, ENV_FAULTS, FaultyEnv, faulty_critic
from focus.testing.envs import LiveEnv, walk_script
from focus.testing.policies import ScriptedPolicy

PROBLEM = Problem(id="walk", prompt="Walk.")


def collected(env: LiveEnv, critic: Critic | None = None) -> Collection:
    async def main() -> Collection:
        agent = Agent(
            ScriptedPolicy(walk_script(5)),
            parser=Segments(3),
            allowance=Allowance(tokens=12),
            execution=Execution(env_deadline_s=0.02),
        )
        search = Search.flat(3)
        async with Collector(agent=agent, env=env, search=search, critic=critic) as one:
            return await one.collect(PROBLEM, allow_partial=True)

    return asyncio.run(main())


@pytest.mark.parametrize("name", CRITIC_FAULTS)
def test_a_critic_that_breaks_its_word_values_nothing(name: str) -> None:
    env = LiveEnv()
    with pytest.raises(CriticError):
        collected(env, faulty_critic(name, deadline_s=0.02))
    assert env.opened == env.released == 1


@pytest.mark.parametrize("name", ENV_FAULTS)
def test_an_environment_that_fails_is_a_failure_and_never_a_reward(name: str) -> None:
    env = FaultyEnv(name)
    found = collected(env)
    assert env.opened == env.released > 0
    assert found.ledger.balances
    assert {failure.kind for failure in found.failures} == {"EnvError"}
    if name == "close_raises":
        assert [failure.stage for failure in found.failures] == ["release"]
        assert len(found.tree.terminals()) == 3
    else:
        assert found.ledger.expansions_failed == 3
        assert not found.tree.terminals()


def test_no_share_is_no_fault() -> None:
    found = collected(FaultyEnv(share=0.0), faulty_critic(share=0.0))
    assert not found.failures
    assert len(found.tree.terminals()) == 3
