"""An agent at work: the environment's protocol, parsers, tools, and one edge at a time."""

from focus.agent.agent import Agent
from focus.agent.compaction import AnyOf, Compactor, PromptTokens, StateCounter, Trigger
from focus.agent.directory_workspace import DirectoryWorkspace
from focus.agent.env import Env, SegmentAction, StepResult
from focus.agent.journal import Journal
from focus.agent.parsers import Parser, Segments
from focus.agent.step import RequestPlace, Step
from focus.agent.tool_env import ToolEnv, ToolState, submit
from focus.agent.tools import Tool, storage, tool
from focus.agent.turns import TurnAction, Turns
from focus.agent.workspace import InMemoryWorkspace, Workspace

__all__ = (
    "Agent",
    "AnyOf",
    "Compactor",
    "DirectoryWorkspace",
    "Env",
    "InMemoryWorkspace",
    "Journal",
    "Parser",
    "PromptTokens",
    "RequestPlace",
    "SegmentAction",
    "Segments",
    "StateCounter",
    "Step",
    "StepResult",
    "Tool",
    "ToolEnv",
    "ToolState",
    "Trigger",
    "TurnAction",
    "Turns",
    "Workspace",
    "storage",
    "submit",
    "tool",
)
