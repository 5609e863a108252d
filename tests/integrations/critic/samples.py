"""Records of a made-up process whose true values are known, and a small model for them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from focus.critic.store import SnapshotStore
from focus.integrations.critic.material import Folders
from focus.integrations.critic.settings import CriticTraining
from focus.integrations.critic.trainer import SessionTrainer
from focus.problem import Problem
from focus.records import JsonlDirectory
from focus.records.files import OS_FILES, Files
from focus.records.records import CriticContext, CriticRecord, RecordKey
from focus.training.outcomes import fresh_records
from focus.training.rundir import RunDirectory
from focus.training.solving import FreshOutcome
from focus.tree import Identity

SETTINGS = CriticTraining(
    passes=2, learning_rate=3e-3, batch_contexts=32, checkpoint_steps=2, targets="recorded"
)


def context(*ids: int) -> CriticContext:
    return CriticContext(renderer="token_chunk/1", text="", ids=ids, tokenizer_hash="t")


def true_value(ids: Sequence[int]) -> float:
    """What the last id says: 0.1 for 1, 0.9 for 9."""
    return ids[-1] / 10


def draw(number: int, *, seed: int = 0, depth: int = 3) -> list[tuple[int, ...]]:
    """Contexts of one problem, each a prefix of the next."""
    rng = random.Random(f"{seed}/{number}")
    ids = [10 + number % 20, *(rng.randint(1, 9) for _ in range(depth))]
    return [tuple(ids[: end + 2]) for end in range(depth)]


def key_of(number: int) -> str:
    return Problem(id=number, prompt=f"question {number}", label="1").key


def prompt(number: int, *, run: str = "r", round: int = 0, attempt: int = 0) -> list[CriticRecord]:
    """Records of one problem; targets are single outcomes."""
    rng = random.Random(f"{run}/{round}/{number}")
    source = RecordKey(
        identity=Identity(run=run, round=round, attempt=attempt),
        problem=number,
        key=key_of(number),
        policy_version=f"actor-{round}",
        critic_version="constant-0.5",
    )
    return [
        CriticRecord(
            source=source,
            node=depth,
            context=context(*ids),
            target=float(rng.random() < true_value(ids)),
            count=1,
            prior=0.5,
            depth=depth,
        )
        for depth, ids in enumerate(draw(number))
    ]


def write_round(
    folder: Path, numbers: Sequence[int], *, round: int = 0, accept: bool = True, run: str = "r"
) -> None:
    sink = JsonlDirectory(folder)
    for number in numbers:
        sink.write(prompt(number, round=round, run=run))
    if accept:
        sink.accept(round=round, attempt=0)


def write_fresh(folder: Path, numbers: Sequence[int], *, round: int = 0) -> None:
    """Fresh outcomes of problems, three checkpoints each."""
    rng = random.Random(f"fresh/{round}")
    outcomes = [
        FreshOutcome(
            Problem(id=number, prompt=f"question {number}", label="1"),
            depth,
            context(*ids),
            0.5,
            float(rng.random() < true_value(ids)),
        )
        for number in numbers
        for depth, ids in enumerate(draw(number))
    ]
    sink = JsonlDirectory(folder)
    groups = fresh_records(
        outcomes,
        identity=Identity(run="fresh", round=round),
        policy_version=f"actor-{round}",
        critic_version="constant-0.5",
    )
    for group in groups:
        sink.write(group)


def small_model(folder: Path) -> Path:
    """A causal model of 13 thousand parameters."""
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def trainer_in(
    root: Path, *, settings: CriticTraining = SETTINGS, files: Files = OS_FILES, **changes: Any
) -> SessionTrainer:
    """A trainer on root/records, publishing to root/store, from root/model."""
    if not (root / "model").exists():
        small_model(root / "model")
    given: dict[str, Any] = {
        "folders": Folders([root / "records"]),
        "store": SnapshotStore(root / "store"),
        "directory": RunDirectory(root / "state", files=files),
        "model": root / "model",
        "settings": settings,
        "device": "cpu",
    }
    return SessionTrainer(**{**given, **changes})
