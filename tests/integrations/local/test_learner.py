"""Actor, critic and sampler of one process: what is published is what is sampled from."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from focus import Sampling
from focus.critic.surprisal import SURPRISAL, surprisal_profile
from focus.errors import CriticError, StoreError
from focus.integrations.local import LocalLearner
from focus.models import BUILTIN
from focus.policies.transformers import TransformersPolicy
from focus.records.records import CriticContext, CriticRecord, RecordKey
from focus.training.settings import ActorSettings, CriticSettings, TrainSettings
from focus.tree import Identity

if TYPE_CHECKING:
    from tests.integrations.local.conftest import Batch

SETTINGS = TrainSettings(
    temperature=0.9,
    actor=ActorSettings(learning_rate=1e-3, minibatches=1),
    critic=CriticSettings(steps=2),
)


@asynccontextmanager
async def opened() -> AsyncIterator[LocalLearner]:
    learner = LocalLearner(SETTINGS, device="cpu")
    try:
        yield learner
    finally:
        await learner.aclose()


async def reply_of(policy: TransformersPolicy) -> tuple[int, ...]:
    reply = await policy.generate((5, 6, 7), Sampling(temperature=1.0, max_tokens=24, seed=3))
    assert reply.version == policy.version
    return reply.ids


def trained(learner: LocalLearner, batch: Batch, *, round_index: int) -> None:
    learner.update_critic(batch.critic, seed=round_index)
    learner.update_actor(batch.actor("path"), seed=round_index)
    learner.publish(round_index)


def test_a_surprisal_critic_is_published_saved_and_restored(tmp_path: Path) -> None:
    async def main() -> None:
        settings = dataclasses.replace(SETTINGS, critic=CriticSettings(kind="surprisal"))
        first = LocalLearner(settings, device="cpu")
        again = LocalLearner(settings, device="cpu")
        try:
            records = [surprised(-float(i), float(i < 3)) for i in range(6)]
            contexts = [record.context for record in records]
            assert await first.critic().score(contexts) == pytest.approx([0.5] * 6)
            first.update_critic(records, seed=0)
            first.publish(0)
            assert first.critic().version == "critic-0001"
            values = await first.critic().score(contexts)
            assert values == sorted(values, reverse=True)
            first.save(tmp_path)
            again.load(tmp_path)
            assert again.critic().version == "critic-0001"
            assert await again.critic().score(contexts) == values
        finally:
            await first.aclose()
            await again.aclose()

    asyncio.run(main())


def surprised(log_prob: float, target: float) -> CriticRecord:
    source = RecordKey(
        identity=Identity(run="t"), problem="p", key="p", policy_version="a", critic_version="c"
    )
    text = json.dumps(surprisal_profile([log_prob]))
    context = CriticContext(renderer=SURPRISAL, text=text)
    return CriticRecord(
        source=source, node=0, context=context, target=target, count=1, prior=0.5, depth=0
    )


def test_training_shows_only_once_it_is_published(batch: Batch) -> None:
    async def main() -> None:
        async with opened() as learner:
            context = batch.critic[0].context
            before = {n: w.clone() for n, w in learner.policy.model.state_dict().items()}
            critic = learner.critic()
            assert await critic.score([context]) == [0.5]
            learner.update_actor(batch.actor("path"), seed=0)
            learner.update_critic(batch.critic, seed=0)
            now = learner.policy.model.state_dict()
            assert all(torch.equal(before[name], now[name]) for name in before)
            assert (learner.policy.version, learner.critic().version) == (
                "actor-0000",
                "critic-0000",
            )
            learner.publish(0)
            now = learner.policy.model.state_dict()
            assert not all(torch.equal(before[name], now[name]) for name in before)
            assert (learner.policy.version, learner.critic().version) == (
                "actor-0001",
                "critic-0001",
            )
            with pytest.raises(CriticError, match="critic-0001"):
                await critic.score([context])
            assert await learner.critic().score([context]) != [0.5]

    asyncio.run(main())


def test_a_restored_learner_samples_and_trains_on_as_if_nothing_happened(
    batch: Batch, tmp_path: Path
) -> None:
    async def main() -> None:
        async with opened() as straight, opened() as second:
            trained(straight, batch, round_index=0)
            straight.save(tmp_path)
            second.load(tmp_path)
            assert second.policy.version == "actor-0001"
            assert second.critic().version == "critic-0001"
            assert second.optimizer_steps == straight.optimizer_steps == 1
            for learner in (straight, second):
                trained(learner, batch, round_index=1)
            assert await reply_of(second.policy) == await reply_of(straight.policy)
            contexts = [dataclasses.replace(record.context) for record in batch.critic]
            assert await second.critic().score(contexts) == await straight.critic().score(contexts)
            left, right = straight.policy.model.state_dict(), second.policy.model.state_dict()
            assert all(torch.equal(left[name], right[name]) for name in left)

    asyncio.run(main())
    kinds = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert kinds == {".json", ".safetensors"}


def test_an_exported_policy_is_a_model_folder(batch: Batch, tmp_path: Path) -> None:
    async def main() -> None:
        async with opened() as learner:
            trained(learner, batch, round_index=0)
            learner.export(tmp_path)
            expected = await reply_of(learner.policy)
        async with TransformersPolicy(tmp_path, dtype="float32", device="cpu") as policy:
            assert await reply_of(policy) == expected
            assert policy.tokenizer_hash == batch.critic[0].context.tokenizer_hash

    asyncio.run(main())


@pytest.mark.parametrize("lost", ["learner.json", "actor", "critic"])
def test_a_checkpoint_that_lost_a_part_is_refused(lost: str, batch: Batch, tmp_path: Path) -> None:
    async def main() -> None:
        async with opened() as learner:
            trained(learner, batch, round_index=0)
            learner.save(tmp_path)
            (tmp_path / lost).rename(tmp_path / "lost")
            with pytest.raises(StoreError):
                learner.load(tmp_path)

    asyncio.run(main())


def test_the_shipped_model_is_where_it_should_be() -> None:
    assert (BUILTIN / "model.safetensors").is_file()
