"""Value models from folders: published snapshots, and models to start from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from focus.critic.classifier import ClassifierModel
from focus.critic.local import HEAD, ValueModel
from focus.critic.reading import FACTS, Reading, Squash, read_facts
from focus.critic.snapshot import Snapshot
from focus.errors import ConfigError
from focus.records.files import read_whole
from focus.records.records import CriticContext
from focus.records.strict_json import loads
from focus.rendering.tokenizers import load_tokenizer, tokenizer_hash

__all__ = ("AnyValueModel", "load_value_model", "starting_value_model")

AnyValueModel = ValueModel | ClassifierModel


def load_value_model(source: Snapshot | Path) -> AnyValueModel:
    """The value model of a snapshot, under the snapshot's version, or of a saved folder.

    Take a snapshot from `SnapshotStore.load`, which has checked every byte.

    Raises:
        StoreError: no value model, or damaged.
    """
    folder = source.model if isinstance(source, Snapshot) else source
    kind, _, _ = read_facts(folder)
    loader = ClassifierModel if kind == ClassifierModel.kind else ValueModel
    model: AnyValueModel = loader.load(folder)
    if isinstance(source, Snapshot):
        model.version = source.version
    return model


def starting_value_model(
    folder: Path,
    *,
    like: CriticContext,
    value_range: tuple[float, float] = (0.0, 1.0),
    squash: Squash = "sigmoid",
    version: str = "untrained",
) -> AnyValueModel:
    """A value model to train, on any Hugging Face model folder.

    A folder that `ValueModel` or `ClassifierModel` saved goes on from there; one of a
    sequence-classification model with one label is taken as it is; of any other model the
    backbone is taken, with the scalar head of ``value_head.safetensors`` if the folder has one
    (``weight`` [1, hidden], ``bias`` [1]), else one that starts at the middle of the range. The
    ids of the contexts are read where the model's tokenizer made them, else their text.

    Args:
        folder: the model's folder.
        like: one of the contexts it will read.
        value_range: lowest and highest value.
        squash: how a logit becomes a value; ``"clamp"`` for heads that were trained bare.
        version: what it calls itself until it is published.

    Raises:
        ConfigError: the folder's config or tokenizer cannot be used.
        StoreError: its weights cannot be read.
    """
    if (folder / FACTS).is_file():
        return load_value_model(folder)
    path = folder / "config.json"
    config = loads(read_whole(path), where=str(path))
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: not a model's configuration")
    if "auto_map" in config:
        raise ConfigError(f"{path}: the model brings code of its own, which is never run")
    reading = replace(
        _reading(folder, config.get("max_position_embeddings"), like),
        value_range=value_range,
        squash=squash,
    )
    names = config.get("architectures") or [""]
    if str(names[0]).endswith("ForSequenceClassification"):
        return ClassifierModel.from_pretrained(folder, version=version, reading=reading)
    model = ValueModel.from_pretrained(folder, version=version, reading=reading)
    if (folder / HEAD).is_file():
        model.load_head(folder)
    return model


def _reading(folder: Path, most_ids: int | None, like: CriticContext) -> Reading:
    has_own = (folder / "tokenizer_config.json").is_file()
    tokenizer = load_tokenizer(folder) if has_own else None
    same = tokenizer is None or tokenizer_hash(tokenizer) == like.tokenizer_hash
    if like.ids is None and tokenizer is None:
        raise ConfigError(f"{folder}: contexts without token ids need a model with a tokenizer")
    reads_ids = same and like.ids is not None
    return Reading(
        renderer=like.renderer,
        tokenizer_hash=like.tokenizer_hash if reads_ids else "",
        tokenizer=None if reads_ids else tokenizer,
        most_ids=most_ids,
    )
