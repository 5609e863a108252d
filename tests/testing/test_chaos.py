"""The chaos server: each fault is read by a client as it says of itself."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from focus import Execution, RetryPolicy, Sampling, SGLangPolicy
from focus.errors import (
    Aborted,
    ConfigError,
    CorruptReply,
    FatalError,
    Refused,
    RequestError,
    TransientError,
)
from focus.execution import RequestCounts
from focus.testing.chaos import (
    FAULTS,
    Alone,
    ChaosServer,
    Fault,
    Kind,
    Mix,
    NonceTokenizer,
    Pairs,
    fault_named,
)
from focus.testing.policies import END
from focus.tokens import Generation

READ_AS: dict[Kind, type] = {
    Kind.HARMLESS: Generation,
    Kind.TRANSIENT: TransientError,
    Kind.DATA: Refused,
    Kind.CORRUPT: CorruptReply,
    Kind.ABORT: Aborted,
    Kind.FATAL: FatalError,
}
PREFIX = tuple(b"user: Walk.\nassistant: ")


async def asked(policy: SGLangPolicy, name: str, *, deadline_s: float = 60.0) -> Any:
    """The reply to one try, or its error."""
    run = Execution(deadline_s=deadline_s, retry=RetryPolicy(attempts=1, corrupt_attempts=1))
    try:
        found = await run.generate(
            policy,
            PREFIX,
            Sampling(temperature=1.0, max_tokens=4),
            name=name,
            tree="t",
            version="chaos-1",
            counts=RequestCounts(),
        )
    except RequestError as error:
        return error
    return found.generation


async def each_of(fault: Fault, times: int) -> tuple[list[Any], ChaosServer]:
    """Replies that all have the fault; only silence ends at the deadline."""
    deadline_s = 0.15 if fault.is_silent else 60.0
    async with ChaosServer(Alone(fault)) as server:
        policy = SGLangPolicy(server.url, tokenizer=NonceTokenizer())
        await policy.refresh()
        found = [
            await asked(policy, f"t/{index}/0", deadline_s=deadline_s) for index in range(times)
        ]
        await policy.aclose()
    return found, server


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_client_reads_each_fault_as_it_is_declared(fault: Fault) -> None:
    found, server = asyncio.run(each_of(fault, 1))
    expected = READ_AS[fault.kind] if fault.is_detectable else Generation
    assert isinstance(found[0], expected), repr(found[0])
    (entry,) = server.ledger.entries
    assert entry.fault is fault
    if isinstance(found[0], Generation):
        assert entry.whole
        is_true = (found[0].ids, found[0].log_probs) == (entry.sample.ids, entry.sample.log_probs)
        assert is_true == (fault.kind is Kind.HARMLESS)


@pytest.mark.parametrize("name", ["delivered_twice", "stale_keep_alive", "reset_after_body"])
def test_what_comes_after_a_harmless_reply_is_taken_for_no_other(name: str) -> None:
    found, server = asyncio.run(each_of(fault_named(name), 6))
    truth = {entry.rid.partition("~")[0]: entry.sample.ids for entry in server.ledger.entries}
    replies = [reply for reply in found if isinstance(reply, Generation)]
    assert replies
    assert all(truth[reply.request_id] == reply.ids for reply in replies)
    assert {type(reply) for reply in found} <= {Generation, TransientError}


def test_faults_have_names_of_their_own_and_every_family_has_some() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) > 70
    assert all(count >= 5 for count in Counter(fault.family for fault in FAULTS).values())
    assert sum(not fault.is_detectable for fault in FAULTS) == 4
    with pytest.raises(ConfigError, match="no fault is called 'x'"):
        fault_named("x")


def test_a_mix_depends_on_seed_and_name_alone_and_keeps_its_shares() -> None:
    names = [f"t/{number}" for number in range(20_000)]
    plan, other = Mix(seed=3), Mix(seed=4)
    drawn = [plan.fault(name, 0) for name in names]
    assert drawn == [plan.fault(name, 7) for name in names]
    assert drawn != [other.fault(name, 0) for name in names]
    count = Counter("clean" if fault is None else fault.kind.value for fault in drawn)
    assert abs(count["transient"] / len(names) - 0.25) < 0.01
    assert abs((count["corrupt"] + count["abort"]) / len(names) - 0.10) < 0.01
    assert abs((count["fatal"] + count["data"]) / len(names) - 0.05) < 0.01
    assert {fault for fault in drawn if fault} == {f for f in FAULTS if f.is_detectable}


def test_pairs_meet_every_ordered_pair_once() -> None:
    plan = Pairs(FAULTS)
    order = [plan.fault("", number) for number in range(plan.period + 1)]
    pairs = Counter(itertools.pairwise(order))
    assert plan.period == len(FAULTS) ** 2 == len(pairs)
    assert set(pairs.values()) == {1}


def test_replies_carry_ids_that_occur_once() -> None:
    async def main() -> list[Generation]:
        async with ChaosServer() as server:
            policy = SGLangPolicy(server.url, tokenizer=NonceTokenizer())
            await policy.refresh()
            found = [await asked(policy, f"t/{index}/0") for index in range(40)]
            await policy.aclose()
        return found

    replies = asyncio.run(main())
    nonces = [token for reply in replies for token in reply.ids if token > END]
    assert len(nonces) == len(set(nonces)) == 40
    values = [value for reply in replies for value in reply.log_probs]
    assert len(set(values)) == len(values)


def test_the_page_counts_the_faults_as_they_are() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/promises.md").read_text()
    count = Counter(f.kind.value if f.is_detectable else "undetectable" for f in FAULTS)
    assert f"seeded plan of {len(FAULTS)} faults" in page
    for kind, number in count.items():
        assert f"\n| {kind} | {number} |" in page
