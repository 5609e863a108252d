"""The passes of one session: steps, checkpoints, held-out error, early stop."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from focus.integrations.critic.engine import Engine, save_state
from focus.integrations.critic.ledger import Commit, CriticLedger
from focus.integrations.critic.material import Example, Material, steps_of
from focus.integrations.critic.settings import CriticTraining
from focus.training.rundir import RunDirectory

__all__ = ("Passes", "Reporter", "Silent", "best_commit", "place_after")


class Reporter(Protocol):
    """Hears what a trainer does."""

    def stage(self, name: str, done: int, total: int, note: str = "") -> None:
        """Progress of the current piece of work."""
        ...

    def say(self, text: str) -> None:
        """Something worth a line."""
        ...


class Silent:
    """A reporter that tells nobody."""

    def stage(self, name: str, done: int, total: int, note: str = "") -> None:
        return None

    def say(self, text: str) -> None:
        return None


def best_commit(commits: Sequence[Commit]) -> Commit:
    """The complete pass with the lowest held-out error; the last one where there is none."""
    whole = [commit for commit in commits if commit.is_whole]
    if any(commit.held_out is None for commit in whole):
        return whole[-1]
    return min(whole, key=lambda commit: (commit.held_out, commit.pass_index))


def place_after(commits: Sequence[Commit], settings: CriticTraining) -> tuple[int, int] | None:
    """Pass and step to do next; None when the session is trained.

    >>> place_after([], CriticTraining())
    (0, 0)
    """
    if not commits:
        return (0, 0)
    last = commits[-1]
    if not last.is_whole:
        return (last.pass_index, last.step + 1)
    stalled = last.pass_index - best_commit(commits).pass_index >= settings.patience
    if stalled or last.pass_index + 1 >= settings.passes:
        return None
    return (last.pass_index + 1, 0)


@dataclass
class _Tally:
    """What a session has done so far; comes back from its last checkpoint."""

    loss: float = 0.0
    tokens: int = 0
    records: int = 0
    seconds: float = 0.0
    pending: list[tuple[str, int]] = field(default_factory=list)

    @classmethod
    def after(cls, commits: Sequence[Commit]) -> _Tally:
        return cls(**commits[-1].facts) if commits else cls()

    def facts(self) -> dict[str, Any]:
        return {
            "loss": self.loss,
            "tokens": self.tokens,
            "records": self.records,
            "seconds": round(self.seconds, 3),
        }


@dataclass(kw_only=True)
class Passes:
    """Trains one session to its end.

    Attributes:
        engine: whose weights are trained.
        ledger: None in processes that do not write.
        directory: where checkpoints go.
        settings, report: as in `SessionTrainer`.
    """

    engine: Engine
    ledger: CriticLedger | None
    directory: RunDirectory
    settings: CriticTraining
    report: Reporter

    def train(self, session: int, material: Material) -> list[Commit]:
        """Every pass that is still due; returns the session's checkpoints."""
        commits = self.commits(session)
        while (place := place_after(commits, self.settings)) is not None:
            commits += self._pass(session, material, *place, _Tally.after(commits))
        return commits

    def commits(self, session: int) -> list[Commit]:
        """The session's checkpoints, in every process."""
        known = self.ledger.commits(session) if self.ledger is not None else []
        return self.engine.shared(known)

    def _pass(
        self, session: int, material: Material, index: int, first: int, tally: _Tally
    ) -> list[Commit]:
        """The rest of one pass, from step `first` on."""
        steps = steps_of(material.train, self.settings, session=session, pass_index=index)
        rate = self.engine.schedule(len(steps) * self.settings.passes)
        name = f"session {session}, pass {index + 1} of {self.settings.passes}"
        made = []
        for step in range(first, len(steps)):
            began = time.monotonic()
            self._step(steps[step], step, rate(index * len(steps) + step), tally)
            tally.seconds += time.monotonic() - began
            self.report.stage(name, step + 1, len(steps), f"error {tally.loss:.4f}")
            is_whole = step + 1 == len(steps)
            if is_whole or (step + 1) % self.settings.checkpoint_steps == 0:
                error = self.held_out_error(material.held_out) if is_whole else None
                place = Commit(
                    session=session,
                    pass_index=index,
                    step=step,
                    is_whole=is_whole,
                    checkpoint=f"session-{session:04d}-pass-{index:02d}-step-{step:06d}",
                    held_out=error,
                    facts=tally.facts(),
                )
                made.append(self._commit(place, tally))
        return made

    def _step(
        self, prompts: Sequence[Sequence[Example]], step: int, rate: float, tally: _Tally
    ) -> None:
        facts = self.engine.step(prompts, rate=rate)
        names = [example.record for prompt in prompts for example in prompt]
        tally.pending += [(name, step) for name in names]
        tally.records += len(names)
        tally.tokens += facts.tokens
        # Of this pass: a running mean over its steps.
        tally.loss += (facts.loss - tally.loss) / (step + 1)

    def _commit(self, commit: Commit, tally: _Tally) -> Commit:
        """Checkpoint first, then the transaction that makes its records count."""
        state = self.engine.state()
        if self.ledger is not None:
            self.directory.write_folder(
                self.directory.checkpoints / commit.checkpoint,
                lambda folder: save_state(state, folder),
            )
            self.ledger.commit(commit, tally.pending)
            known = self.ledger.commits(commit.session)
            needed = {commit.checkpoint}
            if any(one.is_whole for one in known):
                needed.add(best_commit(known).checkpoint)
            self.directory.keep_checkpoints(needed)
        tally.pending = []
        self.engine.wait()
        return commit

    def held_out_error(self, examples: Sequence[Example]) -> float | None:
        """Σ w (V − target)² / Σ w on problems that are never trained on; None without any."""
        counted = [example for example in examples if example.weight]
        if not counted:
            return None
        values = self.engine.values([example.context for example in counted])
        pairs = zip(counted, values, strict=True)
        errors = sum(example.weight * (value - example.target) ** 2 for example, value in pairs)
        return errors / sum(example.weight for example in counted)
