"""The calls of one turn: run together, answered in order; what fails is answered too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from focus._cancellation import siblings
from focus.agent.tools import Tool
from focus.agent.workspace import Workspace
from focus.errors import ToolError
from focus.problem import Message
from focus.rendering import Call, dialect_named

__all__ = ("answer_call", "answer_calls", "checked_call")


async def answer_calls(
    tools: Mapping[str, Tool],
    calls: Sequence[Call],
    workspace: Workspace | None,
    *,
    dialect: str,
    most_characters: int | None = None,
) -> tuple[Message, ...]:
    """One tool message per call, in the order of the calls.

    Calls run concurrently, but for those that touch the workspace: they run one after
    another, so that what a turn leaves behind does not depend on timing.

    A call that cannot be decoded, names no tool or has other arguments than the tool's
    schema is answered with the reason; no tool is run for it.

    Args:
        most_characters: longer results are cut, and say so.

    Raises:
        Exception: a tool broke (anything but ToolError, ValueError, LookupError).
    """
    texts = [""] * len(calls)

    async def run(places: Sequence[int]) -> None:
        for place in places:
            text = await answer_call(tools, calls[place], workspace, dialect=dialect)
            texts[place] = _cut(text, most_characters)

    shared = [p for p, call in enumerate(calls) if _touches_workspace(tools.get(call.name))]
    async with siblings() as group:
        group.start_soon(run, shared)
        for place in set(range(len(calls))).difference(shared):
            group.start_soon(run, [place])
    return tuple(Message("tool", text) for text in texts)


async def answer_call(
    tools: Mapping[str, Tool], call: Call, workspace: Workspace | None, *, dialect: str
) -> str:
    """The text that answers one call."""
    try:
        found, arguments = checked_call(tools, call, dialect=dialect)
        return await found.run(arguments, workspace)
    except ToolError as error:
        return f"error: {error}"


def checked_call(
    tools: Mapping[str, Tool], call: Call, *, dialect: str
) -> tuple[Tool, dict[str, Any]]:
    """The tool that a call names, and its arguments by the tool's schema.

    Raises:
        ToolError: it could not be read, names no tool, or has other arguments.
    """
    if call.fault:
        raise ToolError(f"this call could not be read and was not run: {call.fault}")
    found = tools.get(call.name)
    if found is None:
        raise ToolError(f"no tool {call.name[:60]!r}; there are: {', '.join(tools) or 'none'}")
    return found, found.arguments(call, as_text=dialect_named(dialect).has_text_arguments)


def _touches_workspace(found: Tool | None) -> bool:
    return found is not None and bool(found.workspace_parameter)


def _cut(text: str, most: int | None) -> str:
    if most is None or len(text) <= most:
        return text
    return f"{text[:most]} … ({len(text) - most} characters left out)"
