"""Rendering: messages to prompt ids, ids to text, tool-call dialects."""

from focus.rendering.chat import refuse_control_tokens, render_chat
from focus.rendering.profiles import PROFILES, Profile, profile_named
from focus.rendering.tokenizers import (
    control_ids_in,
    decode,
    encode,
    load_tokenizer,
    lock_of,
    tokenizer_hash,
)

__all__ = (
    "PROFILES",
    "Profile",
    "control_ids_in",
    "decode",
    "encode",
    "load_tokenizer",
    "lock_of",
    "profile_named",
    "refuse_control_tokens",
    "render_chat",
    "tokenizer_hash",
)
