"""One agent's way to its policy: permit, deadline, retries by kind of fault, reply checks."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TypeVar

from focus._cancellation import within
from focus.errors import Aborted, ConfigError, CorruptReply, RequestError, TransientError
from focus.execution.admission import AdmissionPool
from focus.execution.checks import check_generation, check_shape
from focus.execution.counts import RequestCounts
from focus.execution.services import ExecutionServices
from focus.execution.spans import Tracer, describe_reply, request_span
from focus.execution.together import Member, Together
from focus.policies.base import Ask, Grouping, Policy, Refreshable, RequestTag
from focus.policies.faults import classify_exception
from focus.policies.retry import RetryPolicy, persist
from focus.sampling import Sampling
from focus.tokens import Generation, TokenIds

__all__ = ("Execution", "Reply")

T = TypeVar("T")


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
        together: Together | None = None,
    ) -> Reply:
        """One valid reply for the request `name`, or the typed error of its last try.

        The name is fixed before the first try; a try adds its own number. A try past its
        deadline is cancelled, so one request never yields two replies.

        Args:
            together: carries the first try, with those of siblings, where the policy can.
        """
        group = together if together is not None and _can_share(policy) else None

        async def attempt(request: str) -> Generation:
            nonlocal group
            ask, shared = Ask(sampling, RequestTag(request, tree)), group
            group = None
            if self.tracer is None:
                return await self._try(policy, prefix, ask, name, version, counts, shared)
            with request_span(self.tracer, RequestTag(request, tree), prefix, sampling) as span:
                generation = await self._try(policy, prefix, ask, name, version, counts, shared)
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
                await self._limited(
                    remote.refresh, late="no answer", stray="the policy's own refresh was cancelled"
                )

        await persist(attempt, retry=self.retry, name=name)

    async def _try(
        self,
        policy: Policy,
        prefix: TokenIds,
        ask: Ask,
        name: str,
        version: str,
        counts: RequestCounts,
        together: Together | None,
    ) -> Generation:
        if together is None:
            generation = await self._alone(policy, prefix, ask, counts)
        else:
            generation = await self._among_siblings(policy, prefix, ask, name, counts, together)
        counts.count_prompt(len(prefix), generation.cached_tokens)
        try:
            check_generation(
                generation, ask.sampling, version=version, vocab_size=policy.vocab_size
            )
        except RequestError as error:
            counts.fail(error)
            counts.discarded_tokens += len(generation.ids)
            raise
        counts.accepted += 1
        return generation

    async def _alone(
        self, policy: Policy, prefix: TokenIds, ask: Ask, counts: RequestCounts
    ) -> Generation:
        pool = self.shared.pool
        async with pool.permit():
            counts.sent += 1
            counts.calls += 1
            try:
                generation = await self._limited(
                    lambda: policy.generate(prefix, ask.sampling, tag=ask.tag)
                )
                check_shape(generation)
            except Exception as error:
                counts.fail(_heard(error, pool))
                raise
            except BaseException:
                counts.cancelled += 1
                raise
            pool.answered()
        return generation

    async def _among_siblings(
        self,
        policy: Policy,
        prefix: TokenIds,
        ask: Ask,
        name: str,
        counts: RequestCounts,
        together: Together,
    ) -> Generation:
        """A first try that shares its call; what befalls the call befalls every try in it."""
        member = together.join(name, ask, counts)
        try:
            if member is together.members[0]:
                await self._carry(policy, prefix, together)
            await member.ready.wait()
        except BaseException:
            counts.cancelled += member.is_sent
            raise
        if isinstance(member.answer, RequestError):
            counts.fail(member.answer)
            raise member.answer
        assert member.answer is not None
        return member.answer

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
                    answers = await self._limited(lambda: _answers(policy, prefix, members))
                except Exception as error:
                    fault = _heard(error, pool)
                    answers = [fault] * len(members)
                else:
                    pool.answered()
            for member, answer in zip(members, answers, strict=True):
                member.settle(_own(answer))
        finally:
            together.abandon()

    async def _limited(
        self,
        call: Callable[[], Awaitable[T]],
        *,
        late: str = "no reply",
        stray: str = "the policy's own call was cancelled",
    ) -> T:
        """What the policy answers within the deadline."""

        def too_late() -> TransientError:
            error = TransientError(f"{late} within {self.deadline_s:g} s")
            error.is_late = True
            return error

        return await within(self.deadline_s, call, late=too_late, stray=lambda: Aborted(stray))


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


def _own(answer: Generation | RequestError) -> Generation | RequestError:
    """An error of the member's own: each is told where it happened."""
    if not isinstance(answer, RequestError):
        return answer
    own = copy(answer)
    own.where = dict(answer.where)
    own.__cause__ = answer
    return own
