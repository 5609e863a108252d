"""`focus eval`: accuracy of a model on a task, with its uncertainty."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from focus.cli.progress import WorkProgress
    from focus.training.solving import Accuracy

__all__ = ("Split", "evaluate", "result_of")


class Split(StrEnum):
    """Disjoint parts of a task."""

    TRAIN = "train"
    HELDOUT = "heldout"
    GATE = "gate"


def evaluate(
    model: Annotated[
        str, typer.Option(help="Model folder, such as RUN/models/final; builtin; smollm2.")
    ] = "builtin",
    task: Annotated[str, typer.Option(help="demo, gym:NAME or file:PATH.")] = "demo",
    split: Annotated[
        Split, typer.Option(help="Part of the task; heldout was never trained on.")
    ] = Split.HELDOUT,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, help="Problems, each solved once.")
    ] = 400,
    seed: Annotated[int, typer.Option(help="Of the problems and of the sampling.")] = 0,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="1 is what the demo trains at; 0 is greedy.")
    ] = 1.0,
    capacity: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 64,
    search: Annotated[
        bool, typer.Option("--search", help="Compare ways to pick an answer at equal tokens.")
    ] = False,
    critic: Annotated[
        Path | None, typer.Option(help="For --search: a store of critics, or a critic's folder.")
    ] = None,
    tokens: Annotated[
        int, typer.Option(min=2, help="For --search: budget of each problem and method.")
    ] = 640,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the result here; - is stdout.")
    ] = None,
) -> None:
    """Solve each problem once, unbranched, and print the mean outcome with its 95 % interval.

    With --search each problem gets a budget of tokens instead, and an answer is picked in
    four ways: one rollout at random, a majority vote, the rollout that the critic values
    most, and the best leaf of a tree that the critic guides.

    \b
    Examples:
      focus eval --model runs/demo/models/final --task demo -n 400 --json after.json
      focus eval --search --critic runs/critics --tokens 640 -n 200
    """
    from focus.cli.interrupt import run_until_interrupted
    from focus.cli.terminal import progress_console

    wanted = {
        "model": model,
        "task": task,
        "split": split.value,
        "seed": seed,
        "temperature": temperature,
    }
    if search:
        from focus.cli.search import compare

        if critic is None:
            raise typer.BadParameter("--search needs --critic STORE")
        if temperature != 1.0:
            raise typer.BadParameter("--search samples as in training; leave --temperature out")
        compare({**wanted, "critic": str(critic)}, critic, count, tokens, capacity, json_file)
        return
    accuracy, version = run_until_interrupted(
        lambda progress: _solve(wanted, count, capacity, progress),
        console=progress_console(),
        last_words="no result was written",
    )
    _report(result_of(accuracy, wanted, version), json_file)


async def _solve(
    wanted: dict[str, Any], count: int, capacity: int, progress: WorkProgress
) -> tuple[Accuracy, str]:
    """Accuracy, and the version of the weights that it belongs to."""
    from focus.execution import AdmissionPool, ExecutionServices
    from focus.policies.transformers import TransformersPolicy
    from focus.tasks.registry import load_task
    from focus.training.solving import evaluate as solve

    task = load_task(wanted["task"])
    problems = task.problems(wanted["split"], count, seed=wanted["seed"])
    progress.stage("load model", 0, 1)
    async with (
        TransformersPolicy(wanted["model"], max_batch=capacity) as policy,
        ExecutionServices(AdmissionPool(capacity)) as services,
    ):
        accuracy = await solve(
            policy,
            task,
            problems,
            seed=wanted["seed"],
            services=services,
            temperature=wanted["temperature"],
            progress=lambda done, of, mean: progress.stage(
                "evaluate", done, of, f"accuracy {mean:.3f}"
            ),
        )
        return accuracy, policy.version


def result_of(accuracy: Accuracy, wanted: dict[str, Any], version: str) -> dict[str, Any]:
    """The result as JSON."""
    from focus.training.summary import versions

    return {**accuracy.to_dict(), **wanted, "policy_version": version, "versions": versions()}


def _report(result: dict[str, Any], json_file: Path | None) -> None:
    import json

    from focus.cli.terminal import result_console
    from focus.records.files import write_whole
    from focus.viz.numbers import count as short
    from focus.viz.numbers import interval

    text = json.dumps(result, indent=2, sort_keys=True) + "\n"
    if json_file is not None and str(json_file) == "-":
        typer.echo(text, nl=False)
        return
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(json_file, text.encode(), overwrite=True)
    result_console().print(
        f"accuracy {result['accuracy']:.3f}, 95 % interval {interval(result['ci95'])}, on "
        f"{result['n']} {result['split']} problems of {result['task']} "
        f"({short(result['tokens'])} tokens, {result['truncated']} truncated)",
        markup=False,
        soft_wrap=True,
    )
