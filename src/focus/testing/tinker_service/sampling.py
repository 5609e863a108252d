"""Fixed weights that are sampled from and that score named ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread
import numpy as np
import torch

from focus._cancellation import siblings
from focus.errors import Refused
from focus.models.tree_attention import tree_batches
from focus.policies.convention import LogProbConvention
from focus.policies.transformers import TransformersPolicy
from focus.sampling import Sampling, derive_seed
from focus.testing.tinker_service.wire import BadRequest, SampleWork, write_sample
from focus.tokens import Generation, TokenIds

__all__ = ("Sampler",)

_BATCH_TOKENS = 8192
_CACHE_TOKENS = 65_536


@dataclass(eq=False, slots=True)
class _Scoring:
    """A prompt whose log-probs are wanted: of its own ids, of named ones, or of both."""

    prompt: TokenIds
    own: Any = None
    named: Any = None


class Sampler:
    """One snapshot.

    Args:
        folder: the base model.
        weights: of the snapshot; None is the base model's own.
        convention: what reported log-probs mean.
    """

    def __init__(
        self,
        folder: Path,
        weights: Mapping[str, Any] | None,
        *,
        convention: LogProbConvention = LogProbConvention.PROCESSED,
    ) -> None:
        self._convention = convention
        self._policy = TransformersPolicy(
            folder, device="cpu", dtype="float32", kv_cache_tokens=_CACHE_TOKENS
        )
        if weights is not None:
            self._policy.update_weights(weights, version="snapshot")
        self._waiting: list[tuple[SampleWork, _Scoring]] = []
        self._turn = anyio.Lock()

    @property
    def context_limit(self) -> int:
        return self._policy.context_limit

    def close(self) -> None:
        self._policy.close()

    async def answer(self, work: SampleWork) -> bytes:
        """The result of one request.

        Raises:
            BadRequest: prompt and reply do not fit, or an id is unknown.
        """
        samples = await self._samples(work)
        scores = await self._scored(work)
        return write_sample(
            samples,
            prompt_log_probs=scores.own,
            target_log_probs=scores.named,
            cached_tokens=min((sample.cached_tokens or 0 for sample in samples), default=0),
        )

    async def _samples(self, work: SampleWork) -> list[Generation]:
        found: dict[int, Generation] = {}

        async def draw(index: int) -> None:
            seed = None if work.seed is None else derive_seed(work.seed, index)
            sampling = Sampling(
                temperature=work.temperature,
                top_p=work.top_p,
                top_k=work.top_k,
                max_tokens=work.max_tokens,
                stop=work.stop,
                seed=seed,
            )
            found[index] = await self._policy.generate(work.prompt, sampling)

        try:
            async with siblings() as group:
                for index in range(work.count):
                    group.start_soon(draw, index)
        except Refused as error:
            raise BadRequest(str(error)) from error
        drawn = [found[index] for index in range(work.count)]
        if self._convention is LogProbConvention.PROCESSED or work.temperature == 1.0:
            return drawn
        return [await self._retold(work, sample) for sample in drawn]

    async def _retold(self, work: SampleWork, sample: Generation) -> Generation:
        """The same sample with log-probs of another meaning."""
        whole = (*work.prompt, *sample.ids)
        scoring = _Scoring(whole, own=len(sample.ids))
        await anyio.to_thread.run_sync(self._score, [(scoring, None)])
        values = scoring.own[-len(sample.ids) :]
        if self._convention is LogProbConvention.DIVIDED:
            values = values / work.temperature
        return dataclasses.replace(sample, log_probs=tuple(values.tolist()))

    async def _scored(self, work: SampleWork) -> _Scoring:
        """Whoever waits while others are scored joins the next pass."""
        scoring = _Scoring(work.prompt, own=work.prompt_log_probs or None)
        if not work.prompt_log_probs and work.targets is None:
            return scoring
        entry = (work, scoring)
        self._waiting.append(entry)
        async with self._turn:
            if entry in self._waiting:
                batch, self._waiting = self._waiting, []
                jobs = [(one, asked.targets) for asked, one in batch]
                await anyio.to_thread.run_sync(self._score, jobs)
        return scoring

    def _score(self, jobs: Sequence[tuple[_Scoring, Any]]) -> None:
        model = self._policy.model
        prompts = [scoring.prompt for scoring, _ in jobs]
        with torch.inference_mode():
            for batch in tree_batches(model, prompts, batch_tokens=_BATCH_TOKENS):
                logits = model(**batch.inputs, use_cache=False).logits
                for row, tree in enumerate(batch.trees):
                    table = torch.log_softmax(logits[row], dim=-1)
                    for member, path in zip(tree.members, tree.paths, strict=True):
                        _fill(*jobs[member], table, path)


def _fill(scoring: _Scoring, targets: Any, table: Any, path: Sequence[int]) -> None:
    """Row i of `targets`, and own id i + 1, are scored behind prompt position i."""
    prompt = scoring.prompt
    if scoring.own is not None:
        values = np.full(len(prompt), np.nan, dtype=np.float32)
        for position in range(len(prompt) - scoring.own, len(prompt)):
            values[position] = float(table[path[position - 1], prompt[position]])
        scoring.own = values
    if targets is not None:
        scoring.named = np.zeros(targets.shape, dtype=np.float32)
        for row, column in np.argwhere(targets >= 0).tolist():
            scoring.named[row, column] = float(table[path[row], int(targets[row, column])])
