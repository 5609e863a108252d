r"""Solve one mathematics problem as a tree: environment, parser and exact-prefix policy.

    python examples/math/math_quickstart.py --model builtin
    python examples/math/math_quickstart.py --model /data/Qwen3-4B-Instruct-2507 \
        --problem "What is $1 + 2 + \dots + 10$?" --answer 55 --tokens 16384

The names above `main` are what the training examples share.
"""

import argparse
from pathlib import Path
from typing import Any

import anyio

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Critic,
    DirectBranchTd,
    Execution,
    Policy,
    Problem,
    Sampling,
    Search,
    Segments,
    TransformersPolicy,
    save_tree,
)
from focus.collect.texts import edge_texts
from focus.errors import ProblemError
from focus.tasks import MathEnv, check_reference

__all__ = ("CHUNK_TOKENS", "MathEnv", "make_agent", "make_policy", "parse_answer")

CHUNK_TOKENS = 256
"""Most tokens of one request: a longer solution becomes a chain of checkpoints."""

HORIZON_TOKENS = 4096
BUILTIN_CHUNK_TOKENS = 12


def parse_answer(text: str) -> list[str]:
    """The answer of a reference solution; an empty list when no reply could match it."""
    try:
        return [check_reference(text)]
    except ProblemError:
        return []


def make_policy(model: str | Path) -> TransformersPolicy:
    """Samples continuations of exact token prefixes from a model folder, in this process."""
    return TransformersPolicy(model)


def make_agent(policy: Policy, *, execution: Execution | None = None) -> Agent:
    """One solution of up to 4,096 tokens, in chunks of `CHUNK_TOKENS`."""
    return chunked_agent(policy, CHUNK_TOKENS, execution=execution)


def chunked_agent(policy: Policy, tokens: int, *, execution: Execution | None = None) -> Agent:
    """The same agent with chunks of another length."""
    return Agent(
        policy,
        parser=Segments(tokens),
        sampling=Sampling(temperature=policy.train_temperature),
        allowance=Allowance(tokens=HORIZON_TOKENS),
        execution=execution or Execution(),
    )


async def solve(options: argparse.Namespace) -> None:
    problem = Problem(id="quickstart", prompt=options.problem, label=options.answer)
    async with make_policy(options.model) as policy:
        collector = Collector(
            agent=chunked_agent(policy, options.chunk),
            env=MathEnv(problem.label),
            search=Search.two_phase(tokens=options.tokens),
            critic=Critic.constant(0.5),
            credit=DirectBranchTd(),
        )
        async with collector:
            found = await collector.collect(problem)
        texts = edge_texts(found.tree, policy)
        save_tree(found.tree, options.out, texts=texts, credit=found.credit)
    report(found, options.out)


def report(found: Collection, out: Path) -> None:
    outcomes = [found.tree.outcome(leaf) for leaf in found.tree.terminals()]
    print(f"{found.tree}: {sum(outcomes):g} of {len(outcomes)} solutions are right")
    print(f"{len(found.actor)} samples for the actor, {len(found.critic)} targets for the critic")
    print(f"look at it: focus show {out}")


def parse_options(arguments: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(description="Solve one mathematics problem as a tree.")
    parser.add_argument("--model", default="builtin", help="model folder, builtin or smollm2")
    parser.add_argument("--problem", default="Compute 37 + 5 - 8 + 6.")
    parser.add_argument("--answer", default="40", help="or a solution with a boxed answer")
    parser.add_argument("--tokens", type=int, default=640, help="generation budget of the tree")
    parser.add_argument("--chunk", type=int, help=f"default: {CHUNK_TOKENS}; builtin 12")
    parser.add_argument("--out", type=Path, default=Path("math-tree.json"))
    options = parser.parse_args(arguments)
    if options.chunk is None:
        options.chunk = BUILTIN_CHUNK_TOKENS if options.model == "builtin" else CHUNK_TOKENS
    if not parse_answer(options.answer):
        parser.error(f"--answer {options.answer!r}: no reply could match it")
    return options


if __name__ == "__main__":
    anyio.run(solve, parse_options())
