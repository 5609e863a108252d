"""The probe of log-prob conventions: right, or unclear; never wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import CorruptReply
from focus.policies.convention import LogProbConvention, judge, probe_convention
from focus.promises.agreement import OneStep, reported
from focus.tokens import Generation, TokenIds

PROCESSED, RAW, DIVIDED, UNCLEAR = LogProbConvention

logits = st.lists(st.floats(-6, 6), min_size=2, max_size=40)
temperatures = st.sampled_from([0.3, 0.5, 0.7, 1.5, 2.0])


@given(z=logits, temperature=temperatures, convention=st.sampled_from([PROCESSED, RAW, DIVIDED]))
def test_whatever_was_seen_the_truth_is_never_ruled_out(
    z: list[float], temperature: float, convention: LogProbConvention
) -> None:
    plain = dict(enumerate(reported(z, 1.0, convention)))
    tempered = dict(enumerate(reported(z, temperature, convention)))
    for seen in (plain.keys(), list(plain)[:1]):
        verdict = judge(
            {token: plain[token] for token in seen},
            tempered,
            temperature=temperature,
            vocab_size=len(z),
        )
        assert verdict in (convention, UNCLEAR)


@pytest.mark.anyio
@pytest.mark.parametrize("vocab_size", [4, None])
@pytest.mark.parametrize("convention", [PROCESSED, RAW, DIVIDED])
async def test_a_hesitating_model_is_told_apart(
    convention: LogProbConvention, vocab_size: int | None
) -> None:
    policy = OneStep((0.0, 1.0, 1.5, -1.0), convention)
    policy.vocab_size = vocab_size
    assert await probe_convention(policy, (0,)) is convention
    assert policy.requests <= 96


@pytest.mark.anyio
async def test_a_certain_model_tells_nothing() -> None:
    policy = OneStep((0.0, 60.0), PROCESSED)
    assert await probe_convention(policy, (0,)) is UNCLEAR
    assert policy.requests == 96


@pytest.mark.anyio
async def test_it_goes_on_until_the_model_hesitates() -> None:
    class Later(OneStep):
        async def generate(self, prefix: TokenIds, *args: Any, **options: Any) -> Generation:
            self.logits = (0.0, 60.0) if len(prefix) < 4 else (0.0, 1.0)
            return await super().generate(prefix, *args, **options)

    for convention in (PROCESSED, RAW, DIVIDED):
        assert await probe_convention(Later((0.0, 0.0), convention), (0,)) is convention


@pytest.mark.anyio
async def test_two_log_probs_for_one_id_are_corrupt() -> None:
    """B26: what depends on the order of requests is no log-prob of the sampled law."""

    class Drifting(OneStep):
        async def generate(self, *args: Any, **options: Any) -> Generation:
            reply = await super().generate(*args, **options)
            drift = -3.0 - 2.0 * self.requests
            return Generation(reply.ids, (drift,), reply.finish, reply.version)

    with pytest.raises(CorruptReply, match="has log-prob"):
        await probe_convention(Drifting((0.0, 60.0), RAW), (0,))
