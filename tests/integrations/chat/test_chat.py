"""Programs written for a chat API: run unchanged, forked by replay, refused where that fails."""

import json
import random
import threading
from typing import Any

import anyio
import httpx
import pytest

from focus import Agent, Allowance, Collection, Collector, Problem, Sampling, Search, Turns
from focus.agent import TurnAction
from focus.errors import CollectionFailed, ConfigError, EnvError, NondeterminismError, ProblemError
from focus.integrations.chat import ChatEnv
from focus.rendering import Call, dialect_named
from focus.testing.env_check import check_env
from focus.testing.policies import ScriptedPolicy

PROBLEM = Problem(id="p", prompt="Which number is behind the key a?", label="7")
LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look something up.",
        "parameters": {
            "type": "object",
            "properties": {"key": {"type": "string"}, "times": {"type": "integer"}},
            "required": ["key"],
        },
    },
}
BOOK = {"a": "7", "b": "8"}


def looked(arguments: str) -> str:
    return BOOK.get(json.loads(arguments)["key"], "nothing")


def agent_program(client: Any, problem: Problem) -> float:
    """The usual loop over tool calls, as one finds it in many projects."""
    messages: list[Any] = [
        {"role": "system", "content": "Use the tool, then answer."},
        {"role": "user", "content": problem.prompt},
    ]
    while True:
        reply = client.chat.completions.create(model="any", messages=messages, tools=[LOOK])
        message = reply.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return float(message.content.strip() == problem.label)
        for call in message.tool_calls:
            content = looked(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


async def async_program(client: Any, problem: Problem) -> float:
    messages: list[Any] = [{"role": "user", "content": str(problem.prompt)}]
    reply = await client.chat.completions.create(messages=messages, tools=[LOOK])
    plain = reply.choices[0].message.model_dump()
    return float("tool_calls" in plain)


def http_program(client: Any, problem: Problem) -> float:
    """Makes a client of its own, as programs do that know only an address."""
    with client.served() as base, httpx.Client(timeout=120) as http:
        url = f"{base}/chat/completions"
        body = {"messages": [{"role": "user", "content": problem.prompt}], "tools": [LOOK]}
        assert http.post(f"{base}/embeddings", json=body).status_code == 404
        assert http.post(url, content=b"").status_code == 413
        assert http.post(url, content=iter([b"{}"])).status_code == 413  # of no known length
        assert http.post(url, content=b'{"n": NaN}').status_code == 400
        reply = http.post(url, json=body).json()
    return float(reply["choices"][0]["message"]["content"] == problem.label)


def turn(text: str = "", *calls: Call, dialect: str = "hermes") -> TurnAction:
    return TurnAction(text, calls, dialect=dialect)


def look(**arguments: Any) -> Call:
    return Call("look", arguments)


def walked(program: Any, *actions: TurnAction, **options: Any) -> Any:
    """The last answer of an episode."""

    async def main() -> Any:
        env = ChatEnv(program, **options)
        state, _ = await env.reset(PROBLEM)
        try:
            for action in actions:
                result = await env.step(state, action, None)
            return result
        finally:
            await env.release(state)

    return anyio.run(main)


def test_the_usual_loop_runs_unchanged() -> None:
    async def main() -> None:
        env = ChatEnv(agent_program)
        state, messages = await env.reset(PROBLEM)
        assert [message.role for message in messages] == ["system", "user"]
        assert [each.schema for each in env.tools] == [LOOK]
        result = await env.step(state, turn("", look(key="a"), look(key="z")), None)
        assert [message.content for message in result.messages] == ["7", "nothing"]
        result = await env.step(state, turn("7"), None)
        assert (result.done, result.reward) == (True, 1.0)
        await env.release(state)

    anyio.run(main)


@pytest.mark.parametrize("program", [http_program, agent_program])
def test_the_program_decides_what_an_answer_is_worth(program: Any) -> None:
    assert walked(program, turn("7")).reward == 1.0
    assert walked(program, turn("8")).reward == 0.0


def test_an_async_program_is_awaited() -> None:
    assert walked(async_program, turn("", look(key="a"))).reward == 1.0
    assert walked(async_program, turn("no")).reward == 0.0


def test_what_a_program_returns_may_be_graded_outside() -> None:
    def answers(client: Any, problem: Problem) -> str:
        messages = [{"role": "user", "content": [{"type": "text", "text": problem.prompt}]}]
        return str(client.chat.completions.create(messages=messages).choices[0].message.content)

    found = walked(answers, turn("7"), grade=lambda text, problem: float(text == problem.label))
    assert found.reward == 1.0
    with pytest.raises(EnvError, match="no outcome; give ChatEnv"):
        walked(answers, turn("7"))


def test_text_arguments_are_typed_by_the_declared_schema() -> None:
    def echo(client: Any, problem: Problem) -> float:
        reply = client.chat.completions.create(
            messages=[{"role": "user", "content": "?"}], tools=[LOOK]
        )
        [call] = reply.choices[0].message.tool_calls
        assert json.loads(call.function.arguments) == {"key": "3", "times": 3}
        return 1.0

    asked = look(key="3", times="3")
    assert walked(echo, turn("", asked, dialect="qwen_xml")).reward == 1.0


def test_calls_that_no_chat_api_would_show_are_answered_before_the_program() -> None:
    broken, unknown = Call("", {}, fault="cut off"), Call("fly", {})
    result = walked(agent_program, turn("", broken, look(key="a"), unknown))
    texts = [message.content for message in result.messages]
    assert texts[0] == "error: this call could not be read: cut off"
    assert texts[1].startswith("error: not run")
    assert texts[2] == "error: no tool 'fly'; there are: look"
    again = walked(agent_program, turn("", broken), turn("", look(key="b")))
    assert [message.content for message in again.messages] == ["8"]


def test_a_program_in_a_tree() -> None:
    write = dialect_named("hermes").write

    def script(prompt: str, so_far: str, rng: random.Random) -> str:
        if so_far:
            return ""
        if "tool: " in prompt:
            return rng.choice("78")
        return write("look", {"key": rng.choice("ab")})

    async def main() -> tuple[Collection, ChatEnv]:
        env = ChatEnv(agent_program)
        agent = Agent(
            ScriptedPolicy(script),
            parser=Turns("hermes"),
            sampling=Sampling(seed=1),
            allowance=Allowance(tokens=500, turns=6),
        )
        search = Search.two_phase(tokens=3000, concurrency=2)
        async with Collector(agent=agent, env=env, search=search) as collector:
            return await collector.collect(PROBLEM), env

    before = threading.active_count()
    found, env = anyio.run(main)
    assert {found.tree.outcome(leaf) for leaf in found.tree.terminals()} == {0.0, 1.0}
    assert any(len(found.tree.children(node.id)) > 1 for node in found.tree.edges())
    assert env.replays > 0
    assert env.open_states == 0
    assert not [t for t in threading.enumerate() if t.name == "focus-chat-program"]
    assert threading.active_count() <= before + 8


def test_the_environment_of_programs_forks_as_a_tree_needs_it() -> None:
    write = dialect_named("hermes").write
    actions = [write("look", {"key": "a"}), write("look", {"key": "b"}), "<tool_call>", "7", "8"]
    report = check_env(
        lambda: ChatEnv(agent_program),
        problem=PROBLEM,
        actions=actions,
        parser=Turns("hermes"),
        sequences=10,
    )
    assert report.ok, report


def test_a_program_that_says_otherwise_the_second_time_is_refused() -> None:
    chance = iter(range(100))

    def dice(client: Any, problem: Problem) -> float:
        messages: list[Any] = [{"role": "user", "content": "Roll."}]
        while True:
            reply = client.chat.completions.create(messages=messages).choices[0].message
            messages += [reply, {"role": "user", "content": str(next(chance))}]

    async def main() -> None:
        env = ChatEnv(dice)
        root, _ = await env.reset(PROBLEM)
        middle = await env.fork(root)
        await env.step(middle, turn("x"), None)
        first, second = await env.fork(middle), await env.fork(middle)
        await env.step(first, turn("y"), None)
        with pytest.raises(NondeterminismError, match="step 1 of 1 otherwise"):
            await env.step(second, turn("y"), None)
        for state in (root, middle, first, second):
            await env.release(state)

    anyio.run(main)


def test_a_program_that_acts_on_the_world_may_forbid_a_second_time() -> None:
    async def main() -> None:
        env = ChatEnv(agent_program, replay=False)
        root, _ = await env.reset(PROBLEM)
        one, other = await env.fork(root), await env.fork(root)
        for state in (one, other):  # each from the start
            await env.step(state, turn("", look(key="a")), None)
        first, second = await env.fork(one), await env.fork(one)
        assert (await env.step(first, turn("7"), None)).reward == 1.0
        with pytest.raises(EnvError, match="may not be played again"):
            await env.step(second, turn("7"), None)
        assert await env.finish(second, None, "allowance") == 0.0
        for state in (root, one, other, first, second):
            await env.release(state)

    anyio.run(main)


def asking(*bodies: dict[str, Any]) -> Any:
    """A program that sends these requests, whatever it hears."""

    def program(client: Any, problem: Problem) -> float:
        for body in bodies:
            client.chat.completions.create(**body)
        return 0.0

    return program


USER = {"role": "user", "content": "?"}
SAID = {"role": "assistant", "content": "x"}


@pytest.mark.parametrize(
    ("bodies", "reason"),
    [
        (({"messages": [USER]}, {"messages": [USER, SAID]}), "without a message after"),
        (({"messages": [USER]}, {"messages": [USER, USER, USER]}), "another message 1"),
        (({"messages": [USER]}, {"messages": [SAID, SAID, USER]}), "another message 0"),
        (({"messages": [USER]}, {"messages": [USER, SAID, USER], "tools": [LOOK]}), "its tools"),
        (({"messages": [USER]}, {"messages": [USER, SAID, USER], "stream": True}), "stream=True"),
        (({"messages": [USER]}, {"messages": [USER, SAID, USER], "n": 2}), "n=2"),
        (({"messages": [USER]}, {"messages": [USER, SAID, {"role": "robot"}]}), "role 'robot'"),
        (
            (
                {"messages": [USER]},
                {"messages": [USER, SAID, {"role": "user", "content": [{"type": "image_url"}]}]},
            ),
            "only text",
        ),
    ],
)
def test_requests_that_cannot_be_served_are_refused_by_name(bodies: Any, reason: str) -> None:
    with pytest.raises(EnvError, match=reason):
        walked(asking(*bodies), turn("x"))


def test_programs_that_never_ask_raise_or_hang_are_named() -> None:
    with pytest.raises(ProblemError, match="ended without asking"):
        walked(lambda client, problem: 0.0)
    with pytest.raises(EnvError, match="ZeroDivisionError"):
        walked(lambda client, problem: 1 / 0)
    gate = threading.Event()
    with pytest.raises(EnvError, match=r"within 0\.2 s"):
        walked(lambda client, problem: gate.wait(), patience_s=0.2)
    gate.set()
    with pytest.raises(ConfigError, match="patience"):
        ChatEnv(agent_program, patience_s=0.0)


def test_a_broken_program_fails_its_expansion_and_is_no_outcome() -> None:
    def breaks(client: Any, problem: Problem) -> float:
        client.chat.completions.create(messages=[USER])
        raise RuntimeError("the database is gone")

    async def main() -> None:
        agent = Agent(
            ScriptedPolicy(lambda prompt, so_far, rng: "7"),
            parser=Turns("hermes"),
            allowance=Allowance(tokens=100, turns=3),
        )
        async with Collector(agent=agent, env=ChatEnv(breaks), search=Search.flat(1)) as collector:
            with pytest.raises(CollectionFailed, match="the database is gone"):
                await collector.collect(PROBLEM)

    anyio.run(main)


def test_the_client_of_openai_itself() -> None:
    openai = pytest.importorskip("openai", reason="comes with the extra verifiers")

    def program(client: Any, problem: Problem) -> float:
        with client.served() as url:
            own = openai.OpenAI(base_url=url, api_key="any", max_retries=0)
            with own:
                return agent_program(own, problem)

    result = walked(program, turn("", look(key="a")), turn("7"))
    assert result.reward == 1.0
