"""Actor records as Slime samples, one rollout per prompt."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from focus.collect import Collection
from focus.errors import ConfigError, RecordError
from focus.integrations.slime._channels import (
    BEHAVIOUR,
    NO_TARGET,
    NODES,
    PROMPT,
    SUCCESS,
    TARGET,
    TARGET_COUNT,
    TOKEN_WEIGHTS,
    WEIGHT,
)
from focus.records import ActorRecord, RowPacking, actor_records, as_rows
from focus.tokens import TokenIds
from focus.tree import NodeId

__all__ = ("new_sample", "prompt_identity", "samples_of", "to_sample")

Decode = Callable[[Sequence[int]], str]


def to_sample(record: ActorRecord, source: Any) -> Any:
    """One actor record as a new sample of the same class as `source`.

    ``tokens`` is the full conditioning prefix followed by the response; mask and
    log-probs cover the response only. A record of one edge carries its advantage as
    ``reward``; a record of several also carries one weight per response token, where
    `focus.integrations.slime.advantages` finds it.

    Args:
        record: a collection's actor record.
        source: Slime's sample of the prompt. It is read, never changed.

    Raises:
        RecordError: prefix or response is empty, or mask, log-probs and weights do not
            align with the response.
        ConfigError: `source` has neither rollout_id nor index.
    """
    return _trained(record, source, packing="segment" if len(record.nodes) == 1 else "path")


def samples_of(
    collection: Collection, source: Any, *, packing: RowPacking, decode: Decode, with_targets: bool
) -> list[Any]:
    """All samples of one tree, at least one.

    They share the prompt's rollout_id and, as ``metadata["raw_reward"]``, the mean outcome
    of the rollouts that no choice of the search could influence; with `with_targets` the
    critic's targets travel there instead. A tree without a trainable token gives one
    masked placeholder, because Slime cannot take an empty list.

    Raises:
        RecordError: a record cannot be a sample.
        ConfigError: `with_targets` and the tree has no target, or a negative one.
    """
    if collection.packing == packing:
        records = as_rows(collection.actor)
    else:
        records = [*actor_records(collection.tree, collection.credit, packing=packing)]
    samples = [_trained(record, source, packing=packing) for record in records]
    for sample, record in zip(samples, records, strict=True):
        sample.response = decode(record.response)
    if with_targets:
        samples += _carry_targets(collection, samples, records, source)
    if not samples:
        samples = [_masked(collection.tree.header.prompt_ids, source, packing=packing)]
    _label(samples, collection, success_in_log=not with_targets)
    return samples


def prompt_identity(source: Any) -> int:
    """The rollout_id that all samples of a prompt share: the source's own, else its index.

    Raises:
        ConfigError: it has neither, so samples of two prompts could not be told apart.
    """
    identity = PROMPT.get(source)
    identity = getattr(source, "index", None) if identity is None else identity
    if not isinstance(identity, int) or isinstance(identity, bool):
        raise ConfigError(
            f"Slime's sample has rollout_id {PROMPT.get(source)!r} and index {identity!r}; "
            "one of them must be an integer that differs between prompts"
        )
    return identity


def _status(source: Any, *, truncated: bool) -> Any:
    """Slime's own enum value: TRUNCATED out of allowance or context, else COMPLETED."""
    name = "TRUNCATED" if truncated else "COMPLETED"
    kinds = getattr(type(source), "Status", None)
    return name.lower() if kinds is None else kinds[name]


def _trained(record: ActorRecord, source: Any, *, packing: RowPacking) -> Any:
    _check_aligned(record)
    trained = [w for w, m in zip(record.weights, record.loss_mask, strict=True) if m]
    sample = new_sample(
        source,
        record.prefix,
        record.response,
        mask=list(record.loss_mask),
        log_probs=list(record.log_probs),
        reward=record.advantage if packing == "segment" else sum(trained) / len(trained),
        truncated=record.truncated,
    )
    if packing == "path":
        TOKEN_WEIGHTS.put(sample, list(record.weights))
    sample.weight_versions = [record.source.policy_version]
    NODES.put(sample, list(record.nodes))
    return sample


def _masked(context: TokenIds, source: Any, *, packing: RowPacking) -> Any:
    """A sample that trains nothing: the context and one masked token after it."""
    sample = new_sample(source, context, context[-1:], mask=[0], log_probs=[0.0], reward=0.0)
    if packing == "path":
        TOKEN_WEIGHTS.put(sample, [0.0])
    return sample


def new_sample(
    source: Any,
    prefix: TokenIds,
    response: TokenIds,
    *,
    mask: list[int],
    log_probs: list[float],
    reward: float,
    truncated: bool = False,
    text: str = "",
) -> Any:
    """A new sample: nothing mutable is shared with `source` or with siblings."""
    sample = type(source)()
    for name in ("group_index", "index", "prompt", "label", "session_id"):
        setattr(sample, name, getattr(source, name, None))
    sample.tokens = [*prefix, *response]
    sample.response = text
    sample.response_length = len(response)
    sample.loss_mask = mask
    sample.status = _status(source, truncated=truncated)
    sample.metadata = copy.deepcopy(getattr(source, "metadata", None) or {})
    PROMPT.put(sample, prompt_identity(source))
    BEHAVIOUR.put(sample, log_probs)
    WEIGHT.put(sample, reward)
    return sample


def _check_aligned(record: ActorRecord) -> None:
    """What Slime asserts, or silently cuts short, much later and without a name."""
    size = len(record.response)
    columns = (record.loss_mask, record.log_probs, record.weights)
    if not record.prefix or not size or any(len(column) != size for column in columns):
        raise RecordError(
            f"problem {record.source.problem!r}, nodes {record.nodes}: prefix of "
            f"{len(record.prefix)} and response of {size} ids; mask, log-probs, weights of "
            f"{[len(column) for column in columns]}"
        )


def _carry_targets(
    collection: Collection, samples: Sequence[Any], records: Sequence[ActorRecord], source: Any
) -> list[Any]:
    """Put each critic target on one sample conditioned on exactly its checkpoint's context.

    Returns masked samples for checkpoints that no trained edge leaves.
    """
    tree = collection.tree
    free: dict[tuple[NodeId | None, int], Any] = {}
    for sample, record in zip(samples, records, strict=True):
        TARGET.put(sample, NO_TARGET)
        free.setdefault((tree[record.nodes[0]].parent, len(record.prefix)), sample)
    extra = []
    for node, target in _targets(collection):
        context = tree.context(node)
        carrier = free.get((node, len(context)))
        if carrier is None:
            carrier = _masked(context, source, packing="segment")
            extra.append(carrier)
        TARGET.put(carrier, target)
    return extra


def _targets(collection: Collection) -> list[tuple[NodeId, float]]:
    if not collection.critic:
        raise ConfigError(
            f"{collection.credit.estimator} gives no critic targets; "
            'critic="slime" needs an estimator that does, such as DirectBranchTd'
        )
    targets = [(record.node, record.target) for record in collection.critic]
    lowest = min(target for _, target in targets)
    if lowest < 0:
        raise ConfigError(f'critic target {lowest} is negative; critic="slime" carries none')
    return targets


def _label(samples: Sequence[Any], collection: Collection, *, success_in_log: bool) -> None:
    outcomes = collection.opening_outcomes
    success = sum(outcomes) / len(outcomes) if outcomes else None
    for sample in samples:
        sample.metadata.pop(SUCCESS.field, None)
        sample.metadata["focus_success"] = success
        if success_in_log and success is not None:
            SUCCESS.put(sample, success)
        if not success_in_log:
            TARGET_COUNT.put(sample, len(collection.critic))
