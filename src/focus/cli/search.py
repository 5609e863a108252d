"""`focus eval --search`: four ways to pick an answer, for the same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from focus.cli.progress import WorkProgress
    from focus.critic import Critic
    from focus.training.searching import SearchReport

__all__ = ("compare",)


def compare(
    wanted: dict[str, Any],
    critic: Path,
    count: int,
    tokens: int,
    capacity: int,
    json_file: Path | None,
) -> None:
    """Run the comparison, print a table, write it as JSON."""
    import json

    from focus.cli.interrupt import run_until_interrupted
    from focus.cli.terminal import glyphs_for, progress_console, result_console, show
    from focus.records.files import write_whole

    report = run_until_interrupted(
        lambda progress: _compare(wanted, critic, count, tokens, capacity, progress),
        console=progress_console(),
        last_words="no result was written",
    )
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**wanted, **report.to_dict()}, indent=2, sort_keys=True) + "\n"
        write_whole(json_file, text.encode(), overwrite=True)
    console = result_console()
    console.print(
        f"{report.problems} {wanted['split']} problems of {wanted['task']}, "
        f"{report.tokens} tokens each, critic {report.critic_version}",
        markup=False,
        soft_wrap=True,
    )
    show(console, _table(report), glyphs=glyphs_for(console))


async def _compare(
    wanted: dict[str, Any],
    critic: Path,
    count: int,
    tokens: int,
    capacity: int,
    progress: WorkProgress,
) -> SearchReport:
    from focus.execution import AdmissionPool, ExecutionServices
    from focus.policies.transformers import TransformersPolicy
    from focus.tasks.registry import load_task
    from focus.training.searching import compare_searches

    task = load_task(wanted["task"])
    problems = task.problems(wanted["split"], count, seed=wanted["seed"])
    progress.stage("load models", 0, 1)
    valued_by = _critic(critic)
    async with (
        TransformersPolicy(wanted["model"], max_batch=capacity) as policy,
        ExecutionServices(AdmissionPool(capacity)) as services,
    ):
        return await compare_searches(
            policy,
            valued_by,
            task,
            problems,
            tokens=tokens,
            seed=wanted["seed"],
            services=services,
            progress=lambda done, of: progress.stage("search", done, of),
        )


def _critic(path: Path) -> Critic:
    """The current critic of a store, or the one in a model folder.

    Raises:
        StoreError: neither, or damaged, or nothing is published.
    """
    from focus.critic import Critic
    from focus.critic.loading import load_value_model
    from focus.critic.store import SnapshotStore
    from focus.errors import StoreError

    if not (path / "store.json").exists():
        return Critic.local(load_value_model(path))
    store = SnapshotStore(path)
    current = store.current()
    if current is None:
        raise StoreError(f"{path}: no critic is published here yet")
    return Critic.local(load_value_model(store.load(current.version)))


def _table(report: SearchReport) -> Table:
    from rich.table import Table

    from focus.viz.numbers import count, interval

    table = Table("picked by", "accuracy", "95 %", "gain", "95 %", "tokens", "solutions")
    for name, result in report.methods.items():
        table.add_row(
            name,
            f"{result.accuracy:.3f}",
            interval(result.ci95),
            "" if name == "unbranched" else f"{result.gain:+.3f}",
            "" if name == "unbranched" else interval(result.gain_ci95),
            count(round(result.tokens)),
            f"{result.solutions:.1f}",
        )
    return table
