"""Faults between the client and the engine that samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from focus.testing.chaos.faults import Family, Fault, Kind, Scene, spoiled
from focus.testing.chaos.statuses import refusal
from focus.testing.chaos.wire import Reset, Send, Step, json_reply

__all__ = ("ROUTER_FAULTS",)


def _reset(scene: Scene) -> Sequence[Step]:
    return (Reset(),)


def _twice(scene: Scene) -> Sequence[Step]:
    """The request reached two engines; both answer, on one connection."""
    again = {**scene.other, "meta_info": {**scene.other["meta_info"], "id": scene.asked["rid"]}}
    return Send(scene.honest + json_reply(again)), Reset()


def _to_the_wrong_request(body: Any, scene: Scene) -> Any:
    return scene.other


def _aborted(body: Any, scene: Scene) -> None:
    body["meta_info"]["finish_reason"] = {"type": "abort", "message": "all aborted"}


ROUTER_FAULTS = (
    Fault("worker_removed", Family.ROUTER, Kind.TRANSIENT, _reset, aborts_others=True),
    Fault("delivered_twice", Family.ROUTER, Kind.HARMLESS, _twice),
    Fault("reply_to_another", Family.ROUTER, Kind.CORRUPT, spoiled(_to_the_wrong_request)),
    Fault("burst_of_503", Family.ROUTER, Kind.TRANSIENT, refusal(503, b""), hits=4),
    Fault("all_aborted", Family.ROUTER, Kind.ABORT, spoiled(_aborted), hits=3),
)
