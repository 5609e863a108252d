r"""Train on MATH with Tinker: the recipe of math_training.py, actor and critic as two LoRAs.

    python examples/math/train_tinker.py --loopback --rounds 15 --json result.json
    TINKER_API_KEY=tml-... python examples/math/train_tinker.py --data math-algebra.jsonl

With --loopback nothing leaves this machine: the real SDK talks to a service in this process
that trains the shipped model on arithmetic chains. Otherwise the problems are rows of
prepare_math.py. Start it again with the same --out to go on where it stopped.
"""

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import typer
from math_training import collector_for, sized_collector

from focus import Collector, Policy, Problem
from focus.cli.boundary import complain, known_error
from focus.cli.interrupt import run_until_interrupted
from focus.cli.progress import WorkProgress
from focus.cli.report import TrainReport
from focus.cli.settings import overrides
from focus.cli.terminal import glyphs_for, quiet_libraries, result_console, show, typed
from focus.integrations.tinker import (
    TINKER_DEFAULTS,
    TinkerHost,
    TinkerSettings,
    VerdictText,
    train,
)
from focus.models import resolve
from focus.rendering import load_tokenizer
from focus.tasks.arithmetic import SEGMENT_TOKENS
from focus.tasks.registry import load_task
from focus.training.settings import TrainSettings, settings_from
from focus.viz.facts import Facts
from focus.viz.summaries import training_rows

__all__ = ("LOOPBACK", "LOOPBACK_TINKER", "small_collector_for")

LOOPBACK = settings_from(
    {
        "model": "builtin",
        "prompts": 12,
        "replay_rounds": 4,
        "eval_problems": 400,
        "actor": {"learning_rate": 3e-5, "minibatches": 1},
        "critic": {"learning_rate": 1.5e-3, "steps": 10, "batch_contexts": 192},
        "gate": {"checkpoints": 600, "every": 8},
    }
)
"""The shipped model needs small trees and large rates; the rest as in `focus train`."""

LOOPBACK_TINKER = TinkerSettings(rank=8, verdict=VerdictText(suffix="?", yes="y", no="n"))
"""Its tokenizer knows bytes and little else: a question of one letter, answers of one."""


def small_collector_for(policy: Policy, problem: Problem) -> Collector:
    """The recipe at the shipped model's size."""
    return sized_collector(policy, problem.label, chunk=SEGMENT_TOKENS, tokens=640)


@contextlib.contextmanager
def host_of(options: argparse.Namespace) -> Iterator[TinkerHost]:
    """Tinker itself, or a service of this process."""
    if not options.loopback:
        yield TinkerHost()
        return
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    from focus.testing.tinker_service import TinkerService

    with TinkerService() as service:
        yield TinkerHost(
            base_url=service.url,
            api_key=service.api_key,
            tokenizer=load_tokenizer(resolve(LOOPBACK.model)),
        )


def settings_of(options: argparse.Namespace) -> TrainSettings:
    base = LOOPBACK if options.loopback else TINKER_DEFAULTS
    task = "demo" if options.loopback else f"file:{options.data.resolve()}"
    given = {"task": task, "model": options.model, "rounds": options.rounds, "seed": options.seed}
    chosen = {name: value for name, value in given.items() if value is not None}
    return settings_from({**chosen, **overrides(options.set)}, base=base)


async def run(
    options: argparse.Namespace, out: Path, host: TinkerHost, progress: WorkProgress
) -> dict[str, Any]:
    settings = settings_of(options)
    return await train(
        small_collector_for if options.loopback else collector_for,
        task=load_task(settings.task),
        settings=settings,
        out=out,
        report=TrainReport(progress, rounds=settings.rounds),
        tinker=LOOPBACK_TINKER if options.loopback else TinkerSettings(),
        host=host,
    )


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train actor and critic on MATH with Tinker.",
        epilog="Start again with the same --out to go on where a run stopped.",
    )
    parser.add_argument(
        "--loopback", action="store_true", help="a service in this process; needs no key"
    )
    parser.add_argument("--data", type=Path, help="rows of prepare_math.py")
    parser.add_argument("--model", help=f"base model (default: {TINKER_DEFAULTS.model})")
    parser.add_argument("--rounds", type=int, help="actor updates (default: 15)", default=15)
    parser.add_argument("--seed", type=int, help="of everything that is drawn")
    parser.add_argument("--out", type=Path, help="the run's folder (loopback: a temporary one)")
    parser.add_argument("--json", type=Path, help="file for the summary")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="any training setting"
    )
    options = parser.parse_args(arguments)
    if options.loopback and (options.data or options.model):
        parser.error("--loopback trains the shipped model on its own task: no --data, no --model")
    if not options.loopback and not options.data:
        parser.error("say what to train on: --data FILE, or try it out with --loopback")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options


def main() -> None:
    options = parse_options()
    quiet_libraries()
    console = result_console()
    with contextlib.ExitStack() as stack:
        host = stack.enter_context(host_of(options))
        out = options.out or Path("focus-tinker-math")
        if options.loopback and options.out is None:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="focus-tinker-")))
        summary = run_until_interrupted(
            partial(run, options, out, host),
            console=console,
            last_words="the same command goes on with this run" if options.out else "not kept",
        )
        if options.json:
            options.json.write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")
    glyphs = glyphs_for(console)
    rows = [*training_rows(summary, glyphs=glyphs), ("Tinker SDK", summary["sdk_version"])]
    if options.out or not options.loopback:
        rows.append(("files", f"{typed(out.resolve())}: metrics.jsonl, checkpoints.jsonl, trees/"))
    console.print()
    show(console, Facts(rows), glyphs=glyphs)


if __name__ == "__main__":
    try:
        main()
    except typer.Exit as stopped:
        raise SystemExit(stopped.exit_code) from None
    except Exception as error:
        message = known_error(error)
        if message is None:
            raise
        complain(message)
        raise SystemExit(1) from None
