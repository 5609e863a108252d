"""The search, the starting critic and the collector for one problem of the MATH recipe.

Training hooks import `collector_for`; pass `critic=` once a value model has been trained.
"""

from math_quickstart import MathEnv, make_agent

from focus import (
    Collector,
    Critic,
    DirectBranchTd,
    Execution,
    ExecutionServices,
    Policy,
    Problem,
    Search,
)

__all__ = ("collector_for", "make_collector")


def make_collector(
    policy: Policy,
    reference: object,
    *,
    critic: Critic | None = None,
    services: ExecutionServices | None = None,
) -> Collector:
    """A fresh collector for one problem; everything passed in is borrowed.

    Args:
        policy: what the trainer serves.
        reference: a solution text with its boxed answer, or the answer alone.
        critic: snapshot for this round; None starts with the constant 0.5.
        services: shared by the collectors of one process, to bound its requests.
    """
    return Collector(
        agent=make_agent(policy, execution=Execution(services=services)),
        env=MathEnv(reference),
        search=Search.two_phase(tokens=16_384, concurrency=4),
        critic=critic or Critic.constant(0.5),
        credit=DirectBranchTd(prior_strength=1.0),
        own=services is None,
    )


def collector_for(policy: Policy, problem: Problem) -> Collector:
    """The one function that an integration asks for."""
    return make_collector(policy, problem.label)
