"""Runs for other tools: tables as JSON lines or Parquet, rounds for trackers of experiments."""

from focus.exports.tables import TABLES, Column, launch_rows, node_rows, round_rows, tree_rows
from focus.exports.trackers import TRACKERS, TrackedRun, track
from focus.exports.writers import WRITERS, TableWriter, jsonl_writer, parquet_writer

__all__ = (
    "TABLES",
    "TRACKERS",
    "WRITERS",
    "Column",
    "TableWriter",
    "TrackedRun",
    "jsonl_writer",
    "launch_rows",
    "node_rows",
    "parquet_writer",
    "round_rows",
    "track",
    "tree_rows",
)
