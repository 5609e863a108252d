"""A task, a policy and a tree in one page: no model, no GPU, a second to run.

The agent writes twelve steps, each "+" or "-", three at a time, and succeeds if it ends
above zero. Half-way it is often clear who will: that is what a step-wise critic learns
to see, and what the search uses.

    python examples/toy/toy.py
"""

import random
import sys
from collections.abc import Sequence

import anyio

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Critic,
    Message,
    Problem,
    Sampling,
    Search,
    SegmentAction,
    Segments,
    StepResult,
    edge_texts,
    save_tree,
)
from focus.records.records import CriticContext
from focus.testing.policies import ScriptedPolicy

STEPS = 12


class WalkEnv:
    """Outcome 1 if there are more "+" than "-". The state is the height so far."""

    async def reset(self, problem: Problem) -> tuple[int, tuple[Message, ...]]:
        return 0, problem.messages

    async def step(self, state: int, action: SegmentAction, workspace: object) -> StepResult:
        height = action.text.count("+") - action.text.count("-")
        if not action.finished:
            return StepResult(state=height)
        return StepResult(state=height, reward=float(height > 0), done=True)

    async def finish(self, state: int, workspace: object, reason: str) -> float:
        return float(state > 0)


def walk(prompt: str, so_far: str, rng: random.Random) -> str:
    """The rest of a reply that has written `so_far`."""
    return "".join(rng.choice("+-") for _ in range(STEPS - len(so_far)))


async def height_so_far(contexts: Sequence[CriticContext]) -> list[float]:
    """A hand-made critic: the higher the walk stands, the better."""
    heights = [c.text.count("+") - c.text.count("-") for c in contexts]
    return [min(0.95, max(0.05, 0.5 + 0.1 * height)) for height in heights]


def make_collector(*, tokens: int = 600) -> Collector:
    agent = Agent(
        ScriptedPolicy(walk),
        parser=Segments(3),
        sampling=Sampling(seed=7),
        allowance=Allowance(tokens=STEPS + 1),
    )
    return Collector(
        agent=agent,
        env=WalkEnv(),
        search=Search.two_phase(tokens=tokens, concurrency=4),
        critic=Critic.function(height_so_far, version="height/1"),
    )


async def collect(problem: Problem) -> Collection:
    collector = make_collector()
    async with collector:
        return await collector.collect(problem)


if __name__ == "__main__":
    found = anyio.run(collect, Problem(id="walk", prompt="Walk twelve steps."))
    out = sys.argv[1] if len(sys.argv) > 1 else "toy-tree.json"
    texts = edge_texts(found.tree, ScriptedPolicy(walk))
    save_tree(found.tree, out, texts=texts, credit=found.credit)
    print(f"{found.tree}: {len(found.actor)} samples, {len(found.critic)} critic targets")
    print(f"look at it: focus show {out}")
