"""Families (a), (b) and (k) with tools: a conversation is the ids that were sent and sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest
from tests.policies.loopback import ByteTokenizer

from focus import Agent, Allowance, Collection, Collector, Search, ToolEnv, Turns, tool
from focus.errors import ConfigError, FocusError
from focus.problem import Message
from focus.records import actor_records
from focus.rendering import dialect_named, render_chat

from .servers import PROBLEM, Engine, sampled, served

pytestmark = pytest.mark.anyio

CLOSE, JOINT = 257, 258
"""Ids of the end of a turn, and of what the tokenizer would make of "AB"."""


class _Special:
    content, special = "<|im_end|>", True


class Chat(ByteTokenizer):
    """Bytes, an end of turn, and a template; it notes every text that is encoded or rendered.

    Args:
        forgetful: the template drops the reasoning of all assistant turns but the last.
        drifting: the template numbers its turns, so that a later render differs.
    """

    added_tokens_decoder: ClassVar[dict[int, Any]] = {CLOSE: _Special()}

    def __init__(self, *, forgetful: bool = False, drifting: bool = False) -> None:
        self._forgetful, self._drifting = forgetful, drifting
        self.seen: list[str] = []

    def __len__(self) -> int:
        return 259

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        self.seen.append(text)
        return self._ids(text)

    def _ids(self, text: str) -> list[int]:
        before, mark, after = text.partition(_Special.content)
        if mark:
            return [*self._ids(before), CLOSE, *self._ids(after)]
        head, joint, tail = text.partition("AB")
        return [*head.encode(), *([JOINT, *self._ids(tail)] if joint else [])]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True, **_: Any) -> str:
        plain = [b for token in ids for b in ((65, 66) if token == JOINT else (token,))]
        return super().decode(plain, skip_special_tokens=skip_special_tokens)

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> list[int]:
        ids: list[int] = []
        for number, message in enumerate(messages):
            text = message["content"]
            self.seen.append(text)
            if self._forgetful and message["role"] == "assistant":
                text = text.rpartition("</think>")[2]
            name = f"{number} " if self._drifting else ""
            ids += [*f"\n{name}{message['role']}: ".encode(), *self._ids(text), CLOSE]
        return [*ids, *b"\nassistant: "]


HERMES = dialect_named("hermes")
SUBMIT = HERMES.write("submit", {"answer": "7"})


def saying(*replies: str) -> Any:
    """A server that says these messages byte by byte, one a turn, in pieces where it must."""
    said = [[*reply.encode(), CLOSE] for reply in replies]
    place = [0, 0]

    def write(asked: Mapping[str, Any], number: int) -> dict[str, Any]:
        turn, begun = place
        rest = said[min(turn, len(said) - 1)][begun:]
        ids = rest[: asked["sampling_params"]["max_new_tokens"]]
        is_whole = len(ids) == len(rest)
        place[:] = [turn + 1, 0] if is_whole else [turn, begun + len(ids)]
        return sampled(asked, ids, finish="stop" if is_whole else "length")

    return write


class Shell:
    """One tool that notes what it was asked to run."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def env(self) -> ToolEnv:
        @tool
        def sh(cmd: str) -> str:
            """Run a command."""
            self.ran.append(cmd)
            return f"ran AB {cmd}"

        return ToolEnv([sh], grade=lambda answer: float(answer["answer"] == "7"))


async def talk(
    engine: Engine,
    env: Any,
    *,
    tokenizer: Any = None,
    allowance: int = 3000,
    each: int | None = None,
) -> Collection:
    """One conversation as a tree of one rollout; a request has `each` tokens at most."""
    async with served(engine, tokenizer=tokenizer or Chat(), profile="hermes") as policy:
        agent = Agent(policy, parser=Turns(tokens=each), allowance=Allowance(tokens=allowance))
        collector = Collector(agent=agent, env=env, search=Search.flat(1))
        async with collector:
            return await collector.collect(PROBLEM)


def sh(cmd: str) -> str:
    return HERMES.write("sh", {"cmd": cmd})


def exact(engine: Engine, found: Collection) -> None:
    """Each request is the one before, its reply, and the observation; each record ends there."""
    nodes = list(found.tree.edges())
    for before, node, after in zip(engine.prefixes, nodes, engine.prefixes[1:], strict=False):
        assert after == [*before, *node.incoming.ids]
    for sent, record in zip(engine.prefixes, found.actor, strict=True):
        assert list(record.prefix) == sent


