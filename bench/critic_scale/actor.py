"""A language model in the scripted policy's place: the weights that a critic starts from.

Trained by plain next-token loss on the policy's own rollouts, drawn as they are needed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

from .chains import DOUBT_OF_SLIP, DOUBT_OF_SUM, LETTERS, SLIP, SLIP_ON_CARRY, SLIPS

__all__ = ("Pretraining", "blank_model", "policy_entropy", "pretrain", "rollouts")

_EQUALS, _PLUS, _SURE, _DOUBT = (LETTERS.index(letter) + 1 for letter in "=+;?")
_CARRY = 0.45
"""Share of two uniform digits whose sum is 10 or more."""


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """How the backbone learns to write what the policy writes.

    Attributes:
        steps: optimizer steps; 0 leaves the weights random.
        batch: rollouts per step, never the same ones twice.
        rate: peak of a cosine with a short rise.
        terms: numbers in a sum.
    """

    steps: int
    batch: int
    rate: float
    terms: int


def blank_model(*, layers: int, hidden: int) -> LlamaForCausalLM:
    """A Llama of random weights."""
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
    return LlamaForCausalLM(config)


def rollouts(count: int, *, terms: int, generator: torch.Generator) -> torch.Tensor:
    """Ids [count, length] of finished chains by the scripted policy, all of one length."""
    device = generator.device

    def draw(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, shape, generator=generator, device=device)

    numbers = draw(10, count, terms)
    slips = torch.tensor(SLIPS, device=device)[draw(len(SLIPS), count, terms)]
    luck = torch.rand(count, terms, 2, generator=generator, device=device)
    columns: list[torch.Tensor] = []

    def write(number: torch.Tensor, after: int | torch.Tensor) -> None:
        columns.extend((number + 1, torch.zeros_like(number) + after))

    for place in range(terms):
        write(numbers[:, place], _PLUS if place + 1 < terms else _EQUALS)
    before = numbers[:, 0]
    for place in range(1, terms):
        term = numbers[:, place]
        write(before, _PLUS)
        write(term, _EQUALS)
        chance = torch.where(before + term >= 10, SLIP_ON_CARRY, SLIP)
        slipped = luck[:, place, 0] < chance
        before = (before + term + torch.where(slipped, slips[:, place], 0)) % 10
        doubt = torch.where(slipped, DOUBT_OF_SLIP, DOUBT_OF_SUM)
        write(before, torch.where(luck[:, place, 1] < doubt, _DOUBT, _SURE))
    return torch.stack(columns, dim=1)


def policy_entropy(terms: int) -> float:
    """Nats of one rollout: the least loss that a model of the policy can have.

    >>> round(policy_entropy(2), 3)
    0.558
    """

    def of_step(chance: float) -> float:
        slipped = math.log(len(SLIPS)) + _coin(DOUBT_OF_SLIP)
        return _coin(chance) + chance * slipped + (1 - chance) * _coin(DOUBT_OF_SUM)

    return (terms - 1) * (_CARRY * of_step(SLIP_ON_CARRY) + (1 - _CARRY) * of_step(SLIP))


def _coin(chance: float) -> float:
    """Nats of one yes or no."""
    return -chance * math.log(chance) - (1 - chance) * math.log(1 - chance)


def pretrain(
    model: LlamaForCausalLM,
    plan: Pretraining,
    *,
    device: torch.device,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Train `model` in place; what it cost, and how near it came to the policy."""
    model.to(device).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )
    schedule = get_cosine_schedule_with_warmup(optimizer, plan.steps // 20, plan.steps)
    generator = torch.Generator(device).manual_seed(0)
    began, recent = time.monotonic(), torch.zeros((), device=device)
    lowest, marks = policy_entropy(plan.terms), max(1, plan.steps // 20)
    for step in range(plan.steps):
        ids = rollouts(plan.batch, terms=plan.terms, generator=generator)
        loss = _nats(model, ids, prompt=2 * plan.terms)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        recent += loss.detach() / marks
        if (step + 1) % marks == 0:
            mean, recent = float(recent), torch.zeros_like(recent)
            tell(f"step {step + 1} of {plan.steps}: {mean:.3f} nats a rollout ({lowest:.3f})")
    return {
        "pretrain_steps": plan.steps,
        "pretrain_rollouts": plan.steps * plan.batch,
        "pretrain_nats": mean,
        "policy_nats": lowest,
        "pretrain_s": round(time.monotonic() - began, 1),
    }


def _nats(model: LlamaForCausalLM, ids: torch.Tensor, *, prompt: int) -> torch.Tensor:
    """Mean loss of a rollout, summed over what the policy wrote."""
    on_cuda = ids.device.type == "cuda"
    with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=on_cuda):
        logits = model(input_ids=ids, use_cache=False).logits[:, prompt - 1 : -1]
    written = ids[:, prompt:]
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), written.flatten(), reduction="sum"
    )
    return losses / len(ids)
