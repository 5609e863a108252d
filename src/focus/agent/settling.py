"""What a reply leads to: the environment's answer, a fold, or the end of the episode."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from focus._values import filled
from focus.agent.compaction import NO_MORE_CALLS, Compactor
from focus.agent.env import Env, Held
from focus.agent.env_calls import ask_outcome, check_result, take_step
from focus.agent.parsers import Parser
from focus.agent.tool_calls import answer_calls
from focus.agent.tools import by_name
from focus.agent.turns import Turns
from focus.checkpoint import Checkpoint, Fold
from focus.errors import ConfigError
from focus.policies.base import Conversing, Policy
from focus.problem import Message
from focus.tokens import FinishReason, Generation, Span, TokenChain, TokenIds

__all__ = ("Outcome", "Settler")

_checkpoint, _span = filled(Checkpoint), filled(Span)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """A settled reply.

    Attributes:
        checkpoint: where the agent stands now.
        spans: the reply, then what was appended to it.
        reward, step_reward: of the transition.
        duration, kind: as in :class:`focus.tree.Edge`.
        is_terminal, is_truncated: whether the episode is over, and whether for lack of room.
        rebased: the whole new context after a fold.
    """

    checkpoint: Checkpoint
    spans: tuple[Span, ...]
    kind: str
    reward: float = 0.0
    step_reward: float = 0.0
    duration: int = 0
    is_terminal: bool = False
    is_truncated: bool = False
    rebased: TokenIds | None = None


@dataclass(slots=True)
class _Reply:
    """One accepted reply where it was sampled."""

    before: Checkpoint
    generation: Generation
    env: Env
    where: str

    @property
    def written(self) -> TokenChain:
        return self.before.context.extended(self.generation.ids, self.generation.log_probs)

    @property
    def span(self) -> Span:
        return _span(self.generation.ids, self.generation.log_probs)

    @property
    def is_whole(self) -> bool:
        return self.generation.finish is FinishReason.STOP


class Settler:
    """Settles replies of one agent; stateless.

    Args:
        policy, parser, compactor: the agent's.
        env_deadline_s: most seconds for one call of the environment.
    """

    def __init__(
        self,
        policy: Policy,
        parser: Parser,
        compactor: Compactor | None,
        *,
        env_deadline_s: float,
    ) -> None:
        self._deadline_s = env_deadline_s
        self._policy = policy
        self._parser = parser
        self._compactor = compactor

    def room(self, checkpoint: Checkpoint) -> int | None:
        """Tokens that the next reply may hold: allowance and context; None: no limit."""
        left, limit = checkpoint.allowance, self._policy.context_limit
        room = 0 if left.turns == 0 else left.tokens
        if limit is None:
            return room
        fits = max(0, limit - len(checkpoint.context))
        return fits if room is None else min(room, fits)

    def settle(
        self, before: Checkpoint, env: Env, generation: Generation, held: Held, *, where: str
    ) -> Coroutine[Any, Any, Outcome]:
        """The outcome of a reply to `before`; `held` gets what a failure must release."""
        reply = _Reply(before, generation, env, where)
        if before.fold is not None:
            return self._fold(reply, before.fold, held)
        if isinstance(self._parser, Turns) and not reply.is_whole:
            return self._unfinished(reply)
        return self._step(reply, held)

    async def _step(self, reply: _Reply, held: Held) -> Outcome:
        """A whole action: the environment answers it."""
        before = reply.before
        if before.workspace is not None:
            before = replace(before, workspace=await before.workspace.fork())
            held.workspaces.append(before.workspace)
        written = reply.written
        action = self._parser.action(reply.generation, self._text(reply, written))
        if isinstance(self._parser, Turns) and before.allowance.turns == 1:
            action = self._parser.last(action)
        result = await take_step(
            reply.env, before, action, held, where=reply.where, deadline_s=self._deadline_s
        )
        after = _checkpoint(
            context=written,
            prompt_length=before.prompt_length,
            state=result.state,
            allowance=before.allowance.after(
                tokens=len(reply.generation.ids), turns=self._parser.duration
            ),
            workspace=before.workspace,
            fold=before.fold,
        )
        outcome = Outcome(
            checkpoint=after,
            spans=(reply.span,),
            kind=self._parser.kind,
            reward=result.reward if result.done else 0.0,
            duration=self._parser.duration,
            step_reward=result.step_reward,
            is_terminal=result.done,
        )
        if not result.done and self.room(after) == 0:
            return await self._truncated(reply, outcome)
        check_result(reply.generation, result, where=reply.where)
        if result.done:
            return outcome
        if not isinstance(self._parser, Turns):
            return outcome
        return await self._answered(reply, outcome, result.messages)

    async def _answered(
        self, reply: _Reply, outcome: Outcome, messages: Sequence[Message]
    ) -> Outcome:
        """Append the observations, and the call for notes if the context is too long."""
        told = self._appended(outcome, (*messages, *self._farewell(outcome.checkpoint)))
        compactor = self._compactor
        if compactor is not None and compactor.trigger.fires(told.checkpoint):
            told = self._appended(outcome, (*messages, Message("user", compactor.instruction)))
            told = replace(told, checkpoint=replace(told.checkpoint, fold=Fold()))
        if self.room(told.checkpoint) == 0:
            return await self._truncated(reply, outcome)
        return told

    async def _unfinished(self, reply: _Reply) -> Outcome:
        """A message cut off by a token limit: the next edge goes on writing it."""
        outcome = self._unanswered(reply, self._parser.kind, fold=None)
        if self.room(outcome.checkpoint) == 0:
            return await self._truncated(reply, outcome)
        return outcome

    async def _fold(self, reply: _Reply, fold: Fold, held: Held) -> Outcome:
        """Notes, a call of the workspace's tools on the way to them, or a failed attempt."""
        compactor, parser = self._compactor, self._parser
        if compactor is None or not isinstance(parser, Turns):
            raise ConfigError(
                f"{reply.where}: this checkpoint waits for notes; the agent folds not"
            )
        outcome = self._unanswered(reply, "fold", fold=fold)
        reading = parser.read(self._text(reply))
        workspace = reply.before.workspace
        tools = () if workspace is None else workspace.tools
        if (
            reply.is_whole
            and reading.calls
            and tools
            and fold.calls_answered < compactor.most_calls
        ):
            return await self._kept(reply, outcome, fold, held)
        verdict = compactor.judge(reading, closed=reply.is_whole)
        outcome = replace(outcome, step_reward=0.0 - verdict.penalty)
        if not verdict.issue:
            return await self._folded(reply, outcome)
        if fold.repairs >= compactor.repairs:
            return await self._truncated(reply, outcome, reason="fold")
        text = f"These notes cannot be used: {verdict.issue}."
        told = self._appended(outcome, (Message("user", text),), closed=reply.is_whole)
        return await self._going_on(reply, outcome, told, replace(fold, repairs=fold.repairs + 1))

    async def _kept(self, reply: _Reply, outcome: Outcome, fold: Fold, held: Held) -> Outcome:
        """Run the workspace's tools, on a fork of it; nothing else may be called in a fold."""
        assert self._compactor is not None
        assert isinstance(self._parser, Turns)
        workspace = await reply.before.workspace.fork()
        held.workspaces.append(workspace)
        messages = await answer_calls(
            by_name(workspace.tools),
            self._parser.read(self._text(reply)).calls,
            workspace,
            dialect=self._parser.dialect,
        )
        fold = replace(fold, calls_answered=fold.calls_answered + 1)
        if fold.calls_answered == self._compactor.most_calls:
            messages = (*messages, Message("user", NO_MORE_CALLS))
        outcome = replace(outcome, checkpoint=replace(outcome.checkpoint, workspace=workspace))
        return await self._going_on(reply, outcome, self._appended(outcome, messages), fold)

    async def _going_on(
        self, reply: _Reply, outcome: Outcome, told: Outcome, fold: Fold
    ) -> Outcome:
        """The fold goes on with the next edge, if there is room for one more token."""
        if self.room(told.checkpoint) == 0:
            return await self._truncated(reply, outcome)
        return replace(told, checkpoint=replace(told.checkpoint, fold=fold))

    async def _folded(self, reply: _Reply, outcome: Outcome) -> Outcome:
        """The new context: the prompt, the notes as sampled, and the word to go on."""
        assert self._compactor is not None
        before = outcome.checkpoint
        start = before.context.first.extended(reply.generation.ids)
        fresh = replace(
            before,
            context=start,
            state=self._compactor.trigger.relieved(before.state),
            fold=None,
        )
        resume = (Message("user", self._compactor.resume), *self._farewell(fresh))
        told = self._appended(replace(outcome, checkpoint=fresh), resume)
        if self.room(told.checkpoint) == 0:
            return await self._truncated(reply, outcome)
        context = told.checkpoint.context.ids()
        return replace(told, spans=outcome.spans, rebased=context)

    async def _truncated(self, reply: _Reply, outcome: Outcome, *, reason: str = "") -> Outcome:
        """The episode ends here; the environment says what it was worth."""
        reward = await ask_outcome(
            reply.env,
            outcome.checkpoint,
            where=reply.where,
            deadline_s=self._deadline_s,
            reason=reason,
        )
        return replace(outcome, reward=reward, is_terminal=True, is_truncated=True)

    def _unanswered(self, reply: _Reply, kind: str, *, fold: Fold | None) -> Outcome:
        """The reply as an edge that no environment has seen."""
        tokens = len(reply.generation.ids)
        after = replace(
            reply.before,
            context=reply.written,
            allowance=reply.before.allowance.after(tokens=tokens),
            fold=fold,
        )
        return Outcome(checkpoint=after, spans=(reply.span,), kind=kind)

    def _appended(
        self, outcome: Outcome, messages: Sequence[Message], *, closed: bool = True
    ) -> Outcome:
        """The outcome with `messages` behind its reply."""
        assert isinstance(self._policy, Conversing)
        ids = self._policy.continuation(messages, closed=closed)
        context = outcome.checkpoint.context.extended(ids)
        return replace(
            outcome,
            checkpoint=replace(outcome.checkpoint, context=context, prompt_length=len(context)),
            spans=(*outcome.spans, Span(ids)),
        )

    def _farewell(self, checkpoint: Checkpoint) -> tuple[Message, ...]:
        """What is said before the last turn."""
        text = self._parser.last_turn if isinstance(self._parser, Turns) else None
        return (Message("user", text),) if text and checkpoint.allowance.turns == 1 else ()

    def _text(self, reply: _Reply, written: TokenChain | None = None) -> str:
        """The reply that stands, decoded once from all its ids.

        Turns read the markers of their dialect, which a tokenizer may count as special, so
        there only the token that ended the reply is left out.
        """
        ids = (written or reply.written).since(reply.before.prompt_length)
        if not isinstance(self._parser, Turns):
            return self._policy.decode(ids)
        if reply.is_whole and not self._policy.decode(ids[-1:]):
            ids = ids[:-1]
        return self._policy.decode(ids, keep_special=True)
