"""Starting models: the shipped one, taught a family's length and its demonstrator's habit.

python -m bench.learning.warm --task chain-20 --out models/chain-20 --device cuda
"""

from __future__ import annotations

import argparse
import math
import random
import time
from pathlib import Path

import torch
from bench.learning.tasks import FAMILIES, slips_for
from transformers import AutoModelForCausalLM

from focus.models import resolve
from focus.rendering import load_tokenizer, render_chat
from focus.tasks.arithmetic import demonstration, make_problems, prompt_messages

SEED = 11


def teach(
    task: str, out: Path, *, start: str, updates: int, batch: int, peak: float, device: str
) -> float:
    """Cross-entropy on demonstrations with slips; returns the last loss."""
    folder = resolve(start)
    tokenizer = load_tokenizer(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device)
    model.config.max_position_embeddings = max(model.config.max_position_embeddings, 1024)
    rng = random.Random(SEED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.98), weight_decay=0.1)
    slips = slips_for(task)
    problems = make_problems(updates * batch, seed=SEED, steps=FAMILIES[task])
    loss = torch.zeros(())
    model.train()
    for update in range(updates):
        rows = []
        for problem in problems[update * batch : (update + 1) * batch]:
            prompt = render_chat(tokenizer, prompt_messages(problem))
            text = demonstration(problem, slips=slips, rng=rng)
            reply = tokenizer.encode(text, add_special_tokens=False)
            rows.append(([*prompt, *reply, tokenizer.eos_token_id], len(prompt)))
        decay = 0.02 + 0.49 * (1 + math.cos(math.pi * update / updates))
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1.0, (update + 1) / 40) * decay
        loss = _loss(model, rows)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return float(loss)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=sorted(FAMILIES), required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", default="builtin")
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--peak", type=float, default=1e-3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    started = time.monotonic()
    loss = teach(
        options.task,
        options.out,
        start=options.start,
        updates=options.updates,
        batch=options.batch,
        peak=options.peak,
        device=options.device,
    )
    print(f"{options.task}: last loss {loss:.4f}, {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
