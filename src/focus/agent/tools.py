"""Tools: plain Python functions with a JSON schema, called through an environment."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints, overload

import anyio.to_thread

from focus.agent.directory_workspace import DirectoryWorkspace
from focus.agent.tool_schema import Described, Parameter, described, typed
from focus.agent.workspace import InMemoryWorkspace, Workspace
from focus.errors import ConfigError, FocusError, ToolError
from focus.rendering import Call

__all__ = ("Tool", "by_name", "storage", "tool")

_MEANT_FOR_POLICY = (ToolError, ValueError, LookupError)


@dataclass(frozen=True)
class Tool:
    """A function that a policy may call. Make one with :func:`tool`.

    Attributes:
        name: what the policy writes.
        description: what it is for.
        parameters: what it takes, in order.
        function: sync or async.
        workspace_parameter: the parameter that gets the branch's workspace, never shown to
            the policy; "" for none.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    function: Callable[..., Any]
    workspace_parameter: str = ""

    @property
    def schema(self) -> dict[str, Any]:
        """The form that chat templates and servers take: an OpenAI function."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": {
                    "type": "object",
                    "properties": {p.name: p.schema for p in self.parameters},
                    "required": [p.name for p in self.parameters if p.is_required],
                    "additionalProperties": False,
                },
            },
        }

    def arguments(self, call: Call, *, as_text: bool = False) -> dict[str, Any]:
        """The call's arguments, checked against the schema.

        Args:
            as_text: the dialect gives every value as text; it is read by its type.

        Raises:
            ToolError: one is missing, unknown or of another type; the text says which.
        """
        return typed(self.name, self.parameters, call.arguments, as_text=as_text)

    async def run(self, arguments: Mapping[str, Any], workspace: Workspace | None) -> str:
        """Call the function; its result as text. A sync function runs in a worker thread.

        Raises:
            ToolError: the function raised it, or a ValueError or LookupError: the policy's
                arguments were at fault, and the policy reads why.
            Exception: anything else, as it is: the tool is broken, not the call.
        """
        given = dict(arguments)
        if self.workspace_parameter:
            if workspace is None:
                raise ConfigError(
                    f"tool {self.name!r} needs a workspace; "
                    "give Agent(workspace=InMemoryWorkspace())"
                )
            given[self.workspace_parameter] = workspace
        try:
            if inspect.iscoroutinefunction(self.function):
                result = await self.function(**given)
            else:
                result = await anyio.to_thread.run_sync(functools.partial(self.function, **given))
        except _MEANT_FOR_POLICY as error:
            if isinstance(error, FocusError) and not isinstance(error, ToolError):
                raise
            raise ToolError(_text_of(error)) from error
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _text_of(error: Exception) -> str:
    """A KeyError's own text is only the key."""
    return f"not found: {error}" if isinstance(error, LookupError) else str(error)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(*, name: str = "") -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, *, name: str = "") -> Any:
    """Make a tool of a function: name, annotations and docstring become its schema.

    The first paragraph of the docstring describes the tool, the lines under ``Args:`` its
    parameters. A parameter annotated :class:`Workspace` gets the branch's workspace.
    Raise :class:`focus.errors.ToolError` (or ValueError, LookupError) for what the policy
    should read and mend.

    Raises:
        ConfigError: a parameter has no annotation or one that JSON cannot say.

    >>> @tool
    ... def add(a: int, b: int = 1) -> int:
    ...     '''Add two numbers.
    ...
    ...     Args:
    ...         a: the first.
    ...     '''
    ...     return a + b
    >>> add.schema["function"]["parameters"]["properties"]
    {'a': {'type': 'integer', 'description': 'the first.'}, 'b': {'type': 'integer', 'default': 1}}
    """
    if function is None:
        return functools.partial(_made, name=name)
    return _made(function, name=name)


def _made(function: Callable[..., Any], *, name: str = "") -> Tool:
    about: Described = described(function)
    hints = get_type_hints(function)
    files = [p for p in inspect.signature(function).parameters if _is_workspace(hints.get(p))]
    if len(files) > 1:
        raise ConfigError(f"tool {function.__name__!r} takes {len(files)} workspaces")
    return Tool(
        name=name or function.__name__.rstrip("_"),
        description=about.summary,
        parameters=tuple(p for p in about.parameters(hints, leave_out=files)),
        function=function,
        workspace_parameter=files[0] if files else "",
    )


def _is_workspace(hint: Any) -> bool:
    kinds = (InMemoryWorkspace, DirectoryWorkspace)
    return hint is Workspace or (isinstance(hint, type) and issubclass(hint, kinds))


@tool
async def storage(
    workspace: Workspace,
    action: Literal["put", "get", "delete", "list"],
    path: str = "",
    text: str = "",
) -> str:
    """Keep notes that stay when the conversation is shortened.

    Args:
        action: put stores text at a path, get reads it, delete removes it, list shows paths.
        path: where, e.g. "notes.md".
        text: what to put.
    """
    if action == "put":
        await workspace.write(path, text)
        return f"stored {len(text)} characters at {path}"
    if action == "get":
        return await workspace.read(path)
    if action == "delete":
        await workspace.delete(path)
        return f"deleted {path}"
    return "\n".join(await workspace.paths()) or "nothing is stored"


def by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    """Tools by name.

    Raises:
        ConfigError: two share a name.
    """
    table = {each.name: each for each in tools}
    if len(table) != len(tools):
        raise ConfigError(f"two tools share a name: {', '.join(t.name for t in tools)}")
    return table
