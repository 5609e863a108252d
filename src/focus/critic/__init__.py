"""Critics: what a checkpoint is worth, and the context they read."""

from focus.critic.base import Critic, PredictFn, Predictor
from focus.critic.context import render_context

__all__ = ("Critic", "PredictFn", "Predictor", "render_context")
