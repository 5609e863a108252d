"""Does a served critic say what the trained one said? Asked before it may steer.

A store's snapshots never change, so the finding lies beside them:

    store/served/critic-0003.json
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from focus.critic.snapshot import Probe, Snapshot, Verdict
from focus.errors import ConfigError, StoreError
from focus.records.codec import opened
from focus.records.files import read_if_present, write_whole
from focus.records.strict_json import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from focus.critic.base import Critic

__all__ = ("Consistency", "Tolerance", "compare", "found_consistency", "note_consistency", "ruling")

SCHEMA = "focus.consistency/1"
_FOLDER = "served"


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far served values may lie from trained ones.

    Attributes:
        most: largest difference of one value.
        mean: mean absolute difference.
    """

    most: float = 0.01
    mean: float = 0.005

    def __post_init__(self) -> None:
        if not (self.most >= 0 and self.mean >= 0):
            raise ConfigError(f"tolerances must be >= 0, got {self.most} and {self.mean}")


@dataclass(frozen=True, kw_only=True)
class Consistency:
    """Served against trained values on the held contexts of one snapshot.

    Attributes:
        version: the snapshot.
        contexts: how many were compared.
        max_difference, mean_difference: absolute, in value units.

    >>> Consistency.of("critic-0001", [0.5, 0.25], [0.5, 0.75]).mean_difference
    0.25
    """

    version: str
    contexts: int
    max_difference: float
    mean_difference: float

    @classmethod
    def of(cls, version: str, trained: Sequence[float], served: Sequence[float]) -> Consistency:
        """From the values in order.

        Raises:
            ConfigError: there is nothing to compare.
        """
        if not trained:
            raise ConfigError(f"{version}: no held contexts to compare on")
        gaps = [abs(a - b) for a, b in zip(trained, served, strict=True)]
        return cls(
            version=version,
            contexts=len(gaps),
            max_difference=max(gaps),
            mean_difference=sum(gaps) / len(gaps),
        )

    def within(self, tolerance: Tolerance) -> bool:
        """Both differences are small enough."""
        small = self.max_difference <= tolerance.most
        return small and self.mean_difference <= tolerance.mean


async def compare(critic: Critic, probes: Sequence[Probe]) -> Consistency:
    """Ask a served critic for the held contexts of its own snapshot.

    Raises:
        CriticError, FatalError: it gave no usable values.
        ConfigError: the snapshot holds no contexts.
    """
    served = await critic.score([probe.context for probe in probes]) if probes else []
    return Consistency.of(critic.version, [probe.value for probe in probes], served)


def note_consistency(store: Path, found: Consistency) -> None:
    """Keep a finding beside the store's snapshots; a later one replaces it.

    Raises:
        StoreError: it cannot be written.
    """
    folder = store / _FOLDER
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made: {error}") from error
    data = dumps({"schema": SCHEMA, **asdict(found)}, what="consistency")
    write_whole(folder / f"{found.version}.json", data + b"\n", overwrite=True, fsync=False)


def found_consistency(store: Path, version: str) -> Consistency | None:
    """What was found for a version; None while nobody compared.

    Raises:
        SchemaError: the file is damaged.
    """
    path = store / _FOLDER / f"{version}.json"
    data = read_if_present(path)
    if data is None:
        return None
    fields = opened(loads(data, where=str(path)), schema=SCHEMA, where=str(path))
    found = Consistency(
        version=fields.text("version"),
        contexts=fields.integer("contexts"),
        max_difference=fields.number("max_difference"),
        mean_difference=fields.number("mean_difference"),
    )
    fields.done()
    return found


def ruling(
    snapshot: Snapshot, found: Consistency | None, *, tolerance: Tolerance | None = None
) -> Verdict:
    """The snapshot's own verdict, unless serving it changes its values or nobody looked."""
    if not snapshot.verdict.steering:
        return snapshot.verdict
    if found is None:
        return Verdict(False, "served values were not compared with trained ones yet")
    if not found.within(tolerance or Tolerance()):
        return Verdict(
            False,
            f"served values differ from trained ones by up to {found.max_difference:.4f} "
            f"(mean {found.mean_difference:.4f}) on {found.contexts} contexts",
        )
    return snapshot.verdict
