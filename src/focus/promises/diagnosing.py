"""D1: what can be told of a fault from its error's text alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from focus.promises.base import Measured, Stand
from focus.promises.delivery import fault_alone
from focus.testing.chaos import FAULTS, Fault, Kind

__all__ = ("CAUSES", "PLACE", "errors_tell", "untold")

PLACE = ("problem=", "node=", "request=", "attempts=", "elapsed_s=")
"""What the error of a request must say, beside the cause."""

CAUSES: Mapping[str, str] = {
    "refused": r"ConnectError|ReadError|WriteError|disconnected",
    "reset_before_headers": r"ReadError|WriteError|disconnected",
    "reset_mid_body": r"without sending complete|ReadError",
    "cut_mid_body": r"received \d+ bytes, expected \d+",
    "half_close_mid_body": r"received \d+ bytes, expected \d+",
    "stall_before_headers": r"no reply within",
    "stall_mid_body": r"no reply within",
    "trickle": r"no reply within",
    "endless_chunks": r"no reply within",
    "late_reply": r"no reply within",
    "long_content_length": r"received \d+ bytes, expected \d+",
    "short_content_length": r"not readable JSON.*Expecting|Unterminated",
    "bad_chunk_framing": r"illegal chunk header",
    "redirect": r"HTTP 302",
    "status_503_empty": r"HTTP 503",
    "status_503_no_workers": r"HTTP 503: .*no available workers",
    "burst_of_503": r"HTTP 503",
    "cut_json": r"not readable JSON.*it begins '{",
    "html": r"not readable JSON.*it begins '<html>",
    "error_object": r"no meta_info but \['error'\]: chaos",
    "error_object_400": r"HTTP 400",
    "error_object_503": r"HTTP 503",
    "doubled_keys": r"key 'meta_info' appears twice",
    "list_body": r"the reply is list",
    "string_body": r"the reply is '",
    "null_body": r"the reply is None",
    "byte_order_mark": r"BOM",
    "not_utf8": r"utf-8",
    "nan_literal": r"NaN .* at meta_info\.output_token_logprobs\[0\]",
    "infinity_literal": r"-Infinity .* at meta_info\.output_token_logprobs\[0\]",
    "huge_number": r"digits",
    "deep_nesting": r"nested too deep",
    "gzip_bomb": r"encoded as 'gzip'",
    "empty_body": r"the reply is ''",
    "one_pair_short": r"completion_tokens is \d+ where there are",
    "one_pair_more": r"completion_tokens is \d+ where there are",
    "value_without_id": r"is no \[log-prob, id\]",
    "null_log_prob": r"log-prob None at position",
    "text_log_prob": r"log-prob '-0.5' at position",
    "nan_log_prob": r"NaN",
    "minus_infinity_log_prob": r"-Infinity",
    "positive_log_prob": r"log-prob 0.5 at position",
    "bool_log_prob": r"log-prob False at position",
    "id_past_the_vocabulary": r"id 2147483648 .* outside the vocabulary",
    "negative_id": r"id -1 at position",
    "float_id": r"id 43.0 at position",
    "values_of_a_longer_reply": r"completion_tokens is \d+ where there are",
    "count_wrong": r"completion_tokens is \d+ where there are",
    "prompt_count_wrong": r"prompt_tokens is 1 where there are",
    "more_ids_than_asked": r"where at most \d+ were asked for",
    "length_short_of_the_cap": r"finish reason 'length' after \d+ of \d+ ids",
    "nothing_with_stop": r"ids end in \(\)|no ids",
    "stop_id_missing": r"stopped at 256, but the ids end in",
    "echo_of_the_prompt": r"where at most \d+ were asked for",
    "finish_missing": r"finish reason None",
    "finish_unknown": r"finish reason of type 'tired'",
    "pairs_missing": r"output_token_logprobs is None",
    "meta_missing": r"no meta_info but \['text'\]",
    "abort": r"aborted the request: chaos",
    "abort_bare": r"aborted the request: no reason given",
    "all_aborted": r"aborted the request: all aborted",
    "version_changed": r"weights changed .* pinned 'chaos-1', replied 'other weights'",
    "worker_removed": r"ReadError|WriteError|disconnected",
    "reply_to_another": r"this is the reply to request '.*-another', not to",
}
"""What names the cause, by fault; plain statuses are named by their number."""


def errors_tell(stand: Stand) -> Measured:
    """Fault kinds whose error lacks the cause, or a part of the place."""
    faults = [fault for fault in FAULTS if fault.is_detectable and fault.kind is not Kind.HARMLESS]
    lacking: dict[str, list[str]] = {}
    for number, fault in enumerate(faults):
        if missing := untold(fault, _error_of(fault, stand.folder / fault.name)):
            lacking[fault.name] = missing
        stand.progress(number, len(faults))
    detail = {"kinds": len(faults), "lacking": lacking, "read_by": "patterns, one per kind"}
    return Measured(len(lacking), len(faults), detail)


def untold(fault: Fault, message: str) -> list[str]:
    """What a message does not say of the fault it is about."""
    status = re.fullmatch(r"status_(\d{3}).*", fault.name)
    cause = CAUSES.get(fault.name) or (f"HTTP {status[1]}" if status else "")
    missing = [name for name in PLACE if name not in message]
    return missing if cause and re.search(cause, message) else [*missing, "cause"]


def _error_of(fault: Fault, folder: Path) -> str:
    """The first failure's text, of a tree whose every reply has the fault."""
    fault_alone(fault, folder)
    line: dict[str, Any] = json.loads((folder / "trees.jsonl").read_text().splitlines()[0])
    message: str = line["failures"][0]["message"]
    return message
