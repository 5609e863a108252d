"""The shipped model: small, loadable by anyone, right about every third time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from focus.models import BUILTIN
from focus.policies.transformers import TransformersPolicy
from focus.problem import Problem
from focus.rendering import encode
from focus.sampling import Sampling, derive_seed
from focus.tasks.arithmetic import (
    SEGMENT_TOKENS,
    demonstration,
    make_problems,
    prompt_messages,
)
from focus.tokens import Generation, TokenIds

pytestmark = pytest.mark.anyio


def test_plain_transformers_loads_it() -> None:
    model = AutoModelForCausalLM.from_pretrained(BUILTIN, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(BUILTIN, local_files_only=True)
    assert model.config.vocab_size == len(tokenizer) <= 512
    assert model.generation_config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert sum(path.stat().st_size for path in BUILTIN.iterdir()) < 5_000_000
    assert "solve rate" in (BUILTIN / "MODEL.md").read_text()


def test_every_digit_is_one_token() -> None:
    tokenizer = AutoTokenizer.from_pretrained(BUILTIN, local_files_only=True)
    for text in ("0123456789", "Compute 98 + 76 - 5432."):
        digits = [piece for piece in tokenizer.tokenize(text) if re.search(r"\d", piece)]
        assert digits == re.findall(r"\d", text)


def is_solved(policy: TransformersPolicy, problem: Problem, ids: Sequence[int]) -> bool:
    boxed = re.findall(r"\\boxed\{(-?\d+)\}", policy.decode(ids))
    return boxed[-1:] == [problem.label]


async def sample(policy: TransformersPolicy, prefix: TokenIds, *names: object) -> Generation:
    seed = derive_seed(0, *names)
    return await policy.generate(prefix, Sampling(temperature=1.0, max_tokens=160, seed=seed))


async def test_it_solves_a_third_and_most_problems_are_mixed() -> None:
    problems = make_problems(48, seed=11, split="heldout")
    async with TransformersPolicy("builtin", device="cpu") as policy:
        replies = await asyncio.gather(
            *(
                sample(policy, policy.render(prompt_messages(problem)), problem.id, k)
                for problem in problems
                for k in range(6)
            )
        )
        solved = [is_solved(policy, problems[i // 6], reply.ids) for i, reply in enumerate(replies)]
    segments = [-(-len(reply.ids) // SEGMENT_TOKENS) for reply in replies]
    mixed = sum(0 < sum(solved[i : i + 6]) < 6 for i in range(0, len(solved), 6))
    assert 0.2 < sum(solved) / len(solved) < 0.45
    assert mixed / len(problems) > 0.6
    assert 4 <= sum(segments) / len(segments) <= 6


async def test_a_wrong_first_line_makes_success_unlikely() -> None:
    """Off by seven, that is: a guess that is off by one or ten may be undone by another."""
    problems = make_problems(24, seed=12, steps=4, split="heldout")
    async with TransformersPolicy("builtin", device="cpu") as policy:

        async def success(problem: Problem, line: str) -> float:
            prefix = policy.render(prompt_messages(problem)) + encode(policy.tokenizer, line)
            replies = await asyncio.gather(
                *(sample(policy, prefix, problem.id, k) for k in range(6))
            )
            return sum(is_solved(policy, problem, reply.ids) for reply in replies) / 6

        right = [demonstration(problem).split("\n")[0] + "\n" for problem in problems]
        wrong = [re.sub(r"(\d+)\n", lambda m: f"{int(m[1]) + 7}\n", line) for line in right]
        good = await asyncio.gather(*map(success, problems, right))
        bad = await asyncio.gather(*map(success, problems, wrong))
    assert sum(bad) / len(bad) < 0.15
    assert sum(good) / len(good) > sum(bad) / len(bad) + 0.3
