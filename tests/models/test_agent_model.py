"""The shipped browsing model: made by its script, and able to do what its card says."""

import runpy
from pathlib import Path
from typing import Any

import anyio
import pytest

from focus import Collector, Search, TransformersPolicy
from focus.collect import Collection
from focus.models import AGENT
from focus.rendering import dialect_named, load_tokenizer, tokenizer_hash
from focus.tasks.browse import Library, World
from focus.tasks.browse.habits import browsing_agent

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_agent"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_the_script_makes_the_tokenizer_that_ships(script: dict[str, Any]) -> None:
    assert tokenizer_hash(script["build_tokenizer"]()) == tokenizer_hash(load_tokenizer(AGENT))


def test_a_demonstrator_without_bad_habits_answers_and_one_with_them_errs(
    script: dict[str, Any],
) -> None:
    tokenizer = load_tokenizer(AGENT)
    rows, flawless = script["episodes"](tokenizer, 5, 20, script["Habits"](0.0, 0.0))
    _, flawed = script["episodes"](tokenizer, 5, 20, script["Habits"]())
    assert flawed < 0.6 < flawless
    for ids, mask in rows:
        assert len(ids) == len(mask)
        assert max(ids) < len(tokenizer)
        assert 0 < sum(mask) < len(mask)


def test_the_model_calls_tools_folds_and_sometimes_succeeds() -> None:
    """16 rollouts of 4 questions; at a success rate of 0.27 none wins once in 150 times."""
    library = Library(World.draw(0))
    hermes = dialect_named("hermes")

    async def main() -> tuple[list[Collection], list[str]]:
        found, said = [], []
        async with TransformersPolicy(AGENT, profile="hermes", device="cpu") as policy:
            for problem in library.world.problems(4, split="heldout"):
                agent = browsing_agent(policy, seed=5)
                collector = Collector(agent=agent, env=library.env(problem), search=Search.flat(4))
                async with collector:
                    found.append(await collector.collect(problem))
            for node in (node for each in found for node in each.tree.edges()):
                if node.incoming.kind == "turn":
                    said.append(policy.decode(node.incoming.spans[0].ids))
        return found, said

    found, said = anyio.run(main)
    readings = [hermes.read(text) for text in said]
    sound = sum(len(r.calls) == 1 and not r.calls[0].fault for r in readings)
    assert sound / len(said) > 0.9
    outcomes = [each.tree.outcome(leaf) for each in found for leaf in each.tree.terminals()]
    assert 0 < sum(outcomes) < len(outcomes)
    assert sum(node.rebased is not None for each in found for node in each.tree) >= 4
