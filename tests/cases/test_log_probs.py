"""Family (c): a log-prob is the sampled law's, finite, the reply's own, or the reply is refused."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policies.loopback import Answer
from tests.slime.host.arguments import slime_args
from tests.slime.walks import Walks, prompt

from focus import Problem, Sampling, Search
from focus.errors import CollectionFailed, ConfigError, CorruptReply
from focus.integrations.slime import make_generate
from focus.policies.convention import LogProbConvention, judge, probe_convention
from focus.policies.sglang_wire import Asked, generate_payload, read_reply
from focus.testing.envs import WalkEnv
from focus.testing.policies import END, ScriptedPolicy
from focus.tokens import FinishReason, Generation

from .servers import Engine, collect, grow, sampled, served, written

pytestmark = pytest.mark.anyio

ASK = {"rid": "r", "input_ids": [1, 2]}


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize("position", [0, 7, 9])
async def test_b19_a_number_that_is_none_refuses_the_whole_reply(
    literal: str, position: int
) -> None:
    """The error says which value stood where; nothing is clamped."""

    def write(asked: Mapping[str, Any], number: int) -> Answer:
        body = sampled(asked, [65] * 10)
        body["meta_info"]["output_token_logprobs"][position][0] = "HERE"
        return Answer(json.dumps(body).replace('"HERE"', literal).encode())

    with pytest.raises(CollectionFailed) as caught:
        await grow(Engine(write), WalkEnv(), segment=10)
    fault = caught.value.__cause__
    assert isinstance(fault, CorruptReply)
    assert literal in str(fault)
    assert f"[{position}]" in str(fault)


@settings(max_examples=40)
@given(
    good=st.lists(st.floats(-50, 0), min_size=1, max_size=8),
    bad=st.sampled_from([math.nan, math.inf, -math.inf, None, True, "-0.1", 0.5, 10**400, [0.1]]),
    where=st.integers(0, 8),
)
def test_b19_b20_one_bad_value_among_good_ones_is_named(
    good: list[float], bad: Any, where: int
) -> None:
    """Whatever stands where a log-prob should: refused by position, never replaced."""
    position = min(where, len(good))
    values = [*good[:position], bad, *good[position:]]
    body = sampled(ASK, [5] * len(values), log_probs=values)
    if bad == 0.5:
        return  # a number above 0 is found when the reply is checked against its request
    with pytest.raises(CorruptReply, match=f"at position {position}"):
        read_reply(body, Asked("r", "r", 2))


def nulls(asked: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The second request of every second rollout comes back with null in its middle."""
    body = written("abcdefgh")(asked, number)
    rollout, index, _ = map(int, asked["rid"].partition("~")[0].split("/")[-3:])
    if rollout % 2 and index == 1:
        body["meta_info"]["output_token_logprobs"][1][0] = None
    return body


async def test_b20_under_allow_partial_a_null_child_is_absent_and_not_zero() -> None:
    engine = Engine(nulls)
    with pytest.raises(CollectionFailed, match=r"log-prob None at position 1"):
        await grow(engine, WalkEnv(), search=Search.flat(4))
    found = await grow(Engine(nulls), WalkEnv(), search=Search.flat(4), allow_partial=True)
    assert found.ledger.expansions_failed == 2
    values = {value for record in found.actor for value in record.log_probs}
    assert values == {-0.25}
    assert len(found.root_outcomes) == 2


LOGITS = (0.0, 1.0)
CONVENTIONS = {
    LogProbConvention.PROCESSED: lambda logits, t: log_softmax([z / t for z in logits]),
    LogProbConvention.RAW: lambda logits, t: log_softmax(logits),
    LogProbConvention.DIVIDED: lambda logits, t: [v / t for v in log_softmax(logits)],
}


def log_softmax(logits: Sequence[float]) -> list[float]:
    total = math.log(math.fsum(map(math.exp, logits)))
    return [z - total for z in logits]


class TwoTokens(ScriptedPolicy):
    """Logits (0, 1) for ever; reports its log-probs under one convention."""

    def __init__(self, convention: LogProbConvention) -> None:
        super().__init__(lambda *_: "", train_temperature=0.5)
        self.vocab_size = 2
        self._report = CONVENTIONS[convention]

    async def generate(self, prefix: Any, sampling: Sampling, *, tag: Any = None) -> Generation:
        temperature = sampling.law[0]
        weights = [math.exp(z / temperature) for z in LOGITS]
        (token,) = random.Random(sampling.seed).choices((0, 1), weights)
        value = self._report(LOGITS, temperature)[token]
        return Generation((token,), (value,), FinishReason.LENGTH, self.version)


def test_b22_the_three_values_of_the_case() -> None:
    by_convention = {name: report(LOGITS, 0.5)[1] for name, report in CONVENTIONS.items()}
    assert by_convention == {
        LogProbConvention.PROCESSED: pytest.approx(-0.1269, abs=1e-4),
        LogProbConvention.RAW: pytest.approx(-0.3133, abs=1e-4),
        LogProbConvention.DIVIDED: pytest.approx(-0.6265, abs=1e-4),
    }
    plain = {1: log_softmax(LOGITS)[1]}
    for name, value in by_convention.items():
        assert judge(plain, {1: value}, temperature=0.5, vocab_size=2) is name


@pytest.mark.parametrize("convention", CONVENTIONS)
async def test_b22_a_probe_tells_how_log_probs_are_reported(convention: LogProbConvention) -> None:
    assert await probe_convention(TwoTokens(convention), (1,)) is convention


