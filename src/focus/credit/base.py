"""What an estimator returns, and the checks that all of them share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from focus.errors import ConfigError, CreditError
from focus.tree import Node, NodeId, Returns, SuffixMeans, Tree

__all__ = (
    "Columns",
    "Credit",
    "CriticFree",
    "Estimator",
    "Target",
    "Trajectory",
    "check_prior_strength",
    "check_returns",
    "edge_terms",
    "is_trained",
    "outcome_targets",
    "returns_for",
    "target_returns",
    "targets_of",
    "trajectories",
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """A critic regression target.

    Attributes:
        value: in return units.
        count: direct branches or suffix samples it averages, ≥ 1.
    """

    value: float
    count: int


class Columns(Mapping[NodeId, T]):
    """Rows of numbers by node, kept as columns; a node's row is made when somebody asks.

    Args:
        nodes: those that have a row, in order; read for membership, order and number.
        columns: by name, something that gives the number of each of them.
        row: makes a row of its numbers.

    >>> found = Columns({1: None}, {"value": [0.0, 0.5], "count": [0, 2]}, row=Target)
    >>> found[1], list(found), found == {1: Target(0.5, 2)}
    (Target(value=0.5, count=2), [1], True)
    """

    __slots__ = ("_columns", "_nodes", "_row")

    def __init__(
        self,
        nodes: Mapping[NodeId, object],
        columns: Mapping[str, Mapping[NodeId, float] | Sequence[float]],
        *,
        row: Callable[..., T],
    ) -> None:
        self._nodes = nodes
        self._columns = columns
        self._row = row

    def __getitem__(self, node_id: NodeId) -> T:
        if node_id not in self._nodes:
            raise KeyError(node_id)
        return self._row(**{name: column[node_id] for name, column in self._columns.items()})

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._nodes

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"Columns({dict(self)})"

    def column(self, name: str) -> Iterable[float]:
        """The numbers of that name, in the order of the nodes."""
        return map(self._columns[name].__getitem__, self._nodes)


@dataclass(frozen=True, kw_only=True)
class Credit:
    """One weight per trained edge and one target per checkpoint.

    Attributes:
        estimator: its name.
        advantages: by head node of the edge; edges without one are not trained.
        targets: by checkpoint.
        values: refined value V̂ by checkpoint, where the estimator has one.
        diagnostics: named numbers by node.
    """

    estimator: str
    advantages: Mapping[NodeId, float]
    targets: Mapping[NodeId, Target] = field(default_factory=dict)
    values: Mapping[NodeId, float] = field(default_factory=dict)
    diagnostics: Mapping[NodeId, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check("advantage", self.advantages, self.advantages.values())
        self._check("value", self.values, self.values.values())
        self._check("target", self.targets, _target_values(self.targets))

    def _check(
        self, name: str, by_node: Mapping[NodeId, float | Target], numbers: Iterable[float]
    ) -> None:
        if math.isfinite(sum(numbers)):
            return
        for node, item in by_node.items():
            number = item.value if isinstance(item, Target) else item
            if not math.isfinite(number):
                raise CreditError(f"{self.estimator}: node {node}: {name} is {number}")


def _target_values(targets: Mapping[NodeId, Target]) -> Iterable[float]:
    if isinstance(targets, Columns):
        return targets.column("value")
    return (target.value for target in targets.values())


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One finished root-to-leaf path that shares no edge with another.

    Attributes:
        nodes: heads of its edges, in order.
        total: return from the root.
    """

    nodes: tuple[NodeId, ...]
    total: float


@runtime_checkable
class Estimator(Protocol):
    """Turns a settled tree into credit; pure, never changes the tree.

    `prior_strength` (κ) is None when the estimator takes the tree's own
    `tree.header.returns`, or does not use one.
    """

    @property
    def prior_strength(self) -> float | None: ...

    def estimate(self, tree: Tree[Any], *, allow_partial: bool = False) -> Credit:
        """Credit for every edge that has a sampled token and a value at both ends.

        Args:
            tree: a settled tree; it is read only.
            allow_partial: leave out edges at a checkpoint whose prediction failed,
                instead of refusing the tree. They get no weight and do not count as
                a branch of their parent; an estimator without critic has none.

        Raises:
            CreditError: the tree breaks an assumption of this estimator.
        """
        ...


