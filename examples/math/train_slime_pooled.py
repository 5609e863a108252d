"""The hooks of train_slime.py, with one pool of permits for all prompts of a round.

At most eight generate and critic requests are in flight at once, however many trees grow.
The pool is made at import, before any event loop, and belongs to nobody's collector.
"""

import os

from math_training import make_collector

from focus import AdmissionPool, Collector, ExecutionServices, Policy, Problem
from focus.integrations import JsonlDirectory
from focus.integrations.slime import make_evaluate, make_generate

__all__ = ("collector_for", "evaluate", "generate", "services")

services = ExecutionServices(pool=AdmissionPool(capacity=8))
targets = JsonlDirectory(os.environ.get("FOCUS_CRITIC_OUTPUT", "focus-critic-targets"))


def collector_for(policy: Policy, problem: Problem) -> Collector:
    """`make_collector` hands the services to the agent and sets ``own=False``."""
    return make_collector(policy, problem.label, services=services)


generate = make_generate(collector_for, profile="token_chunk", critic_sink=targets)
evaluate = make_evaluate(collector_for, profile="token_chunk")
