"""Slime's job on one CPU: its hooks over HTTP to `focus serve`, a real model, real updates.

    python -m tests.slime.driver --rounds 20 --prompts 32 --problems 600

Every stage is the strict host's: grouping, flattening, post-processing, conversion, the list
of fields that are sent, the schedule, the advantage hook, the loss and its reducer. Each
round ends in an optimizer step, a model folder and `/update_weights_from_disk`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import httpx
import torch
from transformers import AutoModelForCausalLM

from focus import (
    AdmissionPool,
    Agent,
    Allowance,
    Collector,
    Execution,
    ExecutionServices,
    Policy,
    Problem,
    RefinedTd,
    Search,
    Segments,
)
from focus.integrations import JsonlDirectory
from focus.integrations.slime import make_evaluate, make_generate
from focus.models import BUILTIN
from focus.records import Packing
from focus.rendering import load_tokenizer
from focus.tasks import load_task

from .host.arguments import slime_args
from .host.convert import flattened, shipped, train_data
from .host.modules import slime_modules
from .host.parallel import Layout
from .host.rollout import (
    DataSource,
    SlimeLoop,
    check_rollout_ids,
    evaluate_dataset,
    generate_rollout,
)
from .host.trainer import Step, train_actor
from .walks import hook_module

__all__ = ("Driver", "Gain", "paired_gain", "served")

TASK = load_task("demo")
COMMAND = [sys.executable, "-c", "from focus.cli.main import app; app()", "serve"]


@contextlib.contextmanager
def served(*options: str) -> Iterator[int]:
    """`focus serve` on a free port, which is given; ended with the block."""
    command = [*COMMAND, "--protocol", "sglang", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r":(\d+)\s*$", line)
            assert found is not None, line
            yield int(found[1])
        finally:
            process.terminate()


class Causal(torch.nn.Module):
    """The served model as the trainer sees it: ids [T] to logits [T, V]."""

    def __init__(self) -> None:
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(BUILTIN, dtype=torch.float32).eval()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens[None]).logits[0]


@dataclass
class Round:
    """What one round did.

    Attributes:
        samples: as the hooks returned them, flat.
        step: gradient and logged loss before the update.
        success: mean collection success over the prompts.
    """

    samples: list[Any]
    step: Step
    success: float
    collect_s: float
    train_s: float


@dataclass(kw_only=True)
class Driver:
    """One job; `run` goes on from where the last call stopped."""

    port: int
    folder: Path
    prompts: int = 4
    tokens: int = 320
    learning_rate: float = 3e-4
    packing: Packing = "segment"
    layout: Layout = field(default_factory=Layout)
    seed: int = 0

    def __post_init__(self) -> None:
        self.args = slime_args(
            sglang_router_port=self.port,
            rollout_batch_size=self.prompts,
            over_sampling_batch_size=self.prompts,
            global_batch_size=self.prompts,
            rollout_max_context_len=512,
            max_tokens_per_gpu=1024,
            save=str(self.folder / "checkpoints"),
        )
        self.model = Causal()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=self.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        self.services = ExecutionServices(AdmissionPool(capacity=64))
        self.sink = JsonlDirectory(self.folder / "targets")
        train = TASK.problems("train", 20_000, seed=self.seed)
        self.source = DataSource(self.args, _rows(train))
        self.rounds: list[Round] = []

    def collector_for(self, policy: Policy, problem: Problem) -> Collector:
        agent = Agent(
            policy,
            parser=Segments(TASK.segment_tokens),
            allowance=Allowance(tokens=TASK.allowance_tokens),
            execution=Execution(services=self.services),
        )
        return Collector(
            agent=agent,
            env=TASK.env_for(problem),
            search=Search.two_phase(tokens=self.tokens, concurrency=4),
            credit=RefinedTd(),
            own=False,
        )

    @contextlib.contextmanager
    def process(self) -> Iterator[SlimeLoop]:
        """The rollout manager's process: its loop, its HTTP client, the hooks by name."""
        loop = SlimeLoop()
        client = loop.run(_make_client())
        hooks = {
            "generate": make_generate(
                self.collector_for,
                profile="token_chunk",
                critic_sink=self.sink,
                packing=self.packing,
            ),
            "evaluate": make_evaluate(self.collector_for, profile="token_chunk"),
        }
        try:
            with slime_modules(client=client), hook_module(**hooks) as module:
                self.args.custom_generate_function_path = f"{module}.generate"
                self._evaluate = f"{module}.evaluate"
                yield loop
                assert not client.is_closed, "Slime's client was closed"
        finally:
            loop.run(client.aclose())
            loop.close()

    def round(self, loop: SlimeLoop) -> Round:
        """Collect, train, publish."""
        started = time.monotonic()
        nested = loop.run(generate_rollout(self.args, self.source))
        check_rollout_ids(nested)
        samples = flattened(nested)
        collected = time.monotonic()
        parcels, schedule = shipped(self.args, train_data(self.args, samples), self.layout)
        assert schedule.dropped == 0
        (step,) = train_actor(self.args, self.model, parcels, self.layout)
        self._update(step)
        self._publish(len(self.rounds))
        successes = {s.index: s.metadata["raw_reward"] for s in samples}
        self.rounds.append(
            Round(
                samples,
                step,
                fmean(successes.values()),
                collected - started,
                time.monotonic() - collected,
            )
        )
        return self.rounds[-1]

    def accuracy(self, loop: SlimeLoop, problems: Sequence[Problem]) -> list[float]:
        """Outcomes of one unbranched solution per problem, through the evaluation hook."""
        work = evaluate_dataset(self.args, _rows(problems), path=self._evaluate)
        rewards: list[float] = loop.run(work)["rewards"]
        return rewards

    def _update(self, step: Step) -> None:
        for name, parameter in self.model.named_parameters():
            parameter.grad = step.gradients.get(name)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def _publish(self, number: int) -> None:
        folder = self.folder / "models" / f"round-{number}"
        self.model.model.save_pretrained(folder)
        load_tokenizer(BUILTIN).save_pretrained(folder)
        answer = httpx.post(
            f"http://127.0.0.1:{self.port}/update_weights_from_disk",
            json={"model_path": str(folder), "weight_version": f"round-{number}"},
            timeout=500,
        )
        assert answer.json()["success"], answer.text
        checkpoints = Path(self.args.save)
        checkpoints.mkdir(parents=True, exist_ok=True)
        (checkpoints / "latest_checkpointed_iteration.txt").write_text(str(number))


