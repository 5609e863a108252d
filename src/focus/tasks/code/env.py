"""A code task: the policy edits files, and a run of tests decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from focus.agent import Tool, ToolEnv, ToolState, Workspace, tool
from focus.errors import ConfigError, ToolError
from focus.tasks.code.suite import TestSuite

__all__ = ("CodeEnv",)

SYSTEM = "Mend the code. Look at the files, edit them, run the tests, then hand in."


class CodeEnv(ToolEnv):
    """Files in the agent's workspace, tools to edit them, tests that decide.

    The policy may list, read, write and edit files, run the tests, and hand in. Outcome 1
    when the suite passes on the files as they are handed in, or as they stand when
    allowance or context runs out; else 0. The workspace forks with every checkpoint
    (``Agent(workspace=DirectoryWorkspace(folder))``, or in memory), so a branch from the
    middle has the files of the middle.

    Nothing of what the policy wrote is executed but by the suite's command, in its sandbox.

    Args:
        suite: the tests; the policy sees their report, never edits them.
        system: first message.
        most_calls, most_characters: as in :class:`focus.ToolEnv`.
    """

    def __init__(
        self,
        suite: TestSuite,
        *,
        system: str = SYSTEM,
        most_calls: int | None = None,
        most_characters: int | None = 4000,
    ) -> None:
        super().__init__(
            (list_files, read_file, write_file, edit_file, self._test_tool()),
            grade=lambda given: 0.0,
            submit=hand_in,
            system=system,
            most_calls=most_calls,
            most_characters=most_characters,
        )
        self._suite = suite

    async def outcome(self, answer: Mapping[str, Any], workspace: Workspace | None) -> float:
        """1.0 when the suite passes on the workspace's files."""
        return float((await self._suite.judge(_given(workspace))).passed)

    async def finish(self, state: ToolState, workspace: Workspace | None, reason: str) -> float:
        """The files are judged as they stand."""
        return await self.outcome({}, workspace)

    def _test_tool(self) -> Tool:
        @tool
        async def run_tests(workspace: Workspace) -> str:
            """Run the tests on the files as they are now."""
            return (await self._suite.judge(workspace)).report

        return run_tests


@tool
def hand_in() -> str:
    """Hand in the files as they are; this ends the task."""
    return ""


@tool
async def list_files(workspace: Workspace) -> str:
    """Show the paths of all files."""
    return "\n".join(await workspace.paths()) or "there are no files"


@tool
async def read_file(workspace: Workspace, path: str) -> str:
    """Read a file.

    Args:
        path: as list_files shows it.
    """
    return await workspace.read(path)


@tool
async def write_file(workspace: Workspace, path: str, text: str) -> str:
    """Write a whole file, in place of an older one.

    Args:
        path: relative, such as "src/app.py".
        text: all of it.
    """
    await workspace.write(path, text)
    return f"wrote {len(text)} characters to {path}"


@tool
async def edit_file(workspace: Workspace, path: str, old: str, new: str) -> str:
    """Replace a piece of a file that occurs exactly once.

    Args:
        path: as list_files shows it.
        old: the piece as it stands.
        new: what to put there.
    """
    text = await workspace.read(path)
    if (times := text.count(old) if old else 0) != 1:
        raise ToolError(f"{old[:60]!r} occurs {times} times in {path}; give more around it")
    await workspace.write(path, text.replace(old, new))
    return f"edited {path}"


def _given(workspace: Workspace | None) -> Workspace:
    if workspace is None:
        raise ConfigError("CodeEnv needs files: give Agent(workspace=DirectoryWorkspace(folder))")
    return workspace
