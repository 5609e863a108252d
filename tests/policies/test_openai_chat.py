"""A hosted chat model over real HTTP: evaluated through the common agent, refused for training."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import pytest

from focus import (
    Agent,
    Allowance,
    Collector,
    Evaluation,
    Execution,
    Message,
    OpenAIChatPolicy,
    Problem,
    RetryPolicy,
    Sampling,
    Search,
    ToolEnv,
    Turns,
    tool,
)
from focus.errors import ConfigError, CorruptReply, EvaluationOnly, Refused

PROBLEM = Problem(id="ask", prompt="What is a?")
Answer = Callable[[Mapping[str, Any]], tuple[int, Any]]


@tool
def look(key: str) -> str:
    """Look something up."""
    return {"a": "7"}[key]


class Hosted:
    """A server's books: bodies, keys, and what it answers next."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.bodies: list[Any] = []
        self.keys: list[str] = []
        self.paths: list[str] = []


@contextmanager
def hosting(answer: Answer) -> Iterator[tuple[Hosted, str]]:
    hosted = Hosted(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            hosted.bodies.append(body)
            hosted.keys.append(self.headers["authorization"])
            hosted.paths.append(self.path)
            status, plain = hosted.answer(body)
            told = json.dumps(plain).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield hosted, f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def reply(
    content: str | None = None, *calls: tuple[str, str], finish: str = "", tokens: int = 5
) -> tuple[int, Any]:
    asked = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": content, "tool_calls": asked or None}
    reason = finish or ("tool_calls" if asked else "stop")
    return 200, {
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 9, "completion_tokens": tokens},
    }


def looks_then_submits(body: Mapping[str, Any]) -> tuple[int, Any]:
    last = body["messages"][-1]
    if last["role"] == "tool" and not last["content"].startswith("error"):
        return reply(None, ("submit", json.dumps({"answer": last["content"]})))
    return reply("Let me see.", ("look", '{"key": "a"}'), ("look", '{"key": "b"}'))


def agent_of(policy: Any, **parts: Any) -> Agent:
    parts.setdefault("parser", Turns("hermes", tokens=64))
    return Agent(
        policy,
        allowance=Allowance(tokens=200, turns=6),
        execution=Execution(retry=RetryPolicy(base_s=0.0)),
        **parts,
    )


def evaluated(answer: Answer, **options: Any) -> tuple[Hosted, Evaluation]:
    async def main(url: str) -> Evaluation:
        async with OpenAIChatPolicy(url, model="big", api_key="sk-1", **options) as policy:
            env = ToolEnv([look], grade=lambda given: float(given["answer"] == "7"), system="Look.")
            agent = agent_of(policy, sampling=Sampling(seed=3))
            async with Collector(agent=agent, env=env, search=Search.flat(1)) as collector:
                return await collector.evaluate(PROBLEM)

    with hosting(answer) as (hosted, url):
        return hosted, anyio.run(main, url)


def looks_once(body: Mapping[str, Any]) -> tuple[int, Any]:
    if body["messages"][-1]["role"] == "tool":
        return reply(None, ("submit", '{"answer": "7"}'))
    return reply("Let me see.", ("look", '{"key": "a"}'))


