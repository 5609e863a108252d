"""The agent's program for verifiers: a chat loop over the task's tools, in this process."""

from __future__ import annotations

import json
import sys
import types
from contextlib import AsyncExitStack
from typing import Any

from focus._extras import require

__all__ = ("PLUGIN", "register_harness")

PLUGIN = "focus_chat_harness"
"""verifiers finds a harness by the name of a top-level module that exports its class."""


def register_harness() -> None:
    """Make the harness known to verifiers as `PLUGIN`.

    Raises:
        MissingExtra: verifiers is not installed.
    """
    if PLUGIN in sys.modules:
        return
    vf = require("verifiers.v1", extra="verifiers")
    body = {
        "__doc__": "A chat loop without tools of its own.",
        "APPENDS_SYSTEM_PROMPT": True,
        "SUPPORTS_MCP": True,
        "EXECUTES_CODE": False,
        "NEEDS_CONTAINER": False,
        "launch": _launch,
    }
    name = "ChatHarness"
    made = types.new_class(name, (vf.Harness[vf.HarnessConfig],), {}, lambda ns: ns.update(body))
    plugin = types.ModuleType(PLUGIN)
    plugin.__dict__.update({name: made, "__all__": (name,)})
    sys.modules[PLUGIN] = plugin


async def _launch(
    harness: Any,
    ctx: Any,
    trace: Any,
    runtime: Any,
    endpoint: str,
    secret: str,
    mcp_urls: dict[str, str],
    data: Any,
) -> Any:
    """Ask, run the calls, tell; until a message without calls, or until verifiers stops it."""
    openai = require("openai", extra="verifiers")
    runtimes = require("verifiers.v1.runtimes", extra="verifiers")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            openai.AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0, timeout=None)
        )
        tools, run = await _tools(stack, mcp_urls)
        messages = _opening(harness, data)
        while True:
            asked = {"messages": messages, **({"tools": tools} if tools else {})}
            try:
                reply = await client.chat.completions.create(model=ctx.model, **asked)
            except openai.APIStatusError:
                if trace.stop_condition is None:
                    raise
                break  # the task's own end of the conversation
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                told = await run(call.function.name, json.loads(call.function.arguments or "{}"))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": told})
    return runtimes.ProgramResult(exit_code=0, stdout="", stderr="")


async def _tools(stack: AsyncExitStack, urls: dict[str, str]) -> tuple[list[Any], Any]:
    """The task's tools and what runs them, over the servers that verifiers started."""
    mcp = require("verifiers.v1.harnesses.utils.mcp", extra="verifiers")
    servers = {name: {"url": url, "timeout": 60} for name, url in urls.items()}
    schemas, places, connections = await mcp.connect_mcp({"mcpServers": servers}, stack)

    async def run(name: str, arguments: Any) -> Any:
        return await mcp.call_mcp(connections, places, name, arguments)

    return schemas, run


def _opening(harness: Any, data: Any) -> list[Any]:
    chat = require("verifiers.v1.dialects.chat", extra="verifiers")
    system, prompt = harness.resolve_prompt(data)
    opening: list[Any] = [{"role": "system", "content": system}] if system else []
    if isinstance(prompt, str):
        return [*opening, {"role": "user", "content": prompt}]
    return [*opening, *(chat.message_to_wire(message) for message in prompt or ())]
