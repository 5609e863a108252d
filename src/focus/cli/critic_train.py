"""`focus critic train`: sessions of training, each of which publishes a snapshot."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from focus.cli.progress import WorkProgress
    from focus.critic.snapshot import Snapshot
    from focus.integrations.critic.settings import CriticTraining
    from focus.integrations.critic.trainer import SessionTrainer

__all__ = ("Loss", "Targets", "train_critic")


class Targets(StrEnum):
    """What a critic is fitted to."""

    AUTO = "auto"
    RECORDED = "recorded"
    OUTCOMES = "outcomes"


class Loss(StrEnum):
    """How an error is measured in training."""

    MSE = "mse"
    BCE = "bce"


def train_critic(
    records: Annotated[
        list[Path],
        typer.Argument(metavar="RECORDS...", help="Folders of critic records, one per run."),
    ],
    store: Annotated[
        Path,
        typer.Option("--out", "--store", metavar="STORE", help="Where snapshots are published."),
    ],
    model: Annotated[
        str, typer.Option(help="builtin, smollm2 or a model folder to start from.")
    ] = "builtin",
    outcomes: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="Fresh outcomes to judge on; may be repeated."),
    ] = None,
    outcome_rounds: Annotated[
        int, typer.Option(min=1, help="How many of their latest rounds count.")
    ] = 1,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for more records, until Ctrl-C.")
    ] = False,
    sessions: Annotated[
        int | None, typer.Option(min=1, help="End after this many snapshots.")
    ] = None,
    min_new: Annotated[int, typer.Option(min=1, help="New prompts that a session waits for.")] = 1,
    keep: Annotated[
        int | None,
        typer.Option(min=2, help="Remove older snapshots than these; the current one stays."),
    ] = None,
    targets: Annotated[
        Targets, typer.Option(help="auto: outcomes until a critic steers, then the recorded ones.")
    ] = Targets.AUTO,
    loss: Annotated[Loss, typer.Option(help="Squared error or cross-entropy.")] = Loss.MSE,
    learning_rate: Annotated[
        float | None, typer.Option("--lr", help="Peak; 1/sqrt(parameters) if left out.")
    ] = None,
    value_clip: Annotated[
        float | None, typer.Option(help="Most that V moves from its prediction at collection.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting; may be repeated."),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="Ledger and checkpoints; STORE/training if left out.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda:1; what there is if left out.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Figures of each session.")
    ] = None,
) -> None:
    """Train a critic on exported records and publish it, judged, session by session.

    A session takes what is new (and the latest rounds again), trains until the error on
    held-out problems stops falling, judges the critic on fresh outcomes and publishes it:
    as steering, or as not steering with the reason. Each record is applied once per pass,
    whenever the program ends; start it again and it goes on. Several GPUs: accelerate launch.

    \b
    Examples:
      focus critic train runs/demo/critic --out runs/critics
      focus critic train records --outcomes outcomes --out critics --follow
      accelerate launch -m focus critic train records --out critics --model models/qwen-0.5b
    """
    device = _chosen_device(device)
    from focus.critic.store import SnapshotStore
    from focus.integrations.critic.material import Folders
    from focus.integrations.critic.trainer import SessionTrainer
    from focus.models import resolve
    from focus.training.rundir import RunDirectory

    missing = [path for path in records if not path.is_dir()]
    if missing and not follow:
        raise typer.BadParameter(f"{missing[0]}: no such folder (--follow waits for one)")
    named = {"targets": targets.value, "loss": loss.value, "value_clip": value_clip}
    trainer = SessionTrainer(
        folders=Folders(records),
        fresh=tuple(outcomes or ()),
        fresh_rounds=outcome_rounds,
        store=SnapshotStore(store),
        directory=RunDirectory(state or store / "training"),
        model=resolve(model),
        settings=_settings({**named, "learning_rate": learning_rate}, changes or []),
        device=device,
    )
    limits = {"follow": follow, "sessions": sessions, "least_new": min_new}
    _run(trainer, limits, keep=keep, json_file=json_file)


def _chosen_device(device: str | None) -> str | None:
    """Hide other GPUs from this process, before anything looks for them."""
    if device is None or device == "cpu":
        return device
    name, _, number = device.partition(":")
    if name != "cuda" or not (number or "0").isdigit():
        raise typer.BadParameter(f"{device!r} is not cpu, cuda or cuda:NUMBER")
    if number:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        known = [part.strip() for part in seen.split(",")] if seen else []
        if known and int(number) >= len(known):
            raise typer.BadParameter(f"{device}: this process sees {len(known)} GPUs ({seen})")
        os.environ["CUDA_VISIBLE_DEVICES"] = known[int(number)] if known else number
    return None


def _settings(named: dict[str, Any], changes: list[str]) -> CriticTraining:
    from focus.cli.settings import overrides
    from focus.integrations.critic.settings import CriticTraining

    given = {name: value for name, value in named.items() if value is not None}
    return CriticTraining().updated({**given, **overrides(changes)})


def _run(
    trainer: SessionTrainer,
    limits: dict[str, Any],
    *,
    keep: int | None,
    json_file: Path | None,
) -> None:
    """One process of several tells what happens: the one that writes."""
    import io
    import threading

    import anyio.to_thread
    from rich.console import Console

    from focus.cli.interrupt import run_until_interrupted
    from focus.cli.terminal import next_step, result_console, typed

    is_main = os.environ.get("RANK", "0") == "0"
    console = result_console() if is_main else Console(file=io.StringIO())
    done: list[Snapshot] = []
    stop = threading.Event()

    def work(progress: WorkProgress) -> None:
        trainer.report = progress
        for snapshot in trainer.run(**limits, stop=stop):
            done.append(snapshot)
            progress.say(session_line(snapshot))
            if keep is not None and is_main:
                trainer.store.retire(keep=keep)
            if json_file is not None and is_main:
                _write_json(json_file, done)

    async def cancellable(progress: WorkProgress) -> None:
        # Whatever the thread is doing, ledger and store hold whole states only.
        try:
            await anyio.to_thread.run_sync(work, progress, abandon_on_cancel=True)
        finally:
            stop.set()

    again = "start the same command again, and it goes on"
    run_until_interrupted(cancellable, console=console, last_words=again)
    store = typed(trainer.store.path)
    if not done:
        console.print("no new records: nothing to train on", markup=False)
    next_step(console, f"focus critic report {store}")


def session_line(snapshot: Snapshot) -> str:
    """What a session came to, on one line."""
    from focus.viz.numbers import count, duration, fraction

    figures = snapshot.facts.metrics
    parts = [
        f"{snapshot.version} from {count(figures['records'])} records "
        f"({figures['targets']}), {figures['passes']} passes in {duration(figures['seconds'])}",
        f"held-out error {fraction(figures['held_out_error'], digits=4)}",
        f"{count(round(figures['records_per_s']))} records/s",
        str(snapshot.verdict),
    ]
    return ", ".join(parts)


def _write_json(path: Path, snapshots: list[Snapshot]) -> None:
    from focus.records.files import write_whole
    from focus.records.strict_json import dumps

    rows = [
        {
            "version": snapshot.version,
            "steering": snapshot.verdict.steering,
            "reason": snapshot.verdict.reason,
            "constant": snapshot.facts.constant,
            "judgement": snapshot.facts.judgement,
            **snapshot.facts.metrics,
        }
        for snapshot in snapshots
    ]
    write_whole(path, dumps(rows, what="sessions") + b"\n", overwrite=True)
