"""One agent's way to its policy: permit, deadline, retries by kind of fault, reply checks."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from focus._cancellation import within
from focus.errors import Aborted, ConfigError, CorruptReply, RequestError, TransientError
from focus.execution.admission import AdmissionPool
from focus.execution.checks import check_generation, check_shape
from focus.execution.counts import RequestCounts
from focus.execution.services import ExecutionServices
from focus.execution.spans import Tracer, describe_reply, request_span
from focus.execution.together import Member, Together, own_error
from focus.policies.base import Ask, Grouping, Policy, Refreshable, RequestTag
from focus.policies.faults import classify_exception
from focus.policies.retry import RetryPolicy, name_of_try, persist
from focus.sampling import Sampling
from focus.tokens import Generation, TokenIds

__all__ = ("Execution", "Reply")


@dataclass(slots=True)
class Reply:
    """An accepted generation and the tries it took."""

    generation: Generation
    tries: int


@dataclass(slots=True)
class _Request:
    """One try, and whose books it stands in."""

    policy: Policy
    prefix: TokenIds
    sampling: Sampling
    tag: RequestTag
    version: str
    counts: RequestCounts

    def send(self) -> Awaitable[Generation]:
        return self.policy.generate(self.prefix, self.sampling, tag=self.tag)

    def check(self, generation: Generation) -> None:
        """Count a reply that arrived in form, and refuse it unless it is what was asked for."""
        self.counts.count_prompt(len(self.prefix), generation.cached_tokens)
        try:
            check_generation(
                generation,
                self.sampling,
                version=self.version,
                vocab_size=self.policy.vocab_size,
            )
        except RequestError:
            self.counts.discarded_tokens += len(generation.ids)
            raise


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
        together: Together | None = None,
    ) -> Reply:
        """One valid reply for the request `name`, or the typed error of its last try.

        The name is fixed before the first try; a try adds its own number. A try past its
        deadline is cancelled, so one request never yields two replies.

        Args:
            together: carries the first try, with those of siblings, where the policy can.
        """
        group = together if together is not None and _can_share(policy) else None
        started, tries = time.monotonic(), 0
        while True:
            tries += 1
            tag = RequestTag(name_of_try(name, tries), tree)
            request = _Request(policy, prefix, sampling, tag, version, counts)
            try:
                if self.tracer is None:
                    return Reply(await self._tried(request, name, group), tries)
                with request_span(self.tracer, tag, prefix, sampling) as span:
                    generation = await self._tried(request, name, group)
                    describe_reply(span, generation)
                return Reply(generation, tries)
            except Exception as error:
                elapsed_s = time.monotonic() - started
                pause_s = self.retry.after(error, tries, name=name, elapsed_s=elapsed_s)
            group = None
            await anyio.sleep(pause_s)

    async def refresh(self, policy: Policy, *, name: str) -> None:
        """Let a policy that is served elsewhere read which weights it stands for now.

        Under the same permits, deadline and retries as a request; it is none, so no book
        counts it. Trees that begin at once share a call. Other policies are left alone.

        Raises:
            RequestError: the server did not answer.
        """
        if not isinstance(policy, Refreshable):
            return
        remote, services = policy, self.shared

        async def call() -> None:
            await within(
                self.deadline_s,
                remote.refresh,
                late=lambda: self._late("no answer"),
                stray=lambda: Aborted("the policy's own refresh was cancelled"),
            )

        async def attempt(request: str) -> None:
            await services.refreshes.share(remote, services.pool.permit(), call)

        await persist(attempt, retry=self.retry, name=name)

    def _tried(
        self, request: _Request, name: str, together: Together | None
    ) -> Coroutine[Any, Any, Generation]:
        return self._alone(request) if together is None else self._shared(request, name, together)

    async def _alone(self, request: _Request) -> Generation:
        """One try with a call of its own."""
        counts, pool = request.counts, self.shared.pool
        if not pool.try_acquire():
            await pool.acquire()
        try:
            counts.sent += 1
            counts.calls += 1
            generation = await within(self.deadline_s, request.send, late=self._late, stray=_stray)
            check_shape(generation)
            pool.answered()
            request.check(generation)
        except Exception as error:
            counts.fail(_heard(error, pool))
            raise
        except BaseException:
            counts.cancelled += 1
            raise
        finally:
            pool.release()
        counts.accepted += 1
        return generation

    async def _shared(self, request: _Request, name: str, together: Together) -> Generation:
        """A first try that shares its call; what befalls the call befalls every try in it."""
        counts = request.counts
        member = together.join(name, Ask(request.sampling, request.tag), counts)
        try:
            if member is together.members[0]:
                await self._carry(request.policy, request.prefix, together)
            answer = await member.answer
        except BaseException:
            counts.cancelled += member.is_sent
            raise
        try:
            if isinstance(answer, RequestError):
                raise answer
            request.check(answer)
        except RequestError as error:
            counts.fail(error)
            raise
        counts.accepted += 1
        return answer

    async def _carry(self, policy: Policy, prefix: TokenIds, together: Together) -> None:
        """Send one call for everybody, and give each member its own answer."""
        pool = self.shared.pool
        try:
            members = await together.gathered()
            async with pool.permit():
                members[0].counts.calls += 1
                for member in members:
                    member.counts.sent += 1
                    member.is_sent = True
                try:
                    answers = await within(
                        self.deadline_s,
                        lambda: _answers(policy, prefix, members),
                        late=self._late,
                        stray=_stray,
                    )
                except Exception as error:
                    fault = _heard(error, pool)
                    answers = [fault] * len(members)
                else:
                    pool.answered()
            for member, answer in zip(members, answers, strict=True):
                member.settle(own_error(answer) if isinstance(answer, RequestError) else answer)
        finally:
            together.abandon()

    def _late(self, what: str = "no reply") -> TransientError:
        error = TransientError(f"{what} within {self.deadline_s:g} s")
        error.is_late = True
        return error


def _stray() -> Aborted:
    return Aborted("the policy's own call was cancelled")


def _can_share(policy: Policy) -> bool:
    return isinstance(policy, Grouping) and policy.samples_together


def _heard(error: Exception, pool: AdmissionPool) -> RequestError:
    """The kind of fault that ended a call; a pool lets fewer through where servers are full."""
    fault = classify_exception(error)
    if isinstance(fault, TransientError) and fault.is_full:
        pool.turned_away()
    return fault


async def _answers(
    policy: Policy, prefix: TokenIds, members: Sequence[Member]
) -> Sequence[Generation | RequestError]:
    """One answer per member, each a generation in form or an error."""
    if len(members) == 1 or not isinstance(policy, Grouping):
        (ask,) = (member.ask for member in members)
        return [_in_form(await policy.generate(prefix, ask.sampling, tag=ask.tag))]
    replies = await policy.generate_group(prefix, [member.ask for member in members])
    if not isinstance(replies, Sequence) or len(replies) != len(members):
        raise CorruptReply(f"the policy's answer to {len(members)} asks is not as many replies")
    return [_in_form(reply) for reply in replies]


def _in_form(reply: Generation | RequestError) -> Generation | RequestError:
    if isinstance(reply, RequestError):
        return reply
    try:
        check_shape(reply)
    except CorruptReply as error:
        return error
    return reply
