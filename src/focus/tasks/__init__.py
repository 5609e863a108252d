"""Built-in problems, environments and graders.

Names load on first use: a grader process imports its own part of this package only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from focus.tasks.answer_env import AnswerEnv
    from focus.tasks.answers import Verdict
    from focus.tasks.grading import Grader, GraderCounts, check_reference, shared_grader
    from focus.tasks.gym import GymEnv, gym_problems
    from focus.tasks.math_env import MathEnv
    from focus.tasks.registry import Task, load_task

_HOMES = {
    "focus.tasks.answer_env": ("AnswerEnv",),
    "focus.tasks.answers": ("Verdict",),
    "focus.tasks.grading": ("Grader", "GraderCounts", "check_reference", "shared_grader"),
    "focus.tasks.gym": ("GymEnv", "gym_problems"),
    "focus.tasks.math_env": ("MathEnv",),
    "focus.tasks.registry": ("Task", "load_task"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = (
    "AnswerEnv",
    "Grader",
    "GraderCounts",
    "GymEnv",
    "MathEnv",
    "Task",
    "Verdict",
    "check_reference",
    "gym_problems",
    "load_task",
    "shared_grader",
)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'focus.tasks' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
