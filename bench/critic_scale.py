"""Train a critic of more than 100 million parameters on records whose true values are known.

    python bench/critic_scale.py --json critic_scale.json

The task is arithmetic with a scripted policy: chains of two-digit sums, written step by step,
with a slip now and then, more often where the units carry. A chain succeeds iff every step
is right, so the value of a checkpoint is known exactly: 0 once a written sum is wrong, else
the product of the chances of the steps to come. Records, fresh outcomes and a model with
random weights are made on the spot; `focus critic train` does the rest.

Takes a GPU when there is one. A tiny run on a CPU:

    python bench/critic_scale.py --problems 60 --fresh 100 --layers 2 --hidden 32 --passes 1
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus.critic.snapshot import Snapshot
from focus.critic.store import SnapshotStore
from focus.problem import Problem
from focus.records import JsonlDirectory
from focus.records.records import CriticContext, CriticRecord, RecordKey
from focus.training.outcomes import fresh_records
from focus.training.solving import FreshOutcome
from focus.tree import Identity

LETTERS = "0123456789+=;"
TERMS = 7
SLIP, SLIP_ON_CARRY = 0.02, 0.2
TOKENIZER = "critic_scale/letters"


@dataclass(frozen=True)
class Chain:
    """One problem, and how far its sum has been written.

    Attributes:
        terms: two-digit numbers to add, modulo 100.
        written: partial sums so far, right or not.
    """

    terms: tuple[int, ...]
    written: tuple[int, ...] = ()

    @property
    def steps_left(self) -> int:
        return len(self.terms) - 1 - len(self.written)

    @property
    def text(self) -> str:
        parts = ["+".join(f"{term:02d}" for term in self.terms), "="]
        before = self.terms[0]
        for term, total in zip(self.terms[1:], self.written, strict=False):
            parts.append(f"{before:02d}+{term:02d}={total:02d};")
            before = total
        return "".join(parts)

    def is_right(self) -> bool:
        total = self.terms[0]
        for term, written in zip(self.terms[1:], self.written, strict=False):
            total = (total + term) % 100
            if written != total:
                return False
        return True

    def value(self) -> float:
        """Chance that the scripted policy ends right from here."""
        if not self.is_right():
            return 0.0
        chance, total = 1.0, self.written[-1] if self.written else self.terms[0]
        for term in self.terms[1 + len(self.written) :]:
            chance *= 1.0 - slip(total, term)
            total = (total + term) % 100
        return chance

    def stepped(self, rng: random.Random) -> Chain:
        """One more sum, by the scripted policy."""
        before = self.written[-1] if self.written else self.terms[0]
        term = self.terms[1 + len(self.written)]
        total = (before + term) % 100
        if rng.random() < slip(before, term):
            total = (total + rng.choice((1, 10, 90, 99))) % 100
        return Chain(self.terms, (*self.written, total))

    def outcome(self, rng: random.Random) -> float:
        chain = self
        while chain.steps_left:
            chain = chain.stepped(rng)
        return float(chain.is_right())


def slip(before: int, term: int) -> float:
    """Chance of a wrong sum."""
    return SLIP_ON_CARRY if before % 10 + term % 10 >= 10 else SLIP


def path(number: int) -> tuple[Problem, list[Chain]]:
    """A problem and the checkpoints of one rollout, the root first."""
    rng = random.Random(f"path/{number}")
    chain = Chain(tuple(rng.randrange(100) for _ in range(TERMS)))
    problem = Problem(id=number, prompt=chain.text, label="")
    chains = [chain]
    while chains[-1].steps_left > 1:
        chains.append(chains[-1].stepped(rng))
    return problem, chains


def context(chain: Chain) -> CriticContext:
    ids = tuple(LETTERS.index(letter) + 1 for letter in chain.text)
    return CriticContext(
        renderer="token_chunk/1", text=chain.text, ids=ids, tokenizer_hash=TOKENIZER
    )


def training_records(numbers: range) -> Iterator[list[CriticRecord]]:
    """Mean outcomes of 1, 2 or 4 continuations from each checkpoint, with their counts."""
    for number in numbers:
        problem, chains = path(number)
        rng = random.Random(f"outcomes/{number}")
        source = RecordKey(
            identity=Identity(run="critic-scale"),
            problem=problem.id,
            key=problem.key,
            policy_version="scripted",
            critic_version="constant-0.5",
        )
        records = []
        for depth, chain in enumerate(chains):
            count = rng.choice((1, 2, 4))
            mean = sum(chain.outcome(rng) for _ in range(count)) / count
            records.append(
                CriticRecord(
                    source=source,
                    node=depth,
                    context=context(chain),
                    target=mean,
                    count=count,
                    prior=0.5,
                    depth=depth,
                )
            )
        yield records


def fresh(numbers: range) -> tuple[list[FreshOutcome], list[float]]:
    """Fresh outcomes, and the true value behind each."""
    found, values = [], []
    for number in numbers:
        problem, chains = path(number)
        rng = random.Random(f"fresh/{number}")
        for depth, chain in enumerate(chains):
            found.append(FreshOutcome(problem, depth, context(chain), 0.5, chain.outcome(rng)))
            values.append(chain.value())
    return found, values


def write_material(folder: Path, *, problems: int, judged: int) -> tuple[int, float]:
    """Records and fresh outcomes on disk; number of records, and the truth's own error."""
    count = 0
    sink = JsonlDirectory(folder / "records")
    for records in training_records(range(problems)):
        sink.write(records)
        count += len(records)
    outcomes, values = fresh(range(10**7, 10**7 + judged))
    judge_sink = JsonlDirectory(folder / "outcomes")
    identity = Identity(run="critic-scale-fresh")
    for group in fresh_records(
        outcomes, identity=identity, policy_version="scripted", critic_version="none"
    ):
        judge_sink.write(group)
    errors = [(v - one.outcome) ** 2 for v, one in zip(values, outcomes, strict=True)]
    return count, sum(errors) / len(errors)


