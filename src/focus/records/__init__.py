"""Actor and critic records: what a trainer receives, packed, checked and stored."""

from focus.records.codec import (
    decode_actor,
    decode_critic,
    decode_message,
    decode_problem,
    encode_actor,
    encode_critic,
    encode_message,
    encode_problem,
)
from focus.records.invariants import (
    check_actor_record,
    check_critic_export,
    check_critic_record,
    check_export,
    check_tree,
)
from focus.records.jsonl import JsonlDirectory
from focus.records.jsonl_reader import CriticReader, SkippedLine, read_critic_records
from focus.records.packing import Packing, actor_records
from focus.records.problems import BadRow, ProblemFile, read_problems
from focus.records.records import ActorRecord, CriticContext, CriticRecord, RecordKey
from focus.records.targets import critic_records
from focus.records.tree_store import StoredTree, load_stored_tree, load_tree, save_tree

__all__ = (
    "ActorRecord",
    "BadRow",
    "CriticContext",
    "CriticReader",
    "CriticRecord",
    "JsonlDirectory",
    "Packing",
    "ProblemFile",
    "RecordKey",
    "SkippedLine",
    "StoredTree",
    "actor_records",
    "check_actor_record",
    "check_critic_export",
    "check_critic_record",
    "check_export",
    "check_tree",
    "critic_records",
    "decode_actor",
    "decode_critic",
    "decode_message",
    "decode_problem",
    "encode_actor",
    "encode_critic",
    "encode_message",
    "encode_problem",
    "load_stored_tree",
    "load_tree",
    "read_critic_records",
    "read_problems",
    "save_tree",
)
