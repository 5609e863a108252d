"""The tree in the README: the shipped model on a held-out problem of the built-in task.

    python docs/figures/demo_tree.py                # collect demo-tree.json, then draw it
    python docs/figures/demo_tree.py --draw         # draw the stored tree again
    python docs/figures/demo_tree.py --tree FILE    # store another tree instead, and draw it

The picture is what `focus show docs/figures/demo-tree.json` prints.
"""

from __future__ import annotations

import argparse
import io
import re
from pathlib import Path

import anyio
from rich.console import Console

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Problem,
    Sampling,
    Search,
    Segments,
    TransformersPolicy,
    Tree,
    save_tree,
)
from focus.collect.texts import edge_texts
from focus.records import StoredTree, load_stored_tree
from focus.tasks import load_task
from focus.viz.page import PageOptions, tree_page

STORED = Path(__file__).with_name("demo-tree.json")
DRAWN = STORED.with_suffix(".svg")
PROBLEMS = 40
TOKENS = 320
WIDTH = 92


async def collect() -> StoredTree:
    """Of a few held-out problems, the tree whose forks tell right from wrong best."""
    task = load_task("demo")
    found: list[StoredTree] = []
    async with TransformersPolicy("builtin", device="cpu") as policy:
        for problem in task.problems("heldout", PROBLEMS):
            agent = Agent(
                policy,
                parser=Segments(task.segment_tokens),
                sampling=Sampling(seed=1),
                allowance=Allowance(tokens=task.allowance_tokens),
            )
            collection = await one(agent, problem)
            found.append(
                StoredTree(
                    tree=collection.tree,
                    texts=edge_texts(collection.tree, policy),
                    credit=collection.credit,
                )
            )
    return max(found, key=contrast)


def contrast(stored: StoredTree) -> float:
    """How far apart different texts drive success, summed over forks before the last edge."""
    tree, total = stored.tree, 0.0
    for node in tree:
        children = [child for child in tree.children(node.id) if not tree[child].is_terminal]
        shares = {stored.texts[child]: share_below(tree, child) for child in children}
        known = [share for share in shares.values() if share is not None]
        total += max(known, default=0.0) - min(known, default=0.0)
    return total


def share_below(tree: Tree[None], node_id: int) -> float | None:
    ends = [end for end in tree.terminals() if node_id in tree.path(end)]
    return sum(map(tree.outcome, ends)) / len(ends) if ends else None


async def one(agent: Agent, problem: Problem) -> Collection:
    """One tree of a few rollouts under the default search, critic and credit."""
    collector = Collector(
        agent=agent,
        env=load_task("demo").env_for(problem),
        search=Search.two_phase(tokens=TOKENS, concurrency=4),
    )
    async with collector:
        return await collector.collect(problem)


def draw(stored: StoredTree) -> str:
    """The page of `focus show` as an SVG that fetches nothing."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(tree_page(stored, PageOptions(width=WIDTH)))
    title = "focus show docs/figures/demo-tree.json"
    svg = console.export_svg(title=title, unique_id="focus-demo-tree")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draw", action="store_true", help="only draw the stored tree")
    parser.add_argument("--tree", type=Path, help="store this tree instead of collecting one")
    options = parser.parse_args()
    if not options.draw:
        found = load_stored_tree(options.tree) if options.tree else anyio.run(collect)
        save_tree(found.tree, STORED, texts=found.texts, credit=found.credit)
    DRAWN.write_text(draw(load_stored_tree(STORED)), encoding="utf-8")


if __name__ == "__main__":
    main()
