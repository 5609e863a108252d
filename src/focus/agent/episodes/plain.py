"""Actions and transitions as plain JSON: for pipes, journals and comparisons."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from focus.agent.env import SegmentAction
from focus.agent.episodes.episode import Transition
from focus.agent.turns import TurnAction
from focus.problem import Message
from focus.records.codec import decode_message, encode_message
from focus.records.strict_json import Fields, dumps, require_json
from focus.rendering import Call

__all__ = (
    "decode_action",
    "decode_transition",
    "digest",
    "encode_action",
    "encode_messages",
    "encode_transition",
)


def encode_action(action: Any) -> dict[str, Any]:
    """A segment, a turn, or plain JSON of another parser.

    Raises:
        RecordError: it is none of these.

    >>> encode_action("go north")
    {'plain': 'go north'}
    """
    if isinstance(action, SegmentAction):
        return {
            "segment": {"ids": list(action.ids), "finished": action.finished, "text": action.text}
        }
    if isinstance(action, TurnAction):
        calls = [{**asdict(call), "arguments": dict(call.arguments)} for call in action.calls]
        return {"turn": {**asdict(action), "calls": calls}}
    require_json(action, where="action")
    return {"plain": action}


def decode_action(value: Any) -> Any:
    """Inverse of `encode_action`.

    Raises:
        SchemaError: another shape or type.
    """
    fields = Fields(value, where="action")
    if "segment" in fields:
        return _segment(fields.fields("segment"))
    if "turn" in fields:
        return _turn(fields.fields("turn"))
    return fields.raw("plain")


def _segment(fields: Fields) -> SegmentAction:
    action = SegmentAction(fields.integers("ids"), fields.flag("finished"), fields.text("text"))
    fields.done()
    return action


def _turn(fields: Fields) -> TurnAction:
    action = TurnAction(
        text=fields.text("text"),
        calls=tuple(_call(item) for item in fields.items("calls")),
        reasoning=fields.text("reasoning"),
        is_last=fields.flag("is_last"),
        finished=fields.flag("finished"),
        dialect=fields.text("dialect"),
    )
    fields.done()
    return action


def _call(value: Any) -> Call:
    fields = Fields(value, where="call")
    call = Call(fields.text("name"), fields.object("arguments"), fields.text("fault"))
    fields.done()
    return call


def encode_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages in order."""
    return [encode_message(message) for message in messages]


def encode_transition(answer: Transition) -> dict[str, Any]:
    """A transition as JSON; floats keep their bits."""
    return {
        "messages": encode_messages(answer.messages),
        "reward": float(answer.reward),
        "step_reward": float(answer.step_reward),
        "done": bool(answer.done),
    }


def decode_transition(value: Any) -> Transition:
    """Inverse of `encode_transition`.

    Raises:
        SchemaError: another shape or type.
    """
    fields = Fields(value, where="transition")
    answer = Transition(
        messages=tuple(decode_message(item) for item in fields.items("messages")),
        reward=fields.number("reward"),
        step_reward=fields.number("step_reward"),
        done=fields.flag("done"),
    )
    fields.done()
    return answer


def digest(plain: Any) -> str:
    """Short name of a plain value: equal values share it."""
    return hashlib.sha256(dumps(plain, what="answer")).hexdigest()[:16]
