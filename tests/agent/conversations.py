"""A policy that listens, and small agents with tools for the tests of this folder."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import anyio

from focus import Agent, Allowance, Execution, Problem, RetryPolicy, Sampling, Turns
from focus.agent import RequestPlace, Step
from focus.execution import RequestCounts
from focus.policies.base import RequestTag
from focus.rendering import dialect_named
from focus.testing.policies import ScriptedPolicy
from focus.tokens import Generation, TokenIds

HERMES = dialect_named("hermes")
PROBLEM = Problem(id="ask", prompt="What is a?")


def call(name: str, **arguments: Any) -> str:
    """A reply that is one call."""
    return HERMES.write(name, arguments)


class Listening(ScriptedPolicy):
    """Keeps the prefix and the settings of each request, and its reply."""

    def __init__(self, script: Callable[[str, str, random.Random], str], **options: Any) -> None:
        super().__init__(script, **options)
        self.asked: dict[str, tuple[TokenIds, Sampling]] = {}
        self.replied: dict[str, Generation] = {}

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        assert tag is not None
        reply = await super().generate(prefix, sampling, tag=tag)
        self.asked[tag.request] = (prefix, sampling)
        self.replied[tag.request] = reply
        return reply


def saying(*replies: str) -> Listening:
    """A policy that says these messages, one a turn, and then the last one again."""
    said = iter(replies)
    last = [replies[-1]]

    def script(prompt: str, so_far: str, rng: random.Random) -> str:
        if so_far:
            return last[0][len(so_far) :]
        last[0] = next(said, last[0])
        return last[0]

    return Listening(script)


def agent_of(
    policy: Any, *, tokens: int | None = 4000, turns: int | None = None, **parts: Any
) -> Agent:
    parts.setdefault("parser", Turns("hermes"))
    return Agent(
        policy,
        sampling=Sampling(seed=7),
        allowance=Allowance(tokens=tokens, turns=turns),
        execution=Execution(retry=RetryPolicy(base_s=0.0)),
        **parts,
    )


def walked(agent: Agent, env: Any, *, most: int = 40) -> list[Step]:
    """Edges from the root to the end of the episode."""

    async def main() -> list[Step]:
        checkpoint = await agent.start(PROBLEM, env)
        steps: list[Step] = []
        while len(steps) < most and not (steps and steps[-1].is_terminal):
            steps.append(await agent.advance(checkpoint, env, place=place(len(steps))))
            checkpoint = steps[-1].checkpoint
        return steps

    return anyio.run(main)


def place(index: int) -> RequestPlace:
    return RequestPlace(
        tree="run/0/0/key",
        version="scripted",
        expansion=4,
        index=index,
        phase=1,
        counts=RequestCounts(),
    )


def shown(policy: Any, step: Step) -> list[tuple[bool, str]]:
    """Spans of an edge as (sampled, text)."""
    return [
        (span.is_sampled, policy.decode(span.ids, keep_special=True)) for span in step.edge.spans
    ]


def kinds(steps: Sequence[Step]) -> list[str]:
    return [step.edge.kind for step in steps]
