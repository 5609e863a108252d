"""Faults of the connection: the reply comes in part, late, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from focus.testing.chaos.faults import Act, Family, Fault, Kind, Scene
from focus.testing.chaos.wire import (
    Hangup,
    HoldBack,
    Pause,
    Reset,
    Send,
    Step,
    StopSending,
    Trickle,
    UntilUsed,
    head,
)

__all__ = ("TRANSPORT_FAULTS",)

_TRICKLE_S = 0.02
_SLOW_S = 0.01


def _mid(scene: Scene) -> bytes:
    """Headers and half of the body."""
    whole = scene.honest
    start = whole.index(b"\r\n\r\n") + 4
    return whole[: start + (len(whole) - start) // 2]


def _reset_before_headers(scene: Scene) -> Sequence[Step]:
    return (Reset(),)


def _reset_mid_body(scene: Scene) -> Sequence[Step]:
    return Send(_mid(scene)), Reset()


def _cut_mid_body(scene: Scene) -> Sequence[Step]:
    return Send(_mid(scene)), Hangup()


def _half_close_mid_body(scene: Scene) -> Sequence[Step]:
    return Send(_mid(scene)), StopSending(), HoldBack()


def _stall_before_headers(scene: Scene) -> Sequence[Step]:
    return (HoldBack(),)


def _stall_mid_body(scene: Scene) -> Sequence[Step]:
    return Send(_mid(scene)), HoldBack()


def _trickle(scene: Scene) -> Sequence[Step]:
    return (Trickle(scene.honest, _TRICKLE_S),)


def _endless(scene: Scene) -> Sequence[Step]:
    """Chunks of white space for ever: JSON allows as much as it likes."""
    opening = head(None, headers={"transfer-encoding": "chunked"})
    return Send(opening), Trickle(b"1\r\n \r\n" * 100_000, _TRICKLE_S)


def _late(scene: Scene) -> Sequence[Step]:
    return HoldBack(), Send(scene.honest)


def _long_length(scene: Scene) -> Sequence[Step]:
    body = scene.honest.partition(b"\r\n\r\n")[2]
    return Send(head(len(body) + 7) + body), Hangup()


def _short_length(scene: Scene) -> Sequence[Step]:
    body = scene.honest.partition(b"\r\n\r\n")[2]
    return Send(head(len(body) - 7) + body), Hangup()


def _bad_chunks(scene: Scene) -> Sequence[Step]:
    opening = head(None, headers={"transfer-encoding": "chunked"})
    return Send(opening + b"zz\r\n" + scene.honest), Hangup()


def _slow(scene: Scene) -> Sequence[Step]:
    return Pause(_SLOW_S), Send(scene.honest)


def _reset_after_body(scene: Scene) -> Sequence[Step]:
    return Send(scene.honest), UntilUsed(), Reset()


def _half_close_after_body(scene: Scene) -> Sequence[Step]:
    return Send(scene.honest), StopSending(), HoldBack()


def _stale_keep_alive(scene: Scene) -> Sequence[Step]:
    """The client keeps the connection, which closes just as it is used again."""
    return Send(scene.honest), UntilUsed(), Hangup()


def _fault(name: str, kind: Kind, act: Act, *, refuses: bool = False) -> Fault:
    return Fault(name, Family.TRANSPORT, kind, act, refuses=refuses)


def _silent(name: str, act: Act) -> Fault:
    return Fault(name, Family.TRANSPORT, Kind.TRANSIENT, act, is_silent=True)


TRANSPORT_FAULTS = (
    _fault("refused", Kind.TRANSIENT, _reset_before_headers, refuses=True),
    _fault("reset_before_headers", Kind.TRANSIENT, _reset_before_headers),
    _fault("reset_mid_body", Kind.TRANSIENT, _reset_mid_body),
    _fault("cut_mid_body", Kind.TRANSIENT, _cut_mid_body),
    _fault("half_close_mid_body", Kind.TRANSIENT, _half_close_mid_body),
    _silent("stall_before_headers", _stall_before_headers),
    _silent("stall_mid_body", _stall_mid_body),
    _silent("trickle", _trickle),
    _silent("endless_chunks", _endless),
    _silent("late_reply", _late),
    _fault("long_content_length", Kind.TRANSIENT, _long_length),
    _fault("short_content_length", Kind.CORRUPT, _short_length),
    _fault("bad_chunk_framing", Kind.TRANSIENT, _bad_chunks),
    _fault("slow", Kind.HARMLESS, _slow),
    _fault("reset_after_body", Kind.HARMLESS, _reset_after_body),
    _fault("half_close_after_body", Kind.HARMLESS, _half_close_after_body),
    _fault("stale_keep_alive", Kind.HARMLESS, _stale_keep_alive),
)
"""Harmless ones strike whatever comes after their reply."""
