"""A fake SGLang engine on the loopback server of `focus.testing`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from focus.policies.base import Policy, RequestTag
from focus.sampling import Sampling
from focus.testing.loopback import Answer, Ask, ByteTokenizer, Cut, Handler, Loopback
from focus.testing.policies import ScriptedPolicy

__all__ = ("Answer", "Ask", "ByteTokenizer", "Cut", "FakeEngine", "Handler", "Loopback")


class FakeEngine:
    """Answers SGLang's paths from a policy; `change` may spoil any reply.

    Args:
        policy: samples; its replies are named by the client's request name.
        change: (number of the reply, body) → what is sent instead.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        change: Callable[[int, dict[str, Any]], Any] = lambda number, body: body,
    ) -> None:
        self.policy = policy or ScriptedPolicy(lambda prompt, so_far, rng: "4")
        self.change = change
        self.version: str | None = "scripted"
        self.numbers = itertools.count()

    async def __call__(self, ask: Ask) -> Answer | bytes | None:
        if ask.path == "/generate":
            changed = self.change(next(self.numbers), await self.reply(ask.json))
            return changed if isinstance(changed, Answer | bytes | None) else Answer.of(changed)
        if ask.path == "/model_info" and self.version is not None:
            return Answer.of({"model_path": "bytes", "weight_version": self.version})
        return Answer(status=404)

    async def reply(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        params, prefix = asked["sampling_params"], tuple(asked["input_ids"])
        sampling = Sampling(max_tokens=params["max_new_tokens"], seed=params.get("sampling_seed"))
        tag = RequestTag(asked["rid"].partition("~")[0], "")
        reply = await self.policy.generate(prefix, sampling, tag=tag)
        pairs = zip(reply.log_probs, reply.ids, strict=True)
        meta: dict[str, Any] = {
            "id": asked["rid"],
            "finish_reason": {"type": reply.finish.value},
            "prompt_tokens": len(prefix),
            "completion_tokens": len(reply.ids),
            "cached_tokens": 0,
            "output_token_logprobs": [[log_prob, token, None] for log_prob, token in pairs],
        }
        if self.version is not None:
            meta["weight_version"] = self.version
        return {"text": "", "output_ids": list(reply.ids), "meta_info": meta}
