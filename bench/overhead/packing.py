"""P5, P7, P9: a tree laid out for tree attention, and what a learner computes of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import chain

import anyio
import numpy as np
from bench.overhead.figure import Figure
from bench.overhead.timing import side_by_side
from bench.overhead.trees import fixed_tree, random_tree

from focus.collect import Collection
from focus.credit import DirectBranchTd, RefinedTd
from focus.critic import Critic
from focus.execution import AdmissionPool, ExecutionServices
from focus.integrations.local import ActorTrainer
from focus.models.packed_arrays import token_arrays
from focus.policies.transformers import TransformersPolicy
from focus.records import actor_records
from focus.records.layout import lay_out
from focus.records.packed_tree import pack_tree
from focus.search import Search
from focus.tasks.registry import load_task
from focus.training.making import make_collector
from focus.training.settings import ActorSettings
from focus.tree import Identity, Tree

__all__ = ("packing_figures",)


def packing_figures(*, quick: bool) -> Iterator[Figure]:
    tree = fixed_tree((6, 6, 6), segment=256)
    yield _layout(tree)
    yield _arrays(tree)
    yield _growth()
    yield anyio.run(_learner, 8 if quick else 32)


def _layout(tree: Tree[None]) -> Figure:
    weights = DirectBranchTd().estimate(tree).advantages
    distinct = [np.array(node.incoming.ids) for node in tree.edges()]
    ratio = side_by_side(
        lambda: lay_out(tree, weights), lambda: np.concatenate(distinct), turns=51, repeats=False
    )
    return Figure.ratio(
        "P5",
        "layout of a tree, 6-6-6 of 256 (order, parents, positions, intervals, weights; tokens "
        "by reference), against numpy concatenation of its ids",
        ratio,
        goal=4,
    )


def _arrays(tree: Tree[None]) -> Figure:
    credit = DirectBranchTd().estimate(tree)
    paths = [tree.path(node.id) for node in tree.edges()]
    spans = [node.incoming.spans[0] for node in tree.edges()]
    lengths = [256 * len(path) for path in paths]

    def plain() -> object:
        """Ids, log-probs, weights and positions of the edges, and nothing else."""
        ids = np.fromiter(chain.from_iterable(s.ids for s in spans), np.int64)
        log_probs = np.fromiter(chain.from_iterable(s.log_probs or () for s in spans), float)
        weights = np.repeat([credit.advantages[path[-1]] for path in paths], 256)
        positions = np.concatenate([np.arange(start, start + 256) for start in lengths])
        return ids, log_probs, weights, positions

    ratio = side_by_side(
        lambda: token_arrays(pack_tree(tree, credit)), plain, turns=25, repeats=False
    )
    return Figure.ratio(
        "P5",
        "tree to arrays for a learner, 6-6-6 of 256: nine columns, against four of them by numpy "
        "from the same tuples",
        ratio,
        goal=4,
    )


def _growth() -> Figure:
    """Per node, over as many nodes in either case, all packed trees kept."""
    large, small = random_tree(100_000, segment=4), random_tree(10_000, segment=4)
    estimator = DirectBranchTd()
    credit, small_credit = estimator.estimate(large), estimator.estimate(small)
    ratio = side_by_side(
        lambda: actor_records(large, credit, packing="tree"),
        lambda: [actor_records(small, small_credit, packing="tree") for _ in range(10)],
        turns=5,
    )
    return Figure.ratio(
        "P7",
        "checked tree packing per node, random tree of 100,000 nodes against 10,000",
        ratio,
        goal=1.5,
    )


async def _learner(prompts: int) -> Figure:
    """One update of the shipped model on its own trees, in the packing ``tree``."""
    task, found = load_task("demo"), list[Collection]()
    async with (
        TransformersPolicy("builtin", device="cpu", max_batch=64) as policy,
        ExecutionServices(AdmissionPool(64)) as services,
    ):
        for problem in task.problems("train", prompts):
            collector = make_collector(
                policy,
                task,
                problem,
                search=Search.two_phase(tokens=640),
                critic=Critic.constant(0.4),
                credit=RefinedTd(),
                packing="tree",
                seed=1,
                services=services,
            )
            async with collector:
                found.append(await collector.collect(problem, identity=Identity(run="bench")))
        model = copy.deepcopy(policy.model)
    records = [record for collection in found for record in collection.actor]
    books = ActorTrainer(model, ActorSettings()).update(records, seed=0)
    return Figure(
        id="P9",
        what="eta_learn: distinct tokens, of those that the local trainer computes on packed trees",
        value=books["eta_learn"],
        unit="share",
        goal=0.95,
        floor=1.0,
        better="higher",
    )
