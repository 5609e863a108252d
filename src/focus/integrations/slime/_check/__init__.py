"""`focus slime check`: read a launch script without running it, and say what is wrong."""

from focus.integrations.slime._check.launch import Launch, launches
from focus.integrations.slime._check.rules import Report, judge
from focus.integrations.slime._check.table import FlagTable, load_table

__all__ = ("FlagTable", "Launch", "Report", "judge", "launches", "load_table")
