"""A loopback SGLang that writes prepared solutions in the shipped model's own ids."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.policies.loopback import Answer, Ask

from focus.models import BUILTIN
from focus.rendering import load_tokenizer

__all__ = ("Writer",)


class Writer:
    """Continues whichever of its solutions the request's prefix has begun.

    Args:
        solutions: texts; a new one is drawn by the request's name.
        change: (number of the reply, body) → what is sent instead: a body, an answer, or
            None to reset the connection.
    """

    def __init__(
        self,
        solutions: Sequence[str],
        *,
        change: Callable[[int, dict[str, Any]], Any] = lambda number, body: body,
    ) -> None:
        tokenizer = load_tokenizer(BUILTIN)
        end = tokenizer.eos_token_id
        self._solutions = [[*tokenizer.encode(text), end] for text in solutions]
        self._change = change
        self.replies = 0
        self.version = "step-0"

    async def __call__(self, ask: Ask) -> Any:
        if ask.path == "/generate":
            body = self._reply(ask.json)
            self.replies += 1
            changed = self._change(self.replies - 1, body)
            return Answer.of(changed) if isinstance(changed, dict) else changed
        if ask.path == "/model_info":
            return Answer.of({"model_path": "m", "weight_version": self.version})
        if ask.path == "/workers":
            return Answer.of({"workers": []})
        return Answer(status=404)

    def _reply(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        prefix, most = asked["input_ids"], asked["sampling_params"]["max_new_tokens"]
        name = asked["rid"].partition("~")[0]
        begun = [(self._begun(prefix, solution), solution) for solution in self._solutions]
        furthest = max(count for count, _ in begun)
        fitting = [solution for count, solution in begun if count == furthest]
        rest = random.Random(name).choice(fitting)[furthest:]
        ids = rest[:most]
        return {
            "text": "",
            "output_ids": ids,
            "meta_info": {
                "id": asked["rid"],
                "finish_reason": {"type": "stop" if len(ids) == len(rest) else "length"},
                "prompt_tokens": len(prefix),
                "completion_tokens": len(ids),
                "cached_tokens": 0,
                "weight_version": self.version,
                "output_token_logprobs": [[-0.25, token, None] for token in ids],
            },
        }

    @staticmethod
    def _begun(prefix: Sequence[int], solution: Sequence[int]) -> int:
        """How many of a solution's ids the prefix ends with."""
        most = min(len(prefix), len(solution) - 1)
        return next((k for k in range(most, 0, -1) if prefix[-k:] == solution[:k]), 0)