class CriticFree:
    """An estimator that reads no critic: there is no prior to weigh."""

    @property
    def prior_strength(self) -> None:
        """None."""
        return None


def check_prior_strength(strength: float | None) -> None:
    """Refuse a κ that is not a positive number; None stands for the tree's own.

    Raises:
        ConfigError: κ is not finite or not > 0.
    """
    if strength is not None and not (math.isfinite(strength) and strength > 0):
        raise ConfigError(f"prior_strength must be > 0, got {strength}")


def returns_for(tree: Tree[Any], prior_strength: float | None) -> Returns:
    """γ, β and κ of the tree, κ replaced by the estimator's own where it names one."""
    returns = tree.header.returns
    return returns if prior_strength is None else replace(returns, prior_strength=prior_strength)


def target_returns(tree: Tree[Any], returns: Returns) -> Returns:
    """What critic targets are made of: `returns`, without shaping where its critic has no room.

    A critic whose range lies inside [0, 1] predicts an outcome; step rewards would push
    its targets out of range, so they count in advantages only (β = 0 here).
    """
    low, high = tree.header.critic_range
    is_shaped = any(tree.columns.step_rewards)
    return replace(returns, step_weight=0.0) if is_shaped and 0 <= low < high <= 1 else returns


def outcome_targets(seen: SuffixMeans, nodes: Iterable[NodeId]) -> Mapping[NodeId, Target]:
    """Mean suffix outcome and its count, of each of these checkpoints that was measured."""
    return targets_of(nodes, seen.means, seen.counts)


def targets_of(
    nodes: Iterable[NodeId], means: Sequence[float], counts: Sequence[int]
) -> Mapping[NodeId, Target]:
    """A target for each of these checkpoints whose count is not 0; numbers stand by node."""
    counted = {node: None for node in nodes if counts[node]}
    return Columns(counted, {"value": means, "count": counts}, row=Target)


def is_trained(node: Node[Any]) -> bool:
    """Whether the incoming edge holds a token that the policy sampled."""
    return node.edge is not None and node.edge.sampled_tokens > 0


def edge_terms(tree: Tree[Any], returns: Returns) -> tuple[list[float], list[float]]:
    """r(e) and γ^d(e) of every edge, by its head; the root has 0 and 1.

    The return over an edge, with V its successor's value, is r(e) + γ^d(e)·V.

    Whoever backs returns up calls `check_returns` on what comes out.
    """
    return tree.columns.gained(returns), tree.columns.carried(returns)


def check_returns(over_edge: Sequence[float], *, estimator: str) -> None:
    """Refuse a return over an edge that is not finite; they stand at the edge's head.

    Raises:
        CreditError: naming the last one, which others may have it from.
    """
    if not math.isfinite(sum(over_edge)):
        wrong = [node for node, value in enumerate(over_edge) if not math.isfinite(value)]
        for head in wrong[-1:]:
            detail = f"the return over its edge is {over_edge[head]}"
            raise CreditError(f"{estimator}: node {head}: {detail}")


def trajectories(tree: Tree[Any], *, estimator: str) -> list[Trajectory]:
    """The finished rollouts of a tree whose only fork is the root, in attach order.

    Unfinished ones are left out: they have no return.

    Raises:
        CreditError: another node than the root has several children.
    """
    for node in tree.edges():
        if len(tree.children(node.id)) > 1:
            raise CreditError(
                f"{estimator}: node {node.id} has {len(tree.children(node.id))} children; "
                "only independent rollouts from the root can be compared"
            )
    paths = (_path_below(tree, first) for first in tree.children(tree.root.id))
    over_edge = _over_edges(tree, estimator=estimator)
    return [
        Trajectory(nodes=tuple(path), total=over_edge[path[0]])
        for path in paths
        if tree[path[-1]].is_terminal
    ]


def _path_below(tree: Tree[Any], first: NodeId) -> list[NodeId]:
    path = [first]
    while children := tree.children(path[-1]):
        path.append(children[0])
    return path


def _over_edges(tree: Tree[Any], *, estimator: str) -> list[float]:
    """Return over the edge into each node, to the end of its only path."""
    gained, carried = edge_terms(tree, tree.header.returns)
    over = gained.copy()
    parents = tree.columns.parents
    for node in range(len(tree) - 1, 0, -1):
        parent = parents[node]
        over[parent] = gained[parent] + carried[parent] * over[node]
    check_returns(over, estimator=estimator)
    return over
