"""Mutable episodes made forkable: by copy, directory, process, replay or container."""

from focus.agent.episodes.container import ContainerEnv
from focus.agent.episodes.copied import CopiedEnv
from focus.agent.episodes.directory import DirectoryEnv
from focus.agent.episodes.engine import DOCKER, PODMAN, Command, Engine, Finished, run_command
from focus.agent.episodes.episode import Episode, Transition
from focus.agent.episodes.process import ProcessEnv
from focus.agent.episodes.replayed import ReplayedEnv

__all__ = (
    "DOCKER",
    "PODMAN",
    "Command",
    "ContainerEnv",
    "CopiedEnv",
    "DirectoryEnv",
    "Engine",
    "Episode",
    "Finished",
    "ProcessEnv",
    "ReplayedEnv",
    "Transition",
    "run_command",
)
