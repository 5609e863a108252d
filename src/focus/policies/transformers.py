"""A policy in this process: any Hugging Face causal LM folder, batched, with shared prefixes."""

from __future__ import annotations

import asyncio
import random
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus._closing import Closing
from focus._extras import require
from focus.errors import ConfigError, Refused, RequestError
from focus.models import resolve
from focus.policies.base import Ask, RequestTag
from focus.policies.codec import Codec, Coded
from focus.rendering import load_tokenizer, profile_named, tokenizer_hash
from focus.sampling import Sampling
from focus.tokens import Generation, TokenIds

if TYPE_CHECKING:
    import torch

    from focus.policies._engine.requests import Counters, Request

__all__ = ("TransformersPolicy",)

_DTYPES = ("bfloat16", "float16", "float32", "float64")


class TransformersPolicy(Coded, Closing):
    """Samples from a model of this process; a :class:`focus.policies.base.Policy`.

    One worker thread owns the model and steps one batch that requests join and leave
    between steps. Keys and values of finished prefixes are kept in a radix tree, so a child
    of a checkpoint computes no prompt token and siblings share their parent's.

    ``log_probs`` are natural logs under the law that was sampled: log softmax(logits / T),
    cut to top-k, then to top-p, renormalised. Greedy sampling (T = 0) is a point mass: 0.0.
    A seeded request gives the same ids whoever else runs beside it, but for draws that fall
    within float rounding of a boundary between two ids; without a seed it draws afresh.

    `generate` may be awaited from any asyncio loop, one after another or several at once.
    ``async with`` (or `close`) stops the worker; left open, it stops with the process.

    Args:
        model: "builtin", "smollm2" or a model folder (safetensors only).
        device: "cpu", "cuda", …; None takes the GPU when there is one.
        dtype: "float32", "bfloat16", …; None is float32 on the CPU and the checkpoint's own
            elsewhere.
        max_batch: most requests that run at once; more wait.
        kv_cache_tokens: tokens kept for reuse; 0 keeps none, None fills 512 MiB or, on a GPU,
            a quarter of what is free.
        threads: CPU threads of the worker; None leaves torch's setting alone.
        version: name of these weights; None is the folder's name and a digest of them.
        train_temperature: what the learner divides logits by.
        profile: how messages become prompt ids.

    Raises:
        ConfigError: the folder, a setting or the architecture cannot be used. Cached decoding
            is compared with plain forward passes here, before any request.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        device: str | None = None,
        dtype: str | None = None,
        max_batch: int = 64,
        kv_cache_tokens: int | None = None,
        threads: int | None = 1,
        version: str | None = None,
        train_temperature: float = 1.0,
        profile: str = "token_chunk",
    ) -> None:
        _check_settings(dtype, max_batch, kv_cache_tokens, threads, train_temperature)
        chosen = profile_named(profile)
        folder = resolve(model)
        require("torch", extra="local")
        require("transformers", extra="local")
        from focus.policies._engine.batcher import Batcher
        from focus.policies._engine.loading import (
            content_version,
            context_limit_of,
            end_ids,
            load_model,
        )
        from focus.policies._engine.prefix_cache import PrefixCache
        from focus.policies._engine.runner import Runner

        tokenizer = load_tokenizer(folder)
        self._model = load_model(folder, device=device, dtype=dtype)
        self._context_limit = context_limit_of(self._model)
        self._ends = end_ids(self._model, tokenizer)
        size: int = self._model.config.get_text_config().vocab_size
        self._codec = Codec(tokenizer, chosen, size, tokenizer_hash(tokenizer))
        self._train_temperature = train_temperature
        runner = Runner(self._model, context_limit=self._context_limit)
        capacity = runner.default_cache_tokens() if kv_cache_tokens is None else kv_cache_tokens
        self._batcher = Batcher(
            runner,
            version=version or content_version(folder),
            max_batch=max_batch,
            cache=PrefixCache(capacity),
            threads=threads,
        )
        self._stop_at_exit = weakref.finalize(self, self._batcher.close)

    @property
    def version(self) -> str:
        """The weights now in use."""
        return self._batcher.version

    @property
    def context_limit(self) -> int:
        """Most tokens of prompt plus reply."""
        return self._context_limit

    @property
    def train_temperature(self) -> float:
        """What the learner divides logits by."""
        return self._train_temperature

    @property
    def model(self) -> Any:
        """The module that samples. Read it; change it through `update_weights` only."""
        return self._model

    @property
    def counters(self) -> Counters:
        """Totals so far: tokens computed, reused and sampled, and their hit rate."""
        return self._batcher.counters

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        """Sample one continuation of `prefix`. Cancelling takes it out of the batch.

        Nothing is clamped: without `max_tokens` the reply may fill the context.

        Raises:
            Refused: an empty prefix, an id outside the vocabulary, or more tokens asked for
                than the context holds.
            CorruptReply: the model's logits are not finite.
            FatalError: the model failed (out of memory, say); the cause is attached.
            Aborted: the policy was closed meanwhile.
            LifecycleError: the policy is closed.
        """
        request = self._request(prefix, Ask(sampling, tag))
        self._batcher.submit([request])
        return await asyncio.wrap_future(request.future)

    @property
    def samples_together(self) -> bool:
        """Siblings enter the batch together; their prefix is computed once."""
        return True

    async def generate_group(
        self, prefix: TokenIds, asks: Sequence[Ask]
    ) -> Sequence[Generation | RequestError]:
        """Continuations of one prefix, each with the ids that `generate` would give it.

        Raises:
            Refused, LifecycleError: as `generate`; nothing was sampled.
        """
        requests = [self._request(prefix, ask) for ask in asks]
        self._batcher.submit(requests)
        futures = [asyncio.wrap_future(request.future) for request in requests]
        try:
            await asyncio.wait(futures)
        finally:
            for future in futures:
                future.cancel()
        return [_outcome(future) for future in futures]

    def _request(self, prefix: TokenIds, ask: Ask) -> Request:
        from focus.policies._engine.requests import Request
        from focus.policies._engine.sampler import Law

        sampling = ask.sampling
        return Request(
            prefix=tuple(prefix),
            law=Law(*sampling.law),
            max_tokens=self._room(prefix, sampling.max_tokens),
            ends=self._ends.union(sampling.stop or ()),
            uniforms=random.Random(sampling.seed),
            request_id=ask.tag.request if ask.tag else "",
        )

    def _room(self, prefix: TokenIds, max_tokens: int | None) -> int:
        if not prefix:
            raise Refused("the prefix is empty")
        if not 0 <= min(prefix) <= max(prefix) < self.vocab_size:
            raise Refused(f"the prefix holds an id outside [0, {self.vocab_size})")
        room = self._context_limit - len(prefix)
        if room < (max_tokens or 1):
            raise Refused(
                f"{len(prefix)} prefix tokens and {max_tokens or 1} new ones do not fit into the "
                f"context of {self._context_limit}"
            )
        return max_tokens or room

    def weights(self) -> dict[str, torch.Tensor]:
        """A copy of the weights on the CPU: what a trainer starts from."""
        return {
            name: tensor.detach().cpu().clone() for name, tensor in self._model.state_dict().items()
        }

    def update_weights(
        self, weights: Mapping[str, torch.Tensor] | str | Path, *, version: str
    ) -> None:
        """Take new weights between rounds; keys and values of the old ones are dropped.

        Args:
            weights: a state dict (as `weights` gives), or a folder of safetensors.
            version: what replies report from now on.

        Raises:
            ConfigError: names or shapes do not fit; nothing is changed.
            LifecycleError: requests are running.
        """
        from focus.policies._engine.loading import install_weights, read_weights

        state = read_weights(weights)
        with self._batcher.changing_to(version):
            install_weights(self._model, state)

    def flush_cache(self) -> None:
        """Forget the keys and values kept for reuse.

        Raises:
            LifecycleError: requests are running.
        """
        with self._batcher.changing_to(self.version):
            pass  # keys and values go with the weights that made them

    def close(self) -> None:
        """Stop the worker; what still runs is aborted. Safe to call twice."""
        self._stop_at_exit()

    async def aclose(self) -> None:
        """`close`, without blocking the loop while the last step ends."""
        await asyncio.to_thread(self.close)


def _outcome(future: asyncio.Future[Generation]) -> Generation | RequestError:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, RequestError):
        return error
    raise error


def _check_settings(
    dtype: str | None,
    max_batch: int,
    kv_cache_tokens: int | None,
    threads: int | None,
    train_temperature: float,
) -> None:
    if dtype is not None and dtype not in _DTYPES:
        raise ConfigError(f"dtype must be one of {', '.join(_DTYPES)}, got {dtype!r}")
    if max_batch < 1 or (threads is not None and threads < 1):
        raise ConfigError("max_batch and threads must be >= 1")
    if kv_cache_tokens is not None and kv_cache_tokens < 0:
        raise ConfigError(f"kv_cache_tokens must be >= 0, got {kv_cache_tokens}")
    if not train_temperature > 0:
        raise ConfigError(f"train_temperature must be > 0, got {train_temperature}")
