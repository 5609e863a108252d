"""Read a transformers model whole: from this disk, from safetensors, with no weight missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from focus._extras import require
from focus.errors import StoreError

__all__ = ("load_pretrained", "stored_weights")


def load_pretrained(auto_class: str, folder: str | Path, *, dtype: Any) -> Any:
    """The model of a folder, e.g. for ``"AutoModel"`` or ``"AutoModelForCausalLM"``.

    Raises:
        StoreError: it cannot be read, or a weight is missing and would be made up.
    """
    transformers = require("transformers", extra="local")
    with stored_weights(folder), _no_progress_bar(transformers.utils.logging):
        model, report = getattr(transformers, auto_class).from_pretrained(
            folder,
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
        absent = sorted(report["missing_keys"])
        if absent:
            raise ValueError(f"{len(absent)} weights are missing, {absent[0]} among them")
    return model.eval()


@contextmanager
def stored_weights(folder: str | Path) -> Iterator[None]:
    """Whatever goes wrong while weights are read means that their folder is damaged."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise StoreError(f"{folder}: these weights cannot be read ({text})") from error


@contextmanager
def _no_progress_bar(bars: Any) -> Iterator[None]:
    was_on = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            bars.enable_progress_bar()
