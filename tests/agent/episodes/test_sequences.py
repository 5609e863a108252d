"""Random sequences of forks, steps and releases on every kind: no branch shows in another."""

from pathlib import Path

import pytest

from focus.testing import check_env
from focus.testing.env_check import EnvReport

from .kinds import KINDS, PROBLEM, FakeEngine, makers

ACTIONS = ("+", "x", "+stop")


def checked(kind: str, folder: Path, *, sequences: int) -> EnvReport:
    made = makers(folder)
    report = check_env(made[kind], problem=PROBLEM, actions=ACTIONS, sequences=sequences)
    if kind in ("podman", "docker"):
        left = FakeEngine.left_in(folder / kind)
        assert all("focus-snapshot" in name for name in left), left
    return report


# An engine runs several programs per call, so its thousand are for --full.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "docker"])
def test_no_sequence_breaks_isolation_or_leaks(kind: str, tmp_path: Path) -> None:
    report = checked(kind, tmp_path, sequences=4 if kind == "podman" else 16)
    assert report.ok, report


@pytest.mark.full
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_sequences(kind: str, tmp_path: Path) -> None:
    report = checked(kind, tmp_path, sequences=1_000)
    print(f"\n{kind}\n{report}")
    assert report.ok, report
