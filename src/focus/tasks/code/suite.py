"""A test suite that decides: the task's own files, and the command that runs them."""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread

from focus.agent import Workspace
from focus.agent.workspace import checked_path
from focus.errors import ConfigError, ToolError
from focus.tasks.code.sandbox import Ran, Sandbox

__all__ = ("UNITTEST", "TestSuite", "Verdict")

_RUNNER = """\
import sys, unittest
proof = sys.stdin.readline().strip()
sys.path.insert(0, ".")
result = unittest.TestResult()
unittest.defaultTestLoader.discover(".", pattern="test_*.py").run(result)
bad = result.failures + result.errors + result.expectedFailures
bad = [(test.id(), trace.strip().splitlines()[-1][:200]) for test, trace in bad]
bad += [(test.id(), "skipped: " + why[:200]) for test, why in result.skipped]
bad += [(test.id(), "passes and should not") for test in result.unexpectedSuccesses]
for name, why in sorted(bad):
    print(f"{name}: {why}")
print(f"{max(0, result.testsRun - len(bad))} of {result.testsRun} tests pass")
if result.testsRun and not bad:
    print(proof)
"""

UNITTEST: tuple[str, ...] = (sys.executable, "-I", "-S", "-B", "-c", _RUNNER)
"""All ``test_*.py`` by unittest, on the standard library alone; prints no times and no paths,
so that equal files give equal output. A test that is skipped has not passed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the suite passed, and what the policy may read of it."""

    passed: bool
    report: str


@dataclass(frozen=True, kw_only=True)
class TestSuite:
    """Decides about the files of a workspace.

    A run happens in a fresh copy of the files, with the task's own ones put over them, so
    that edits of the tests count for nothing and a run leaves nothing behind. The suite has
    passed when the command exits with 0 *and* ends its output with the proof, a random line
    that it is given on stdin: code under test that just exits proves nothing. (Code that
    searches the memory of its own process can find the proof; a suite that starts the code in
    a process of its own keeps it away.)

    Attributes:
        files: tests by path.
        command: what runs them, in the copy's folder.
        sandbox: its limits.

    Raises:
        ConfigError: there is no test or no command.
        ToolError: a path leads outside.
    """

    __test__ = False  # a value named like a test class, which pytest would collect

    files: Mapping[str, str]
    command: tuple[str, ...] = UNITTEST
    sandbox: Sandbox = field(default_factory=Sandbox)

    def __post_init__(self) -> None:
        if not self.files or not self.command:
            raise ConfigError("a test suite needs at least one file and a command")
        for path in self.files:
            checked_path(path)

    async def judge(self, workspace: Workspace) -> Verdict:
        """Run the suite on the text files of a workspace.

        Raises:
            EnvError: the command cannot be started.
        """
        try:
            files = {**await workspace.snapshot(), **self.files}
        except ToolError as error:
            return Verdict(False, f"the files cannot be read: {error}")
        with tempfile.TemporaryDirectory(prefix="focus-suite-") as name:
            folder = Path(name)
            try:
                await anyio.to_thread.run_sync(_write, folder, files)
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                return Verdict(False, "a file stands where the tests need a folder")
            proof = secrets.token_hex(16)
            ran = await self.sandbox.run(self.command, folder, stdin=f"{proof}\n".encode())
        return _verdict(ran, proof, folder, self.sandbox)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        target = folder / checked_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode("utf-8"))


def _verdict(ran: Ran, proof: str, folder: Path, sandbox: Sandbox) -> Verdict:
    """The report names neither the proof nor the folder of this one run."""
    if ran.code is None:  # what it printed by then depends on how fast the machine is
        return Verdict(False, f"stopped after {sandbox.seconds:g} s")
    text = ran.output.decode("utf-8", "replace").rstrip("\n")
    said, _, last = text.rpartition("\n")
    passed = ran.code == 0 and last == proof and not ran.is_cut
    shown = (said if last == proof else text).replace(proof, "…").replace(str(folder), ".")
    notes = [shown] if shown.strip() else []
    if ran.is_cut:
        notes.append("(the rest was cut off)")
    if ran.code != 0:
        notes.append(f"exit code {ran.code}")
    elif not passed:
        notes.append("the tests did not pass")
    return Verdict(passed, "\n".join(notes))
