"""Hooks for Slime, named on its command line; importing this imports nothing else.

Slime resolves every hook as an attribute of a module, in two kinds of process: the
rollout manager (`make_generate`, `make_evaluate`, `preserve_advantages`) and each trainer
rank (`advantages`, `sum_policy_tokens`, `critic_init`, `critic_targets`).

docs/tutorials/slime.md shows a whole run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from focus.integrations.slime._critic import critic_init, critic_targets
    from focus.integrations.slime._generate import make_evaluate, make_generate
    from focus.integrations.slime._rounds import accept_saved
    from focus.integrations.slime._samples import to_sample
    from focus.integrations.slime._training import (
        advantages,
        preserve_advantages,
        sum_policy_tokens,
    )

_HOME_OF = {
    "accept_saved": "_rounds",
    "advantages": "_training",
    "critic_init": "_critic",
    "critic_targets": "_critic",
    "make_evaluate": "_generate",
    "make_generate": "_generate",
    "preserve_advantages": "_training",
    "sum_policy_tokens": "_training",
    "to_sample": "_samples",
}

__all__ = (
    "accept_saved",
    "advantages",
    "critic_init",
    "critic_targets",
    "make_evaluate",
    "make_generate",
    "preserve_advantages",
    "sum_policy_tokens",
    "to_sample",
)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
