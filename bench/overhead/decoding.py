"""Decoding steps of an engine, replayed and not: milliseconds a step, tokens a second.

python -m bench.overhead.decoding builtin --batches 1,8,64
python -m bench.overhead.decoding smollm2 --batches 8,64,256 --device cuda --json steps.json

A step feeds one id to each row behind `--context` others. On a GPU steps are recorded as graphs
and replayed; where they cannot be, the warning says why and both lines are of plain passes.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from focus.models import resolve
from focus.policies._engine.loading import context_limit_of, load_model
from focus.policies._engine.replay import Record
from focus.policies._engine.runner import Runner
from focus.policies._engine.sampler import Law, draw

__all__ = ("Steps", "steps_of")


@dataclass(frozen=True, kw_only=True)
class Steps:
    """One batch size of one engine.

    Attributes:
        replayed: steps were recorded once and replayed.
        batch: rows.
        step_ms: a forward pass.
        drawn_ms: a forward pass and the drawing of its ids.
        tokens_per_s: ids drawn.
    """

    replayed: bool
    batch: int
    step_ms: float
    drawn_ms: float
    tokens_per_s: float


@torch.inference_mode()
def steps_of(runner: Runner, *, batch: int, context: int = 100, steps: int = 32) -> Steps:
    """Time `steps` passes of one id a row, then as many with drawing.

    >>> from focus.models import resolve
    >>> model = load_model(resolve("builtin"), device="cpu", dtype="float32")
    >>> found = steps_of(Runner(model, context_limit=512), batch=2, context=8, steps=3)
    >>> found.replayed, found.batch, 0 < found.step_ms
    (False, 2, True)
    """
    rows = range(batch)
    runner.run(0, [[5] * context for _ in rows], [0] * batch)

    def step(index: int) -> torch.Tensor:
        return runner.run(0, [[7] for _ in rows], [context + index] * batch)

    laws = [Law(1.0, 1.0, None)] * batch
    seconds = _seconds(step, steps=steps)
    drawn = _seconds(lambda index: draw(step(index), laws, [0.5] * batch), steps=steps)
    return Steps(
        replayed=runner.replays,
        batch=batch,
        step_ms=1e3 * seconds / steps,
        drawn_ms=1e3 * drawn / steps,
        tokens_per_s=steps * batch / drawn,
    )


def _seconds(work: Callable[[int], Any], *, steps: int) -> float:
    work(0)  # shapes are recorded, kernels chosen
    _wait()
    started = time.perf_counter()
    for index in range(steps):
        work(index)
    _wait()
    return time.perf_counter() - started


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _no_recording() -> Record:
    raise RuntimeError("left out for comparison")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="builtin, smollm2 or a model folder")
    parser.add_argument("--batches", default="1,8,64", help="rows, with commas between")
    parser.add_argument("--context", type=int, default=100, help="ids before the first step")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    model = load_model(resolve(options.model), device=options.device, dtype="float32")
    limit, found = context_limit_of(model), []
    for recording in (_no_recording, None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if recording else "default")
            runner = Runner(model, context_limit=limit, recording=recording)
        for batch in map(int, options.batches.split(",")):
            found.append(steps_of(runner, batch=batch, context=options.context))
            print(
                "{kind:>8}  {batch:>4} rows  {step_ms:8.2f} ms a step, {drawn_ms:8.2f} with "
                "drawing  {tokens_per_s:9.0f} tokens/s".format(
                    kind="replayed" if found[-1].replayed else "plain", **asdict(found[-1])
                ),
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
