"""`focus serve`: a local inference server for hooks, routers and tests."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ("Protocol", "serve")


class Protocol(StrEnum):
    """What the server speaks."""

    SGLANG = "sglang"


def serve(
    model: Annotated[str, typer.Option(help="Model folder, builtin or smollm2.")] = "builtin",
    protocol: Annotated[Protocol, typer.Option(help="What clients speak.")] = Protocol.SGLANG,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0 takes a free one and prints it.")
    ] = 30000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    weight_version: Annotated[
        str | None, typer.Option(help="Name of these weights; by default their digest.")
    ] = None,
    max_batch: Annotated[
        int, typer.Option(min=1, help="Requests that run at once; more wait.")
    ] = 64,
) -> None:
    """Serve a model to SGLang clients and routers until Ctrl-C.

    \b
    Example:
      focus serve --model builtin --protocol sglang --port 30000
    """
    from focus._extras import require

    require("starlette", extra="serve")
    require("uvicorn", extra="serve")
    from focus.models import resolve
    from focus.policies.transformers import TransformersPolicy
    from focus.serving.run import bind, run_until_signalled, url_of
    from focus.serving.sglang import sglang_app

    with bind(host, port) as listener:
        policy = TransformersPolicy(model, max_batch=max_batch, version=weight_version)
        ready = f"focus serve: {model} ({policy.version}) at {url_of(listener)}"
        app = sglang_app(
            policy,
            model=str(resolve(model)),
            max_batch=max_batch,
            on_ready=lambda: typer.echo(ready),
        )
        run_until_signalled(app, listener)
