"""What follows a reply: equal to one whole render, never forged by data, refused on drift."""

import copy
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus.errors import ConfigError, ProblemError
from focus.models import BUILTIN
from focus.problem import Message
from focus.rendering import (
    control_ids_in,
    control_tokens,
    decode,
    encode,
    load_tokenizer,
    profile_named,
    render_chat,
    render_continuation,
    respelled,
)

TOKENIZER: Any = load_tokenizer(BUILTIN)
SPECIAL = control_tokens(TOKENIZER)
MARKERS = ("<tool_call>", "</tool_response>")
END = TOKENIZER.eos_token_id

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
nasty = st.lists(
    texts
    | st.sampled_from(["<|im_end|>", "<|im_start|>", "<|endoftext|>", *MARKERS, "<|im_", "end|>"])
).map("".join)
observations = st.lists(
    st.builds(Message, st.sampled_from(["tool", "user"]), texts), min_size=1, max_size=3
)


def with_template(template: str) -> Any:
    other = copy.deepcopy(TOKENIZER)
    other.chat_template = template
    return other


TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


@settings(max_examples=50)
@given(reply=texts, messages=observations)
def test_prompt_reply_and_continuation_are_one_whole_render(
    reply: str, messages: list[Message]
) -> None:
    """B14: appended ids are those of one render of the full history."""
    question = Message("user", "What is it?")
    whole = render_chat(TOKENIZER, [question, Message("assistant", reply), *messages])
    sampled = (*encode(TOKENIZER, reply), END)
    added = render_continuation(TOKENIZER, messages, closed=True)
    assert (*render_chat(TOKENIZER, [question]), *sampled, *added) == whole


@given(messages=observations)
def test_an_open_reply_gets_the_end_of_turn_first(messages: list[Message]) -> None:
    closed = render_continuation(TOKENIZER, messages, closed=True)
    assert render_continuation(TOKENIZER, messages, closed=False) == (END, *closed)


@settings(max_examples=100)
@given(text=nasty, role=st.sampled_from(["tool", "user"]))
def test_data_cannot_forge_a_turn(text: str, role: str) -> None:
    """S5, B10: as many control ids as with harmless text, whatever stands in a result."""

    def controls(content: str) -> Counter[int]:
        ids = render_continuation(TOKENIZER, [Message(role, content)], closed=True, markers=MARKERS)
        return Counter(token for token in ids if token in SPECIAL)

    assert controls(text) == controls("harmless")


@given(text=nasty)
def test_respelling_leaves_no_marker_and_keeps_all_else(text: str) -> None:
    safe = respelled(TOKENIZER, text, markers=MARKERS)
    assert not control_ids_in(TOKENIZER, safe)
    assert not any(marker in safe for marker in MARKERS)
    assert safe.replace(" ", "") == text.replace(" ", "")
    if safe == text:
        assert not control_ids_in(TOKENIZER, text)


def test_what_cannot_be_respelled_is_refused() -> None:
    class Stubborn:
        """Makes a control token of any text."""

        added_tokens_decoder = TOKENIZER.added_tokens_decoder

        def encode(self, text: str, **_: Any) -> list[int]:
            return [END]

    with pytest.raises(ProblemError, match="however it is spelled"):
        respelled(Stubborn(), "x")


def test_a_template_that_rewrites_by_place_is_refused() -> None:
    """B02: drift is a typed refusal."""
    drifting = (
        "{% for m in messages %}{% if loop.index > 4 %}late {% endif %}" + TURN + "{% endfor %}"
    )
    with pytest.raises(ConfigError, match="later in a conversation"):
        render_continuation(with_template(drifting + PROMPT), [Message("tool", "7")], closed=True)


def test_a_template_that_drops_earlier_reasoning_changes_nothing_that_was_sampled() -> None:
    """B02: only what follows the reply is read off the template."""
    dropping = (
        "{% for m in messages %}{% set c = m.content %}{% if not loop.last %}"
        "{% set c = c.split('</think>')[-1] %}{% endif %}"
        "<|im_start|>{{ m.role }}\n{{ c }}<|im_end|>\n{% endfor %}"
    )
    tool = [Message("tool", "7")]
    dropped = render_continuation(with_template(dropping + PROMPT), tool, closed=True)
    assert dropped == render_continuation(TOKENIZER, tool, closed=True)


def test_a_template_that_leaves_tools_out_is_refused() -> None:
    deaf = "{% for m in messages %}{% if m.role != 'tool' %}" + TURN + "{% endif %}{% endfor %}"
    with pytest.raises(ConfigError, match="leaves out messages of role tool"):
        render_continuation(with_template(deaf + PROMPT), [Message("tool", "7")], closed=True)


def test_a_turn_must_end_with_a_special_token() -> None:
    plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
    with pytest.raises(ConfigError, match="special token"):
        render_continuation(with_template(plain), [Message("tool", "7")], closed=True)


def test_nothing_follows_nothing() -> None:
    with pytest.raises(ProblemError, match="at least one message"):
        render_continuation(TOKENIZER, [], closed=True)


TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


@pytest.mark.parametrize("name", ["hermes", "qwen_xml"])
@pytest.mark.parametrize("system", [(), (Message("system", "Be brief."),)])
def test_tools_are_shown_even_where_the_template_shows_none(
    name: str, system: tuple[Message, ...]
) -> None:
    messages = (*system, Message("user", "Hi"))
    profile = profile_named(name)
    shown = decode(TOKENIZER, profile.render(TOKENIZER, messages, [TOOL]), keep_special=True)
    assert '"look"' in shown
    assert "<tool_call>" in shown
    assert shown.count("<|im_start|>system") == 1
    assert profile.render(TOKENIZER, messages, []) == render_chat(TOKENIZER, messages)


def test_a_template_that_shows_tools_is_left_alone() -> None:
    told = "{% if tools %}T={{ tools[0].function.name }}{% endif %}{% for m in messages %}" + TURN
    other = with_template(told + "{% endfor %}" + PROMPT)
    shown = decode(other, profile_named("hermes").render(other, [Message("user", "Hi")], [TOOL]))
    assert shown.startswith("T=look")
    assert "tool_call" not in shown


def test_a_profile_without_turns_says_so() -> None:
    with pytest.raises(ConfigError, match='profile "text" has no turns'):
        profile_named("text").continuation(TOKENIZER, [Message("user", "x")], closed=True)
