"""Select problems of the MATH data set that can be graded and that fit the context.

    python prepare_math.py --model MODEL --output train.jsonl --count 64
    python prepare_math.py --model MODEL --output eval.jsonl --count 64 --split test

One JSON line per problem, with the data set's own ``problem`` and ``solution``.
"""

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from math_quickstart import parse_answer

from focus import Message
from focus.errors import ProblemError
from focus.rendering import render_chat
from focus.tasks.math_env import SYSTEM_PROMPT

__all__ = ("MOST_PROMPT_TOKENS", "write_dataset")

MOST_PROMPT_TOKENS = 4096
"""Leaves 4,096 of an 8,192-token context to the solution."""


def write_dataset(
    rows: Iterable[Mapping[str, Any]], tokenizer: Any, output: str | Path, *, count: int = 64
) -> None:
    """Write the first `count` usable rows, or nothing.

    Args:
        rows: with ``problem`` and ``solution``.
        tokenizer: the served model's; prompts are measured as they will be sent.
        output: a JSONL file; its folder is made.
        count: how many.

    Raises:
        ValueError: `count` is below 1, or too few rows are usable.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    selected: list[str] = []
    for row in rows:
        if is_usable(row, tokenizer):
            kept = {"problem": row["problem"], "solution": row["solution"]}
            selected.append(json.dumps(kept, ensure_ascii=False))
        if len(selected) == count:
            break
    else:
        raise ValueError(f"asked for {count} usable problems, found {len(selected)}")
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in selected), encoding="utf-8")
    print(f"{path}: {count} problems")


def is_usable(row: Mapping[str, Any], tokenizer: Any) -> bool:
    """Its answer can be graded, and its prompt, as MathEnv's agent sees it, is short enough."""
    messages = (Message("system", SYSTEM_PROMPT), Message("user", row["problem"]))
    try:
        prompt = render_chat(tokenizer, messages)
    except ProblemError:
        return False
    return len(prompt) <= MOST_PROMPT_TOKENS and bool(parse_answer(row["solution"]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Select MATH algebra problems for training.")
    parser.add_argument("--model", required=True, help="model folder or hub name")
    parser.add_argument("--output", required=True, type=Path, help="JSONL file to write")
    parser.add_argument("--count", type=int, default=64, help="problems (default: 64)")
    parser.add_argument("--split", default="train", choices=("train", "test"))
    options = parser.parse_args()
    if options.count < 1:
        parser.error("--count must be at least 1")

    from datasets import load_dataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    rows = load_dataset("EleutherAI/hendrycks_math", "algebra", split=options.split)
    write_dataset(rows, tokenizer, options.output, count=options.count)


if __name__ == "__main__":
    main()
