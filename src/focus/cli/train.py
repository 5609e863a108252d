"""`focus train`: rounds of collect, credit, update, publish, judge."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focus.cli.packing import PackingName

if TYPE_CHECKING:
    from focus.cli.progress import WorkProgress
    from focus.training.settings import TrainSettings

__all__ = ("Preset", "train")


class Preset(StrEnum):
    """Named starting points of focus.training.settings.PRESETS."""

    DEMO = "demo"
    SMOKE = "smoke"


def train(
    folder: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="The run's folder, like --out.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in that folder.")
    ] = False,
    preset: Annotated[
        Preset, typer.Option(help="demo trains the shipped model in minutes, smoke in seconds.")
    ] = Preset.DEMO,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of settings, over the preset.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="demo, gym:NAME or file:PATH.")] = None,
    model: Annotated[str | None, typer.Option(help="builtin, smollm2 or a model folder.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Actor updates in all.")] = None,
    prompts: Annotated[int | None, typer.Option(min=1, help="Problems per round.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything that is drawn.")] = None,
    packing: Annotated[
        PackingName | None,
        typer.Option(help="How a tree becomes samples; the gradient is the same."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting; may be repeated."),
    ] = None,
) -> None:
    """Train actor and critic on rollout trees, from a preset.

    Every setting lands in RUN/config.json. Stop with Ctrl-C at any time and go on with
    --resume: a round counts once, whenever the program ends.

    \b
    Examples:
      focus train --preset demo --out runs/demo
      focus train --out runs/mine --rounds 32 --set actor.learning_rate=1e-4
      focus train --resume runs/demo
    """
    from focus.cli.settings import overrides

    root = _one_folder(folder, out)
    named: dict[str, Any] = {
        "task": task,
        "model": model,
        "rounds": rounds,
        "prompts": prompts,
        "seed": seed,
        "packing": None if packing is None else packing.value,
    }
    given = {name: value for name, value in named.items() if value is not None}
    if resume:
        if config or changes or set(given) - {"rounds"}:
            raise typer.BadParameter("a resumed run keeps its settings; only --rounds may change")
        settings = _stored_settings(root, given)
    else:
        settings = _new_settings(preset.value, config, {**given, **overrides(changes or [])})
    _run(settings, root, resume=resume)


def _one_folder(folder: Path | None, out: Path | None) -> Path:
    if folder is not None and out is not None and folder != out:
        raise typer.BadParameter(f"two folders, {folder} and {out}; give one")
    root = folder or out
    if root is None:
        raise typer.BadParameter("say where: --out runs/NAME, or --resume runs/NAME")
    return root.expanduser().resolve()


def _new_settings(preset: str, config: Path | None, changes: dict[str, Any]) -> TrainSettings:
    from focus.training.settings import PRESETS, load_settings, settings_from

    base = PRESETS[preset]
    if config is not None:
        base = load_settings(config, base=base)
    return settings_from(changes, base=base)


def _stored_settings(root: Path, changes: dict[str, Any]) -> TrainSettings:
    from focus.records.files import read_whole
    from focus.records.strict_json import loads
    from focus.training.rundir import RunDirectory
    from focus.training.settings import settings_from

    RunDirectory.reopen(root)
    path = root / "config.json"
    return settings_from(changes, base=settings_from(loads(read_whole(path), where=str(path))))


def _run(settings: TrainSettings, root: Path, *, resume: bool) -> None:
    from focus.cli.interrupt import run_until_interrupted
    from focus.cli.terminal import glyphs_for, next_step, result_console, show, typed
    from focus.viz.facts import Facts
    from focus.viz.summaries import training_rows

    if not resume:
        _refuse_occupied(root)
    console = result_console()
    summary = run_until_interrupted(
        lambda progress: _train(settings, root, progress, resume=resume),
        console=console,
        last_words=f"go on with: focus train --resume {typed(root)}",
    )
    glyphs = glyphs_for(console)
    where = [
        ("files", f"{typed(root)}: models/final, metrics.jsonl, trees/, critic/, tensorboard/"),
    ]
    console.print()
    show(console, Facts([*training_rows(summary, glyphs=glyphs), *where]), glyphs=glyphs)
    next_step(console, f"focus show {typed(root)}")


def _refuse_occupied(root: Path) -> None:
    """Say so before the model is loaded; a folder that stands empty is fine."""
    from focus.training.rundir import RunDirectory

    if root.is_file() or (root.is_dir() and any(root.iterdir())):
        RunDirectory.create(root)


async def _train(
    settings: TrainSettings, root: Path, progress: WorkProgress, *, resume: bool
) -> dict[str, Any]:
    """Nothing is written before task and model are known to work."""
    import anyio

    from focus.cli.report import TrainReport
    from focus.cli.terminal import glyphs_for, progress_console
    from focus.integrations.local import LocalLearner
    from focus.problem import Message
    from focus.tasks.registry import load_task
    from focus.training.run import TrainingRun
    from focus.training.rundir import RunDirectory

    task = load_task(settings.task)
    progress.stage("load model", 0, 1)
    learner = LocalLearner(settings)
    try:
        learner.policy.render((Message("user", "1 + 1"),))
        directory = RunDirectory.reopen(root) if resume else RunDirectory.create(root)
        run = TrainingRun(
            settings=settings,
            task=task,
            learner=learner,
            directory=directory,
            report=TrainReport(
                progress, rounds=settings.rounds, glyphs=glyphs_for(progress_console())
            ),
        )
        return await run.run()
    finally:
        with anyio.CancelScope(shield=True):
            await learner.aclose()
