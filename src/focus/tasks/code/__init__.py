"""Code tasks: files that the policy edits, and a run of tests that decides."""

from focus.tasks.code.env import CodeEnv
from focus.tasks.code.repairs import repair_env, repair_files, repair_problems
from focus.tasks.code.sandbox import Ran, Sandbox
from focus.tasks.code.suite import UNITTEST, TestSuite, Verdict

__all__ = (
    "UNITTEST",
    "CodeEnv",
    "Ran",
    "Sandbox",
    "TestSuite",
    "Verdict",
    "repair_env",
    "repair_files",
    "repair_problems",
)
