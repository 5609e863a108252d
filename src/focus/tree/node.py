"""Nodes, edges and where they came from: frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, TypeVar

from focus.tokens import FinishReason, LogProbs, Span, TokenIds

__all__ = ("Edge", "Identity", "Node", "NodeId", "Provenance", "Selection")

NodeId = int
P = TypeVar("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which collection of which run: fixed before the first request.

    A restart is a new `attempt`; readers take the accepted attempt only.
    """

    run: str = "local"
    round: int = 0
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How an edge came to be.

    Attributes:
        expansion: launch number within the tree, from 0.
        index: position of the edge within its expansion, from 0.
        phase: which phase of the search bought it.
        request_id: the reply's name.
        tries: requests sent until this reply was accepted, ≥ 1.
        policy_version: version that sampled it.
    """

    expansion: int
    index: int
    phase: int
    request_id: str = ""
    tries: int = 1
    policy_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Why one expansion was bought when it was.

    Attributes:
        expansion: launch number.
        node: checkpoint it starts from.
        phase: index of the phase.
        score: the allocator's score of that checkpoint at that moment.
        rivals: other checkpoints that were eligible.
        free_tokens: budget of the phase not yet spent or reserved; None without a token budget.
    """

    expansion: int
    node: NodeId
    phase: int
    score: float
    rivals: int
    free_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One accepted parser action: a segment, a turn or a fold.

    Attributes:
        spans: the tokens this edge adds, in order; sampled spans carry log-probs,
            conditioning spans (observations, instructions) do not.
        reward: outcome reward; on the ending transition only.
        step_reward: shaping reward of this transition.
        duration: env transitions that discounting counts: 0 for a plain segment.
        finish: why its last generation ended.
        kind: ``"segment"``, ``"turn"`` or ``"fold"``.
        sampled_tokens: how many of its tokens the policy sampled; counted from `spans`.
    """

    spans: tuple[Span, ...]
    provenance: Provenance
    reward: float = 0.0
    step_reward: float = 0.0
    duration: int = 0
    finish: FinishReason = FinishReason.LENGTH
    kind: str = "segment"
    sampled_tokens: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        count = 0
        for span in self.spans:
            if span.log_probs is not None:
                count += len(span.ids)
        object.__setattr__(self, "sampled_tokens", count)

    @property
    def ids(self) -> TokenIds:
        """All tokens of the edge, sampled or not; a single span's own tuple, not a copy."""
        if len(self.spans) == 1:
            return self.spans[0].ids
        return tuple(chain.from_iterable(span.ids for span in self.spans))

    @property
    def log_probs(self) -> LogProbs:
        """Behaviour log-probs of the sampled tokens only, in order."""
        if len(self.spans) == 1:
            return self.spans[0].log_probs or ()
        return tuple(chain.from_iterable(span.log_probs or () for span in self.spans))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(Generic[P]):
    """A checkpoint in the tree.

    Attributes:
        id: 0 for the root, then in attach order.
        parent: None for the root.
        depth: edges from the root.
        edge: incoming edge; None for the root.
        payload: what continues from here; opaque to the tree.
        value: frozen critic estimate V of the return still to come; None where no
            prediction exists (terminals need none).
        is_terminal: the episode ended here.
        is_truncated: it ended because allowance or context ran out.
        rebased: the whole context, when it is not parent context + edge tokens (a fold).
    """

    id: NodeId
    parent: NodeId | None
    depth: int
    edge: Edge | None
    payload: P
    value: float | None
    is_terminal: bool = False
    is_truncated: bool = False
    rebased: TokenIds | None = None

    @property
    def incoming(self) -> Edge:
        """The incoming edge of a node that is not the root."""
        if self.edge is None:
            raise ValueError("the root has no incoming edge")
        return self.edge
