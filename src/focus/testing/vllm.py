"""A stand-in for a vLLM server on the loopback: its two token endpoints, pages and counters.

    async with Loopback(VLLMStandIn(policy)) as server:
        policy = OpenAIPolicy(server.url, tokenizer=ByteTokenizer())

What it answers, refuses and leaves out is what vLLM 0.32 does, as seen on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from focus.policies.base import Policy, RequestTag
from focus.sampling import Sampling
from focus.testing.loopback import Answer, Ask
from focus.testing.policies import ScriptedPolicy
from focus.tokens import FinishReason, Generation, TokenIds

__all__ = ("PagedCache", "VLLMStandIn")


class PagedCache:
    """Which prompt tokens an engine finds again that caches whole pages and evicts none.

    A page is found by all ids up to its end. The last prompt token is always computed, since
    the first sampled one needs its logits.

    >>> cache = PagedCache(4)
    >>> cache.store((0, 1, 2, 3, 4, 5, 6, 7))
    >>> [cache.found((0, 1, 2, 3, 4, 5, 6, 7)[:n]) for n in (4, 5, 8)]
    [0, 4, 4]
    """

    def __init__(self, page: int) -> None:
        self.page = page
        self._ends: set[TokenIds] = set()

    def store(self, ids: Sequence[int]) -> None:
        """Keys and values of these ids have been computed."""
        held = tuple(ids)
        ends = range(self.page, len(held) + 1, self.page)
        self._ends.update(held[:end] for end in ends)

    def found(self, prefix: Sequence[int]) -> int:
        """Tokens at the beginning of `prefix` that need not be computed."""
        held = tuple(prefix)
        hit = 0
        while hit + self.page < len(held) and held[: hit + self.page] in self._ends:
            hit += self.page
        return hit


class VLLMStandIn:
    """Answers vLLM's paths from a policy; `change` may spoil any reply.

    Args:
        policy: samples; its replies are named by the client's request name.
        page: tokens of a page of its prefix cache, as ``--block-size``.
        context: most tokens of prompt plus reply; what goes beyond is cut without a word.
        scale_out: serve ``/inference/v1/generate``, as ``--enable-scale-out``.
        tells_cached: as ``--enable-prompt-tokens-details``.
        change: (path, body) → what is sent instead.

    Attributes:
        model: as ``--served-model-name``.
        weights: what replies of ``/inference/v1/generate`` say sampled them.
        queried, hits: prompt tokens asked for, and of these the cached ones.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        page: int = 16,
        context: int = 4096,
        scale_out: bool = False,
        tells_cached: bool = True,
        change: Callable[[str, dict[str, Any]], Any] = lambda path, body: body,
    ) -> None:
        self.policy = policy or ScriptedPolicy(lambda prompt, so_far, rng: "4")
        self.cache = PagedCache(page)
        self.context = context
        self.scale_out = scale_out
        self.tells_cached = tells_cached
        self.change = change
        self.model = "stand-in"
        self.weights = "default"
        self.queried = self.hits = 0

    async def __call__(self, ask: Ask) -> Answer | bytes | None:
        if ask.path == "/v1/models":
            return Answer.of({"object": "list", "data": [self._card()]})
        if ask.path == "/v1/completions":
            return await self._answer(ask, "prompt", self._completion)
        if ask.path == "/inference/v1/generate":
            if not self.scale_out:
                return _error(403, "requires --enable-scale-out")
            return await self._answer(ask, "token_ids", self._generated)
        return _error(404, "Not Found")

    def _card(self) -> dict[str, Any]:
        return {
            "id": self.model,
            "object": "model",
            "root": f"/models/{self.model}",
            "parent": None,
            "max_model_len": self.context,
        }

    async def _answer(
        self, ask: Ask, prompt: str, worded: Callable[..., dict[str, Any]]
    ) -> Answer | bytes | None:
        asked = ask.json
        law = asked.get("sampling_params", asked)
        prefix, most = tuple(asked[prompt]), law["max_tokens"]
        refused = self._refusal(asked.get("model"), prefix, most, law["temperature"])
        if refused is not None:
            return refused
        rid = ask.headers.get("x-request-id", asked["request_id"])
        cached = self.cache.found(prefix)
        self.cache.store(prefix)
        reply, stop_reason = await self._sampled(prefix, law, rid)
        self.cache.store(prefix + reply.ids[:-1])
        self.queried += len(prefix)
        self.hits += cached
        choice = {
            "index": 0,
            "finish_reason": reply.finish.value,
            "stop_reason": stop_reason,
            "token_ids": list(reply.ids),
        }
        usage = {
            "prompt_tokens": len(prefix),
            "completion_tokens": len(reply.ids),
            "total_tokens": len(prefix) + len(reply.ids),
            "prompt_tokens_details": {"cached_tokens": cached} if self.tells_cached else None,
        }
        body = worded(rid, prefix, reply, choice) | {"model": self.model, "usage": usage}
        changed = self.change(ask.path, body)
        return changed if isinstance(changed, Answer | bytes | None) else Answer.of(changed)

    def _refusal(
        self, model: str | None, prefix: TokenIds, most: int, temperature: float
    ) -> Answer | None:
        if model not in (None, self.model):
            return _error(404, f"The model `{model}` does not exist. Valid aliases: {self.model}.")
        room = min(most, self.context - len(prefix))
        if room < 1:
            return _error(400, f"max_tokens must be at least 1, got {room}.")
        if not 0 <= temperature <= 2:
            return _error(400, f"temperature must be in [0, 2], got {temperature}.")
        size = self.policy.vocab_size
        for token in prefix:
            if size is not None and token >= size:
                return _error(400, f"Token id {token} is out of vocabulary")
        return None

    async def _sampled(
        self, prefix: TokenIds, law: Mapping[str, Any], rid: str
    ) -> tuple[Generation, int | None]:
        """A reply that ends at the first stop id, and that id; the end token is none of them."""
        most = min(law["max_tokens"], self.context - len(prefix))
        sampling = Sampling(max_tokens=most, seed=law.get("seed"))
        tag = RequestTag(rid.partition("~")[0], "")
        reply = await self.policy.generate(prefix, sampling, tag=tag)
        stops = law.get("stop_token_ids", ())
        for end, token in enumerate(reply.ids, start=1):
            if token in stops:
                cut = Generation(
                    reply.ids[:end], reply.log_probs[:end], FinishReason.STOP, reply.version
                )
                return cut, token
        return reply, None

    def _completion(
        self, rid: str, prefix: TokenIds, reply: Generation, choice: dict[str, Any]
    ) -> dict[str, Any]:
        words = [f"token_id:{token}" for token in reply.ids]
        log_probs = {"tokens": words, "token_logprobs": list(reply.log_probs)}
        told = {"text": "cut", "logprobs": log_probs, "prompt_token_ids": list(prefix)}
        return {"id": f"cmpl-{rid}", "object": "text_completion", "choices": [choice | told]}

    def _generated(
        self, rid: str, prefix: TokenIds, reply: Generation, choice: dict[str, Any]
    ) -> dict[str, Any]:
        pairs = zip(reply.ids, reply.log_probs, strict=True)
        content = [{"token_id": token, "logprob": value, "rank": 1} for token, value in pairs]
        span = {"version": self.weights, "start": 0, "end": len(reply.ids)}
        told = {"logprobs": {"content": content}, "weight_versions": [span]}
        return {
            "request_id": f"generate-tokens-{rid}",
            "output_mode": "tokens",
            "prompt_token_ids": list(prefix),
            "choices": [choice | told],
        }


def _error(status: int, message: str) -> Answer:
    kinds = {400: "BadRequestError", 403: "Forbidden", 404: "NotFoundError"}
    told = {"message": message, "type": kinds[status], "param": None, "code": status}
    return Answer.of({"error": told}, status)
