"""The embedded policy: exact log-probs, shared prefixes, a batch that changes nothing."""

from __future__ import annotations

import asyncio
import random
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from focus.errors import Aborted, ConfigError, CorruptReply, LifecycleError, Refused
from focus.policies._engine.requests import Request
from focus.policies._engine.sampler import Law
from focus.policies.base import Ask, Policy, RequestTag
from focus.policies.transformers import TransformersPolicy
from focus.sampling import Sampling
from focus.tokens import FinishReason, Generation, TokenIds

pytestmark = pytest.mark.anyio

Recompute = Callable[[TransformersPolicy, Sequence[int], Sequence[int], Sampling], list[float]]


def prefix_of(seed: int, length: int) -> TokenIds:
    rng = random.Random(seed)
    return tuple(rng.randrange(3, 250) for _ in range(length))


async def ask(policy: TransformersPolicy, prefix: TokenIds, **settings: Any) -> Generation:
    options: dict[str, Any] = {"temperature": 1.0, "max_tokens": 12, "seed": 0} | settings
    return await policy.generate(prefix, Sampling(**options))


def first_pass_of(policy: TransformersPolicy) -> asyncio.Event:
    """Set, on this loop, once the model runs."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    policy.model.register_forward_hook(lambda *_: loop.call_soon_threadsafe(event.set) and None)
    return event


def test_is_a_policy(tiny_folder: Path) -> None:
    policy = TransformersPolicy(tiny_folder, device="cpu", version="w0")
    assert isinstance(policy, Policy)
    assert (policy.version, policy.context_limit) == ("w0", 128)
    unnamed = TransformersPolicy(tiny_folder, device="cpu")
    assert unnamed.version.startswith("tiny@")
    assert unnamed.tokenizer is policy.tokenizer
    assert unnamed.tokenizer_hash == policy.tokenizer_hash


LAWS = [
    Sampling(temperature=1.0),
    Sampling(temperature=0.5),
    Sampling(temperature=1.3, top_k=7),
    Sampling(temperature=0.8, top_p=0.7),
    Sampling(temperature=1.0, top_k=20, top_p=0.5),
]


async def test_log_probs_equal_a_full_recompute(tiny_folder: Path, recompute: Recompute) -> None:
    """Sixty ragged requests of five laws in one batch; some share prefixes, some are long."""
    async with TransformersPolicy(tiny_folder, device="cpu") as policy:
        jobs = [
            (prefix_of(k % 5, 4 + k), LAWS[k % 5].merged(Sampling(max_tokens=1 + k, seed=k)))
            for k in range(60)
        ]
        replies = await asyncio.gather(*(policy.generate(*job) for job in jobs))
        for (prefix, sampling), reply in zip(jobs, replies, strict=True):
            expected = recompute(policy, prefix, reply.ids, sampling)
            assert reply.log_probs == pytest.approx(expected, abs=1e-4)
            assert len(reply.ids) == len(reply.log_probs) <= (sampling.max_tokens or 0)
            assert all(value <= 0 for value in reply.log_probs)


async def test_a_seeded_request_does_not_depend_on_its_batch(tiny_folder: Path) -> None:
    jobs = [(prefix_of(k, 5 + 2 * k), {"seed": k, "max_tokens": 30}) for k in range(12)]
    async with TransformersPolicy(tiny_folder, device="cpu", kv_cache_tokens=0) as alone:
        one_by_one = [await ask(alone, prefix, **options) for prefix, options in jobs]
    async with TransformersPolicy(tiny_folder, device="cpu", max_batch=5) as crowded:
        together = await asyncio.gather(*(ask(crowded, p, **o) for p, o in reversed(jobs)))
    for one, other in zip(one_by_one, reversed(together), strict=True):
        assert one.ids == other.ids
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)


async def test_seeds_name_streams(tiny_folder: Path) -> None:
    async with TransformersPolicy(tiny_folder, device="cpu") as policy:
        prefix = prefix_of(1, 6)
        same = await asyncio.gather(*(ask(policy, prefix, seed=5) for _ in range(3)))
        other = await asyncio.gather(*(ask(policy, prefix, seed=s) for s in range(20)))
        unseeded = await asyncio.gather(*(ask(policy, prefix, seed=None) for _ in range(20)))
    assert len({reply.ids for reply in same}) == 1
    assert len({reply.ids for reply in other}) > 15
    assert len({reply.ids for reply in unseeded}) > 15


async def test_greedy_is_a_point_mass(tiny_folder: Path) -> None:
    async with TransformersPolicy(tiny_folder, device="cpu") as policy:
        prefix = prefix_of(2, 9)
        reply = await ask(policy, prefix, temperature=0.0)
        for index, token in enumerate(reply.ids):
            inputs = torch.tensor([[*prefix, *reply.ids[:index]]])
            with torch.no_grad():
                assert policy.model(input_ids=inputs).logits[0, -1].argmax().item() == token
    assert set(reply.log_probs) == {0.0}


async def test_sampled_frequencies_follow_the_law(tiny_folder: Path, recompute: Recompute) -> None:
    """2,000 one-token draws; each frequency within five standard errors."""
    law = Sampling(temperature=1.0, top_k=6, max_tokens=1)
    async with TransformersPolicy(tiny_folder, device="cpu") as policy:
        prefix = prefix_of(3, 5)
        replies = await asyncio.gather(
            *(policy.generate(prefix, law.merged(Sampling(seed=s))) for s in range(2000))
        )
        counts: dict[int, int] = {}
        for reply in replies:
            counts[reply.ids[0]] = counts.get(reply.ids[0], 0) + 1
        for token, count in counts.items():
            p = 2.718281828459045 ** recompute(policy, prefix, [token], law)[0]
            assert abs(count / 2000 - p) < 5 * (p * (1 - p) / 2000) ** 0.5 + 1e-3
    assert len(counts) <= 6


async def test_a_stop_id_ends_the_reply_and_is_its_last_id(tiny_folder: Path) -> None:
    async with TransformersPolicy(tiny_folder, device="cpu") as policy:
        prefix = prefix_of(4, 8)
        free = await ask(policy, prefix, max_tokens=20)
        stop = free.ids[7]
        at = free.ids.index(stop)
        stopped = await ask(policy, prefix, max_tokens=20, stop=(stop,))
        assert (stopped.ids, stopped.finish) == (free.ids[: at + 1], FinishReason.STOP)
        last = await ask(policy, prefix, max_tokens=at + 1, stop=(stop,))
        assert last.finish is FinishReason.STOP
        cut = await ask(policy, prefix, max_tokens=at)
        assert (cut.ids, cut.finish) == (free.ids[:at], FinishReason.LENGTH)


async def test_the_models_own_end_token_ends_a_reply(tiny_folder: Path) -> None:
    async with TransformersPolicy(tiny_folder, device="cpu") as policy:
        end = policy.tokenizer.eos_token_id
        replies = await asyncio.gather(
            *(
                ask(policy, prefix_of(k, 4), seed=k, max_tokens=100, temperature=3.0)
                for k in range(64)
            )
        )
    finished = [reply for reply in replies if reply.finish is FinishReason.STOP]
    assert finished
    assert all(reply.ids.index(end) == len(reply.ids) - 1 for reply in finished)
    assert all(end not in r.ids for r in replies if r.finish is FinishReason.LENGTH)


async def test_children_and_siblings_reuse_their_parents_prefix(tiny_folder: Path) -> None:
    """B25: a child of a 60-token prefix computes no prompt token but an end id before it."""
    async with TransformersPolicy(tiny_folder, device="cpu") as policy:
        root = prefix_of(5, 60)
        roots = await asyncio.gather(*(ask(policy, root, seed=s) for s in range(8)))
        assert sorted(reply.cached_tokens or 0 for reply in roots) == [0, *[60] * 7]
        child = root + roots[0].ids
        children = await asyncio.gather(*(ask(policy, child, seed=9 + s) for s in range(8)))
        unfed = roots[0].finish is FinishReason.STOP
        known = [len(child) - unfed, *[len(child)] * 7]
        assert sorted(reply.cached_tokens or 0 for reply in children) == known
        assert policy.counters.prefill_tokens == 60 + unfed
        assert policy.counters.hit_rate > 0.9


@pytest.mark.parametrize("kv_cache_tokens", [0, 10_000])
async def test_a_group_gets_what_each_would_get_alone(
    tiny_folder: Path, kv_cache_tokens: int
) -> None:
    prefix = prefix_of(5, 20)
    settings = [Sampling(temperature=1.0, max_tokens=4 + s % 3, seed=s) for s in range(6)]
    options: dict[str, Any] = {"device": "cpu", "kv_cache_tokens": kv_cache_tokens}
    async with TransformersPolicy(tiny_folder, **options) as policy:
        alone = [await policy.generate(prefix, sampling) for sampling in settings]
    async with TransformersPolicy(tiny_folder, max_batch=4, **options) as policy:
        group = await policy.generate_group(prefix, [Ask(sampling) for sampling in settings])
        assert policy.counters.prefill_tokens == (20 if kv_cache_tokens else 120)
        assert policy.counters.requests == 6
    for one, other in zip(alone, group, strict=True):
        assert isinstance(other, Generation)
        assert (one.ids, one.finish) == (other.ids, other.finish)
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)


async def test_a_cancelled_group_leaves_the_batch(endless_folder: Path) -> None:
    async with TransformersPolicy(endless_folder, device="cpu") as policy:
        passes = first_pass_of(policy)
        asks = [Ask(Sampling(temperature=1.0, max_tokens=4000, top_k=1)) for _ in range(3)]
        task = asyncio.create_task(policy.generate_group(prefix_of(0, 5), asks))
        await passes.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        policy.update_weights(policy.weights(), version="w1")
        assert policy.counters.cancelled == 3


async def test_cached_and_uncached_trees_are_equal(tiny_folder: Path) -> None:
    async def grow(kv_cache_tokens: int) -> list[Generation]:
        found: list[Generation] = []
        async with TransformersPolicy(
            tiny_folder, device="cpu", kv_cache_tokens=kv_cache_tokens
        ) as policy:
            frontier = [prefix_of(6, 20)]
            for depth in range(4):
                replies = await asyncio.gather(
                    *(ask(policy, p, seed=depth * 10 + s) for p in frontier for s in range(2))
                )
                found.extend(replies)
                parents = [p for p in frontier for _ in range(2)]
                frontier = [p + r.ids for p, r in zip(parents, replies, strict=True)]
            assert policy.counters.evicted_tokens == 0 or kv_cache_tokens == 50
        return found

    reused, evicting, recomputed = [await grow(n) for n in (10_000, 50, 0)]
    assert [r.ids for r in reused] == [r.ids for r in recomputed] == [r.ids for r in evicting]
    assert any(r.cached_tokens for r in reused)
    assert not any(r.cached_tokens for r in recomputed)


async def test_what_does_not_fit_is_refused_and_never_clamped(tiny_folder: Path) -> None:
    """B28, B29: 120 + 8 fits 128; one more does not; a full prefix has no room."""
    async with TransformersPolicy(tiny_folder, device="cpu") as policy:
        assert len((await ask(policy, prefix_of(7, 120), max_tokens=8)).ids) <= 8
        filled = await ask(policy, prefix_of(7, 120), max_tokens=None)
        assert len(filled.ids) <= 8
        for length, wanted in ((120, 9), (128, 1), (128, None), (400, 1)):
            with pytest.raises(Refused, match="do not fit into the context of 128"):
                await ask(policy, prefix_of(7, length), max_tokens=wanted)
        for bad in ((), (policy.vocab_size,), (-1,)):
            with pytest.raises(Refused):
                await ask(policy, bad)
        assert policy.counters.requests == 2


async def test_cancelling_takes_a_request_out_of_the_batch(endless_folder: Path) -> None:
    async with TransformersPolicy(endless_folder, device="cpu", max_batch=2) as policy:
        passes = first_pass_of(policy)
        long = [
            asyncio.create_task(ask(policy, prefix_of(k, 5), max_tokens=4000, top_k=1, seed=k))
            for k in range(4)
        ]
        await passes.wait()
        for task in long:
            task.cancel()
        assert len((await ask(policy, prefix_of(9, 5))).ids) <= 12
        assert all(isinstance(r, asyncio.CancelledError) for r in await _outcomes(long))
        policy.update_weights(policy.weights(), version="w1")
        assert policy.counters.cancelled == 4
        assert policy.counters.generated_tokens < 1000


class _GoneAt(random.Random):
    """A stream whose request is cancelled while its n-th id is drawn."""

    def __init__(self, draw: int) -> None:
        super().__init__(0)
        self.left = draw
        self.request: Request | None = None

    def random(self) -> float:
        self.left -= 1
        if self.left == 0:
            assert self.request is not None
            self.request.future.cancel()
        return super().random()


@pytest.mark.parametrize("draw", range(1, 5))
async def test_a_caller_may_go_at_any_draw_the_last_one_included(
    endless_folder: Path, draw: int
) -> None:
    async with TransformersPolicy(endless_folder, dtype="float32") as policy:
        stream = _GoneAt(draw)
        request = Request(
            prefix=prefix_of(0, 5),
            law=Law(1.0, 1.0, None),
            max_tokens=4,
            ends=frozenset(),
            uniforms=stream,
            request_id="gone",
        )
        stream.request = request
        policy._batcher.submit([request])
        for seed in range(3):
            reply = await ask(policy, prefix_of(1, 6), max_tokens=6, seed=seed)
            assert len(reply.ids) == 6
        assert request.future.cancelled()
        assert (policy.counters.requests, policy.counters.cancelled) == (3, 1)


async def _outcomes(tasks: Sequence[asyncio.Task[Generation]]) -> list[object]:
    return list(await asyncio.gather(*tasks, return_exceptions=True))


async def test_closing_aborts_what_runs_and_refuses_what_comes(endless_folder: Path) -> None:
    policy = TransformersPolicy(endless_folder, device="cpu", max_batch=1)
    passes = first_pass_of(policy)
    running = [
        asyncio.create_task(ask(policy, prefix_of(k, 5), max_tokens=4000, top_k=1))
        for k in range(2)
    ]
    await passes.wait()
    await policy.aclose()
    await policy.aclose()
    assert [type(outcome) for outcome in await _outcomes(running)] == [Aborted, Aborted]
    with pytest.raises(LifecycleError, match="closed"):
        await ask(policy, (1, 2))
    assert not [t for t in threading.enumerate() if t.name == "focus-transformers"]


async def test_new_weights_answer_and_old_keys_are_gone(
    tiny_folder: Path, other_folder: Path, recompute: Recompute
) -> None:
    sampling = Sampling(temperature=1.0, max_tokens=12, seed=3)
    prefix = prefix_of(8, 30)
    async with TransformersPolicy(tiny_folder, device="cpu", version="w0") as policy:
        before = await policy.generate(prefix, sampling)
        start = policy.weights()
        policy.update_weights(other_folder, version="w1")
        after = await policy.generate(prefix, sampling)
        assert (before.version, after.version, after.cached_tokens) == ("w0", "w1", 0)
        assert after.log_probs == pytest.approx(
            recompute(policy, prefix, after.ids, sampling), abs=1e-4
        )
        policy.update_weights(start, version="w2")
        again = await policy.generate(prefix, sampling)
        assert (again.ids, again.version) == (before.ids, "w2")


async def test_weights_change_only_between_requests_and_only_if_they_fit(
    endless_folder: Path, tmp_path: Path
) -> None:
    async with TransformersPolicy(endless_folder, device="cpu", version="w0") as policy:
        passes = first_pass_of(policy)
        task = asyncio.create_task(ask(policy, prefix_of(0, 5), max_tokens=4000, top_k=1))
        await passes.wait()
        with pytest.raises(LifecycleError, match="1 requests are running"):
            policy.update_weights(policy.weights(), version="w1")
        task.cancel()
        await _outcomes([task])
        missing = policy.weights()
        del missing["model.norm.weight"]
        misshapen = policy.weights() | {"model.norm.weight": torch.zeros(3)}
        for state in (missing, misshapen, policy.weights() | {"extra": torch.zeros(1)}, tmp_path):
            with pytest.raises(ConfigError):
                policy.update_weights(state, version="w1")
        assert policy.version == "w0"


async def test_logits_that_are_not_finite_fail_their_request(tiny_folder: Path) -> None:
    async with TransformersPolicy(tiny_folder, device="cpu") as policy:
        state = policy.weights()
        state["lm_head.weight"][5] = float("nan")
        policy.update_weights(state, version="broken")
        with pytest.raises(CorruptReply, match="not finite"):
            await ask(policy, prefix_of(0, 5))


async def test_a_failing_model_fails_its_requests_and_the_next_one_runs(tiny_folder: Path) -> None:
    async with TransformersPolicy(tiny_folder, device="cpu") as policy:
        hook = policy.model.lm_head.register_forward_hook(_explode)
        with pytest.raises(Exception, match="the model failed: MemoryError") as caught:
            await ask(policy, prefix_of(0, 5))
        assert isinstance(caught.value.__cause__, MemoryError)
        hook.remove()
        assert (await ask(policy, prefix_of(0, 5))).ids


def _explode(*_: Any) -> None:
    raise MemoryError("no room")


async def test_the_tag_names_the_reply(tiny_folder: Path) -> None:
    async with TransformersPolicy(tiny_folder, device="cpu") as policy:
        tag = RequestTag("run/0/1", "tree")
        reply = await policy.generate((5, 6), Sampling(max_tokens=2), tag=tag)
    assert reply.request_id == "run/0/1"


def test_serves_one_loop_after_another_and_several_at_once(tiny_folder: Path) -> None:
    policy = TransformersPolicy(tiny_folder, device="cpu")
    first = asyncio.run(ask(policy, prefix_of(1, 6)))
    found: list[TokenIds] = []

    def other_loop() -> None:
        found.append(asyncio.run(ask(policy, prefix_of(1, 6))).ids)

    threads = [threading.Thread(target=other_loop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    policy.close()
    assert found == [first.ids] * 4


async def test_left_open_it_stops_with_its_last_reference(tiny_folder: Path) -> None:
    policy = TransformersPolicy(tiny_folder, device="cpu")
    await ask(policy, prefix_of(1, 6))
    del policy
    assert not [t for t in threading.enumerate() if t.name == "focus-transformers"]


def test_settings_that_cannot_be_honoured_are_refused(tmp_path: Path, tiny_folder: Path) -> None:
    with pytest.raises(ConfigError, match="focus models"):
        TransformersPolicy(tmp_path)
    for options in (
        {"dtype": "int8"},
        {"max_batch": 0},
        {"threads": 0},
        {"kv_cache_tokens": -1},
        {"train_temperature": 0.0},
        {"profile": "nope"},
        {"device": "nope"},
    ):
        with pytest.raises(ConfigError):
            TransformersPolicy(tiny_folder, **options)  # type: ignore[arg-type]


def test_a_missing_weight_is_refused_and_never_made_up(tmp_path: Path, tiny_folder: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "gap")
    state = load_file(folder / "model.safetensors")
    del state["model.norm.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"missing.*model\.norm\.weight"):
        TransformersPolicy(folder, device="cpu")


@pytest.mark.parametrize("window", [64, 128])
def test_a_window_is_refused_unless_it_spans_the_context(tmp_path: Path, window: int) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    from focus.models import BUILTIN
    from focus.rendering import load_tokenizer

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 300}
    config = MistralConfig(**sizes, **heads, max_position_embeddings=128, sliding_window=window)
    MistralForCausalLM(config).save_pretrained(tmp_path)
    load_tokenizer(BUILTIN).save_pretrained(tmp_path)
    if window == 128:
        TransformersPolicy(tmp_path, device="cpu")
    else:
        with pytest.raises(ConfigError, match="only full attention"):
            TransformersPolicy(tmp_path, device="cpu")
