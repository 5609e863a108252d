"""Calls as models write them: what can be read comes back equal, what cannot is a fault."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ConfigError
from focus.rendering import DIALECTS, Call, dialect_named

HERMES, XML = dialect_named("hermes"), dialect_named("qwen_xml")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
names = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
FRAGMENTS = (
    *(
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        '{"name": "f"',
        '{"name": "f", "a": {}}',
    ),
    *("<function=f>", "</function>", "<parameter=a>", "</parameter>", "}", "x", "\n"),
)
fragments = st.sampled_from(FRAGMENTS)


@given(st.lists(st.tuples(names, st.dictionaries(names, values, max_size=3)), max_size=4))
def test_hermes_reads_what_it_writes(calls: list[tuple[str, dict[str, Any]]]) -> None:
    reply = "Let me see.\n".join(["", *(HERMES.write(*call) for call in calls)])
    assert HERMES.read(reply).calls == tuple(Call(*call) for call in calls)


@given(names, st.dictionaries(names, texts, max_size=3))
def test_qwen_xml_reads_what_it_writes_or_refuses_to_write(
    name: str, arguments: dict[str, str]
) -> None:
    try:
        written = XML.write(name, arguments)
    except ConfigError:
        assert any("<" in value or value[:1] + value[-1:] for value in arguments.values())
    else:
        assert XML.read(written).calls == (Call(name, arguments),)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@given(parts=st.lists(fragments | texts, max_size=12))
def test_any_reply_can_be_read(dialect: Any, parts: list[str]) -> None:
    reading = dialect.read("".join(parts))
    assert len(reading.calls) <= "".join(parts).count("<tool_call>")
    assert all(call.name for call in reading.calls if not call.fault)


@pytest.mark.parametrize(
    "block",
    [
        '{"name": "sh", "arguments": {"cmd": "ls" "x"}}',  # B83
        '{"name": "sh", "arguments": {"cmd": "l',
        '{"name": "sh", "name": "rm", "arguments": {}}',
        '{"name": "sh", "arguments": {"x": NaN}}',
        '{"name": "sh", "arguments": "ls"}',
        '{"name": 7, "arguments": {}}',
        '{"name": "sh", "arguments": {}, "then": "rm"}',
        "[1]",
        "",
        "[" * 5000,
    ],
)
def test_an_undecodable_call_is_a_fault(block: str) -> None:
    [call] = HERMES.read(f"<tool_call>{block}</tool_call>").calls
    assert call.fault


@pytest.mark.parametrize(
    "block",
    [
        "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>",
        "<function=f>stray<parameter=a>1</parameter></function>",
        "<parameter=a>1</parameter>",
        "<function=f><parameter=a>1</function>",
    ],
)
def test_an_undecodable_xml_call_is_a_fault(block: str) -> None:
    [call] = XML.read(f"<tool_call>{block}</tool_call>").calls
    assert call.fault


def test_a_call_cut_off_is_never_whole() -> None:
    """B85: nothing of it may run."""
    whole = HERMES.write("sh", {"cmd": "rm -r build/a"})
    for length in range(len("<tool_call>"), len(whole) - 1):
        assert all(call.fault for call in HERMES.read(whole[:length]).calls)


def test_calls_are_looked_for_behind_the_reasoning_only() -> None:
    call = HERMES.write("f", {})
    assert HERMES.read(f"<think>maybe {call}</think>no.").calls == ()
    assert HERMES.read(f"maybe {call}</think>yes {call}").calls == (Call("f", {}),)
    open_ended = HERMES.read(f"<think>I will {call}")
    assert open_ended.is_thinking
    assert open_ended.calls == ()
    assert open_ended.text == ""


def test_text_is_what_is_left() -> None:
    reading = HERMES.read(f"<think>hm</think>First.{HERMES.write('f', {})}Then.")
    assert (reading.reasoning, reading.text) == ("hm", "First.Then.")


def test_an_unknown_dialect_is_named() -> None:
    with pytest.raises(ConfigError, match="known: hermes, qwen_xml"):
        dialect_named("json")
