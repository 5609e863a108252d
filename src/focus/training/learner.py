"""What the training loop asks of a trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from focus.critic import Critic
from focus.policies.base import Policy
from focus.records import CriticRecord, PolicyRecord

__all__ = ("Learner",)


class Learner(Protocol):
    """Updates actor and critic, and publishes both.

    focus.integrations.local.LocalLearner trains in this process.
    """

    @property
    def policy(self) -> Policy:
        """What collection samples from: the weights last published."""
        ...

    @property
    def optimizer_steps(self) -> int:
        """Actor steps taken so far."""
        ...

    def critic(self) -> Critic:
        """The critic last published."""
        ...

    def update_actor(self, records: Sequence[PolicyRecord], *, seed: int) -> Mapping[str, float]:
        """One round's actor update, on records of any packing; may block."""
        ...

    def update_critic(self, records: Sequence[CriticRecord], *, seed: int) -> Mapping[str, float]:
        """One round's critic update; may block."""
        ...

    def publish(self, round_index: int) -> None:
        """Make the trained weights the policy and critic of the next round."""
        ...

    def save(self, folder: Path) -> None:
        """Everything that the next round depends on."""
        ...

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote, and publish it."""
        ...

    def export(self, folder: Path) -> None:
        """The policy as a model folder that other tools load."""
        ...
