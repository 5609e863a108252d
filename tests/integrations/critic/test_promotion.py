"""What is published is what was judged; what says something else does not steer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from focus.critic.consistency import Consistency
from focus.critic.loading import starting_value_model
from focus.critic.snapshot import Probe
from focus.critic.store import SnapshotStore
from focus.errors import StoreError
from focus.integrations.critic.promotion import Candidate, promote
from focus.training.gate import BaseRates, GateSample
from focus.training.judgement import examine

from .samples import context, prompt, small_model


@pytest.fixture
def candidate(tmp_path: Path) -> Candidate:
    """A critic that passes its judgement."""
    sure = [GateSample(str(n), 0, 0.1 + 0.8 * (n % 2), float(n % 2)) for n in range(600)]
    model = starting_value_model(small_model(tmp_path / "model"), like=context(1))
    return Candidate(
        origin="here",
        parent=None,
        model=model,
        probes=(Probe(context(3), 0.5),),
        records=tuple(prompt(1)),
        held_out=tuple(prompt(2, round=4)),
        rates=BaseRates(0.4),
        judgement=examine(sure, BaseRates(0.4)),
        metrics={},
    )


def test_a_critic_that_passed_is_published_as_steering(
    candidate: Candidate, tmp_path: Path
) -> None:
    snapshot = promote(candidate, SnapshotStore(tmp_path / "store"))
    assert snapshot.verdict.steering
    assert snapshot.facts.constant == 0.4
    assert snapshot.facts.records.count == 3
    assert snapshot.facts.records.rounds == {"r": (0, 4)}


def test_values_unlike_those_in_training_do_not_steer(candidate: Candidate) -> None:
    near = Consistency.of("here", [0.5, 0.6], [0.51, 0.6])
    far = Consistency.of("here", [0.5, 0.6], [0.55, 0.6])
    assert replace(candidate, trained=near).verdict.steering
    verdict = replace(candidate, trained=far).verdict
    assert str(verdict).startswith("not steering: its values differ from those in training")


def test_a_model_that_is_saved_as_another_is_not_published(
    candidate: Candidate, tmp_path: Path
) -> None:
    store = SnapshotStore(tmp_path / "store")
    with pytest.raises(StoreError, match=r"differs from the trained one by up to 0\.4000"):
        promote(replace(candidate, probes=(Probe(context(3), 0.9),)), store)
    assert store.versions() == ()


def test_an_unjudged_critic_replaces_only_what_does_not_steer(
    candidate: Candidate, tmp_path: Path
) -> None:
    store = SnapshotStore(tmp_path / "store")
    unjudged = replace(candidate, judgement=None)
    assert promote(replace(unjudged, origin="first"), store) == store.current()
    promote(candidate, store)
    third = promote(replace(unjudged, origin="third"), store)
    current = store.current()
    assert current is not None
    assert (third.version, current.version) == ("critic-0003", "critic-0002")
