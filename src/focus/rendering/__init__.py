"""Rendering: messages to prompt ids, ids to text, tool-call dialects."""

from focus.rendering.chat import refuse_control_tokens, render_chat
from focus.rendering.continuation import render_continuation, respelled
from focus.rendering.dialects import DIALECTS, Call, Dialect, Reading, dialect_named
from focus.rendering.profiles import PROFILES, Profile, profile_named
from focus.rendering.tokenizers import (
    control_ids_in,
    control_tokens,
    decode,
    encode,
    load_tokenizer,
    lock_of,
    tokenizer_hash,
)

__all__ = (
    "DIALECTS",
    "PROFILES",
    "Call",
    "Dialect",
    "Profile",
    "Reading",
    "control_ids_in",
    "control_tokens",
    "decode",
    "dialect_named",
    "encode",
    "load_tokenizer",
    "lock_of",
    "profile_named",
    "refuse_control_tokens",
    "render_chat",
    "render_continuation",
    "respelled",
    "tokenizer_hash",
)
