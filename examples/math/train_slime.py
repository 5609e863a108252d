"""Hooks for Slime's command line: name `train_slime.generate` and `train_slime.evaluate`.

Reward, advantage and loss hooks are `focus.integrations.slime`'s own; launch_slime.sh names
all of them. Every process of the job imports this file, so it loads and opens nothing.
"""

import os

from math_training import collector_for

from focus.integrations import JsonlDirectory
from focus.integrations.slime import make_evaluate, make_generate

__all__ = ("evaluate", "generate")

targets = JsonlDirectory(os.environ.get("FOCUS_CRITIC_OUTPUT", "focus-critic-targets"))

generate = make_generate(collector_for, profile="token_chunk", critic_sink=targets)
evaluate = make_evaluate(collector_for, profile="token_chunk")
