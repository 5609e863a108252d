"""Mathematics with a boxed answer."""

from __future__ import annotations

from typing import Any

from focus.tasks.answer_env import AnswerEnv
from focus.tasks.grading import Grader

__all__ = ("SYSTEM_PROMPT", "MathEnv")

SYSTEM_PROMPT = r"Solve the problem step by step. Put your final answer in \boxed{}."
"""The instruction that training and data preparation share."""


class MathEnv(AnswerEnv):
    r"""Solve a problem; the last complete ``\boxed{}`` of the reply is the answer.

    Outcome 1.0 if it equals the reference, else 0.0, also for a reply that ran out of
    allowance before it closed a box.

    Args:
        reference: the answer, or a solution text whose last box holds it.
        system_prompt: first message of every prompt without one of its own.
        kind: ``"math"`` (equality by math-verify) or ``"exact"`` (equal text).
        grader: borrowed; None is the process's shared one.
    """

    def __init__(
        self,
        reference: Any,
        *,
        system_prompt: str = SYSTEM_PROMPT,
        kind: str = "math",
        grader: Grader | None = None,
    ) -> None:
        super().__init__(reference, kind=kind, system_prompt=system_prompt, grader=grader)