def write_model(folder: Path, *, layers: int, hidden: int) -> None:
    """A Llama of random weights."""
    import torch
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    heads = max(1, hidden // 64)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=hidden,
        intermediate_size=8 * hidden // 3 // 8 * 8,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=256,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    LlamaModel(config).save_pretrained(folder)


def train(folder: Path, options: argparse.Namespace) -> Snapshot:
    """`focus critic train`, in this process."""
    from focus.cli.main import app

    words = ["critic", "train", str(folder / "records"), "--out", str(folder / "store")]
    words += ["--outcomes", str(folder / "outcomes"), "--model", str(folder / "model")]
    words += ["--lr", str(options.lr), "--set", f"passes={options.passes}"]
    words += ["--set", f"batch_contexts={options.batch}", "--set", "patience=2"]
    words += ["--set", f"batch_tokens={options.batch_tokens}", "--set", "checkpoint_steps=1000"]
    words += ["--set", f"precision={options.precision}"]
    if options.device:
        words += ["--device", options.device]
    app(words, standalone_mode=False)
    snapshot = SnapshotStore(folder / "store").current()
    assert snapshot is not None, "the trainer publishes its session"
    return snapshot


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
    parser.add_argument("--problems", type=int, default=12_000, help="six records each")
    parser.add_argument("--fresh", type=int, default=2_000, help="problems to judge on")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--passes", type=int, default=8)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--batch", type=int, default=256, help="contexts per step")
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--precision", default="auto", help="bf16 where CUDA has it")
    parser.add_argument("--device", default="", help="cpu; what there is if left out")
    parser.add_argument("--out", type=Path, help="keep records, model and store here")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or Path(scratch)
        began = time.monotonic()
        count, truth = write_material(folder, problems=options.problems, judged=options.fresh)
        write_model(folder / "model", layers=options.layers, hidden=options.hidden)
        print(f"{count} records made in {time.monotonic() - began:.0f} s", file=sys.stderr)
        found = figures(train(folder, options), truth=truth)
        found["wall_s"] = round(time.monotonic() - began, 1)
    tell(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
