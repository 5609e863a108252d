"""The critic on Tinker: a verdict token read behind the checkpoint.

Tinker shows token log-probs and nothing else, so the value stands in a next-token
distribution: with c the checkpoint's ids, s a fixed suffix and l the log-probs of two
one-token answers after c + s,

    V(c) = exp(l_yes) / (exp(l_yes) + exp(l_no)) = sigmoid(l_yes − l_no).

Trained with cross entropy on the soft target G: its minimum is at V = E[G], and the rest of
the loss draws the model's mass onto the two answers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from focus._cancellation import siblings
from focus._extras import require
from focus.critic import Critic
from focus.errors import ConfigError, CriticError
from focus.integrations.tinker.datums import verdict_targets
from focus.integrations.tinker.settings import VerdictText
from focus.policies.tinker_faults import classify_tinker
from focus.records.records import CriticContext
from focus.rendering.tokenizers import encode, lock_of, tokenizer_hash
from focus.tokens import TokenIds

__all__ = ("Verdict", "verdict_critic", "verdict_value")

RENDERER = "token_chunk/1"
_BATCH = 512
_DEADLINE_S = 3600.0
_MARK = "·checkpoint·"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The suffix and the two answers, as ids of one tokenizer.

    Attributes:
        suffix: ids behind the checkpoint; at least one.
        yes, no: ids of the answers.
        tokenizer_hash: whose ids these are; contexts of another are refused.
    """

    suffix: TokenIds
    yes: int
    no: int
    tokenizer_hash: str

    @classmethod
    def of(cls, tokenizer: Any, text: VerdictText) -> Self:
        """The ids of `text`.

        Raises:
            ConfigError: an answer is not exactly one token, both are the same, or a question
                is asked of a tokenizer without a chat template.
        """
        suffix = _asked(tokenizer, text.question) if text.suffix is None else text.suffix
        ids = encode(tokenizer, suffix)
        if not ids:
            raise ConfigError("the verdict's suffix is empty; give suffix or question")
        yes, no = _one(tokenizer, text.yes), _one(tokenizer, text.no)
        if yes == no:
            raise ConfigError(f"the verdict's answers {text.yes!r} and {text.no!r} are one token")
        return cls(ids, yes, no, tokenizer_hash(tokenizer))

    @property
    def answers(self) -> tuple[int, int]:
        return self.yes, self.no

    @property
    def name(self) -> str:
        """Part of the critic's identity: another suffix is another critic."""
        content = repr((self.suffix, self.yes, self.no, self.tokenizer_hash))
        return f"verdict-{hashlib.sha256(content.encode()).hexdigest()[:8]}"

    @property
    def room(self) -> int:
        """Tokens that a scoring request adds to a checkpoint."""
        return len(self.suffix) + 2

    def prompt(self, context: CriticContext) -> TokenIds:
        """The ids behind which the verdict is read, in scoring and in training.

        Raises:
            CriticError: no ids, another renderer, or another tokenizer.
        """
        if context.renderer != RENDERER or not context.ids:
            raise CriticError(f"{self.name} reads token ids of {RENDERER}, got {context.renderer}")
        if context.tokenizer_hash != self.tokenizer_hash:
            raise CriticError(
                f"{self.name}: context of tokenizer {context.tokenizer_hash!r}, "
                f"made for {self.tokenizer_hash!r}"
            )
        return context.ids + self.suffix


def _one(tokenizer: Any, answer: str) -> int:
    ids = encode(tokenizer, answer)
    if len(ids) != 1:
        raise ConfigError(
            f"the verdict's answer {answer!r} is {len(ids)} tokens; choose one that is one token"
        )
    return ids[0]


def _asked(tokenizer: Any, question: str) -> str:
    """What the chat template puts between an unfinished reply and the answer to `question`."""
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError("the tokenizer has no chat template: give the verdict a suffix")
    messages = [
        {"role": "user", "content": "."},
        {"role": "assistant", "content": _MARK},
        {"role": "user", "content": question},
    ]
    with lock_of(tokenizer):
        text: str = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
    if text.count(_MARK) != 1:
        raise ConfigError("the chat template hides earlier replies: give the verdict a suffix")
    return text.partition(_MARK)[2]


def verdict_value(log_yes: float, log_no: float) -> float:
    """V = sigmoid(l_yes − l_no).

    >>> round(verdict_value(-1.0, -2.0), 4)
    0.7311
    """
    if not (math.isfinite(log_yes) and math.isfinite(log_no)):
        raise CriticError(f"verdict log-probs {log_yes} and {log_no} are not finite")
    difference = log_yes - log_no
    if difference >= 0:
        return 1.0 / (1.0 + math.exp(-difference))
    return math.exp(difference) / (1.0 + math.exp(difference))


def verdict_critic(client: Any, verdict: Verdict, *, version: str) -> Critic:
    """A critic that asks one snapshot, one call per context.

    Args:
        client: a ``tinker.SamplingClient``; borrowed.
        verdict: how.
        version: name of the snapshot.
    """
    return Critic.function(
        _Scorer(client, verdict).predict,
        version=f"{version}/{verdict.name}",
        renderer=RENDERER,
        batch=_BATCH,
        deadline_s=_DEADLINE_S,
    )


class _Scorer:
    """Both answers' log-probs are exact: they are named, whatever the model would say."""

    def __init__(self, client: Any, verdict: Verdict) -> None:
        self._tinker = require("tinker", extra="tinker")
        self._client = client
        self._verdict = verdict

    async def predict(self, contexts: Sequence[CriticContext]) -> list[float]:
        values = [0.0] * len(contexts)

        async def score(index: int) -> None:
            values[index] = await self._one(self._verdict.prompt(contexts[index]))

        async with siblings() as group:
            for index in range(len(contexts)):
                group.start_soon(score, index)
        return values

    async def _one(self, ids: TokenIds) -> float:
        """A place after the suffix is needed to score at; which token stands there is idle."""
        prompt = [*ids, self._verdict.no]
        try:
            response = await self._client.sample(
                self._tinker.ModelInput.from_ints(prompt),
                1,
                self._tinker.SamplingParams(max_tokens=1),
                target_prompt_logprobs=verdict_targets(len(prompt), self._verdict.answers),
            )
        except Exception as error:
            raise classify_tinker(error) from error
        scored = response.target_prompt_logprobs
        if scored is None or len(scored.data) < 2:
            raise CriticError("the service scores no named ids; a newer one does")
        return verdict_value(*scored.data[-2:])
