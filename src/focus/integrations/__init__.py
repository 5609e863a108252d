"""Bridges to trainers. Importing this package imports no trainer and reads no file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from focus.records.jsonl import JsonlDirectory

__all__ = ("JsonlDirectory",)


def __getattr__(name: str) -> object:
    if name == "JsonlDirectory":
        from focus.records.jsonl import JsonlDirectory

        return JsonlDirectory
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
