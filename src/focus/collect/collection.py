"""What collecting one tree gives."""

from __future__ import annotations

from dataclasses import dataclass

from focus.checkpoint import Checkpoint
from focus.collect.ledger import Ledger
from focus.credit.base import Credit
from focus.errors import Failure
from focus.records import CriticRecord, Packing, PolicyRecord
from focus.records.records import CriticContext
from focus.search import PhaseReport
from focus.tokens import LogProbs, TokenIds
from focus.tree import Tree

__all__ = ("Collection", "Evaluation")


@dataclass(frozen=True, kw_only=True)
class Collection:
    """One tree and all that follows from it.

    Attributes:
        tree: the settled tree.
        credit: weights and targets.
        actor: samples for the policy's trainer.
        critic: targets for the critic's trainer.
        ledger: tokens, requests, expansions, critic calls.
        packing: how `actor` spreads the tree over samples.
        opening: launches whose place no result could change (`Search.opening`; in lockstep those
            of the first wave).
        phases: what each phase of the search bought, and why it ended.
        failures: empty unless collected with ``allow_partial=True``.
    """

    tree: Tree[Checkpoint]
    credit: Credit
    actor: tuple[PolicyRecord, ...]
    critic: tuple[CriticRecord, ...]
    ledger: Ledger
    packing: Packing = "segment"
    opening: int = 1
    phases: tuple[PhaseReport, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def root_outcomes(self) -> list[float]:
        """Outcomes of finished rollouts launched from the root, in launch order."""
        return self._outcomes({s.expansion for s in self.tree.selections if s.node == 0})

    @property
    def opening_outcomes(self) -> list[float]:
        """The part of `root_outcomes` that the search could not select: a fair sample.

        Later launches from the root are bought because earlier ones ended as they did.
        """
        first = self.tree.selections[: self.opening]
        return self._outcomes({s.expansion for s in first if s.node == 0})

    def _outcomes(self, started: set[int]) -> list[float]:
        return [
            self.tree.outcome(node)
            for node in self.tree.terminals()
            if self.tree[node].incoming.provenance.expansion in started
        ]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One unbranched solution.

    Attributes:
        outcome: its outcome reward, never a signed advantage.
        truncated: allowance or context ran out.
        tokens: ids sampled over the whole solution.
        prefix, ids, log_probs: input and output of its last generation.
        text: the whole solution, decoded once; after a fold, what followed it.
        contexts: its checkpoints as the collector's critic would see them, the root first,
            the end not; empty unless they were asked for.
    """

    outcome: float
    truncated: bool
    tokens: int
    prefix: TokenIds
    ids: TokenIds
    log_probs: LogProbs
    text: str
    contexts: tuple[CriticContext, ...] = ()
