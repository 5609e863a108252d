"""Which critic a round collects with: decided once, on disk, for every process.

    folder/rounds/
      round-000003.wanted        an actor's process asks
      round-000003.json          the tag: written once, whole or not at all

A tag never changes. A round that is collected again after a crash is collected with the
same critic, and no tree sees two.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path

from focus.errors import ConfigError, SchemaError, StoreError
from focus.records.codec import opened
from focus.records.files import listed, read_if_present, write_whole
from focus.records.strict_json import Fields, dumps, loads

__all__ = ("RoundTag", "RoundTags")

SCHEMA = "focus.round/1"
_TAG = re.compile(r"round-(\d{6,})\.json")
_WANTED = re.compile(r"round-(\d{6,})\.wanted")


@dataclass(frozen=True, kw_only=True)
class RoundTag:
    """One round's critic.

    Attributes:
        round: the round.
        steering: whether the snapshot values checkpoints; else the constant does.
        snapshot: newest published version when the tag was written; None before the first.
        constant: the value of every checkpoint while no snapshot steers.
        reason: why it steers or not, in words.
        url: where the snapshot is served.
        renderer: name and version of the contexts that the snapshot reads.
        value_range: lowest and highest value, of snapshot and constant.
    """

    round: int
    steering: bool
    snapshot: str | None
    constant: float
    reason: str
    url: str
    renderer: str = "token_chunk/1"
    value_range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        if self.round < 0:
            raise ConfigError(f"round must be >= 0, got {self.round}")
        if self.steering and self.snapshot is None:
            raise ConfigError(f"round {self.round}: nothing is published that could steer")


class RoundTags:
    """The tags of a loop's folder; read by every process, written by the supervisor.

    Args:
        folder: the loop's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "rounds"

    def write(self, tag: RoundTag) -> None:
        """Decide a round.

        Raises:
            StoreError: it was decided before, or cannot be written.
        """
        self._make()
        data = dumps({"schema": SCHEMA, **asdict(tag)}, what="round tag") + b"\n"
        path = self._folder / f"round-{tag.round:06d}.json"
        try:
            write_whole(path, data, overwrite=False, fsync=True)
        except FileExistsError as error:
            raise StoreError(f"{path}: round {tag.round} was decided before") from error

    def read(self, round: int) -> RoundTag | None:
        """A round's tag; None while it is not decided.

        Raises:
            SchemaError: the file is damaged.
        """
        path = self._folder / f"round-{round:06d}.json"
        data = read_if_present(path)
        if data is None:
            return None
        fields = opened(loads(data, where=str(path)), schema=SCHEMA, where=str(path))
        tag = RoundTag(
            round=fields.integer("round"),
            steering=fields.flag("steering"),
            snapshot=fields.optional_text("snapshot"),
            constant=fields.number("constant"),
            reason=fields.text("reason"),
            url=fields.text("url"),
            renderer=fields.text("renderer"),
            value_range=_pair(fields),
        )
        fields.done()
        return tag

    def want(self, round: int) -> None:
        """Ask for a round's tag.

        Raises:
            StoreError: the folder cannot be written.
        """
        self._make()
        write_whole(self._folder / f"round-{round:06d}.wanted", b"", overwrite=True, fsync=False)

    def wanted(self) -> tuple[int, ...]:
        """Rounds that were asked for and are not decided, in order."""
        names = listed(self._folder) if self._folder.exists() else []
        asked = {int(match[1]) for match in map(_WANTED.fullmatch, names) if match}
        return tuple(sorted(asked - set(self.rounds())))

    def rounds(self) -> tuple[int, ...]:
        """Decided rounds, in order."""
        names = listed(self._folder) if self._folder.exists() else []
        return tuple(sorted(int(match[1]) for match in map(_TAG.fullmatch, names) if match))

    def _make(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self._folder}: cannot be made: {error}") from error


def _pair(fields: Fields) -> tuple[float, float]:
    values = fields.numbers("value_range")
    if len(values) != 2:
        raise SchemaError(f"{fields.where}.value_range: expected two numbers, found {len(values)}")
    return (values[0], values[1])
