"""Text of single tokens, for a page that shows the exact ones."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from focus._extras import require
from focus.cli.runs import RunFiles
from focus.errors import ConfigError
from focus.models import resolve
from focus.viz.web.tree_data import Piece

__all__ = ("named_pieces", "pieces_of")

_FILE = "tokenizer.json"


def named_pieces(model: str) -> Piece:
    """Pieces by the tokenizer of a model that the user names.

    Raises:
        ConfigError: there is no such model, or it has no ``tokenizer.json``.
        MissingExtra: tokenizers is not installed.
    """
    path = resolve(model) / _FILE
    if not path.is_file():
        raise ConfigError(f"--tokenizer {model}: there is no {path}")
    return _pieces(path)


def pieces_of(run: RunFiles) -> Piece | None:
    """Pieces by the tokenizer that a run left or names; None shows ids instead."""
    if find_spec("tokenizers") is None:
        return None
    for folder in (run.root / "models" / "initial", *_named_folder(run)):
        if (folder / _FILE).is_file():
            return _pieces(folder / _FILE)
    return None


def _named_folder(run: RunFiles) -> list[Path]:
    model = run.settings.get("model")
    try:
        return [resolve(model)] if isinstance(model, str) else []
    except ConfigError:
        return []


def _pieces(path: Path) -> Piece:
    tokenizer: Any = require("tokenizers", extra="local").Tokenizer.from_file(str(path))

    @cache
    def piece(token: int) -> str:
        return str(tokenizer.decode([token], skip_special_tokens=False))

    return piece
