"""`focus bench`: what FOCUS does, measured on this machine from a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ("bench_app", "closed_loop", "learning", "overhead")

_STOP_S = 10.0
"""What a bench has to end in once it was told to; a loop ends its own children within it."""

bench_app: typer.Typer = typer.Typer(
    name="bench", invoke_without_command=True, rich_markup_mode=None
)


@bench_app.callback()
def overhead(
    context: typer.Context,
    quick: Annotated[
        bool, typer.Option("--quick", help="Overhead and limit figures, in a few minutes.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures here.")
    ] = None,
    peers: Annotated[
        Path | None,
        typer.Option(
            metavar="PYTHON",
            help="An interpreter that has verifiers or tinker-cookbook, to compare with them.",
        ),
    ] = None,
    vllm: Annotated[
        Path | None,
        typer.Option(
            metavar="PYTHON",
            envvar="FOCUS_VLLM_PYTHON",
            help="An interpreter that has vLLM, to measure what it computes of the prompts.",
        ),
    ] = None,
) -> None:
    """Measure FOCUS on this machine. Needs a checkout of the repository: bench/ holds the code.

    Without a command: what the library costs against plain code that does the least
    possible, and how close trees of the shipped model come to the physical limits.

    \b
    Examples:
      focus bench --quick --json figures.json
      focus bench --quick --peers /tmp/others/bin/python
      focus bench --quick --vllm /tmp/vllm/bin/python
      focus bench learning --task chain-5 --methods grpo,focus-unbiased --seeds 5 --out results
    """
    if context.invoked_subcommand is not None:
        return
    if not quick and json_file is None:
        typer.echo(context.get_help())
        return
    words = ["--quick"] if quick else []
    words += [] if json_file is None else ["--json", str(json_file.absolute())]
    for name, python in (("--peers", peers), ("--vllm", vllm)):
        words += [] if python is None else [name, str(python.absolute())]
    _run("bench.overhead", words)


def closed_loop(
    quick: Annotated[
        bool, typer.Option("--quick", help="3 rounds and 3 seeds instead of 10 and 5.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures here.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for stores, records and logs; a new one below /tmp.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds per seed.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Loops, one after the other.")] = None,
) -> None:
    """Close the loop, unattended, and measure what the critic is worth at the end.

    For each seed, focus loop runs Slime's strict stand-in as the actor with a critic's
    trainer and server beside it. Then the last critic and a frozen constant collect the
    same held-out problems under the same token budget: mixed_ratio is the share of
    problems with both outcomes among their finished leaves, brier the squared error on
    fresh outcomes.

    \b
    Example:
      focus bench closed-loop --quick --json closed-loop.json
    """
    words = ["--quick"] if quick else []
    for name, value in (("--json", json_file), ("--out", out)):
        words += [] if value is None else [name, str(value.absolute())]
    for name, number in (("--rounds", rounds), ("--seeds", seeds)):
        words += [] if number is None else [name, str(number)]
    _run("bench.closed_loop", words)


def learning(
    out: Annotated[Path, typer.Option(help="Folder of the comparison; finished trials stay.")],
    task: Annotated[
        str, typer.Option(help="tabular, chain-20, browse, …; bench/learning/tasks has them.")
    ] = "chain-5",
    methods: Annotated[
        str, typer.Option(help="By commas; bench/learning/methods.py lists them.")
    ] = "grpo,reinforce,focus-unbiased",
    seeds: Annotated[int, typer.Option(min=1, help="Fresh seeds per method.")] = 5,
    budget: Annotated[int, typer.Option(min=1, help="Generated tokens a trial.")] = 120_000,
    model: Annotated[
        str, typer.Option(help="Start of every trial; the task's own if left out.")
    ] = "",
    tokens_per_prompt: Annotated[
        int, typer.Option(min=1, help="Generated tokens for one problem of a round.")
    ] = 640,
    rates: Annotated[str, typer.Option(help="Learning rates to tune over.")] = "5e-5,1e-4,2e-4",
    batches: Annotated[
        str,
        typer.Option(
            help="Prompts/steps of a round, or prompts/steps/tokens of a prompt, to tune over."
        ),
    ] = "8/8/75,8/4/640",
    workers: Annotated[int, typer.Option(min=1, help="Trials at once.")] = 2,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs to spread them over.")] = 0,
) -> None:
    """Methods side by side: accuracy against tokens, each method tuned on a seed of its own.

    \b
    Example:
      focus bench learning --task chain-5 --methods grpo,focus-unbiased --seeds 5 --out results
    """
    words = ["--out", str(out.absolute()), "--task", task, "--methods", methods]
    words += ["--seeds", str(seeds), "--budget", str(budget), "--model", model]
    words += ["--tokens-per-prompt", str(tokens_per_prompt)]
    words += ["--rates", rates, "--batches", batches]
    words += ["--workers", str(workers), "--gpus", str(gpus)]
    _run("bench.learning", words)


bench_app.command(name="closed-loop", short_help="Actor and critic in a loop, against a constant.")(
    closed_loop
)

bench_app.command(name="learning", short_help="Methods side by side, accuracy against tokens.")(
    learning
)


def _run(module: str, words: list[str]) -> None:
    """Run a module of the checkout as a program of its own, which ends with this one.

    The program leads a group of processes: what ends this command ends all of them.
    """
    import signal
    import subprocess
    import sys
    from types import FrameType

    from focus.loop.processes import Process, end_all

    def stop(number: int, frame: FrameType | None) -> None:
        raise typer.Exit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    own = subprocess.Popen([sys.executable, "-m", module, *words], cwd=_checkout(), process_group=0)
    try:
        code = own.wait()
    except BaseException:
        end_all([Process(own.pid, "", own)], patience_s=_STOP_S)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    if code:
        raise typer.Exit(code)


def _checkout() -> Path:
    """The repository that this package was installed from.

    Raises:
        ConfigError: it was installed without one.
    """
    import focus
    from focus.errors import ConfigError

    root = Path(focus.__file__).resolve().parents[2]
    if not (root / "bench" / "closed_loop").is_dir():
        raise ConfigError(
            "focus bench runs code of the repository, which is not here: clone it and install "
            "it with pip install -e '.[dev]'"
        )
    return root
