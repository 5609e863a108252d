"""From nested samples to what each data-parallel rank is sent."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from .parallel import Layout
from .rollout import load_function
from .sample import Sample
from .schedule import Schedule

__all__ = ("flattened", "shipped", "train_data")

SENT = frozenset(
    {
        "tokens",
        "response_lengths",
        "rewards",
        "truncated",
        "loss_masks",
        "round_number",
        "sample_indices",
        "rollout_ids",
        "rollout_mask_sums",
        "rollout_log_probs",
        "source_names",
        "prompt",
        "teacher_log_probs",
    }
)
"""Fields that reach a trainer cut to its part; anything else is dropped."""

_TENSORS = {
    "tokens": torch.long,
    "loss_masks": torch.int,
    "rollout_log_probs": torch.float32,
    "teacher_log_probs": torch.float32,
}


def flattened(nested: list[Any]) -> list[Sample]:
    flat = nested
    while isinstance(flat[0], list):
        flat = list(itertools.chain.from_iterable(flat))
    assert all(type(sample) is Sample for sample in flat), "shapes were mixed"
    return flat


def log_samples(samples: list[Sample]) -> None:
    """Metrics of the rollout, before conversion: numbers and texts must be there."""
    for sample in samples:
        assert isinstance(sample.response, str), "response must be text"
        round(float(sample.reward), 1)  # type: ignore[arg-type]
        assert type(sample.prefix_cache_info.cached_tokens) is int


def train_data(args: Any, samples: list[Sample]) -> dict[str, list[Any]]:
    """Reward post-processing and conversion."""
    log_samples(samples)
    if args.custom_reward_post_process_path is None:
        mean = sum(s.reward or 0.0 for s in samples) / len(samples)
        raw, rewards = ([s.reward for s in samples], [(s.reward or 0.0) - mean for s in samples])
    else:
        both = load_function(args.custom_reward_post_process_path)(args, samples)
        assert isinstance(both, tuple)
        assert len(both) == 2
        raw, rewards = both
    assert len(raw) == len(rewards) == len(samples)
    assert all(type(value) is float for value in (*raw, *rewards))
    masks = [_mask(sample) for sample in samples]
    identities = _identities(samples)
    sums: dict[int, int] = {}
    for identity, mask in zip(identities, masks, strict=True):
        sums[identity] = sums.get(identity, 0) + sum(mask)
    data: dict[str, list[Any]] = {
        "tokens": [sample.tokens for sample in samples],
        "response_lengths": [sample.response_length for sample in samples],
        "rewards": rewards,
        "raw_reward": raw,
        "truncated": [int(sample.status is Sample.Status.TRUNCATED) for sample in samples],
        "sample_indices": [sample.index for sample in samples],
        "rollout_ids": identities,
        "loss_masks": masks,
        "rollout_mask_sums": [sums[identity] for identity in identities],
    }
    if any("raw_reward" in sample.metadata for sample in samples):
        data["raw_reward"] = [s.metadata.get("raw_reward", s.reward) for s in samples]
    for key in ("rollout_log_probs", "teacher_log_probs"):
        if getattr(samples[0], key) is not None:
            data[key] = [list(getattr(sample, key)) for sample in samples]
    if "round_number" in samples[0].metadata:
        data["round_number"] = [sample.metadata["round_number"] for sample in samples]
    if samples[0].train_metadata is not None:
        data["metadata"] = [sample.train_metadata for sample in samples]
    data["source_names"] = [s.metadata.get("source_name", "unknown") for s in samples]
    return data


def _mask(sample: Sample) -> list[int]:
    assert len(sample.tokens) - sample.response_length >= 1, "no prompt token"
    assert sample.response_length >= 1, "no response token"
    mask = [1] * sample.response_length if sample.loss_mask is None else sample.loss_mask
    assert len(mask) == sample.response_length
    assert all(type(entry) is int for entry in mask)
    return [0] * sample.response_length if sample.remove_sample else mask


def _identities(samples: list[Sample]) -> list[int]:
    """Samples without a rollout_id get a fresh one each."""
    known = {sample.rollout_id for sample in samples}
    fresh = (number for number in itertools.count() if number not in known)
    return [next(fresh) if sample.rollout_id is None else sample.rollout_id for sample in samples]


def shipped(
    args: Any, data: dict[str, list[Any]], layout: Layout
) -> tuple[list[dict[str, Any]], Schedule]:
    """One parcel per data-parallel rank: listed fields only, tensors where Slime makes them."""
    lengths = [len(tokens) for tokens in data["tokens"]]
    schedule = Schedule.of(args, lengths, data["rollout_ids"], layout)
    parcels = []
    for rank, part in enumerate(schedule.partitions):
        parcel: dict[str, Any] = {"partition": part}
        parcel |= {key: [data[key][i] for i in part] for key in SENT & data.keys()}
        for key, dtype in _TENSORS.items():
            if key in parcel:
                parcel[key] = [torch.as_tensor(value, dtype=dtype) for value in parcel[key]]
        parcel["rollout_mask_sums"] = torch.tensor(parcel["rollout_mask_sums"], dtype=torch.float32)
        parcel["raw_reward"] = data["raw_reward"]
        parcel["local_raw_reward"] = [data["raw_reward"][i] for i in part]
        parcel["total_lengths"] = [lengths[i] for i in part]
        parcel["global_batch_sizes"] = schedule.batch_sizes
        parcel["num_microbatches"] = schedule.microbatches_per_rank
        parcel["micro_batch_indices"] = schedule.microbatches[rank]
        parcels.append(parcel)
    return parcels, schedule
