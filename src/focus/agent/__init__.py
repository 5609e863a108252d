"""An agent at work: the environment's protocol, parsers, and one edge at a time."""

from focus.agent.agent import Agent, RequestPlace, Step
from focus.agent.env import Env, SegmentAction, StepResult
from focus.agent.parsers import Parser, Segments

__all__ = (
    "Agent",
    "Env",
    "Parser",
    "RequestPlace",
    "SegmentAction",
    "Segments",
    "Step",
    "StepResult",
)
