"""The actor's job inside `focus loop`: Slime's strict stand-in, its hooks, real updates.

    python -m bench.closed_loop.actor JOB --rounds 10 --seed 0

One process tree: this one plays Slime's rollout manager and trainer, a child is the
inference server. Every stage between is the strict host's of tests/slime/host. Each round
collects with the critic that `focus loop` decided, takes an optimizer step, publishes the
weights, saves, and solves problems that nobody trains on, for the critic's judge. Started
again, it goes on after its last saved round.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx
import torch
from tests.slime.host.arguments import slime_args
from tests.slime.host.convert import flattened, shipped, train_data
from tests.slime.host.job import last_saved
from tests.slime.host.modules import slime_modules
from tests.slime.host.parallel import Layout
from tests.slime.host.rollout import (
    DataSource,
    SlimeLoop,
    check_rollout_ids,
    evaluate_dataset,
    generate_rollout,
)
from tests.slime.host.trainer import train_actor
from tests.slime.walks import hook_module

from focus import AdmissionPool, Collector, Critic, ExecutionServices, Policy, Problem
from focus.integrations import JsonlDirectory
from focus.integrations.slime import make_evaluate, make_generate
from focus.loop.rounds import RoundCritics

from .walk import WalkModel, collector, problems, theta_of

LEARNING_RATE = 1.0


class Actor:
    """One process of the job; `run` goes on from its last checkpoint."""

    def __init__(self, folder: Path, port: int, options: argparse.Namespace) -> None:
        self.folder = folder
        self.options = options
        self.args = slime_args(
            sglang_router_port=port,
            rollout_batch_size=options.prompts,
            over_sampling_batch_size=options.prompts,
            global_batch_size=options.prompts,
            num_rollout=options.rounds,
            max_tokens_per_gpu=4096,
            save=str(folder / "checkpoints"),
            load=str(folder / "checkpoints"),
        )
        train = problems("train", options.rounds * options.prompts, seed=options.seed)
        self.source = DataSource(self.args, _rows(train))
        self.model = WalkModel()
        self.services = ExecutionServices(AdmissionPool(capacity=64))
        self.first = last_saved(self.args) + 1
        if self.first:
            self.model = WalkModel(theta_of(self._weights(self.first - 1)))
            self.source.load(self.first - 1)
        self._publish(self.first - 1)

    def run(self, loop: SlimeLoop, evaluate: str) -> None:
        """All rounds that are left."""
        for round in range(self.first, self.options.rounds):
            nested = loop.run(generate_rollout(self.args, self.source))
            check_rollout_ids(nested)
            samples = flattened(nested)
            parcels, schedule = shipped(self.args, train_data(self.args, samples), Layout())
            assert schedule.dropped == 0
            (step,) = train_actor(self.args, self.model, parcels, Layout())
            with torch.no_grad():
                self.model.theta -= LEARNING_RATE * step.gradients["theta"]
            self._publish(round)
            self._save(round)
            rows = _rows(
                problems(
                    "outcomes", self.options.outcomes, seed=self.options.seed, first=1000 * round
                )
            )
            rewards = loop.run(evaluate_dataset(self.args, rows, path=evaluate))["rewards"]
            success = {sample.index: sample.metadata["raw_reward"] for sample in samples}
            print(
                json.dumps(
                    {
                        "round": round,
                        "success": round_to(fmean(success.values())),
                        "samples": len(samples),
                        "heldout_success": round_to(fmean(rewards)),
                    }
                ),
                flush=True,
            )

    def _publish(self, round: int) -> None:
        path = self._weights(round)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.model.save(path)
        answer = httpx.post(
            f"http://127.0.0.1:{self.args.sglang_router_port}/update_weights_from_disk",
            json={"model_path": str(path), "weight_version": f"step-{round}"},
            timeout=60,
        )
        assert answer.json()["success"], answer.text

    def _save(self, round: int) -> None:
        self.source.save(round)
        tracker = Path(self.args.save) / "latest_checkpointed_iteration.txt"
        tracker.with_suffix(".tmp").write_text(str(round))
        os.replace(tracker.with_suffix(".tmp"), tracker)

    def _weights(self, round: int) -> Path:
        return self.folder / "weights" / f"step-{round}.json"


def round_to(value: float) -> float:
    return float(f"{value:.4f}")


def _rows(found: list[Problem]) -> list[dict[str, Any]]:
    return [{"problem": problem.prompt, "solution": problem.label} for problem in found]


@contextlib.contextmanager
def engine() -> Iterator[int]:
    """The inference server's port; it ends with the block."""
    command = [sys.executable, "-m", "bench.closed_loop.engine"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


@contextlib.contextmanager
def hooks(actor: Actor, loop: SlimeLoop) -> Iterator[str]:
    """The rollout manager's process: Slime's client, the hooks under a module's name."""
    client = loop.run(_make_client())

    def collector_for(policy: Policy, problem: Problem) -> Collector:
        return collector(policy, Critic.constant(0.5), actor.services)

    made = {
        "generate": make_generate(
            collector_for,
            profile="token_chunk",
            critic_sink=JsonlDirectory(actor.folder / "targets"),
            critics=RoundCritics.from_environment(),
            packing="path",
        ),
        "evaluate": make_evaluate(
            collector_for,
            profile="token_chunk",
            outcome_sink=JsonlDirectory(actor.folder / "outcomes"),
        ),
    }
    try:
        with slime_modules(client=client), hook_module(**made) as module:
            actor.args.custom_generate_function_path = f"{module}.generate"
            yield f"{module}.evaluate"
    finally:
        loop.run(client.aclose())


async def _make_client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=None, trust_env=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--outcomes", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    loop = SlimeLoop()
    try:
        with engine() as port:
            actor = Actor(options.folder, port, options)
            with hooks(actor, loop) as evaluate:
                actor.run(loop, evaluate)
    finally:
        loop.close()


if __name__ == "__main__":
    main()
