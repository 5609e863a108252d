"""The search, the starting critic and the collector for one problem of the MATH recipe.

Training hooks import `collector_for`; pass `critic=` once a value model has been trained.
"""

from math_quickstart import CHUNK_TOKENS, MathEnv, chunked_agent

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

__all__ = ("collector_for", "make_collector", "sized_collector")


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
    return sized_collector(policy, reference, critic=critic, services=services)


def sized_collector(
    policy: Policy,
    reference: object,
    *,
    chunk: int = CHUNK_TOKENS,
    tokens: int = 16_384,
    critic: Critic | None = None,
    services: ExecutionServices | None = None,
) -> Collector:
    """The same with chunks and a budget of other sizes, for models of other sizes.

    Args:
        chunk: most tokens of one request.
        tokens: generation budget of the tree.
    """
    return Collector(
        agent=chunked_agent(policy, chunk, execution=Execution(services=services)),
        env=MathEnv(reference),
        search=Search.two_phase(tokens=tokens, concurrency=4),
        critic=critic or Critic.constant(0.5),
        credit=DirectBranchTd(prior_strength=1.0),
        own=services is None,
    )


def collector_for(policy: Policy, problem: Problem) -> Collector:
    """The one function that an integration asks for."""
    return make_collector(policy, problem.label)
