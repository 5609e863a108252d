"""`focus critic serve`: values of published critics over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from focus.critic import Critic
    from focus.critic.store import SnapshotStore

__all__ = ("serve_critic",)


def serve_critic(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of published critics.")],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0 takes a free one and prints it.")
    ] = 30100,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    lease_s: Annotated[
        float, typer.Option(min=1.0, help="Seconds after which a silent session ends.")
    ] = 600.0,
    most_loaded: Annotated[
        int, typer.Option(min=1, help="Versions in memory; more than sessions hold at once.")
    ] = 3,
    batch: Annotated[int, typer.Option(min=1, help="Contexts per forward pass.")] = 64,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, ...; by itself if left out.")
    ] = None,
) -> None:
    """Serve the critics of a store until Ctrl-C.

    A session of collection keeps the version it began with, however often a new one is
    published meanwhile; new sessions get the current one. Use it with
    Critic.served(URL, version=...), or let focus loop run it.

    \b
    Example:
      focus critic serve runs/critics --port 30100
    """
    from focus._extras import require

    require("starlette", extra="serve")
    require("uvicorn", extra="serve")
    import time

    from focus.critic.store import SnapshotStore
    from focus.serving.leases import Leases
    from focus.serving.run import bind, run_until_signalled, url_of
    from focus.serving.scorer import scorer_app

    critics = SnapshotStore(store)
    critics.current()
    leases = Leases(
        _loader(critics, batch=batch, device=device),
        most=most_loaded,
        lease_s=lease_s,
        clock=time.monotonic,
    )
    with bind(host, port) as listener:
        ready = f"focus critic serve: {store} at {url_of(listener)}"
        app = scorer_app(critics, leases, on_ready=lambda: typer.echo(ready))
        run_until_signalled(app, listener)


def _loader(store: SnapshotStore, *, batch: int, device: str | None) -> Callable[[str], Critic]:
    """Reads a version whose every byte was checked."""

    def load(version: str) -> Critic:
        from focus.critic import Critic
        from focus.critic.loading import load_value_model

        model = load_value_model(store.load(version))
        if device is not None:
            model.to(device)
        return Critic.local(model, batch=batch)

    return load
