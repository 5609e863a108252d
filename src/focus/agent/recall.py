"""One edge through a journal: taken from it, or sampled and written to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from focus.agent.env import Env, released_on_failure
from focus.agent.env_calls import ask
from focus.agent.journal import Entry, Journal, Kept
from focus.agent.step import RequestPlace, Step
from focus.checkpoint import Checkpoint
from focus.errors import EnvError, StoreError
from focus.execution import Reply, RequestCounts
from focus.tokens import Generation
from focus.tree import Edge

__all__ = ("Recall",)

Sample = Callable[[RequestPlace], Awaitable[Step]]
Settle = Callable[[Reply, RequestPlace], Awaitable[Step]]


class Recall:
    """Journals the edges of one agent.

    Args:
        journal: borrowed.
        deadline_s: most seconds for one call of the environment.
    """

    def __init__(self, journal: Journal, *, deadline_s: float) -> None:
        self._journal = journal
        self._deadline_s = deadline_s

    async def step(
        self,
        parent: Checkpoint,
        env: Env,
        place: RequestPlace,
        *,
        asked: str,
        sample: Sample,
        settle: Settle,
    ) -> Step:
        """The edge at `place`, without a request where the journal has it.

        Args:
            asked: digest of what the policy is asked with.
            sample: asks the policy and settles its reply.
            settle: lets the environment answer a reply.

        Raises:
            StoreError: the journal cannot be used, or the environment answers a recorded
                reply otherwise than before.
        """
        entry = await self._journal.entry(place.tree, place.name, asked=asked)
        if entry is not None:
            step = await self._again(entry, parent, env, place, settle)
            place.counts.add(entry.counts)
            return step
        own = replace(place, counts=RequestCounts())
        try:
            step = await sample(own)
        finally:
            place.counts.add(own.counts)
        async with released_on_failure(env) as held:
            if step.checkpoint.state is not parent.state:
                held.states.append(step.checkpoint.state)
            if step.checkpoint.workspace is not parent.workspace:
                held.workspaces.append(step.checkpoint.workspace)
            await self._journal.note(place.tree, await self._entry(step, parent, env, own, asked))
        return step

    async def _entry(
        self, step: Step, parent: Checkpoint, env: Env, place: RequestPlace, asked: str
    ) -> Entry:
        after = step.checkpoint
        return Entry(
            name=place.name,
            asked=asked,
            edge=step.edge,
            is_terminal=step.is_terminal,
            is_truncated=step.is_truncated,
            rebased=step.rebased,
            prompt_length=after.prompt_length,
            allowance=after.allowance,
            fold=after.fold,
            state=await self._state(env, parent, after, place.name),
            workspace=await _workspace(parent, after),
            counts=place.counts,
        )

    async def _state(self, env: Env, parent: Checkpoint, after: Checkpoint, where: str) -> Kept:
        if after.state is parent.state:
            return Kept("parent")
        snapshot: Any = getattr(env, "snapshot", None)
        if snapshot is None:
            return Kept("none")
        limit_s = self._deadline_s
        return Kept(
            "snapshot",
            await ask(lambda: snapshot(after.state), "snapshot", where, deadline_s=limit_s),
        )

    async def _again(
        self, entry: Entry, parent: Checkpoint, env: Env, place: RequestPlace, settle: Settle
    ) -> Step:
        """A journalled edge: restored, or answered again where its state was not stored."""
        if entry.state.kind != "none":
            return await self._restored(entry, parent, env, place.name)
        step = await settle(_reply(entry.edge), place)
        if step.edge == entry.edge and step.rebased == entry.rebased:
            return step
        async with released_on_failure(env) as held:
            held.add(step.checkpoint)
            raise StoreError(
                f"{place.name}: the environment answers otherwise than when this edge was "
                f"collected, so the tree cannot go on; remove {self._journal.path(place.tree)}"
            )

    async def _restored(self, entry: Entry, parent: Checkpoint, env: Env, where: str) -> Step:
        state, workspace = parent.state, parent.workspace
        async with released_on_failure(env) as held:
            if entry.state.kind == "snapshot":
                state = await self._state_of(entry, env, where)
                held.states.append(state)
            if entry.workspace.kind == "snapshot":
                workspace = await parent.workspace.restore(entry.workspace.value)
                held.workspaces.append(workspace)
            checkpoint = entry.checkpoint(parent, state=state, workspace=workspace)
        return Step(
            edge=entry.edge,
            checkpoint=checkpoint,
            is_terminal=entry.is_terminal,
            is_truncated=entry.is_truncated,
            rebased=entry.rebased,
        )

    async def _state_of(self, entry: Entry, env: Env, where: str) -> Any:
        restore: Any = getattr(env, "restore", None)
        if restore is None:
            raise EnvError(f"{where}: the journal holds a snapshot, and env has no restore")
        return await ask(
            lambda: restore(entry.state.value), "restore", where, deadline_s=self._deadline_s
        )


async def _workspace(parent: Checkpoint, after: Checkpoint) -> Kept:
    if after.workspace is parent.workspace:
        return Kept("parent")
    return Kept("snapshot", dict(await after.workspace.snapshot()))


def _reply(edge: Edge) -> Reply:
    """The reply that an edge holds."""
    sampled = next(span for span in edge.spans if span.is_sampled)
    source = edge.provenance
    generation = Generation(
        ids=sampled.ids,
        log_probs=sampled.log_probs or (),
        finish=edge.finish,
        version=source.policy_version,
        request_id=source.request_id,
    )
    return Reply(generation, source.tries)
