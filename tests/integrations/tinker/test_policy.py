"""TinkerPolicy on the real SDK: exact tokens, siblings in one call, typed faults."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import tinker

from focus import Policy, Problem, Sampling, TinkerPolicy
from focus.errors import ConfigError, FatalError, Refused, TransientError
from focus.execution.checks import check_generation, check_shape
from focus.integrations.tinker import audit_log_probs, require_training_law
from focus.policies.base import Conversing
from focus.policies.convention import LogProbConvention, probe_convention
from focus.policies.tinker_models import served_model
from focus.tasks.arithmetic import prompt_messages
from focus.testing.tinker_service import Fault, FaultKind, TinkerService
from focus.tokens import FinishReason, TokenIds

PROBLEM = Problem(id=1, prompt="Compute 37 + 5 - 8 + 6.", label="40")
CONVENTIONS = [kind for kind in LogProbConvention if kind is not LogProbConvention.UNCLEAR]

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def policy(client: Any, tokenizer: Any) -> TinkerPolicy:
    return policy_on(client, tokenizer)


def policy_on(client: Any, tokenizer: Any) -> TinkerPolicy:
    sampler = client.create_sampling_client(base_model="builtin").result()
    return TinkerPolicy(sampler, version="v0", tokenizer=tokenizer, context_limit=512)


@pytest.fixture(scope="module")
def prefix(policy: TinkerPolicy) -> TokenIds:
    return policy.render(prompt_messages(PROBLEM))


async def test_a_reply_is_exact_and_sound(policy: TinkerPolicy, prefix: TokenIds) -> None:
    assert isinstance(policy, Policy)
    assert isinstance(policy, Conversing)
    sampling = Sampling(max_tokens=12, seed=3)
    reply = await policy.generate(prefix, sampling)
    check_shape(reply)
    check_generation(reply, sampling, version="v0", vocab_size=policy.vocab_size)
    assert reply.finish is FinishReason.LENGTH
    assert await policy.log_probs(prefix, reply.ids) == pytest.approx(reply.log_probs, abs=1e-4)


async def test_the_end_is_the_last_id(policy: TinkerPolicy, prefix: TokenIds) -> None:
    reply = await policy.generate(prefix, Sampling(max_tokens=200, seed=3))
    assert reply.finish is FinishReason.STOP
    assert reply.ids[-1] == policy.tokenizer.eos_token_id


async def test_stop_ids_come_beside_the_models_own_end(
    policy: TinkerPolicy, prefix: TokenIds
) -> None:
    (newline,) = policy.tokenizer.encode("\n", add_special_tokens=False)
    sampling = Sampling(max_tokens=200, seed=3, stop=(newline,))
    line = await policy.generate(prefix, sampling)
    assert line.ids[-1] == newline
    ended = await policy.generate((*prefix, *policy.tokenizer.encode(r"\boxed{40}")), sampling)
    assert ended.ids[-1] == policy.tokenizer.eos_token_id


async def test_siblings_are_one_call(policy: TinkerPolicy, prefix: TokenIds) -> None:
    tasks = [policy.generate(prefix, Sampling(max_tokens=24, seed=seed)) for seed in range(4)]
    replies = await asyncio.gather(*tasks)
    calls = {reply.request_id.rpartition(":")[0] for reply in replies}
    assert len(calls) == 1
    assert len({reply.request_id for reply in replies}) == 4
    assert len({reply.ids for reply in replies}) > 1
    assert [reply.cached_tokens for reply in replies[1:]] == [len(prefix)] * 3


async def test_other_settings_are_other_calls(policy: TinkerPolicy, prefix: TokenIds) -> None:
    lengths = (4, 5)
    tasks = [policy.generate(prefix, Sampling(max_tokens=most)) for most in lengths]
    replies = await asyncio.gather(*tasks)
    assert [len(reply.ids) for reply in replies] == [4, 5]
    assert replies[0].request_id.rpartition(":")[0] != replies[1].request_id.rpartition(":")[0]


async def test_a_cancelled_sibling_takes_nothing_from_the_others(
    policy: TinkerPolicy, prefix: TokenIds
) -> None:
    tasks = [
        asyncio.ensure_future(policy.generate(prefix, Sampling(max_tokens=8))) for _ in range(3)
    ]
    await asyncio.sleep(0)
    tasks[1].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(done[1], asyncio.CancelledError)
    assert [len(done[0].ids), len(done[2].ids)] == [8, 8]


async def test_what_does_not_fit_is_refused_before_it_is_sent(
    policy: TinkerPolicy, prefix: TokenIds
) -> None:
    for wrong, most in (((), 4), (prefix, 512)):
        with pytest.raises(Refused):
            await policy.generate(wrong, Sampling(max_tokens=most))


async def test_the_service_says_what_it_serves(service: TinkerService) -> None:
    rest = tinker.RestClient(base_url=service.url, api_key=service.api_key)
    model = await served_model("builtin", rest_client=rest)
    assert (model.context_limit, model.trainable, model.sampleable) == (512, True, True)
    with pytest.raises(ConfigError, match="it has: builtin"):
        await served_model("llama", rest_client=rest)


@pytest.mark.parametrize("kind", [FaultKind.BUSY, FaultKind.UNAVAILABLE, FaultKind.REPLY_LOST])
async def test_what_the_sdk_is_patient_with_is_not_seen(
    service: TinkerService, policy: TinkerPolicy, prefix: TokenIds, kind: FaultKind
) -> None:
    service.faults.add(Fault("asample", kind))
    reply = await policy.generate(prefix, Sampling(max_tokens=4))
    assert len(reply.ids) == 4
    assert service.faults.shown[-1] is kind


async def test_a_lost_sample_is_drawn_again(
    service: TinkerService, policy: TinkerPolicy, prefix: TokenIds
) -> None:
    service.faults.add(Fault("asample", FaultKind.GONE))
    assert len((await policy.generate(prefix, Sampling(max_tokens=4))).ids) == 4
    assert service.faults.shown[-1] is FaultKind.GONE


async def test_a_failed_sample_may_be_tried_again(
    service: TinkerService, policy: TinkerPolicy, prefix: TokenIds
) -> None:
    service.faults.add(Fault("asample", FaultKind.FAILED))
    tasks = [policy.generate(prefix, Sampling(max_tokens=4)) for _ in range(2)]
    failed = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in failed] == [TransientError, TransientError]
    assert failed[0] is not failed[1]


async def test_a_request_that_the_service_refuses_is_not_repeated(
    client: Any, tokenizer: Any, prefix: TokenIds
) -> None:
    sampler = client.create_sampling_client(base_model="builtin").result()
    blind = TinkerPolicy(sampler, version="v0", tokenizer=tokenizer)
    with pytest.raises(Refused, match="exceed the context"):
        await blind.generate(prefix, Sampling(max_tokens=512))


@pytest.fixture
def other_service() -> Iterator[TinkerService]:
    with TinkerService() as running:
        yield running


async def test_a_service_that_started_anew_knows_nobody(
    other_service: TinkerService, tokenizer: Any, prefix: TokenIds
) -> None:
    address = {"base_url": other_service.url, "api_key": other_service.api_key}
    with tinker.ServiceClient(**address) as client:
        policy = await asyncio.to_thread(policy_on, client, tokenizer)
        other_service.faults.add(Fault("asample", FaultKind.RESTART))
        with pytest.raises(FatalError, match="no sampling session"):
            await policy.generate(prefix, Sampling(max_tokens=4))


@pytest.mark.parametrize("convention", CONVENTIONS)
async def test_the_meaning_of_log_probs_is_found_out_and_temperature_refused(
    convention: LogProbConvention, tokenizer: Any, prefix: TokenIds
) -> None:
    with TinkerService(convention=convention) as service:
        address = {"base_url": service.url, "api_key": service.api_key}
        with tinker.ServiceClient(**address) as client:
            policy = await asyncio.to_thread(policy_on, client, tokenizer)
            assert await probe_convention(policy, prefix) is convention
            with pytest.raises(ConfigError, match="Tinker's learner works at 1"):
                await require_training_law(policy, prefix, temperature=0.5)
            assert (await require_training_law(policy, prefix)).mean_gap < 1e-4


class Skewed(TinkerPolicy):
    """Recomputed log-probs are of other weights."""

    async def log_probs(self, prefix: TokenIds, ids: TokenIds) -> tuple[float, ...]:
        return tuple(value - 0.2 for value in await super().log_probs(prefix, ids))


async def test_log_probs_of_another_law_are_refused(
    client: Any, tokenizer: Any, prefix: TokenIds
) -> None:
    sampler = client.create_sampling_client(base_model="builtin").result()
    skewed = Skewed(sampler, version="v0", tokenizer=tokenizer)
    assert (await audit_log_probs(skewed, prefix)).mean_gap == pytest.approx(0.2, abs=1e-3)
    with pytest.raises(ConfigError, match=r"differ by 0\.2 nats"):
        await require_training_law(skewed, prefix)