@pytest.mark.parametrize("convention", [LogProbConvention.RAW, LogProbConvention.DIVIDED])
async def test_b22_a_server_with_another_convention_is_refused_at_start_up(
    convention: LogProbConvention,
) -> None:
    model = TwoTokens(convention)

    async def write(asked: Mapping[str, Any], number: int) -> dict[str, Any]:
        params = asked["sampling_params"]
        sampling = Sampling(temperature=params["temperature"], seed=params["sampling_seed"])
        made = await model.generate((), sampling)
        return sampled(asked, made.ids, log_probs=made.log_probs, finish="length")

    async with served(Engine(write), train_temperature=0.5) as policy:
        with pytest.raises(ConfigError, match=f"{convention.value} log-probs"):
            await policy.probe()


async def test_b22_a_value_is_exported_as_it_came_at_any_temperature() -> None:
    value = log_softmax([0.0, 2.0])[1]

    def write(asked: Mapping[str, Any], number: int) -> dict[str, Any]:
        return sampled(asked, [65, END], log_probs=[value, value])

    async with served(Engine(write), train_temperature=0.5) as policy:
        found = await collect(policy, WalkEnv())
    (record,) = found.actor
    assert record.log_probs == (value, value)
    assert record.temperature == 0.5


LAWS = [
    ({"rollout_top_p": 1.0}, {"top_p": 0.9}, r"--rollout-top-p.*1\.0.*0\.9"),
    ({"rollout_temperature": 0.7}, {"temperature": 1.0}, r"--rollout-temperature.*0\.7.*1\.0"),
    ({"rollout_temperature": 1.0}, {"temperature": 0.7}, r"--rollout-temperature.*1\.0.*0\.7"),
    ({}, {"top_k": 5}, r"--rollout-top-k.*-1.*5"),
    ({"rollout_top_p": 0.9}, {"top_p": 0.9}, r"--rollout-top-p"),
    ({"rollout_top_k": 5}, {"top_k": 5}, r"--rollout-top-k"),
]


@pytest.mark.usefixtures("slime")
@pytest.mark.parametrize(("trainer", "sampler", "message"), LAWS)
async def test_b23_trainer_and_sampler_agree_or_nothing_is_sent(
    trainer: dict[str, Any], sampler: dict[str, Any], message: str
) -> None:
    """Temperature, top-p and top-k are compared at the first hook call; both values are named."""
    walks = Walks(sampling=Sampling(**sampler))
    hook = make_generate(walks, profile="token_chunk")
    with pytest.raises(ConfigError, match=message):
        await hook(slime_args(**trainer), prompt(0), {})
    assert walks.requests == 0


class Caching:
    """A server with a prefix cache, which a request for the prompt's log-probs disables."""

    def __init__(self) -> None:
        self._seen: list[list[int]] = []
        self.shares: list[float] = []

    def __call__(self, asked: Mapping[str, Any], number: int) -> dict[str, Any]:
        prefix = asked["input_ids"]
        wants_input = asked.get("logprob_start_len", -1) >= 0 or asked.get("top_logprobs_num")
        cached = 0 if wants_input else max((_common(prefix, s) for s in self._seen), default=0)
        self._seen.append(prefix)
        self.shares.append(cached / len(prefix))
        return sampled(asked, [65 + number, END], cached_tokens=min(cached, len(prefix) - 1))


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(b))


async def test_b25_siblings_find_their_prefix_in_the_servers_cache() -> None:
    """Only log-probs of sampled ids are asked for; 7 of 8 children reuse 90 % of 4,000 ids."""
    cache = Caching()
    engine = Engine(cache)
    problem = Problem(id=1, prompt="x" * 4000)
    found = await grow(engine, WalkEnv(), problem=problem, search=Search.flat(8))
    assert sorted(cache.shares)[1] >= 0.9
    cached, needed = found.ledger.tokens_cached, found.ledger.tokens_submitted
    assert cached is not None
    assert cached >= 0.9 * needed * 7 / 8
    for payload in engine.payloads:
        assert {name for name in payload if "logprob" in name} == {"return_logprob"}


@given(
    prefix=st.lists(st.integers(0, 256), min_size=1, max_size=5),
    temperature=st.floats(0.1, 2),
    top_k=st.none() | st.integers(1, 50),
)
def test_b25_no_request_asks_for_log_probs_of_its_input(
    prefix: list[int], temperature: float, top_k: int | None
) -> None:
    law = Sampling(temperature=temperature, top_k=top_k)
    payload = generate_payload(prefix, law, max_tokens=3, rid="r")
    assert not {"logprob_start_len", "top_logprobs_num", "token_ids_logprob"} & payload.keys()


async def test_b26_log_probs_of_a_prompt_are_never_taken() -> None:
    """A server that tells others for the same prefix each time changes nothing."""
    noise = random.Random(3)

    def write(asked: Mapping[str, Any], number: int) -> dict[str, Any]:
        own = [-0.001 * (1 + token) for token in asked["input_ids"][-1:]]
        body = written("abcdefghijkl")(asked, number)
        pairs = body["meta_info"]["output_token_logprobs"]
        body["meta_info"]["output_token_logprobs"] = [
            [own[0] - 0.01 * k, token, None] for k, (_, token, _) in enumerate(pairs)
        ]
        body["meta_info"]["input_token_logprobs"] = [
            [-noise.random(), token, None] for token in asked["input_ids"]
        ]
        return body

    first = await grow(Engine(write), WalkEnv(), search=Search.two_phase(tokens=60))
    again = await grow(Engine(write), WalkEnv(), search=Search.two_phase(tokens=60))
    assert len(first.tree) > 5
    assert [r.log_probs for r in first.actor] == [r.log_probs for r in again.actor]
    by_context: dict[tuple[int, ...], tuple[float, ...]] = {}
    for record in first.actor:
        kept = by_context.setdefault(record.prefix, record.log_probs)
        assert kept == record.log_probs
