"""Actor and critic records: what a trainer receives, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from focus.tokens import LogProbs, TokenIds
from focus.tree import Identity, NodeId, Tree

__all__ = ("ActorRecord", "CriticContext", "CriticRecord", "RecordKey")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKey:
    """Which prompt of which collection a record belongs to.

    Attributes:
        identity: run, round, attempt.
        problem: the data set's id.
        key: hash of canonical prompt and label.
        policy_version, critic_version: snapshots that collected the tree.
    """

    identity: Identity
    problem: int | str
    key: str
    policy_version: str
    critic_version: str

    @classmethod
    def of(cls, tree: Tree[Any]) -> RecordKey:
        """The key that every record of `tree` carries."""
        header = tree.header
        return cls(
            identity=header.identity,
            problem=header.problem.id,
            key=header.problem.key,
            policy_version=header.policy_version,
            critic_version=header.critic_version,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorRecord:
    """One training sample for the policy.

    Token-aligned fields cover the response only: everything after `prefix`.

    Attributes:
        source: prompt and snapshots.
        nodes: heads of the edges trained here, in order (one for packing ``segment``).
        prefix: conditioning ids; exactly the request's input for the first response id.
        response: ids after the prefix.
        loss_mask: 1 where the id was sampled and is trained here, else 0.
        log_probs: behaviour log-probs; 0.0 where the mask is 0.
        weights: advantage per response id; 0.0 where the mask is 0.
        outcome: mean outcome of finished leaves below; None if none finished.
        truncated: it ends in a leaf that ran out of allowance or context.
        temperature, top_p, top_k: the law the ids were drawn from.
        request_ids: the reply that each of `nodes` came from.
    """

    source: RecordKey
    nodes: tuple[NodeId, ...]
    prefix: TokenIds
    response: TokenIds
    loss_mask: tuple[int, ...]
    log_probs: LogProbs
    weights: tuple[float, ...]
    outcome: float | None
    truncated: bool
    temperature: float
    top_p: float
    top_k: int | None
    request_ids: tuple[str, ...] = ()

    @property
    def tokens(self) -> TokenIds:
        """Prefix followed by response."""
        return self.prefix + self.response

    @property
    def advantage(self) -> float:
        """The one weight of a single-edge record.

        Raises:
            ValueError: the record holds several edges with different weights.
        """
        trained = {w for w, m in zip(self.weights, self.loss_mask, strict=True) if m}
        if len(trained) != 1:
            raise ValueError(f"record of nodes {self.nodes} carries {len(trained)} weights")
        return trained.pop()


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticContext:
    """What a critic sees of a checkpoint; stored, and read again in training.

    Never the label, the answer or the future.

    Attributes:
        renderer: name and version of the function that made it.
        text: the whole context in one decode, special tokens kept.
        ids: prefix + sampled ids, for critics that read tokens; None for text critics.
        tokenizer_hash: names the tokenizer of `ids`.
        remaining_tokens, remaining_turns: allowance left; None is no limit.
        workspace: plain snapshot of the files, if the agent has any.
    """

    renderer: str
    text: str
    ids: TokenIds | None = None
    tokenizer_hash: str = ""
    remaining_tokens: int | None = None
    remaining_turns: int | None = None
    workspace: Mapping[str, str] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticRecord:
    """One regression target for the critic.

    Attributes:
        source: prompt and snapshots.
        node: the checkpoint.
        context: what the critic sees.
        target: in the critic's range: Ḡ (direct branches) or a mean suffix outcome.
        count: branches or samples behind the target, ≥ 1.
        prior: the critic's own prediction at collection.
        depth: edges from the root.
        truncated: a finished leaf below ran out of allowance or context, so the target
            holds an outcome that was forced.
        diagnostics: estimator-specific numbers.
    """

    source: RecordKey
    node: NodeId
    context: CriticContext
    target: float
    count: int
    prior: float
    depth: int
    truncated: bool = False
    diagnostics: Mapping[str, float] = field(default_factory=dict)
