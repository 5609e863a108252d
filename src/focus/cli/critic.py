"""`focus critic`: train, judge, publish and serve step-wise critics."""

from __future__ import annotations

import typer

from focus.cli.critic_publish import publish
from focus.cli.critic_report import report
from focus.cli.critic_serve import serve_critic
from focus.cli.critic_train import train_critic

__all__ = ("critic_app",)

critic_app: typer.Typer = typer.Typer(name="critic", no_args_is_help=True, rich_markup_mode=None)


@critic_app.callback()
def about() -> None:
    """Train, judge, publish and serve step-wise critics."""


critic_app.command(name="train", short_help="Train from exported records, publish snapshots.")(
    train_critic
)
critic_app.command(short_help="Look at the critics of a store, in the terminal or as a page.")(
    report
)
critic_app.command(short_help="Publish a critic that was trained elsewhere.")(publish)
critic_app.command(name="serve", short_help="Serve the critics of a store over HTTP.")(serve_critic)
