"""Starting models: a model taught a family's problems and its demonstrator's habit.

python -m bench.learning.warm --task chain-20 --out models/chain-20 --device cuda
python -m bench.learning.warm --task chain-40 --size 10m --updates 3000 --out models/chain-40-10m
python -m bench.learning.warm --task chain-10 --start smollm2 --peak 3e-4 --out models/smollm2
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import torch
from bench.learning.tasks import FAMILIES, Family
from transformers import AutoModelForCausalLM, GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from focus.execution import AdmissionPool, ExecutionServices
from focus.models import resolve
from focus.policies.transformers import TransformersPolicy
from focus.problem import Problem
from focus.rendering import load_tokenizer, render_chat
from focus.training.solving import evaluate

SEED = 11
CONTEXT = 1024
SIZES = {"1m": (128, 4), "10m": (384, 6), "30m": (512, 10)}
"""Hidden width and layers of models that start from random weights."""


def fresh_model(size: str, tokenizer: Any) -> Qwen3ForCausalLM:
    """A Qwen3 of that size with seeded random weights, for an existing tokenizer."""
    hidden, layers = SIZES[size]
    torch.manual_seed(SEED)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=hidden // 32,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        **ends,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=True, **ends)
    return model


class Lessons:
    """Demonstrations of a family as rows of ids, with where the reply starts."""

    def __init__(self, family: Family, tokenizer: Any, problems: Sequence[Problem]) -> None:
        self._family = family
        self._tokenizer = tokenizer
        self._problems = problems
        self._rng = random.Random(SEED)

    def rows(self, start: int, count: int) -> list[tuple[list[int], int]]:
        """The next rows; problems repeat when they run out, slips never do."""
        return [self._row(start + offset) for offset in range(count)]

    def _row(self, place: int) -> tuple[list[int], int]:
        family, tokenizer = self._family, self._tokenizer
        assert family.messages is not None
        assert family.demonstrate is not None
        problem = self._problems[place % len(self._problems)]
        prompt = render_chat(tokenizer, family.messages(problem))
        text = family.demonstrate(problem, self._rng)
        reply = tokenizer.encode(text, add_special_tokens=False)
        return [*prompt, *reply, tokenizer.eos_token_id], len(prompt)


def teach(
    model: Any, lessons: Lessons, *, updates: int, batch: int, peak: float, seconds: float
) -> float:
    """Cross-entropy on demonstrations, warm-up and cosine decay; returns the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.1)
    loss = torch.zeros(())
    model.train()
    started = time.monotonic()
    for update in range(updates):
        # Decay follows the clock where time ends first, so that it always comes to its end.
        passed = max(update / updates, (time.monotonic() - started) / seconds)
        if passed >= 1:
            break
        decay = 0.02 + 0.49 * (1 + math.cos(math.pi * passed))
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1.0, (update + 1) / 40) * decay
        loss = _loss(model, lessons.rows(update * batch, batch))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if update % 50 == 49:
            spent = time.monotonic() - started
            print(f"update {update + 1}/{updates}  loss {loss:.4f}  {spent:.0f} s", flush=True)
    model.eval()
    return float(loss.detach())


def _loss(model: torch.nn.Module, rows: list[tuple[list[int], int]]) -> torch.Tensor:
    width = max(len(ids) for ids, _ in rows)
    device = next(model.parameters()).device
    tokens = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids, _ in rows], device=device)
    labels = torch.tensor(
        [[*[-100] * start, *ids[start:], *[-100] * (width - len(ids))] for ids, start in rows],
        device=device,
    )
    logits = model(input_ids=tokens, use_cache=False).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())


async def solve_rate(task: str, folder: Path, *, problems: int, device: str) -> float:
    """Share of held-out problems that the model solves at T = 1."""
    made = FAMILIES[task].make_task()
    async with (
        TransformersPolicy(folder, device=device, dtype="float32", max_batch=512) as policy,
        ExecutionServices(AdmissionPool(512)) as services,
    ):
        asked = made.problems("heldout", problems, seed=99)
        found = await evaluate(policy, made, asked, seed=SEED, services=services)
    return found.accuracy


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    taught = sorted(name for name, family in FAMILIES.items() if family.demonstrate)
    parser.add_argument("--task", choices=taught, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", default="builtin", help="model to go on from")
    parser.add_argument("--size", choices=sorted(SIZES), help="start from random weights instead")
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--peak", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--seconds", type=float, default=math.inf, help="end by then")
    parser.add_argument("--evaluate", type=int, default=256, help="held-out problems; 0 skips")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


def main() -> None:
    options = parser().parse_args()
    started = time.monotonic()
    torch.set_float32_matmul_precision("high")
    folder = resolve(options.start)
    tokenizer = load_tokenizer(folder)
    if options.size:
        model: Any = fresh_model(options.size, tokenizer)
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.config.max_position_embeddings = CONTEXT
    family = FAMILIES[options.task]
    needed = min(options.updates * options.batch, 40_000)
    problems = family.make_task().problems("train", needed, seed=SEED)
    loss = teach(
        model.to(options.device),
        Lessons(family, tokenizer, problems),
        updates=options.updates,
        batch=options.batch,
        peak=options.peak,
        seconds=options.seconds,
    )
    # A folder is there once it is whole.
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.out.parent) as scratch:
        whole = Path(scratch) / "model"
        model.to(getattr(torch, options.dtype)).save_pretrained(whole)
        tokenizer.save_pretrained(whole)
        shutil.rmtree(options.out, ignore_errors=True)
        whole.rename(options.out)
    rate = "?"
    # The engine compares its passes to a thousandth, which takes full float32.
    torch.set_float32_matmul_precision("highest")
    if options.evaluate:
        asked = {"problems": options.evaluate, "device": options.device}
        rate = f"{anyio.run(lambda: solve_rate(options.task, options.out, **asked)):.3f}"
    spent = time.monotonic() - started
    print(f"{options.task}: last loss {loss:.4f}, solves {rate}, {spent:.0f} s", flush=True)


if __name__ == "__main__":
    main()
