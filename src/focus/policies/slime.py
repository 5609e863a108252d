"""The policy behind Slime's router, on Slime's own HTTP client.

Slime is never imported here. Where its hooks run, its modules are loaded already, and what
they hold is borrowed; elsewhere there is nothing to borrow.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import httpx

from focus.errors import Aborted, ConfigError, RequestError, TransientError
from focus.policies.base import RequestTag
from focus.policies.faults import classify_exception, classify_status
from focus.policies.http import HttpServer
from focus.policies.sglang import SGLangPolicy
from focus.policies.sglang_server import usable_context
from focus.sampling import Sampling
from focus.tokens import Generation, TokenIds

__all__ = ("SlimeHost", "SlimePolicy")

_HTTP_MODULE = "slime.utils.http_utils"
_ROLLOUT_MODULE = "slime.rollout.sglang_rollout"
Post = Callable[..., Awaitable[Any]]


def _never() -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class SlimeHost:
    """What the policy borrows from the Slime process it runs in.

    Attributes:
        client: Slime's HTTP client, bound to its loop and never closed here; None makes the
            policy use one of its own.
        post: ``post(url, payload, max_retries=, headers=)``, used for sampling instead of
            the client where Slime spreads its requests over Ray actors. Replies then come
            parsed: their size is not bounded and repeated keys go unseen, and Slime may
            send a failed request once more.
        is_aborted: whether Slime is ending its rollout.
    """

    client: httpx.AsyncClient | None = None
    post: Post | None = None
    is_aborted: Callable[[], bool] = _never

    @classmethod
    def current(cls, args: Any) -> Self:
        """What this process has to lend."""
        http, rollout = sys.modules.get(_HTTP_MODULE), sys.modules.get(_ROLLOUT_MODULE)
        state = getattr(rollout, "GenerateState", None)
        is_spread = bool(getattr(args, "use_distributed_post", False))
        return cls(
            client=getattr(http, "_http_client", None),
            post=getattr(http, "post", None) if is_spread else None,
            is_aborted=_never if state is None else lambda: bool(state(args).aborted),
        )


class SlimePolicy(SGLangPolicy):
    """Samples from the model that Slime serves; see `SGLangPolicy` for what is checked.

    Address, tokenizer, temperature and context limit come from Slime's arguments. The
    tokenizer is loaded once per checkpoint and process; a policy may be made per prompt.
    Use it on Slime's loop only. Once Slime ends its rollout no request is sent any more.

    Args:
        args: Slime's arguments.
        profile: how messages become prompt ids.
        version: weights that every reply must report; None reads it before each tree.
        host: what to borrow; None is what this process has.

    Raises:
        ConfigError: an argument is missing, or the checkpoint has no usable tokenizer.
    """

    def __init__(
        self,
        args: Any,
        *,
        profile: str = "token_chunk",
        version: str | None = None,
        host: SlimeHost | None = None,
    ) -> None:
        self._host = host or SlimeHost.current(args)
        ip, port = _needed(args, "sglang_router_ip"), _needed(args, "sglang_router_port")
        super().__init__(
            _Dispatched(f"http://{ip}:{port}", host=self._host),
            model=_needed(args, "hf_checkpoint"),
            version=version,
            context_limit=_context_limit(args),
            train_temperature=_needed(args, "rollout_temperature"),
            profile=profile,
            abort_at_workers=True,
        )

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        """Sample one continuation of `prefix`, unless Slime is ending its rollout.

        Raises:
            Aborted: it is; not worth a retry, and nothing was sent.
            RequestError: as `SGLangPolicy.generate`.
        """
        if self._host.is_aborted():
            ending = Aborted("Slime is ending this rollout; no request is sent any more")
            ending.is_final = True
            raise ending
        return await super().generate(prefix, sampling, tag=tag)


class _Dispatched(HttpServer):
    """Slime's router, reached through Slime's client or through its `post`."""

    def __init__(self, url: str, *, host: SlimeHost) -> None:
        super().__init__(url, client=host.client)
        self._post = host.post

    async def post(
        self,
        path: str,
        payload: Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        most_bytes: int | None = None,
    ) -> Any:
        if self._post is None or path != "/generate":
            return await super().post(path, payload, headers=headers, most_bytes=most_bytes)
        try:
            return await self._post(
                self.url + path, dict(payload), max_retries=1, headers=dict(headers or {})
            )
        except Exception as error:
            raise _fault(error, f"POST {self.url}{path}") from error


def _fault(error: Exception, where: str) -> RequestError:
    if isinstance(error, httpx.HTTPStatusError):
        response = error.response
        status = response.status_code
        found = classify_status(status, body=response.text[:4096], headers=response.headers)
        fault = found or TransientError(f"HTTP {status}")
    else:
        fault = classify_exception(error)
    fault.message = f"{where}: {fault.message}"
    return fault


def _needed(args: Any, name: str) -> Any:
    value = getattr(args, name, None)
    if value is None:
        raise ConfigError(f"Slime's arguments have no {name} (--{name.replace('_', '-')})")
    return value


def _context_limit(args: Any) -> int | None:
    """The tighter of what the rollout allows and what the engine takes."""
    rollout = getattr(args, "rollout_max_context_len", None)
    engine = getattr(args, "sglang_context_length", None)
    limits = [rollout] if rollout else []
    limits += [usable_context(engine)] if engine else []
    return min(limits) if limits else None