async def _make_client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=None, trust_env=False)


def _rows(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    return [{"problem": problem.prompt, "solution": problem.label} for problem in problems]


@dataclass(frozen=True)
class Gain:
    """Accuracy before and after on the same problems, and the 95 % interval of the difference."""

    before: float
    after: float
    low: float
    high: float


def paired_gain(before: Sequence[float], after: Sequence[float]) -> Gain:
    """Normal interval of the mean of per-problem differences."""
    differences = [b - a for a, b in zip(before, after, strict=True)]
    half = 1.96 * stdev(differences) / math.sqrt(len(differences))
    mean = fmean(differences)
    return Gain(fmean(before), fmean(after), mean - half, mean + half)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train through the hooks, and measure it.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--problems", type=int, default=600)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--packing", default="path", choices=("segment", "path"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, served("--model", "builtin") as port:
        driver = Driver(
            port=port,
            folder=Path(folder),
            prompts=options.prompts,
            tokens=options.tokens,
            learning_rate=options.learning_rate,
            packing=options.packing,
        )
        problems = TASK.problems("heldout", options.problems)
        with driver.process() as loop:
            before = driver.accuracy(loop, problems)
            for number in range(options.rounds):
                made = driver.round(loop)
                print(
                    json.dumps(
                        {
                            "round": number,
                            "success": round(made.success, 4),
                            "samples": len(made.samples),
                            "collect_s": round(made.collect_s, 1),
                            "train_s": round(made.train_s, 1),
                        }
                    ),
                    flush=True,
                )
            print(paired_gain(before, driver.accuracy(loop, problems)))


if __name__ == "__main__":
    main()
