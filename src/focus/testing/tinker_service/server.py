"""The service on a loopback socket, in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvicorn

from focus.models import resolve
from focus.policies.convention import LogProbConvention
from focus.serving.run import bind, url_of
from focus.testing.tinker_service.app import tinker_app
from focus.testing.tinker_service.desk import Desk, Done
from focus.testing.tinker_service.faults import Fault, FaultPlan
from focus.testing.tinker_service.learning import SavedState, Trainee

__all__ = ("TinkerService",)

_GRACE_S = 2


class TinkerService:
    """Speaks Tinker's protocol on 127.0.0.1 and really trains, with torch, on this machine.

    For tests and for trying things out; the real SDK is its client::

        with TinkerService() as service:
            client = tinker.ServiceClient(base_url=service.url, api_key=service.api_key)

    Saved states and snapshots live as long as this object, also across a restart that a
    fault asks for. What it trains are all weights, in float32, whatever the rank.

    Args:
        models: served names, each with the folder (or known name) of its weights.
        faults: shown when their turn comes; more may be added to `faults` later.
        convention: what the log-probs of samples mean.
        config: flags that clients are given, such as ``fwdbwd_max_chunk_len``.
    """

    api_key = "tml-loopback"

    def __init__(
        self,
        models: Mapping[str, str | Path] | None = None,
        *,
        faults: Iterable[Fault] = (),
        convention: LogProbConvention = LogProbConvention.PROCESSED,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        folders = {name: resolve(source) for name, source in (models or _BUILTIN).items()}
        self.faults = FaultPlan(faults)
        self._desk = Desk(folders, convention)
        self._listener = bind("127.0.0.1", 0)
        self.url = url_of(self._listener)
        app = tinker_app(self._desk, self.faults, config or {}, api_key=self.api_key)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                access_log=False,
                lifespan="on",
                log_level="error",
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self._thread = threading.Thread(target=self._serve, name="tinker-service", daemon=True)

    def _serve(self) -> None:
        self._server.run(sockets=[self._listener])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._desk.loop is not None:
            self._desk.loop.call_soon_threadsafe(self._desk.stop)
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    @property
    def log(self) -> tuple[Done, ...]:
        """Training requests that were carried out, in order."""
        return tuple(self._desk.log)

    @property
    def states(self) -> Mapping[str, SavedState]:
        """Saved states by path."""
        return dict(self._desk.states)

    def trainee(self, model_id: str) -> Trainee:
        """A model under training; look while nothing of it runs."""
        return self._desk.model(model_id).trainee


_BUILTIN = {"builtin": "builtin"}
