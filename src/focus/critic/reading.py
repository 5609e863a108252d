"""What a value model reads of a stored context, and what its folder says about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from focus.critic.context import RENDERERS
from focus.errors import ConfigError, CriticError, SchemaError, StoreError
from focus.records.files import read_if_present, write_whole
from focus.records.records import CriticContext
from focus.records.strict_json import Fields, dumps, loads
from focus.rendering.tokenizers import load_tokenizer, lock_of
from focus.tokens import TokenIds

__all__ = ("ModelKind", "Reading", "Squash", "read_facts", "write_facts")

SCHEMA = "focus.value_model/2"
FACTS = "focus_critic.json"
Squash = Literal["sigmoid", "clamp"]
"""From a logit to a value: low + (high − low)·sigmoid(z), or z itself, kept in the range."""

ModelKind = Literal["backbone", "classifier"]
"""A backbone with a scalar head, or a sequence classifier with one label."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How contexts become the token ids of a value model; one way, in scoring and training.

    Attributes:
        renderer: of the contexts it takes.
        tokenizer_hash: of the ids it takes; "" takes those of any tokenizer.
        tokenizer: reads the context's text instead of its ids; for a model whose tokenizer
            is not the policy's.
        most_ids: longest context; longer ones are refused, never cut.
        value_range: lowest and highest value.
        squash: how a logit becomes a value.
    """

    renderer: str = "token_chunk/1"
    tokenizer_hash: str = ""
    tokenizer: Any = field(default=None, compare=False)
    most_ids: int | None = None
    value_range: tuple[float, float] = (0.0, 1.0)
    squash: Squash = "sigmoid"

    def __post_init__(self) -> None:
        if self.squash not in get_args(Squash):
            raise ConfigError(f"squash must be one of {get_args(Squash)}, got {self.squash!r}")
        if not self.value_range[0] < self.value_range[1]:
            raise ConfigError(f"value_range {self.value_range} is empty")

    def ids(self, context: CriticContext, *, version: str) -> TokenIds:
        """The ids that scoring and training both read.

        Raises:
            CriticError: another renderer or tokenizer, no ids, or too many.
        """
        if context.renderer != self.renderer:
            raise CriticError(
                f"critic {version} reads token ids of {self.renderer!r}, got {context.renderer!r}"
            )
        ids = self._own_ids(context) if self.tokenizer is not None else context.ids
        if not ids:
            raise CriticError(f"critic {version} reads token ids of {self.renderer!r}, got none")
        if self.tokenizer is None and self.tokenizer_hash not in ("", context.tokenizer_hash):
            raise CriticError(
                f"critic {version}: context of tokenizer {context.tokenizer_hash!r}, "
                f"trained on {self.tokenizer_hash!r}"
            )
        if self.most_ids is not None and len(ids) > self.most_ids:
            raise CriticError(
                f"critic {version} reads {self.most_ids} ids at most, the context has {len(ids)}"
            )
        return ids

    def _own_ids(self, context: CriticContext) -> TokenIds:
        with lock_of(self.tokenizer):
            return tuple(self.tokenizer.encode(context.text, add_special_tokens=True))


def write_facts(folder: Path, reading: Reading, *, kind: ModelKind, version: str) -> None:
    """Put `focus_critic.json`, and the tokenizer if it reads text, beside the weights."""
    plain = {
        "schema": SCHEMA,
        "kind": kind,
        "version": version,
        "renderer": reading.renderer,
        "tokenizer_hash": reading.tokenizer_hash,
        "reads": "ids" if reading.tokenizer is None else "text",
        "most_ids": reading.most_ids,
        "value_range": list(reading.value_range),
        "squash": reading.squash,
    }
    if reading.tokenizer is not None:
        reading.tokenizer.save_pretrained(folder)
    write_whole(folder / FACTS, dumps(plain, what=FACTS) + b"\n", overwrite=True)


def read_facts(folder: Path) -> tuple[ModelKind, str, Reading]:
    """Kind, version and reading of a value model's folder.

    Raises:
        StoreError: there is no value model.
        SchemaError: its facts are damaged, or of another schema.
    """
    path = folder / FACTS
    data = read_if_present(path)
    if data is None:
        raise StoreError(f"{folder}: no readable {FACTS}, so this is no value model of FOCUS")
    fields = Fields(loads(data, where=str(path)), where=str(path))
    schema = fields.raw("schema")
    if schema != SCHEMA:
        raise SchemaError(f"{folder}: schema {schema!r}, expected {SCHEMA!r}")
    kind, version = fields.text("kind"), fields.text("version")
    if kind not in get_args(ModelKind):
        raise SchemaError(f"{path}: kind {kind!r} is none of {get_args(ModelKind)}")
    return cast("ModelKind", kind), version, _reading(fields, folder)


def _reading(fields: Fields, folder: Path) -> Reading:
    reads = fields.text("reads")
    span = fields.numbers("value_range")
    if reads not in ("ids", "text") or len(span) != 2:
        raise SchemaError(f"{fields.where}: reads {reads!r} in range {span}")
    renderer = fields.text("renderer")
    if renderer not in RENDERERS:
        raise SchemaError(f"{fields.where}: reads {renderer!r}, unknown to this version")
    settings: Mapping[str, Any] = {
        "renderer": renderer,
        "tokenizer_hash": fields.text("tokenizer_hash"),
        "most_ids": fields.optional_integer("most_ids", least=1),
        "value_range": (span[0], span[1]),
        "squash": fields.text("squash"),
        "tokenizer": load_tokenizer(folder) if reads == "text" else None,
    }
    fields.done()
    try:
        return Reading(**settings)
    except ConfigError as error:
        raise SchemaError(f"{fields.where}: {error}") from error
