"""Is an estimator unbiased? A task small enough to answer exactly.

A softmax policy with one logit per history and action plays a short game. Every tree
that a purchase rule can grow is enumerated with its probability, so the mean of an
estimator's update is a finite sum, to be compared with the gradient of expected outcome.

    task = TabularTask.random(random.Random(0), depth=2)
    expected_update(Rloo(), task, fixed_widths(2, 1))
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from focus.credit.base import Estimator
from focus.problem import Problem
from focus.tokens import Span
from focus.tree import Edge, NodeId, Provenance, Returns, Tree, TreeHeader

__all__ = (
    "Gradient",
    "Growth",
    "History",
    "Rule",
    "TabularTask",
    "exact_gradient",
    "expected_branches",
    "expected_update",
    "fixed_widths",
    "gradient_at",
    "grown_trees",
    "probed_rollouts",
    "relative_bias",
    "skew",
    "stop_at_success",
    "stop_when_mixed",
)

History = tuple[int, ...]
"""The actions so far: the whole state of the game."""

Gradient = dict[tuple[History, int], float]
"""By logit: history and action."""


@dataclass(frozen=True, kw_only=True)
class TabularTask:
    """A game of `depth` decisions.

    Attributes:
        depth: decisions per episode.
        policy: probability of each action, by live history.
        outcomes: reward, by full history.
        critic: V by live history; right or wrong.
    """

    depth: int
    policy: Mapping[History, tuple[float, ...]]
    outcomes: Mapping[History, float]
    critic: Mapping[History, float]

    @classmethod
    def random(cls, rng: random.Random, *, depth: int, actions: int = 2) -> TabularTask:
        """Random probabilities, outcomes in [0, 1] and a critic that knows nothing."""
        levels = [list(product(range(actions), repeat=level)) for level in range(depth + 1)]
        live = [history for level in levels[:-1] for history in level]
        policy = {}
        for history in live:
            weights = [math.exp(rng.uniform(-1, 1)) for _ in range(actions)]
            policy[history] = tuple(weight / sum(weights) for weight in weights)
        return cls(
            depth=depth,
            policy=policy,
            outcomes={history: rng.random() for history in levels[-1]},
            critic={history: rng.random() for history in live},
        )

    def value(self, history: History) -> float:
        """Expected outcome from here on."""
        if len(history) == self.depth:
            return self.outcomes[history]
        probabilities = self.policy[history]
        return sum(p * self.value((*history, a)) for a, p in enumerate(probabilities))

    def probability(self, history: History) -> float:
        """Chance that an episode passes through this history."""
        return math.prod(self.policy[history[:i]][a] for i, a in enumerate(history))

    def score(self, history: History, action: int) -> Gradient:
        """∂ log π(action | history) / ∂ logits."""
        return {
            (history, other): float(action == other) - probability
            for other, probability in enumerate(self.policy[history])
        }


@dataclass(frozen=True)
class Growth:
    """A tree half bought: by node id, its history and its children."""

    histories: tuple[History, ...] = ((),)
    children: tuple[tuple[NodeId, ...], ...] = ((),)

    def grown(self, node: NodeId, action: int) -> Growth:
        """With one more edge below `node`."""
        below = list(self.children)
        below[node] = (*below[node], len(self.histories))
        return Growth((*self.histories, (*self.histories[node], action)), (*below, ()))


Rule = Callable[[Growth], NodeId | None]
"""Which checkpoint to buy one more edge from; None once the tree is complete."""


def fixed_widths(*widths: int) -> Rule:
    """`widths[d]` branches at each checkpoint of depth d, whatever happens."""

    def next_purchase(growth: Growth) -> NodeId | None:
        for node, (history, children) in enumerate(
            zip(growth.histories, growth.children, strict=True)
        ):
            if len(history) < len(widths) and len(children) < widths[len(history)]:
                return node
        return None

    return next_purchase


def stop_at_success(task: TabularTask, *, most: int) -> Rule:
    """Buys rollouts at the root, up to `most`, until one is worth more than a half."""
    return _rollouts(task, most=most, enough=lambda ends: any(end > 0.5 for end in ends))


def stop_when_mixed(task: TabularTask, *, most: int) -> Rule:
    """Buys rollouts at the root, up to `most`, until two have different outcomes."""
    return _rollouts(task, most=most, enough=lambda ends: len(set(ends)) > 1)


def _rollouts(task: TabularTask, *, most: int, enough: Callable[[list[float]], bool]) -> Rule:
    def next_purchase(growth: Growth) -> NodeId | None:
        for node, children in enumerate(growth.children):
            if 0 < len(growth.histories[node]) < task.depth and not children:
                return node
        ends = [task.outcomes[h] for h in growth.histories if len(h) == task.depth]
        return None if len(ends) == most or enough(ends) else 0

    return next_purchase


def probed_rollouts(task: TabularTask, *, rollouts: int, probes: int) -> Rule:
    """Rollouts from the root to the end, then `probes` more from each of their checkpoints."""
    trained = rollouts * task.depth

    def next_purchase(growth: Growth) -> NodeId | None:
        for node, (history, children) in enumerate(
            zip(growth.histories, growth.children, strict=True)
        ):
            if 0 < len(history) < task.depth and not children:
                return node
        if len(growth.histories) <= trained:
            return 0
        for node in range(trained + 1):
            own = sum(child <= trained for child in growth.children[node])
            live = len(growth.histories[node]) < task.depth
            if live and len(growth.children[node]) < own + probes:
                return node
        return None

    return next_purchase


def grown_trees(task: TabularTask, rule: Rule) -> Iterator[tuple[Growth, float]]:
    """Every tree that the rule can end with, and its probability."""
    stack = [(Growth(), 1.0)]
    while stack:
        growth, chance = stack.pop()
        node = rule(growth)
        if node is None:
            yield growth, chance
            continue
        for action, probability in enumerate(task.policy[growth.histories[node]]):
            stack.append((growth.grown(node, action), chance * probability))


def gradient_at(task: TabularTask, history: History) -> Gradient:
    """Σ_a π(a)·Q(a)·∂ log π(a): what one visit to `history` contributes."""
    total: Gradient = {}
    for action, probability in enumerate(task.policy[history]):
        _add(total, task.score(history, action), probability * task.value((*history, action)))
    return total


def exact_gradient(task: TabularTask) -> Gradient:
    """Gradient of the expected outcome by every logit."""
    total: Gradient = {}
    for history in task.policy:
        _add(total, gradient_at(task, history), task.probability(history))
    return total


def expected_branches(task: TabularTask, rule: Rule) -> dict[History, float]:
    """Mean number of edges bought at each history."""
    total: dict[History, float] = {}
    for growth, chance in grown_trees(task, rule):
        for history in growth.histories[1:]:
            total[history[:-1]] = total.get(history[:-1], 0.0) + chance
    return total


def expected_update(
    estimator: Estimator, task: TabularTask, rule: Rule, *, first_phase: int | None = None
) -> Gradient:
    """Mean over all trees of Σ_edges advantage · ∂ log π(edge).

    Args:
        estimator: gives the advantages.
        task: the game.
        rule: grows its trees.
        first_phase: edges that the search's first phase bought, the rest being of its
            second; None is all.
    """
    total: Gradient = {}
    for growth, chance in grown_trees(task, rule):
        advantages = estimator.estimate(_tree(task, growth, first_phase)).advantages
        for head, advantage in advantages.items():
            *history, action = growth.histories[head]
            _add(total, task.score(tuple(history), action), chance * advantage)
    return total


def relative_bias(update: Gradient, gradient: Gradient) -> float:
    """‖update − gradient‖ / ‖gradient‖."""
    gap = dict(update)
    _add(gap, gradient, -1.0)
    return _norm(gap) / _norm(gradient)


def skew(update: Gradient, gradient: Gradient) -> float:
    """The relative bias that no step size removes: the sine of the angle between the two."""
    along = math.fsum(value * update.get(logit, 0.0) for logit, value in gradient.items())
    cosine = along / (_norm(update) * _norm(gradient))
    return math.sqrt(max(0.0, 1.0 - cosine * cosine)) if cosine > 0 else 1.0


def _norm(gradient: Gradient) -> float:
    return math.hypot(*gradient.values())


def _add(total: Gradient, part: Gradient, weight: float) -> None:
    for logit, value in part.items():
        total[logit] = total.get(logit, 0.0) + weight * value


def _tree(task: TabularTask, growth: Growth, first_phase: int | None) -> Tree[Any]:
    """The finished growth as a real tree of one-token edges; first children continue."""
    header = TreeHeader(
        problem=Problem(id="tabular", prompt="a game"), prompt_ids=(0,), returns=Returns()
    )
    tree: Tree[Any] = Tree(header, None, value=task.critic[()])
    parents = {child: node for node, below in enumerate(growth.children) for child in below}
    for node, history in enumerate(growth.histories[1:], start=1):
        parent = parents[node]
        above = tree[parent].edge if growth.children[parent][0] == node else None
        log_prob = math.log(task.policy[history[:-1]][history[-1]])
        edge = Edge(
            spans=(Span((history[-1],), (log_prob,)),),
            provenance=Provenance(
                expansion=node if above is None else above.provenance.expansion,
                index=0 if above is None else above.provenance.index + 1,
                phase=int(first_phase is not None and node > first_phase),
            ),
            reward=task.outcomes.get(history, 0.0),
        )
        is_end = len(history) == task.depth
        value = None if is_end else task.critic[history]
        tree.attach(parent, edge, None, value=value, is_terminal=is_end)
    return tree
