r"""Train a critic of more than 100 million parameters on records whose true values are known.

    python -m bench.critic_scale --json critic_scale.json

The task is arithmetic with a scripted policy: chains of sums modulo 10, written step by step,
with a slip now and then, more often where a sum passes 9, and a question mark after most of the
slips and a few right sums. A chain succeeds iff every step is right, so the value of a
checkpoint is known exactly: 0 once a written sum is wrong, else the product of the chances of
the steps to come. A critic starts from its actor's weights, so a
model first learns to write what the policy writes; `focus critic train` does the rest, on
records and fresh outcomes that are made on the spot.

Takes a GPU when there is one. Small enough for a CPU:

    python -m bench.critic_scale --terms 4 --layers 3 --hidden 128 --problems 3000 --fresh 600 \
        --pretrain-steps 800 --pretrain-batch 64 --pretrain-lr 3e-3 --batch 64 --lr 1e-3
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from focus.critic.snapshot import Snapshot
from focus.critic.store import SnapshotStore

from .material import write_material


def write_model(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The backbone that the critic starts from; what its training cost."""
    import torch

    from .actor import Pretraining, blank_model, pretrain

    on_cuda = options.device != "cpu" and torch.cuda.is_available()
    model = blank_model(layers=options.layers, hidden=options.hidden)
    plan = Pretraining(
        steps=options.pretrain_steps,
        batch=options.pretrain_batch,
        rate=options.pretrain_lr,
        terms=options.terms,
    )
    device = torch.device("cuda" if on_cuda else "cpu")
    found = pretrain(model, plan, device=device, tell=_say) if plan.steps else {}
    model.model.cpu().save_pretrained(folder)
    del model
    if on_cuda:
        torch.cuda.empty_cache()  # the trainer's processes want it
    return found


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def best(folder: Path, options: argparse.Namespace) -> tuple[Snapshot, dict[str, float]]:
    """Of one training per rate the one with the least held-out error; and all their errors.

    Fresh outcomes have no part in the choice: they judge.
    """
    tried = [train(folder, rate, options) for rate in options.lr]
    errors = [float(one.facts.metrics["held_out_error"]) for one in tried]
    chosen = min(range(len(tried)), key=errors.__getitem__)
    return tried[chosen], dict(zip(map(str, options.lr), errors, strict=True))


def train(folder: Path, rate: float, options: argparse.Namespace) -> Snapshot:
    """`focus critic train` in processes of its own; the snapshot that it published."""
    store = folder / f"store-{rate:g}"
    settings = {
        "passes": options.passes,
        "batch_contexts": options.batch,
        "batch_tokens": options.batch_tokens,
        "precision": options.precision,
        "checkpoint_steps": 1000,
        "patience": 2,
    }
    words = ["critic", "train", str(folder / "records"), "--out", str(store)]
    words += ["--outcomes", str(folder / "outcomes"), "--model", str(folder / "model")]
    words += ["--lr", str(rate)]
    words += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    if options.device:
        words += ["--device", options.device]
    subprocess.run([*launcher(options.processes), *words], check=True, env=environment(options))
    snapshot = SnapshotStore(store).current()
    assert snapshot is not None, "the trainer publishes its session"
    return snapshot


def launcher(processes: int) -> list[str]:
    """How one program runs in so many processes."""
    several = ["torch.distributed.run", "--standalone", "--nproc_per_node", str(processes), "-m"]
    return [sys.executable, "-m", *(several if processes > 1 else []), "focus"]


def environment(options: argparse.Namespace) -> dict[str, str]:
    """What `accelerate launch` would set."""
    found = dict(os.environ)
    if options.fsdp:
        found |= {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}
        found |= {"FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"}
    if options.device == "cpu":
        found["ACCELERATE_USE_CPU"] = "true"
    return found


def figures(snapshot: Snapshot, *, truth: float) -> dict[str, Any]:
    """What the note shows."""
    import torch

    judgement: Any = snapshot.facts.judgement
    whole = judgement["parts"]["all"]
    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
        **snapshot.facts.metrics,
        "verdict": str(snapshot.verdict),
        "fresh_outcomes": whole["samples"],
        "brier": whole["brier"],
        "brier_constant": whole["constant_brier"],
        "brier_per_depth": whole["depth_brier"],
        "brier_truth": truth,
        "root_bias": judgement["parts"]["root"]["bias"],
        "overconfidence": whole["overconfidence"],
        "calibration": [
            {"predicted": b["prediction"], "came_true": b["outcome"], "n": b["samples"]}
            for b in judgement["reliability"]
        ],
    }


def tell(found: dict[str, Any]) -> None:
    """The figures as lines."""
    print(f"{found['device']}, {found['parameters'] / 1e6:.1f}M parameters")
    print(
        f"{found['records']} records, {found['passes']} passes in {found['seconds']:.0f} s: "
        f"{found['records_per_s']:.0f} records/s, {found['tokens_per_s']:.0f} tokens/s"
    )
    print(
        f"Brier on {found['fresh_outcomes']} fresh outcomes: critic {found['brier']['mean']:.4f}, "
        f"constant {found['brier_constant']['mean']:.4f}, per depth "
        f"{found['brier_per_depth']['mean']:.4f}, the truth itself {found['brier_truth']:.4f}"
    )
    print("predicted  came true  n")
    for bar in found["calibration"]:
        print(f"{bar['predicted']:9.3f}  {bar['came_true']['mean']:9.3f}  {bar['n']}")
    print(found["verdict"])


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--problems", type=int, default=12_000, help="terms - 1 records each")
    parser.add_argument("--fresh", type=int, default=2_000, help="problems to judge on")
    parser.add_argument("--terms", type=int, default=7, help="numbers in a sum")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--pretrain-steps", type=int, default=1000, help="0: random weights")
    parser.add_argument("--pretrain-batch", type=int, default=512, help="rollouts per step")
    parser.add_argument("--pretrain-lr", type=float, default=6e-4)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument(
        "--lr", type=float, nargs="+", default=[5e-5], help="several: the best of them"
    )
    parser.add_argument("--batch", type=int, default=256, help="contexts per step")
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--precision", default="auto", help="bf16 where CUDA has it")
    parser.add_argument("--device", default="", help="cpu; what there is if left out")
    parser.add_argument("--processes", type=int, default=1, help="of the critic's trainer")
    parser.add_argument("--fsdp", action="store_true", help="shard the critic over them")
    parser.add_argument("--out", type=Path, help="keep records, model and store here")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or Path(scratch)
        began = time.monotonic()
        count, truth = write_material(
            folder, problems=options.problems, judged=options.fresh, terms=options.terms
        )
        _say(f"{count} records made in {time.monotonic() - began:.0f} s")
        found = write_model(folder / "model", options)
        snapshot, tried = best(folder, options)
        found |= {**figures(snapshot, truth=truth), "held_out_error_by_rate": tried}
        found |= {"processes": options.processes, "fsdp": options.fsdp}
        found["wall_s"] = round(time.monotonic() - began, 1)
    tell(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
