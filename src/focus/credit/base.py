"""What an estimator returns, and the checks that all of them share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Protocol, runtime_checkable

from focus.errors import ConfigError, CreditError
from focus.tree import Evidence, Node, NodeId, Returns, Tree

__all__ = (
    "Columns",
    "Credit",
    "Estimator",
    "Target",
    "Trajectory",
    "check_prior_strength",
    "check_returns",
    "edge_return",
    "edge_terms",
    "is_trained",
    "outcome_targets",
    "prior_values",
    "returns_for",
    "target_returns",
    "trained_heads",
    "trajectories",
)


@dataclass(frozen=True, slots=True)
class Target:
    """A critic regression target.

    Attributes:
        value: in return units.
        count: direct branches or suffix samples it averages, ≥ 1.
    """

    value: float
    count: int


class Columns(Mapping[NodeId, Mapping[str, float]]):
    """Named numbers by node, kept by name; the row of a node is made when somebody asks.

    Args:
        rows: the nodes that have a row, in order; read for membership, order and number.
        columns: by name, something that gives the number of each of them.

    >>> found = Columns({1: None}, {"return": {1: 0.5, 2: 0.25}})
    >>> found[1], list(found), found == {1: {"return": 0.5}}
    ({'return': 0.5}, [1], True)
    """

    __slots__ = ("_columns", "_rows")

    def __init__(
        self,
        rows: Mapping[NodeId, object],
        columns: Mapping[str, Mapping[int, float] | Sequence[float]],
    ) -> None:
        self._rows = rows
        self._columns = columns

    def __getitem__(self, node_id: NodeId) -> Mapping[str, float]:
        if node_id not in self._rows:
            raise KeyError(node_id)
        return {name: column[node_id] for name, column in self._columns.items()}

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"Columns({dict(self)})"


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
        for name, numbers in (
            ("advantage", self.advantages),
            ("value", self.values),
            ("target", {node: target.value for node, target in self.targets.items()}),
        ):
            if all(map(math.isfinite, numbers.values())):
                continue
            node, number = next(item for item in numbers.items() if not math.isfinite(item[1]))
            raise CreditError(f"{self.estimator}: node {node}: {name} is {number}")


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
    is_shaped = any(map(attrgetter("edge.step_reward"), tree.edges()))
    return replace(returns, step_weight=0.0) if is_shaped and 0 <= low < high <= 1 else returns


def outcome_targets(evidence: Evidence, nodes: Iterable[NodeId]) -> dict[NodeId, Target]:
    """Mean suffix outcome and its count, of each of these checkpoints that was measured."""
    seen = {node_id: evidence[node_id] for node_id in nodes}
    return {id_: Target(stats.mean, stats.count) for id_, stats in seen.items() if stats.count}


def is_trained(node: Node[Any]) -> bool:
    """Whether the incoming edge holds a token that the policy sampled."""
    return node.edge is not None and node.edge.sampled_tokens > 0


def trained_heads(tree: Tree[Any]) -> list[NodeId]:
    """Heads of the edges that `is_trained`, in attach order."""
    return [node.id for node in tree if node.edge is not None and node.edge.sampled_tokens]


def prior_values(tree: Tree[Any], *, estimator: str, allow_partial: bool) -> dict[NodeId, float]:
    """V by live checkpoint, in id order; with `allow_partial`, of those that have one.

    Raises:
        CreditError: a value is not finite, or is missing without `allow_partial`.
    """
    values: dict[NodeId, float] = {}
    for node in tree:
        if node.is_terminal or (allow_partial and node.value is None):
            continue
        if node.value is None or not math.isfinite(node.value):
            raise CreditError(
                f"{estimator}: node {node.id} has no usable critic value ({node.value}); "
                "the prediction failed when the tree was collected"
            )
        values[node.id] = node.value
    return values


def edge_terms(tree: Tree[Any], returns: Returns) -> tuple[list[float], list[float]]:
    """r(e) and γ^d(e) of every edge, by its head; the root has 0 and 1.

    Read once per tree, so that a back-up costs one multiplication per edge.
    """
    edges = [node.edge for node in tree if node.edge is not None]
    return [0.0, *returns.edge_rewards(edges)], [1.0, *returns.edge_discounts(edges)]


def check_returns(over_edge: Iterable[tuple[NodeId, float]], *, estimator: str) -> None:
    """Refuse a return over an edge, by its head, that is not finite.

    Raises:
        CreditError: naming the first one.
    """
    for head, value in over_edge:
        if not math.isfinite(value):
            raise CreditError(f"{estimator}: node {head}: the return over its edge is {value}")


def edge_return(node: Node[Any], successor: float, returns: Returns, *, estimator: str) -> float:
    """c(e) of the incoming edge of `node` alone, refused where it is not finite.

    Raises:
        CreditError: it is not finite.
    """
    value = returns.backed_up(node.incoming, successor)
    check_returns([(node.id, value)], estimator=estimator)
    return value


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
    return [
        Trajectory(tuple(path), _total(tree, path, estimator=estimator))
        for path in paths
        if tree[path[-1]].is_terminal
    ]


def _path_below(tree: Tree[Any], first: NodeId) -> list[NodeId]:
    path = [first]
    while children := tree.children(path[-1]):
        path.append(children[0])
    return path


def _total(tree: Tree[Any], path: list[NodeId], *, estimator: str) -> float:
    total = 0.0
    for node_id in reversed(path):
        total = edge_return(tree[node_id], total, tree.header.returns, estimator=estimator)
    return total
