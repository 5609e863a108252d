"""Mutable episodes made forkable: by copy, directory, process, replay or container."""

from focus.agent.episodes.copied import CopiedEnv
from focus.agent.episodes.episode import Episode, Transition
from focus.agent.episodes.replayed import ReplayedEnv

__all__ = ("CopiedEnv", "Episode", "ReplayedEnv", "Transition")
