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
    check_packed_tree,
    check_tree,
)
from focus.records.jsonl import JsonlDirectory
from focus.records.jsonl_reader import CriticReader, SkippedLine, read_critic_records
from focus.records.layout import Segment
from focus.records.packed_codec import decode_packed, encode_packed, encode_sample
from focus.records.packed_tree import PackedTree, PolicyRecord, TokenColumns, TrainedEdge
from focus.records.packing import PACKINGS, Packing, RowPacking, actor_records
from focus.records.problems import BadRow, ProblemFile, read_problems
from focus.records.records import ActorRecord, CriticContext, CriticRecord, RecordKey
from focus.records.targets import critic_records
from focus.records.tree_store import StoredTree, load_stored_tree, load_tree, save_tree
from focus.records.unpacking import as_rows, path_records

__all__ = (
    "PACKINGS",
    "ActorRecord",
    "BadRow",
    "CriticContext",
    "CriticReader",
    "CriticRecord",
    "JsonlDirectory",
    "PackedTree",
    "Packing",
    "PolicyRecord",
    "ProblemFile",
    "RecordKey",
    "RowPacking",
    "Segment",
    "SkippedLine",
    "StoredTree",
    "TokenColumns",
    "TrainedEdge",
    "actor_records",
    "as_rows",
    "check_actor_record",
    "check_critic_export",
    "check_critic_record",
    "check_export",
    "check_packed_tree",
    "check_tree",
    "critic_records",
    "decode_actor",
    "decode_critic",
    "decode_message",
    "decode_packed",
    "decode_problem",
    "encode_actor",
    "encode_critic",
    "encode_message",
    "encode_packed",
    "encode_problem",
    "encode_sample",
    "load_stored_tree",
    "load_tree",
    "path_records",
    "read_critic_records",
    "read_problems",
    "save_tree",
)
