"""One agent's way to its policy: permit, deadline, retries by kind of fault, reply checks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from focus._cancellation import stray_cancellation
from focus.errors import Aborted, ConfigError, RequestError, TransientError
from focus.execution.checks import check_generation, check_shape
from focus.execution.services import ExecutionServices
from focus.execution.spans import Tracer, describe_reply, request_span
from focus.policies.base import Policy, Refreshable, RequestTag
from focus.policies.faults import classify_exception
from focus.policies.retry import RetryPolicy, persist
from focus.sampling import Sampling
from focus.tokens import Generation, TokenIds

__all__ = ("Execution", "Reply", "RequestCounts")


@dataclass(slots=True)
class RequestCounts:
    """Books of the requests of one collection.

    Attributes:
        sent: tries sent; = accepted + failed + cancelled + late once nothing is in flight.
        late: tries given up at the deadline; a reply that still comes is dropped.
        discarded_tokens: ids of replies that arrived and were refused.
        prompt_tokens: ids submitted as prefixes of replies that arrived.
        cached_tokens: how many of them the server had cached; None once a reply did not tell.
        faults: failed and late tries by kind of fault.
    """

    sent: int = 0
    accepted: int = 0
    failed: int = 0
    cancelled: int = 0
    late: int = 0
    discarded_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int | None = 0
    faults: Counter[str] = field(default_factory=Counter)

    def fail(self, error: RequestError) -> None:
        """Close one try that ended in `error`."""
        is_late = isinstance(error, TransientError) and error.is_late
        self.late += is_late
        self.failed += not is_late
        self.faults[type(error).__name__] += 1

    def add(self, other: RequestCounts) -> None:
        """Take in another book."""
        self.sent += other.sent
        self.accepted += other.accepted
        self.failed += other.failed
        self.cancelled += other.cancelled
        self.late += other.late
        self.discarded_tokens += other.discarded_tokens
        self.faults.update(other.faults)
        self.count_prompt(other.prompt_tokens, other.cached_tokens)

    def count_prompt(self, prompt: int, cached: int | None) -> None:
        """Add one reply's prompt to the books."""
        self.prompt_tokens += prompt
        known = self.cached_tokens is not None and cached is not None
        self.cached_tokens = (self.cached_tokens or 0) + (cached or 0) if known else None


@dataclass(frozen=True, slots=True)
class Reply:
    """An accepted generation and the tries it took."""

    generation: Generation
    tries: int


@dataclass(kw_only=True)
class Execution:
    """How an agent's requests are carried out.

    Attributes:
        services: shared permits. None: it makes its own on first use, and the collector
            that owns this agent closes them (`own=True`).
        deadline_s: most seconds for one try, waiting for a permit not included.
        env_deadline_s: most seconds for one call of the environment.
        retry: how failures are repeated.
        tracer: makes an OpenTelemetry span of each try, from asking for its permit to its
            checked reply; None makes none.
    """

    services: ExecutionServices | None = None
    deadline_s: float = 600.0
    env_deadline_s: float = 600.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    tracer: Tracer | None = None

    def __post_init__(self) -> None:
        for name in ("deadline_s", "env_deadline_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be > 0, got {getattr(self, name)}")
        self.owns_services: bool = self.services is None
        self._made: ExecutionServices | None = None
        self._first_use = threading.Lock()

    @property
    def shared(self) -> ExecutionServices:
        """The services in use."""
        if self.services is not None:
            return self.services
        with self._first_use:
            if self._made is None:
                self._made = ExecutionServices()
            return self._made

    async def aclose(self) -> None:
        """Close the services it made itself; passed-in ones are borrowed."""
        if self._made is not None:
            made, self._made = self._made, None
            await made.aclose()

    async def generate(
        self,
        policy: Policy,
        prefix: TokenIds,
        sampling: Sampling,
        *,
        name: str,
        tree: str,
        version: str,
        counts: RequestCounts,
    ) -> Reply:
        """One valid reply for the request `name`, or the typed error of its last try.

        The name is fixed before the first try; a try adds its own number. A try past its
        deadline is cancelled, so one request never yields two replies.
        """

        async def attempt(request: str) -> Generation:
            tag = RequestTag(request=request, tree=tree)
            with request_span(self.tracer, tag, prefix, sampling) as span:
                generation = await self._try(policy, prefix, sampling, tag, version, counts)
                describe_reply(span, generation)
            return generation

        generation, tries = await persist(attempt, retry=self.retry, name=name)
        return Reply(generation, tries)

    async def refresh(self, policy: Policy, *, name: str) -> None:
        """Let a policy that is served elsewhere read which weights it stands for now.

        Under the same permits, deadline and retries as a request; it is none, so no book
        counts it. Other policies are left alone.

        Raises:
            RequestError: the server did not answer.
        """
        if not isinstance(policy, Refreshable):
            return
        remote = policy

        async def attempt(request: str) -> None:
            async with self.shared.pool.permit():
                with self._limited("the policy's own refresh was cancelled"):
                    return await remote.refresh()
            raise TransientError(f"no answer within {self.deadline_s:g} s")

        await persist(attempt, retry=self.retry, name=name)

    async def _try(
        self,
        policy: Policy,
        prefix: TokenIds,
        sampling: Sampling,
        tag: RequestTag,
        version: str,
        counts: RequestCounts,
    ) -> Generation:
        async with self.shared.pool.permit():
            counts.sent += 1
            try:
                generation = await self._reply(policy, prefix, sampling, tag)
                check_shape(generation)
            except Exception as error:
                fault = classify_exception(error)
                counts.fail(fault)
                if isinstance(fault, TransientError) and fault.is_full:
                    self.shared.pool.turned_away()
                raise
            except BaseException:
                counts.cancelled += 1
                raise
            self.shared.pool.answered()
        counts.count_prompt(len(prefix), generation.cached_tokens)
        try:
            check_generation(generation, sampling, version=version, vocab_size=policy.vocab_size)
        except RequestError as error:
            counts.fail(error)
            counts.discarded_tokens += len(generation.ids)
            raise
        counts.accepted += 1
        return generation

    async def _reply(
        self, policy: Policy, prefix: TokenIds, sampling: Sampling, tag: RequestTag
    ) -> Generation:
        """What the policy answers within the deadline."""
        with self._limited("the policy's own call was cancelled"):
            return await policy.generate(prefix, sampling, tag=tag)
        late = TransientError(f"no reply within {self.deadline_s:g} s")
        late.is_late = True
        raise late

    @contextmanager
    def _limited(self, stray: str) -> Iterator[None]:
        """End the block quietly at the deadline, and with `Aborted` when others cancel it."""
        with anyio.move_on_after(self.deadline_s), stray_cancellation(Aborted(stray)):
            yield
