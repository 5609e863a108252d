"""Sessions of training: new records in, one judged snapshot out, whenever the process dies."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focus.critic.consistency import Consistency
from focus.critic.loading import AnyValueModel, load_value_model, starting_value_model
from focus.critic.snapshot import Probe, Snapshot
from focus.critic.store import SnapshotStore
from focus.errors import ConfigError
from focus.integrations.critic.engine import Engine, load_module
from focus.integrations.critic.ledger import Commit, CriticLedger, PromptHome, Session
from focus.integrations.critic.material import Folders, Material
from focus.integrations.critic.passes import Passes, Reporter, Silent, best_commit
from focus.integrations.critic.promotion import Candidate, judged, promote
from focus.integrations.critic.settings import CriticTraining
from focus.records.jsonl import PromptFile
from focus.records.records import CriticContext
from focus.training.outcomes import FreshSet, base_rates, read_fresh
from focus.training.rundir import RunDirectory

__all__ = ("SessionTrainer",)


@dataclass(kw_only=True)
class SessionTrainer:
    """Trains one critic from record folders and publishes it, session by session.

    Attributes:
        folders: where records arrive.
        fresh: folders of fresh outcomes, to judge on.
        fresh_rounds: how many of their latest rounds count as "by the current actor".
        store: where snapshots go.
        directory: ledger and checkpoints; one trainer at a time.
        model: Hugging Face folder that a first session starts from.
        settings: how.
        report: hears of progress.
        device: ``"cpu"``, or None for what there is.
    """

    folders: Folders
    store: SnapshotStore
    directory: RunDirectory
    model: Path
    settings: CriticTraining
    report: Reporter = field(default_factory=Silent)
    fresh: tuple[Path, ...] = ()
    fresh_rounds: int = 1
    device: str | None = None
    _ledger: CriticLedger | None = field(default=None, init=False)
    _is_ready: bool = field(default=False, init=False)

    def run(
        self,
        *,
        follow: bool = False,
        sessions: int | None = None,
        least_new: int = 1,
        poll_s: float = 2.0,
        stop: threading.Event | None = None,
    ) -> Iterator[Snapshot]:
        """Train and publish; each snapshot is given out once it is in the store.

        Args:
            follow: wait for more records instead of ending.
            sessions: end after this many snapshots.
            least_new: new prompts that a session waits for.
            poll_s: seconds between looks at the folders.
            stop: ends the waiting once it is set.

        Raises:
            StoreError: folders, store or state are damaged, or another process trains here.
            ConfigError: the records or the model cannot be used, or the training was begun
                with other settings.
        """
        self._engine = Engine(self.settings, device=self.device)
        stop = stop or threading.Event()
        with contextlib.ExitStack() as stack:
            if self._engine.is_main:
                self._open(stack)
            done = 0
            while sessions is None or done < sessions:
                session = self._engine.shared(self._next(least_new))
                if session is not None:
                    done += 1
                    yield self._session(session)
                elif follow and not stop.wait(poll_s):
                    self.report.stage("waiting for records", done, done + 1)
                else:
                    return

    def _open(self, stack: contextlib.ExitStack) -> None:
        """Store, lock and ledger; only the main process has them."""
        self.store.create()
        self.directory.checkpoints.mkdir(parents=True, exist_ok=True)
        stack.enter_context(self.directory.locked())
        self._ledger = CriticLedger(self.directory.ledger)
        stack.callback(self._ledger.close)
        wanted, known = self.settings.to_dict(), self._ledger.fact("settings")
        if known is not None and known != wanted:
            other = ", ".join(
                f"{name} {known.get(name)}" for name in wanted if known.get(name) != wanted[name]
            )
            raise ConfigError(
                f"{self.directory.root}: this training was begun with {other}; keep that, or "
                "choose another --state"
            )
        self._ledger.note("settings", wanted)

    def _next(self, least_new: int) -> Session | None:
        """The session under way, or a new one where enough has arrived."""
        if self._ledger is None:
            return None
        session = self._ledger.open()
        if session is not None:
            return session
        known, there = self._ledger.known_prompts(), self.folders.prompts()
        new = [home for home in there if home not in known]
        if len(new) < max(1, least_new):
            return None
        last = self._ledger.last_session()
        return self._ledger.open_session(
            parent=None if last is None else last.version,
            targets=self._targets(),
            new=new,
            replayed=_newest(there, known, rounds=self.settings.replay_rounds),
        )

    def _targets(self) -> str:
        """Suffix outcomes until a critic steers: until then Ḡ holds little but a constant."""
        if self.settings.targets != "auto":
            return self.settings.targets
        current = self.store.current()
        return "recorded" if current is not None and current.verdict.steering else "outcomes"

    def _session(self, session: Session) -> Snapshot:
        ledger = self._ledger
        homes = self._engine.shared([] if ledger is None else ledger.prompts(session.number))
        prompts = self.folders.read(homes)
        material = Material.of(prompts, self.settings, targets=session.targets)
        if ledger is not None:
            ledger.meet(material.keys)
        passes = Passes(
            engine=self._engine,
            ledger=ledger,
            directory=self.directory,
            settings=self.settings,
            report=self.report,
        )
        if not self._is_ready:
            self._prepare(session, material.train[0][0].context)
        commits = passes.train(session.number, material)
        best = best_commit(commits)
        if best != commits[-1]:
            self._engine.load(self.directory.checkpoints / best.checkpoint)
        return self._publish(session, material, commits)

    def _prepare(self, session: Session, like: CriticContext) -> None:
        """Take up the model, as it was when this training last stopped."""
        base = self.directory.root / "base"
        if self._ledger is not None and not base.exists():
            model = starting_value_model(
                self.model, like=like, value_range=self.settings.value_range
            )
            self.directory.write_folder(base, model.save)
        self._engine.wait()
        model = load_value_model(base)
        if model.value_range != self.settings.value_range:
            raise ConfigError(
                f"{base}: the critic's range is {model.value_range}, the settings name "
                f"{self.settings.value_range}"
            )
        self._engine.take(model)
        self._is_ready = True
        commits = self._engine.shared([] if self._ledger is None else self._ledger.commits())
        here = [commit for commit in commits if commit.session == commits[-1].session]
        if here:
            state = here[-1] if here[-1].session == session.number else best_commit(here)
            self._engine.load(self.directory.checkpoints / state.checkpoint)

    def _publish(self, session: Session, material: Material, commits: Sequence[Commit]) -> Snapshot:
        """Judge the weights that the engine holds, and put them into the store."""
        self.report.stage(f"session {session.number}, judge", 0, 1)
        held = [example.context for example in material.held_out]
        seen = held or [example.context for prompt in material.train for example in prompt]
        contexts = seen[:: max(1, len(seen) // self.settings.probes)][: self.settings.probes]
        live = self._engine.values(contexts)
        snapshot: Snapshot | None = None
        if self._ledger is not None:
            candidate = self._candidate(
                session, material, commits, list(map(Probe, contexts, live))
            )
            snapshot = promote(candidate, self.store)
            self._ledger.published(session.number, snapshot.version)
        published = self._engine.shared(snapshot)
        assert published is not None
        return published

    def _candidate(
        self,
        session: Session,
        material: Material,
        commits: Sequence[Commit],
        live: Sequence[Probe],
    ) -> Candidate:
        """Judged as it will be served: a plain copy of the weights, in float32."""
        assert self._ledger is not None
        model = self._model_of(best_commit(commits))
        model.to(self._engine.device)

        def score(contexts: Sequence[CriticContext]) -> list[float]:
            return model.predict(contexts, batch_tokens=self.settings.batch_tokens)

        contexts = [probe.context for probe in live]
        values = score(contexts)
        origin = f"train/{self._ledger.trainer}/session-{session.number}"
        rates = base_rates(material.records)
        return Candidate(
            origin=origin,
            parent=session.parent,
            model=model,
            probes=tuple(map(Probe, contexts, values)),
            trained=Consistency.of(origin, [probe.value for probe in live], values),
            records=material.records,
            held_out=material.held_records,
            rates=rates,
            judgement=judged(
                score,
                self._fresh(),
                rates,
                store=self.store,
                value_range=self.settings.value_range,
                device=self._engine.device,
            ),
            metrics=self._metrics(session, material, commits),
        )

    def _fresh(self) -> FreshSet:
        trained = set() if self._ledger is None else self._ledger.met()
        return read_fresh(self.fresh, trained=trained, rounds=self.fresh_rounds)

    def _model_of(self, commit: Commit) -> AnyValueModel:
        """A copy of the weights that no engine has wrapped."""
        model = load_value_model(self.directory.root / "base")
        load_module(model, self.directory.checkpoints / commit.checkpoint)
        return model

    def _metrics(
        self, session: Session, material: Material, commits: Sequence[Commit]
    ) -> dict[str, Any]:
        best, last = best_commit(commits), commits[-1]
        whole = [commit for commit in commits if commit.is_whole]
        seconds = max(last.facts["seconds"], 1e-3)
        return {
            "session": session.number,
            "targets": session.targets,
            "records": len(material.records),
            "held_out_records": len(material.held_records),
            "passes": len(whole),
            "best_pass": best.pass_index + 1,
            "loss": best.facts["loss"],
            "held_out_error": best.held_out,
            "held_out_by_pass": [commit.held_out for commit in whole],
            "parameters": self._engine.parameters,
            "learning_rate": self._engine.peak_rate,
            "tokens": last.facts["tokens"],
            "seconds": last.facts["seconds"],
            "records_per_s": round(last.facts["records"] / seconds, 1),
            "tokens_per_s": round(last.facts["tokens"] / seconds, 1),
        }


def _newest(
    there: Sequence[PromptHome], known: set[PromptHome], *, rounds: int
) -> list[PromptHome]:
    """Known prompts of the newest rounds of their run; new ones are read anyway."""
    by_run: dict[str, set[int]] = {}
    files = {home: PromptFile.parse(home.name) for home in there}
    for home, file in files.items():
        if file is not None:
            by_run.setdefault(home.run, set()).add(file.round)
    kept = {run: sorted(found)[-rounds:] if rounds else [] for run, found in by_run.items()}
    return [
        home
        for home, file in files.items()
        if home in known and file is not None and file.round in kept[home.run]
    ]
