"""Messages to ids and ids to text, as every policy over a tokenizer needs them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from focus.errors import ConfigError
from focus.models import NAMED, resolve
from focus.problem import Message
from focus.rendering import Profile, decode, load_tokenizer, profile_named, tokenizer_hash
from focus.tokens import TokenIds

__all__ = ("Codec", "Coded")


@dataclass(frozen=True, slots=True)
class Codec:
    """A model's tokenizer, and how messages become prompt ids.

    Attributes:
        tokenizer: a transformers tokenizer, shared by everyone who loads the same model.
        profile: how to render.
        vocab_size: ids lie in [0, vocab_size).
        tokenizer_hash: names the id ↔ text mapping.
    """

    tokenizer: Any
    profile: Profile
    vocab_size: int
    tokenizer_hash: str

    @classmethod
    def of(cls, *, tokenizer: Any, model: str | Path | None, profile: str) -> Self:
        """From a tokenizer, or loaded once per process for a model.

        Args:
            tokenizer: the served model's own; either this or `model`.
            model: "builtin", "agent", "smollm2", a model folder or a cached hub name.
            profile: name of a profile.

        Raises:
            ConfigError: none or both were given, or one cannot be used.
        """
        if (tokenizer is None) == (model is None):
            raise ConfigError("give the served model's tokenizer= or the model= to load it from")
        chosen = profile_named(profile)
        folder = None if model is None else _folder(model)
        if tokenizer is None:
            tokenizer = load_tokenizer(str(model) if folder is None else folder)
        size = max(len(tokenizer), _config_vocab_size(folder))
        return cls(tokenizer, chosen, size, tokenizer_hash(tokenizer))

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> TokenIds:
        """Prompt ids of a conversation."""
        return self.profile.render(self.tokenizer, messages, tools)

    def continuation(self, messages: Sequence[Message], *, closed: bool) -> TokenIds:
        """Ids between a reply and the next one, through this policy's profile."""
        return self.profile.continuation(self.tokenizer, messages, closed=closed)

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        """Text of `ids` in one decode; special tokens dropped unless kept."""
        return decode(self.tokenizer, ids, keep_special=keep_special)


class Coded:
    """What a policy tells of its ids and texts, by its `Codec`."""

    _codec: Codec

    @property
    def vocab_size(self) -> int:
        """Ids lie in [0, vocab_size)."""
        return self._codec.vocab_size

    @property
    def tokenizer_hash(self) -> str:
        """Names the id ↔ text mapping."""
        return self._codec.tokenizer_hash

    @property
    def tokenizer(self) -> Any:
        """The tokenizer; hold ``focus.rendering.lock_of(tokenizer)`` to use it elsewhere."""
        return self._codec.tokenizer

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> TokenIds:
        """Prompt ids of a conversation, through this policy's profile."""
        return self._codec.render(messages, tools)

    def continuation(self, messages: Sequence[Message], *, closed: bool) -> TokenIds:
        """Ids between a reply and the next one, through this policy's profile."""
        return self._codec.continuation(messages, closed=closed)

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        """Text of `ids` in one decode; special tokens dropped unless kept."""
        return self._codec.decode(ids, keep_special=keep_special)


def _folder(model: str | Path) -> Path | None:
    """The model's folder; None for a hub name."""
    if str(model) in NAMED or Path(model).expanduser().is_dir():
        return resolve(model)
    return None


def _config_vocab_size(folder: Path | None) -> int:
    """Ids that the model may sample: padding can make them more than the tokenizer knows."""
    if folder is None:
        return 0
    config = json.loads((folder / "config.json").read_text("utf-8"))
    told = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
    return told if isinstance(told, int) else 0
