"""Whole runs: one forward_backward and one optim_step a round, all files, resuming."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from focus.errors import ConfigError, FocusError
from focus.integrations.tinker import TINKER_DEFAULTS, TinkerHost, train
from focus.records import read_critic_records
from focus.tasks.registry import load_task
from focus.testing.tinker_service import TinkerService

from .runs import (
    CRITIC_STEPS,
    SMALL,
    Heard,
    attempts,
    check_each_round_counts_once,
    checkpoints,
    collector_for,
    host_of,
    model_of,
    run,
    steps_of,
)

pytestmark = pytest.mark.anyio


@dataclasses.dataclass(frozen=True)
class Finished:
    service: TinkerService
    out: Path
    summary: dict[str, Any]
    heard: Heard


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def finished(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out, heard = tmp_path_factory.mktemp("run"), Heard()
    with TinkerService() as service:
        summary = await run(service, out, heard=heard)
        yield Finished(service, out, summary, heard)


async def test_a_round_is_one_forward_backward_and_one_step(finished: Finished) -> None:
    check_each_round_counts_once(finished.service, finished.out, rounds=3)
    [actor] = {model_of(row["state_path"]) for row in checkpoints(finished.out)}
    saves = ["save_weights", "save_weights_for_sampler"]
    assert steps_of(finished.service.log, actor) == ["forward_backward", "optim_step", *saves] * 3
    losses = {done.loss_fn for done in finished.service.log if done.model_id == actor}
    assert losses == {"ppo", ""}


async def test_the_critic_has_a_model_of_its_own(finished: Finished) -> None:
    rows = checkpoints(finished.out)
    [critic] = {model_of(row["extras"]["critic_state_path"]) for row in rows}
    [actor] = {model_of(row["state_path"]) for row in rows}
    assert critic != actor
    counts = Counter(steps_of(finished.service.log, critic))
    assert counts["forward_backward"] == counts["optim_step"] == 3 * CRITIC_STEPS


async def test_rows_are_billed_as_they_were_packed(finished: Finished) -> None:
    """The service counts what the metrics say, far below one datum per segment."""
    [actor] = {model_of(row["state_path"]) for row in checkpoints(finished.out)}
    billed = [
        done.tokens
        for done in finished.service.log
        if done.route == "forward_backward" and done.model_id == actor
    ]
    assert billed == [metrics["actor_billed_tokens"] for metrics in finished.heard.rounds]
    for tokens, metrics in zip(billed, finished.heard.rounds, strict=True):
        assert tokens <= 1.05 * metrics["tokens_learner"]


async def test_metrics_have_both_sets_of_names(finished: Finished) -> None:
    lines = (finished.out / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["progress/batch"] for row in rows] == [0, 1, 2]
    assert rows[-1]["progress/done_frac"] == 1.0
    for row in rows:
        assert abs(row["optim/kl_sample_train_v1"]) < 1e-4
        assert row["env/all/reward/total"] == row["collection_success"]
        assert row["time/total"] >= row["time/train"]
        assert row["actor_clip_share"] == 0.0


async def test_checkpoints_have_the_cookbooks_columns(finished: Finished) -> None:
    for row in checkpoints(finished.out):
        assert row.keys() == {"name", "batch", "state_path", "sampler_path", "extras"}
        assert row["state_path"] in finished.service.states
    assert finished.summary["paths"]["actor_state"] == checkpoints(finished.out)[-1]["state_path"]


async def test_the_summary_says_what_was_measured(finished: Finished) -> None:
    wanted = {"accuracy_before", "accuracy_after", "critic_brier", "constant_brier", "sdk_version"}
    assert wanted <= finished.summary.keys()
    assert finished.summary["recovered"] == []
    assert finished.summary["log_prob_gap"]["mean_gap"] < 1e-4
    assert json.loads((finished.out / "summary.json").read_text()) == finished.summary


async def test_critic_targets_are_on_disk_with_both_versions(finished: Finished) -> None:
    records = list(read_critic_records(finished.out / "critic"))
    assert {record.source.identity.round for record in records} == {0, 1, 2}
    assert {record.source.policy_version for record in records} == {
        "actor-0000",
        "actor-0001",
        "actor-0002",
    }


async def test_a_finished_run_is_lengthened_from_its_saved_state(
    finished: Finished, tmp_path: Path
) -> None:
    """New clients, Adam's moments included; the rounds that count are not repeated."""
    longer = dataclasses.replace(SMALL, rounds=4)
    summary = await run(finished.service, finished.out, settings=longer)
    check_each_round_counts_once(finished.service, finished.out, rounds=4)
    assert attempts(finished.out) == [(round_index, 0, "applied") for round_index in range(4)]
    assert summary["optimizer_steps"] == 4


async def test_a_service_without_the_model_is_refused_before_anything(tmp_path: Path) -> None:
    settings = dataclasses.replace(TINKER_DEFAULTS, task="demo")
    with TinkerService() as service:
        with pytest.raises(ConfigError, match="it has: builtin"):
            await run(service, tmp_path / "run", settings=settings)
        assert service.log == ()


@pytest.fixture
def deaf() -> Iterator[TinkerService]:
    with TinkerService() as running:
        yield running


async def test_a_wrong_key_is_an_error_with_a_name(deaf: TinkerService, tmp_path: Path) -> None:
    host = dataclasses.replace(host_of(deaf), api_key="tml-wrong")
    with pytest.raises(FocusError, match="no valid API key"):
        await train(
            collector_for,
            task=load_task("demo"),
            settings=SMALL,
            out=tmp_path / "run",
            report=Heard(),
            host=host,
        )
    assert "tml-wrong" not in repr(host)


def test_a_host_hides_its_key() -> None:
    assert "tml-secret" not in repr(TinkerHost(api_key="tml-secret"))


@pytest.fixture
def recipe() -> Iterator[Any]:
    """examples/math/train_tinker.py, imported as its own folder's file."""
    folder = str(Path(__file__).resolve().parents[3] / "examples" / "math")
    sys.path.insert(0, folder)
    try:
        yield importlib.import_module("train_tinker")
    finally:
        sys.path.remove(folder)


@pytest.mark.full
@pytest.mark.timeout(3600)
async def test_fifteen_rounds_teach_the_shipped_model(recipe: Any, tmp_path: Path) -> None:
    """Held-out accuracy rises by a tenth at least, and the critic passes its gate."""
    settings = dataclasses.replace(recipe.LOOPBACK, rounds=15)
    with TinkerService() as service:
        summary = await train(
            recipe.small_collector_for,
            task=load_task("demo"),
            settings=settings,
            out=tmp_path / "run",
            report=Heard(),
            tinker=recipe.LOOPBACK_TINKER,
            host=host_of(service),
        )
        check_each_round_counts_once(
            service, tmp_path / "run", rounds=15, steps=settings.critic.steps
        )
    assert summary["accuracy_after"] - summary["accuracy_before"] >= 0.10
    assert summary["critic_gate"]
