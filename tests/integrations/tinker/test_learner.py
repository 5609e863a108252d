"""What Tinker trains on is what the local trainer trains on; the critic learns its targets."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tinker
import torch

from focus import (
    Agent,
    Allowance,
    Collection,
    Collector,
    Critic,
    DirectBranchTd,
    Sampling,
    Search,
    Segments,
)
from focus.errors import StoreError, TrainerError
from focus.integrations.local import ActorTrainer
from focus.integrations.tinker import (
    TinkerLearner,
    TinkerSettings,
    Verdict,
    VerdictText,
    actor_datum,
    loss_config,
    pack_paths,
    verdict_critic,
)
from focus.policies.transformers import TransformersPolicy
from focus.records import ActorRecord, CriticContext, CriticRecord
from focus.rendering.tokenizers import tokenizer_hash
from focus.tasks.registry import load_task
from focus.testing.records import critic_record
from focus.testing.tinker_service import Fault, FaultKind, TinkerService
from focus.training.settings import ActorSettings, CriticSettings, TrainSettings

LOW, HIGH = 0.2, 0.28
ACTOR = ActorSettings(clip_low=LOW, clip_high=HIGH, learning_rate=1e-4, minibatches=1)
SETTINGS = TrainSettings(
    model="builtin",
    rounds=3,
    actor=ACTOR,
    critic=CriticSettings(learning_rate=3e-3, steps=24, batch_contexts=8, count_weight=0.0),
)
TINKER = TinkerSettings(rank=8, verdict=VerdictText(suffix="?", yes="y", no="n"))


async def collected() -> list[Collection]:
    """Two trees of the shipped model."""
    task = load_task("demo")
    found = []
    async with TransformersPolicy("builtin", device="cpu", dtype="float32") as policy:
        agent = Agent(
            policy, parser=Segments(12), sampling=Sampling(seed=5), allowance=Allowance(tokens=96)
        )
        for problem in task.problems("train", 2, seed=11):
            collector = Collector(
                agent=agent,
                env=task.env_for(problem),
                search=Search.two_phase(tokens=240),
                critic=Critic.constant(0.5),
                credit=DirectBranchTd(),
                packing="segment",
                own=False,
            )
            async with collector:
                found.append(await collector.collect(problem))
    return found


@pytest.fixture(scope="module")
def collections() -> list[Collection]:
    return asyncio.run(collected())


@pytest.fixture(scope="module")
def records(collections: Sequence[Collection]) -> list[ActorRecord]:
    """With behaviour log-probs moved, so that ratios are off 1 and both clips are hit."""
    moved = []
    for found in collections:
        for record in found.actor:
            shifts = (0.4 * math.sin(7 * place) for place in range(len(record.log_probs)))
            pairs = zip(record.log_probs, record.loss_mask, shifts, strict=True)
            shifted = tuple(min(-1e-4, value + shift) * mask for value, mask, shift in pairs)
            moved.append(dataclasses.replace(record, log_probs=shifted))
    return moved


def data_of(records: Sequence[ActorRecord]) -> list[Any]:
    return [actor_datum(row, prompts=2) for row in pack_paths(records)]


@pytest.fixture
def actor(client: Any) -> Any:
    return client.create_lora_training_client("builtin", rank=8).result()


def test_ppo_has_the_local_trainers_loss_and_gradient(
    service: TinkerService, actor: Any, records: list[ActorRecord]
) -> None:
    model = copy.deepcopy(service.trainee(actor.model_id).module)
    trainer = ActorTrainer(model, ACTOR)
    expected, tally = trainer.accumulate(records, prompts=2)
    assert tally.clipped > 10

    output = actor.forward_backward(data_of(records), "ppo", loss_config("ppo", ACTOR)).result()
    assert output.metrics["loss:sum"] == pytest.approx(expected, rel=1e-5)
    gradients = service.trainee(actor.model_id).gradients()
    largest = max(float(p.grad.abs().max()) for p in model.parameters() if p.grad is not None)
    for name, parameter in model.named_parameters():
        assert float((gradients[name] - parameter.grad).abs().max()) <= 1e-5 * largest, name


@pytest.mark.parametrize("loss", ["importance_sampling", "cispo"])
def test_other_losses_have_the_loss_and_gradient_of_their_formula(
    service: TinkerService, actor: Any, records: list[ActorRecord], loss: Any
) -> None:
    model = copy.deepcopy(service.trainee(actor.model_id).module)
    expected = torch.zeros(())
    for record in records:
        ids = torch.tensor([record.tokens])
        table = torch.log_softmax(model(input_ids=ids).logits[0], dim=-1)
        start = len(record.prefix)
        for offset, mask in enumerate(record.loss_mask):
            if mask:
                now = table[start + offset - 1, record.response[offset]]
                ratio = torch.exp(now - record.log_probs[offset])
                weight = record.weights[offset] / 2
                if loss == "cispo":
                    expected = expected - ratio.clamp(1 - LOW, 1 + HIGH).detach() * now * weight
                else:
                    expected = expected - ratio * weight
    expected.backward()

    output = actor.forward_backward(data_of(records), loss, loss_config(loss, ACTOR)).result()
    assert output.metrics["loss:sum"] == pytest.approx(float(expected.detach()), rel=1e-4)
    gradients = service.trainee(actor.model_id).gradients()
    largest = max(float(p.grad.abs().max()) for p in model.parameters() if p.grad is not None)
    for name, parameter in model.named_parameters():
        assert float((gradients[name] - parameter.grad).abs().max()) <= 1e-5 * largest, name


def test_packing_and_chunks_change_nothing(records: list[ActorRecord], tokenizer: Any) -> None:
    """One datum per segment, one per path, and paths in requests of two."""
    losses, gradients, sizes = [], [], []
    single = [actor_datum(row, prompts=2) for one in records for row in pack_paths([one])]
    for data, chunk in ((single, 1024), (data_of(records), 1024), (data_of(records), 2)):
        with TinkerService(config={"fwdbwd_max_chunk_len": chunk}) as service:
            address = {"base_url": service.url, "api_key": service.api_key}
            with tinker.ServiceClient(**address) as client:
                actor = client.create_lora_training_client("builtin", rank=8).result()
                output = actor.forward_backward(data, "ppo", loss_config("ppo", ACTOR)).result()
                losses.append(output.metrics["loss:sum"])
                gradients.append(service.trainee(actor.model_id).gradients())
                sizes.append(sum(done.tokens for done in service.log))
                assert len(output.loss_fn_outputs) == len(data)
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-5)
    largest = max(float(value.abs().max()) for value in gradients[0].values())
    for other in gradients[1:]:
        for name, value in gradients[0].items():
            assert float((value - other[name]).abs().max()) <= 1e-5 * largest
    assert sizes[0] > sizes[1] == sizes[2]


def test_a_mask_is_not_sent_and_would_be_refused(actor: Any, records: list[ActorRecord]) -> None:
    [datum, *_] = data_of(records)
    assert datum.loss_fn_inputs.keys() == {"target_tokens", "logprobs", "advantages"}
    masked = tinker.Datum(
        model_input=datum.model_input,
        loss_fn_inputs={
            **datum.loss_fn_inputs,
            "mask": tinker.TensorData(data=[1.0] * datum.model_input.length, dtype="float32"),
        },
    )
    with pytest.raises((tinker.RequestFailedError, tinker.BadRequestError), match="mask"):
        actor.forward_backward([masked], "ppo").result()


def context(tokenizer: Any, ids: tuple[int, ...]) -> CriticContext:
    return CriticContext(
        renderer="token_chunk/1", text="", ids=ids, tokenizer_hash=tokenizer_hash(tokenizer)
    )


@pytest.fixture
def learner(client: Any, tokenizer: Any) -> TinkerLearner:
    return TinkerLearner(client, SETTINGS, TINKER, tokenizer=tokenizer, context_limit=512)


def targets_of(tokenizer: Any) -> list[CriticRecord]:
    wanted = {(11, 12, 13): 0.9, (40, 41, 42): 0.2}
    return [
        dataclasses.replace(
            critic_record(node=node, target=target), context=context(tokenizer, ids)
        )
        for node, (ids, target) in enumerate(wanted.items())
    ]


def test_the_critic_learns_its_targets(learner: TinkerLearner, tokenizer: Any) -> None:
    records = targets_of(tokenizer)
    first = learner.update_critic(records, seed=0)
    last = learner.update_critic(records, seed=1)
    assert last["critic_loss"] < first["critic_loss"]
    assert last["critic_answer_mass"] > 0.8
    learner.publish(0)
    values = asyncio.run(learner.critic().score([record.context for record in records]))
    assert values == pytest.approx([record.target for record in records], abs=0.15)


def test_a_score_is_the_share_of_yes_in_a_plain_pass(
    client: Any, service: TinkerService, tokenizer: Any
) -> None:
    verdict = Verdict.of(tokenizer, TINKER.verdict)
    sampler = client.create_sampling_client(base_model="builtin").result()
    critic = verdict_critic(sampler, verdict, version="critic-0000")
    contexts = [context(tokenizer, tuple(range(10, 10 + n))) for n in (1, 5, 9)]
    values = asyncio.run(critic.score(contexts))
    model = service.trainee(client.create_lora_training_client("builtin").result().model_id).module
    with torch.no_grad():
        for value, seen in zip(values, contexts, strict=True):
            logits = model(input_ids=torch.tensor([verdict.prompt(seen)])).logits[0, -1]
            yes, no = logits[verdict.yes], logits[verdict.no]
            assert value == pytest.approx(float(torch.sigmoid(yes - no)), abs=1e-5)


def test_one_call_per_context_and_equal_ones_once(
    client: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = client.create_sampling_client(base_model="builtin").result()
    critic = verdict_critic(sampler, Verdict.of(tokenizer, TINKER.verdict), version="c")
    first = sampler._request_id_counter
    same = context(tokenizer, (10, 11))
    asyncio.run(critic.score([same, context(tokenizer, (12,)), same]))
    assert sampler._request_id_counter - first == 2


def test_a_round_is_saved_and_restored_whole(
    client: Any,
    service: TinkerService,
    learner: TinkerLearner,
    tokenizer: Any,
    records: list[ActorRecord],
    tmp_path: Path,
) -> None:
    learner.update_critic(targets_of(tokenizer), seed=0)
    learner.update_actor(records, seed=0)
    learner.publish(0)
    learner.save(tmp_path)
    other = TinkerLearner(client, SETTINGS, TINKER, tokenizer=tokenizer, context_limit=512)
    other.load(tmp_path)
    assert other.optimizer_steps == 1
    assert other.policy.version == learner.policy.version == "actor-0001"
    for step in (learner, other):
        step.update_actor(records, seed=1)
        step.publish(1)
    one, two = (service.states[step.paths["actor_state"]] for step in (learner, other))
    assert one.history == two.history
    for name, value in one.weights.items():
        assert torch.equal(value, two.weights[name])


def test_the_rate_rises_over_rounds_and_goes_on_after_a_restart(
    client: Any, service: TinkerService, tokenizer: Any, records: list[ActorRecord], tmp_path: Path
) -> None:
    settings = dataclasses.replace(SETTINGS, actor=dataclasses.replace(ACTOR, warmup=3))

    def start() -> TinkerLearner:
        return TinkerLearner(client, settings, TINKER, tokenizer=tokenizer, context_limit=512)

    def taken() -> float:
        [last] = [done for done in service.log if done.route == "optim_step"][-1:]
        return float(service.trainee(last.model_id).optimizer.param_groups[0]["lr"])

    first, second, rates = start(), start(), []
    for step in range(4):
        learner = first if step < 2 else second
        told = learner.update_actor(records, seed=step)["optim/lr"]
        assert told == taken()
        rates.append(told)
        if step == 1:
            first.publish(0)
            first.save(tmp_path)
            second.load(tmp_path)
    assert rates == pytest.approx([ACTOR.learning_rate * part for part in (1 / 3, 2 / 3, 1, 1)])


def test_a_state_of_other_settings_is_refused(
    client: Any, learner: TinkerLearner, tokenizer: Any, tmp_path: Path
) -> None:
    learner.save(tmp_path)
    changed = dataclasses.replace(TINKER, rank=16)
    other = TinkerLearner(client, SETTINGS, changed, tokenizer=tokenizer, context_limit=512)
    with pytest.raises(StoreError, match="tinker is"):
        other.load(tmp_path)


def test_after_a_failed_step_a_learner_is_spent(
    service: TinkerService, learner: TinkerLearner, records: list[ActorRecord]
) -> None:
    service.faults.add(Fault("forward_backward", FaultKind.FAILED))
    with pytest.raises(TrainerError, match="the actor's update failed"):
        learner.update_actor(records, seed=0)
    with pytest.raises(TrainerError, match="failed before"):
        learner.publish(0)


def test_a_round_without_advantages_takes_no_step(
    service: TinkerService, learner: TinkerLearner, records: list[ActorRecord]
) -> None:
    flat = [dataclasses.replace(record, weights=(0.0,) * len(record.weights)) for record in records]
    before = len(service.log)
    assert learner.update_actor(flat, seed=0)["actor_tokens"] == 0
    assert learner.optimizer_steps == 0
    assert len(service.log) == before
