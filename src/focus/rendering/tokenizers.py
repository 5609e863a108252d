"""Tokenizers: loaded once, used by one thread at a time, named by a hash."""

from __future__ import annotations

import hashlib
import json
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focus._extras import require
from focus.errors import ConfigError
from focus.tokens import TokenIds

__all__ = (
    "control_ids_in",
    "control_tokens",
    "decode",
    "encode",
    "load_tokenizer",
    "lock_of",
    "tokenizer_hash",
)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is computed once per tokenizer object. Fast tokenizers are not thread-safe."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    control: dict[int, str] = field(default_factory=dict)
    special: frozenset[int] = frozenset()


_guard = threading.Lock()
_loaded: dict[str, Any] = {}
_facts: weakref.WeakKeyDictionary[Any, _Facts] = weakref.WeakKeyDictionary()


def load_tokenizer(source: str | Path) -> Any:
    """The tokenizer of a model folder (or cached hub name), loaded once per process.

    Every caller gets the same object, however many threads ask at once.

    Raises:
        ConfigError: `source` holds no tokenizer that can be read.
        MissingExtra: transformers is not installed.
    """
    path = Path(source)
    is_folder = path.is_dir()
    key = str(path.resolve()) if is_folder else str(source)
    with _guard:
        if key not in _loaded:
            transformers = require("transformers", extra="local")
            try:
                _loaded[key] = transformers.AutoTokenizer.from_pretrained(
                    key, local_files_only=is_folder
                )
            except Exception as error:
                raise ConfigError(
                    f"no tokenizer could be loaded from {str(source)!r} "
                    f"({type(error).__name__}: {error}). Give a model folder that holds "
                    "tokenizer.json and tokenizer_config.json."
                ) from error
        return _loaded[key]


def lock_of(tokenizer: Any) -> threading.RLock:
    """The one lock that guards `tokenizer`; hold it while calling the tokenizer directly."""
    return _facts_of(tokenizer).lock


def encode(tokenizer: Any, text: str) -> TokenIds:
    """Ids of `text` alone, no control token added around it."""
    with lock_of(tokenizer):
        return tuple(tokenizer.encode(text, add_special_tokens=False))


def decode(tokenizer: Any, ids: Sequence[int], *, keep_special: bool = False) -> str:
    """Text of `ids` in one decode.

    Decode a whole reply, never its pieces: a character whose bytes lie in two pieces is
    only whole in the whole.
    """
    with lock_of(tokenizer):
        text: str = tokenizer.decode(
            list(ids), skip_special_tokens=not keep_special, clean_up_tokenization_spaces=False
        )
    return text


def control_ids_in(tokenizer: Any, text: str, *, special_only: bool = False) -> tuple[str, ...]:
    """Control tokens that the plain text `text` would turn into, in order.

    Control tokens are the special ones and, unless `special_only`, added tokens that look
    like markers (``<think>``, ``[INST]``). Encoding decides, not string search, so
    normalising tokenizers are covered too.
    """
    facts = _facts_of(tokenizer)
    if not facts.control:
        return ()
    wanted = facts.special if special_only else facts.control.keys()
    return tuple(facts.control[token] for token in encode(tokenizer, text) if token in wanted)


def control_tokens(tokenizer: Any, *, special_only: bool = False) -> frozenset[int]:
    """Ids of the control tokens, as `control_ids_in` tells them apart."""
    facts = _facts_of(tokenizer)
    return facts.special if special_only else frozenset(facts.control)


def tokenizer_hash(tokenizer: Any) -> str:
    """A name for the id ↔ text mapping: equal for tokenizers that agree on every id."""
    with lock_of(tokenizer):
        vocabulary: Mapping[str, int] = tokenizer.get_vocab()
        special = sorted(tokenizer.all_special_ids)
    canonical = json.dumps([sorted(vocabulary.items()), special], ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _facts_of(tokenizer: Any) -> _Facts:
    with _guard:
        facts = _facts.get(tokenizer)
        if facts is None:
            facts = _facts[tokenizer] = _read_facts(tokenizer)
        return facts


def _read_facts(tokenizer: Any) -> _Facts:
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = frozenset(token for token, entry in added.items() if entry.special)
    control = {
        token: str(entry.content)
        for token, entry in added.items()
        if entry.special or _looks_like_marker(str(entry.content))
    }
    return _Facts(control=control, special=special)


def _looks_like_marker(text: str) -> bool:
    return text[:1] + text[-1:] in ("<>", "[]")