@pytest.mark.parametrize("size", [None, 5, 16])
async def test_b01_a_tool_turn_is_appended_and_never_encoded_again(size: int | None) -> None:
    """The reply's A and B stay two ids though the tokenizer would make one of them."""
    tokenizer, shell = Chat(), Shell()
    replies = ("ABAB" + sh("echo AB"), "AB then " + sh("ls"), SUBMIT)
    engine = Engine(saying(*replies))
    found = await talk(engine, shell.env(), tokenizer=tokenizer, each=size)
    exact(engine, found)
    assert shell.ran == ["echo AB", "ls"]
    assert found.root_outcomes == [1.0]
    trained = [token for record in found.actor for token in record.response]
    assert trained == [token for reply in replies for token in (*reply.encode(), CLOSE)]
    assert not any(reply in text for reply in replies for text in tokenizer.seen)
    assert JOINT in engine.prefixes[-1]  # the tool's own AB is data, and may be joint


@pytest.mark.parametrize("size", [None, 7])
async def test_b02_a_template_that_forgets_reasoning_changes_no_earlier_turn(
    size: int | None,
) -> None:
    engine = Engine(saying("<think>long AB</think>" + sh("a"), "<think>x</think>" + SUBMIT))
    found = await talk(engine, Shell().env(), tokenizer=Chat(forgetful=True), each=size)
    exact(engine, found)
    assert b"<think>long" in bytes(t for t in engine.prefixes[-1] if t < 256)


async def test_b02_a_template_that_renders_history_anew_is_refused() -> None:
    """A false extension would be a silent change of what was sampled before: a typed error."""
    engine = Engine(saying(sh("a"), SUBMIT))
    with pytest.raises(FocusError) as caught:
        await talk(engine, Shell().env(), tokenizer=Chat(drifting=True))
    chain = [caught.value, caught.value.__cause__]
    assert any(isinstance(error, ConfigError) for error in chain)
    assert "differently later" in str(caught.value)


@pytest.mark.parametrize("calls", [1, 2, 3])
async def test_b14_parallel_calls_have_the_turn_borders_of_one_whole_render(calls: int) -> None:
    """Conditioning ids are those of the request; as many ends of turns as in the full history."""
    tokenizer = Chat()
    reply = "".join(sh(f"{number}") for number in range(calls))
    engine = Engine(saying(reply, SUBMIT))
    found = await talk(engine, Shell().env(), tokenizer=tokenizer)
    exact(engine, found)
    history = (
        found.tree.header.problem.messages[0],
        Message("assistant", reply),
        *(Message("tool", f"ran AB {number}") for number in range(calls)),
    )
    system = engine.prefixes[0].count(CLOSE) - 1
    assert engine.prefixes[1].count(CLOSE) == system + render_chat(tokenizer, history).count(CLOSE)


BROKEN = (
    '{"name": "sh", "arguments": {"cmd": "ls" "x"}}',
    '{"name": "sh", "arguments": {"cmd": "l',
)


@pytest.mark.parametrize("bodies", [BROKEN, ("", "[]"), ("null", '{"name": 3}'), ("{" * 500, "x")])
async def test_b83_calls_that_cannot_be_read_are_answered_and_the_path_goes_on(
    bodies: Sequence[str],
) -> None:
    """An error observation with mask 0 each; nothing runs; the tree has its outcome."""
    shell = Shell()
    engine = Engine(saying(*(f"<tool_call>{body}</tool_call>" for body in bodies), SUBMIT))
    found = await talk(engine, shell.env())
    exact(engine, found)
    assert shell.ran == []
    assert found.root_outcomes == [1.0]
    assert [node.payload.state.unreadable for node in found.tree] == [0, 1, 2, 2]
    observed = [
        bytes(t for t in span.ids if t < 256).decode()
        for node in found.tree.edges()
        for span in node.incoming.spans
        if not span.is_sampled
    ]
    assert len(observed) == 2
    assert all("error" in text for text in observed)
    (path,) = actor_records(found.tree, found.credit, packing="path")
    assert sum(path.loss_mask) == sum(len(record.response) for record in found.actor)
    assert len(path.response) > sum(path.loss_mask)


RM = 'first <tool_call>{"name": "sh", "arguments": {"cmd": "rm -r build/a"}}</tool_call>'


@pytest.mark.parametrize("size", [1, 8, 33, 60, 80])
async def test_b85_a_call_that_was_cut_runs_once_it_is_whole(size: int) -> None:
    shell = Shell()
    engine = Engine(saying(RM, SUBMIT))
    found = await talk(engine, shell.env(), each=size)
    exact(engine, found)
    assert shell.ran == ["rm -r build/a"]
    assert len(engine.payloads) >= -(-len(RM) // size)


@pytest.mark.parametrize("allowance", range(20, len(RM), 12))
async def test_b85_a_call_that_never_gets_whole_never_runs(allowance: int) -> None:
    """The path is truncated with its exact ids; the fragment is no call."""
    shell = Shell()
    found = await talk(Engine(saying(RM, SUBMIT)), shell.env(), allowance=allowance)
    assert shell.ran == []
    (leaf,) = found.tree.terminals()
    assert found.tree[leaf].is_truncated
    (record,) = found.actor
    assert bytes(record.response) == RM.encode()[:allowance]
