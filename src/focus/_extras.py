"""Import optional packages on first use, with an error that names the remedy."""

from __future__ import annotations

import importlib
from typing import Any

from focus.errors import MissingExtra

__all__ = ("require",)


def require(module: str, *, extra: str) -> Any:
    """Import `module` now, or say which extra brings it.

    Raises:
        MissingExtra: the module (or one it needs) is not installed.

    >>> require("json", extra="local").dumps([1])
    '[1]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{module} is needed here and could not be imported ({error}). "
            f'Install it with: pip install "focus-rl[{extra}]"'
        ) from error
