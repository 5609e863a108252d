"""The local trainer: actor and critic in this process, on CPU or GPU."""

from focus.integrations.local.actor import ActorTrainer, surrogate_loss
from focus.integrations.local.critic import CriticTrainer
from focus.integrations.local.learner import LocalLearner

__all__ = ("ActorTrainer", "CriticTrainer", "LocalLearner", "surrogate_loss")
