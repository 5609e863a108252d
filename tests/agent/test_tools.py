"""Tools: schema from a signature, arguments against it, errors that the policy can mend."""

import threading
from typing import Any, Literal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus import InMemoryWorkspace, Tool, storage, tool
from focus.agent import Workspace
from focus.agent.tool_calls import answer_calls
from focus.errors import ConfigError, GraderError, ToolError
from focus.rendering import Call


@tool
def find(
    query: str, limit: int = 3, kinds: list[str] | None = None, mode: Literal["all", "any"] = "all"
) -> list[str]:
    """Find documents
    by their words.

    More about it.

    Args:
        query: what to look for,
            in plain words.
        limit: most results.

    Returns:
        Titles.
    """
    return [query] * limit


def test_the_schema_is_the_signature() -> None:
    assert find.schema == {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Find documents by their words.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "what to look for, in plain words."},
                    "limit": {"type": "integer", "description": "most results.", "default": 3},
                    "kinds": {
                        "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]
                    },
                    "mode": {"enum": ["all", "any"], "default": "all"},
                },
                "required": ["query"],
                "additionalProperties": False,
            },
        },
    }


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({}, "'query' is missing"),
        ({"query": 1}, "query must be of type string, got 1"),
        ({"query": "x", "limit": True}, "limit must be of type integer"),
        ({"query": "x", "limit": 1.0}, "limit must be of type integer"),
        ({"query": "x", "kinds": ["a", 1]}, "kinds must be"),
        ({"query": "x", "mode": "some"}, "one of 'all', 'any'"),
        ({"query": "x", "colour": "red"}, "no parameter 'colour'"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: dict[str, Any], fault: str) -> None:
    with pytest.raises(ToolError, match=fault):
        find.arguments(Call("find", arguments))


@given(st.integers(), st.booleans(), st.text(), st.lists(st.integers(), max_size=3))
def test_text_arguments_are_typed_by_the_schema(n: int, b: bool, s: str, xs: list[int]) -> None:
    def f(n: int, b: bool, s: str, xs: list[int]) -> None: ...

    as_text = {"n": str(n), "b": str(b).lower(), "s": s, "xs": str(xs)}
    typed = tool(f).arguments(Call("f", as_text), as_text=True)
    assert typed == {"n": n, "b": b, "s": s, "xs": xs}


def test_a_function_that_json_cannot_describe_is_refused() -> None:
    def no_type(x) -> None: ...  # type: ignore[no-untyped-def]
    def odd_type(x: set[int]) -> None: ...
    def open_ended(*x: int) -> None: ...

    for function in (no_type, odd_type, open_ended):
        with pytest.raises(ConfigError, match="parameter 'x'"):
            tool(function)


def run(tools: list[Tool], *calls: Call, workspace: Any = None, **options: Any) -> list[str]:
    async def main() -> list[str]:
        table = {each.name: each for each in tools}
        messages = await answer_calls(table, calls, workspace, dialect="hermes", **options)
        return [message.content for message in messages]

    return anyio.run(main)


def test_results_come_in_the_order_of_the_calls_which_run_together() -> None:
    """Each waits for the other; one after the other they would never end."""
    gate = threading.Barrier(2, timeout=20)

    @tool
    def meet(name: str) -> str:
        gate.wait()
        return name

    calls = [Call("meet", {"name": "a"}), Call("nope", {}), Call("meet", {"name": "b"})]
    first, second, third = run([meet], *calls)
    assert (first, third) == ("a", "b")
    assert second == "error: no tool 'nope'; there are: meet"


def test_what_the_policy_can_mend_is_an_answer_and_a_broken_tool_is_not() -> None:
    def raising(error: Exception) -> Tool:
        def f() -> str:
            raise error

        return tool(f)

    for error in (ToolError("bad"), ValueError("bad")):
        assert run([raising(error)], Call("f", {})) == ["error: bad"]
    assert run([raising(KeyError("bad"))], Call("f", {})) == ["error: not found: 'bad'"]
    for broken in (ConnectionError("down"), RuntimeError("bug"), GraderError("no")):
        with pytest.raises(type(broken)):
            run([raising(broken)], Call("f", {}))


def test_a_call_with_a_fault_runs_nothing() -> None:
    ran = []

    @tool
    def f() -> str:
        ran.append(1)
        return "ran"

    [text] = run([f], Call("f", {}, fault="cut off"))
    assert text == "error: this call could not be read and was not run: cut off"
    assert not ran


def test_long_results_are_cut_and_say_so() -> None:
    [text] = run([find], Call("find", {"query": "x" * 90, "limit": 1}), most_characters=10)
    assert text == '["xxxxxxxx … (84 characters left out)'


def test_calls_that_touch_the_workspace_run_in_their_order() -> None:
    files = InMemoryWorkspace(tools=[storage])
    calls = [
        Call("storage", {"action": "put", "path": "n", "text": str(turn)}) for turn in range(20)
    ]
    run([storage], *calls, workspace=files)
    assert anyio.run(files.read, "n") == "19"


def test_a_workspace_is_given_not_shown() -> None:
    assert "workspace" not in str(storage.schema)
    with pytest.raises(ConfigError, match=r"give Agent\(workspace="):
        run([storage], Call("storage", {"action": "list"}))


def test_storage_answers_in_words() -> None:
    files = InMemoryWorkspace(tools=[storage])

    def said(**arguments: str) -> str:
        return run([storage], Call("storage", arguments), workspace=files)[0]

    assert said(action="list") == "nothing is stored"
    assert said(action="put", path="a/b.md", text="hello") == "stored 5 characters at a/b.md"
    assert said(action="get", path="a/b.md") == "hello"
    assert said(action="get", path="c") == "error: nothing is stored at 'c'"
    assert said(action="put", path="../x", text="") == (
        "error: '../x' is not allowed as a path: '..' is no name"
    )
    assert said(action="delete", path="a/b.md") == "deleted a/b.md"


def test_one_workspace_per_tool() -> None:
    def f(a: Workspace, b: InMemoryWorkspace) -> None: ...

    with pytest.raises(ConfigError, match="takes 2 workspaces"):
        tool(f)