def test_a_hosted_model_is_evaluated_through_the_common_agent() -> None:
    hosted, found = evaluated(looks_once)
    assert (found.outcome, found.truncated) == (1.0, False)
    assert found.tokens == 10  # as the server counted them
    first, second = hosted.bodies
    assert hosted.paths == ["/v1/chat/completions"] * 2
    assert set(hosted.keys) == {"Bearer sk-1"}
    assert [m["role"] for m in first["messages"]] == ["system", "user"]
    assert [t["function"]["name"] for t in first["tools"]] == ["look", "submit"]
    assert (first["model"], first["temperature"], first["top_p"]) == ("big", 1.0, 1.0)
    assert first["max_tokens"] == 64
    assert second["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"key": "a"}'
    assert second["messages"][3] == {"role": "tool", "content": "7", "tool_call_id": "c0"}
    assert first["seed"] != second["seed"]


def test_answers_go_to_the_calls_in_their_order() -> None:
    def answer(body: Mapping[str, Any]) -> tuple[int, Any]:
        if body["messages"][-1]["role"] == "tool":
            told = [m for m in body["messages"] if m["role"] == "tool"]
            assert [m["tool_call_id"] for m in told] == ["c0", "c1"]
            assert told[0]["content"] == "7"
            assert told[1]["content"].startswith("error: not found")
            return reply(None, ("submit", '{"answer": "7"}'))
        return reply(None, ("look", '{"key": "a"}'), ("look", '{"key": "b"}'))

    assert evaluated(answer)[1].outcome == 1.0


def test_nothing_of_it_becomes_a_training_record_and_no_request_is_spent_on_it() -> None:
    async def main(url: str) -> None:
        async with OpenAIChatPolicy(url, model="big") as policy:
            env = ToolEnv([look], grade=lambda given: 1.0)
            search = Search.two_phase(tokens=200)
            async with Collector(agent=agent_of(policy), env=env, search=search) as collector:
                with pytest.raises(EvaluationOnly, match=r"model='big'.*Collector\.evaluate"):
                    await collector.collect(PROBLEM)

    with hosting(looks_once) as (hosted, url):
        anyio.run(main, url)
        assert hosted.bodies == []


def test_settings_reach_the_server_and_a_locked_law_is_left_out() -> None:
    hosted, _ = evaluated(looks_once, locks_sampling=True, settings={"reasoning_effort": "low"})
    assert hosted.bodies[0]["reasoning_effort"] == "low"
    assert not {"temperature", "top_p"} & hosted.bodies[0].keys()
    with pytest.raises(ConfigError, match="'model', which is set"):
        OpenAIChatPolicy("http://localhost/v1", model="a", settings={"model": "b"})


def test_a_call_that_is_no_json_and_text_that_looks_like_one_are_not_run() -> None:
    seen: list[str] = []

    def answer(body: Mapping[str, Any]) -> tuple[int, Any]:
        seen.append(body["messages"][-1]["content"])
        if len(seen) == 1:
            return reply(None, ("look", '{"key": "a"'))
        if len(seen) == 2:
            return reply('<tool_call>{"name": "submit", "arguments": {"answer": "7"}}</tool_call>')
        return reply(None, ("submit", '{"answer": "8"}'))

    assert evaluated(answer)[1].outcome == 0.0
    assert seen[1].startswith("error: this call could not be read")
    assert seen[2] == "Call a tool, or submit your answer."


def test_a_reply_that_was_cut_off_is_not_gone_on_with() -> None:
    with pytest.raises(Refused, match="cut off; give it more room"):
        evaluated(lambda body: reply("Let me think about", finish="length", tokens=64))


def test_what_may_pass_is_tried_again() -> None:
    faults = iter([(503, {"error": "busy"}), (500, {"error": "oops"})])
    hosted, found = evaluated(lambda body: next(faults, None) or looks_once(body))
    assert found.outcome == 1.0
    assert len(hosted.bodies) == 4


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"choices": []},
        {"choices": [{"message": {"content": "x"}, "finish_reason": "content_filter"}]},
        {"choices": [{"message": None, "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": 3}, "finish_reason": "stop"}]},
        {"choices": [{"message": {"tool_calls": [{"id": "c"}]}, "finish_reason": "stop"}]},
    ],
)
def test_a_reply_of_another_form_is_corrupt(body: Any) -> None:
    with pytest.raises(CorruptReply):
        evaluated(lambda asked: (200, body))


def test_ids_stand_for_messages_and_are_given_once() -> None:
    policy = OpenAIChatPolicy("http://localhost/v1", model="big", api_key="sk-secret")
    ids = policy.render([Message("user", "hello"), Message("user", "hello")])
    assert ids[1] == ids[2] != ids[0]
    assert policy.decode(ids) == "hellohello"
    assert policy.continuation([Message("user", "hello")], closed=True) == ids[1:2]
    with pytest.raises(ConfigError, match="cut off"):
        policy.continuation([Message("user", "x")], closed=False)
    with pytest.raises(Refused, match="has not given"):
        anyio.run(policy.generate, (99,), Sampling(temperature=1.0, top_p=1.0))
    assert "secret" not in repr(policy)
