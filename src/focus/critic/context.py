"""A checkpoint as its critic sees it; one function for scoring and for training.

The rendered context is stored with each critic record, so a trainer never renders
again. It holds what the agent knows and what it may still spend; never the label,
the grade or the future.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from focus.checkpoint import Checkpoint
from focus.critic.surprisal import SURPRISAL, surprisal_profile
from focus.errors import ConfigError
from focus.policies.base import Policy
from focus.records.records import CriticContext

__all__ = ("RENDERERS", "render_context")


def _token_chunk(policy: Policy, checkpoint: Checkpoint) -> CriticContext:
    ids = checkpoint.context.ids()
    return CriticContext(
        renderer="token_chunk/1",
        text=policy.decode(ids, keep_special=True),
        ids=ids,
        tokenizer_hash=policy.tokenizer_hash,
        remaining_tokens=checkpoint.allowance.tokens,
        remaining_turns=checkpoint.allowance.turns,
    )


def _surprisal(policy: Policy, checkpoint: Checkpoint) -> CriticContext:
    profile = surprisal_profile(checkpoint.context.sampled_log_probs())
    return CriticContext(
        renderer=SURPRISAL,
        text=json.dumps([round(number, 6) for number in profile]),
        remaining_tokens=checkpoint.allowance.tokens,
        remaining_turns=checkpoint.allowance.turns,
    )


def _text_files(policy: Policy, checkpoint: Checkpoint) -> CriticContext:
    """The text, then each file of the agent's workspace; what a fold leaves is in there."""
    files = _texts(checkpoint.workspace)
    shown = "".join(f"\n--- {path}\n{text}" for path, text in files.items())
    return CriticContext(
        renderer="text_files/1",
        text=policy.decode(checkpoint.context.ids(), keep_special=True) + shown,
        remaining_tokens=checkpoint.allowance.tokens,
        remaining_turns=checkpoint.allowance.turns,
        workspace=files,
    )


def _texts(workspace: Any) -> Mapping[str, str]:
    if workspace is None:
        return {}
    texts: Mapping[str, str] | None = getattr(workspace, "texts", None)
    if texts is None:
        raise ConfigError(
            f"renderer 'text_files/1' shows a critic the files that are in memory; "
            f"{type(workspace).__name__} keeps them elsewhere: use InMemoryWorkspace"
        )
    return texts


RENDERERS: dict[str, Callable[[Policy, Checkpoint], CriticContext]] = {
    "text_files/1": _text_files,
    "token_chunk/1": _token_chunk,
    SURPRISAL: _surprisal,
}
"""Known renderers by name and version; a changed rendering gets a new version."""


def render_context(renderer: str, policy: Policy, checkpoint: Checkpoint) -> CriticContext:
    """Render `checkpoint` with the renderer that a critic names.

    Raises:
        ConfigError: no renderer of that name and version.
    """
    function = RENDERERS.get(renderer)
    if function is None:
        known = ", ".join(sorted(RENDERERS))
        raise ConfigError(f"unknown critic renderer {renderer!r}; known: {known}")
    return function(policy, checkpoint)
