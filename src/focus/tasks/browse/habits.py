"""How a model browses the library: its parser, its fold, its allowance."""

from __future__ import annotations

from focus.agent import Agent, Compactor, PromptTokens, Turns
from focus.checkpoint import Allowance
from focus.execution import Execution, ExecutionServices
from focus.policies.base import Policy
from focus.sampling import Sampling

__all__ = ("FOLD_AT", "INSTRUCTION", "LAST_TURN", "RESUME", "TURNS", "browsing_agent")

FOLD_AT = 160
"""Prompt length at which the shipped model folds: about one document."""
TURNS = 10
INSTRUCTION = "Write notes: where you are now, and what is left. All else will be cut."
RESUME = "Go on from your notes."
LAST_TURN = "This is your last turn: submit."


def browsing_agent(
    policy: Policy,
    *,
    seed: int,
    services: ExecutionServices | None = None,
    temperature: float | None = None,
    fold_at: int = FOLD_AT,
    reply_tokens: int = 48,
    dialect: str = "hermes",
) -> Agent:
    """An agent for `focus.tasks.browse`; policy and services are borrowed.

    Args:
        seed: of the tokens drawn.
        temperature: other than the trainer's, for evaluation only.
        fold_at: prompt length beyond which the next reply is notes.
        reply_tokens: most ids per request; larger for a model that thinks aloud.
        dialect: how the model writes calls.
    """
    return Agent(
        policy,
        parser=Turns(dialect, tokens=reply_tokens, last_turn=LAST_TURN),
        sampling=Sampling(seed=seed, temperature=temperature),
        allowance=Allowance(turns=TURNS, tokens=20 * reply_tokens),
        execution=Execution(services=services),
        compactor=Compactor(
            trigger=PromptTokens(fold_at),
            instruction=INSTRUCTION,
            resume=RESUME,
            reply_tokens=reply_tokens,
        ),
    )
