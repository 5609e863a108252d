"""`focus doctor`: does this machine have what FOCUS needs, and what to do if not."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = ("Finding", "doctor", "examine")

State = Literal["ok", "absent", "broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of one check.

    Attributes:
        name: what was looked at.
        state: ``"absent"`` is an optional part that is not there; ``"broken"`` is needed.
        detail: what was found.
        remedy: what to do; "" when nothing is needed.
    """

    name: str
    state: State
    detail: str
    remedy: str = ""


def doctor(
    model: Annotated[
        str, typer.Option(help="Model to try: builtin, smollm2 or a model folder.")
    ] = "builtin",
    as_json: Annotated[bool, typer.Option("--json", help="Print findings as JSON.")] = False,
) -> None:
    """Check versions, a model, grading, disk and devices.

    Exit code 1 when something that FOCUS needs is broken.

    \b
    Example:
      focus doctor
    """
    import json

    findings = examine(model)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _show(findings)
    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(1)


def _show(findings: list[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    from focus.cli.terminal import glyphs_for, result_console, show

    console = result_console()
    glyphs = glyphs_for(console)
    signs = {"ok": glyphs.right, "absent": "-", "broken": glyphs.wrong}
    styles = {"ok": "green", "absent": "yellow", "broken": "bold red"}
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        remedy = f"  {glyphs.arrow} {finding.remedy}" if finding.remedy else ""
        table.add_row(
            Text(signs[finding.state], style=styles[finding.state]),
            Text(finding.name, style="bold"),
            Text(finding.detail + remedy),
        )
    show(console, table, glyphs=glyphs)


def examine(model: str) -> list[Finding]:
    """Run every check; one that fails never stops the others."""
    checks: tuple[tuple[str, Callable[[], Finding]], ...] = (
        ("python", _python),
        *((name, _package(name, extra, needed)) for name, extra, needed in _PACKAGES),
        ("devices", _devices),
        ("model", lambda: _model(model)),
        ("grading", _grading),
        ("disk", _disk),
    )
    return [_guarded(name, check) for name, check in checks]


_PACKAGES = (
    ("torch", "local", True),
    ("transformers", "local", True),
    ("math-verify", "math", False),
    ("reasoning-gym", "tasks", False),
    ("tensorboard", "tensorboard", False),
)


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:
        return Finding(
            name=name,
            state="broken",
            detail=f"{type(error).__name__}: {error}",
            remedy="repair what that names; FOCUS_DEBUG=1 focus eval -n 1 shows where",
        )


def _python() -> Finding:
    from focus import __version__

    detail = f"{platform.python_version()}, focus {__version__}, {platform.system()}"
    return Finding(name="python", state="ok", detail=detail)


def _package(name: str, extra: str, needed: bool) -> Callable[[], Finding]:
    def check() -> Finding:
        from importlib.metadata import PackageNotFoundError, version

        try:
            return Finding(name=name, state="ok", detail=version(name))
        except PackageNotFoundError:
            return Finding(
                name=name,
                state="broken" if needed else "absent",
                detail="not installed",
                remedy=f'pip install "focus-rl[{extra}]"',
            )

    return check


def _devices() -> Finding:
    import torch

    threads = os.environ.get("OMP_NUM_THREADS", "not set")
    detail = f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"
    detail += f" (OMP_NUM_THREADS {threads}), "
    if torch.cuda.is_available():
        detail += ", ".join(
            torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())
        )
    else:
        detail += "no CUDA device"
    return Finding(name="devices", state="ok", detail=detail)


def _model(name: str) -> Finding:
    import anyio

    from focus.policies.transformers import TransformersPolicy
    from focus.problem import Message
    from focus.sampling import Sampling

    async def speak() -> str:
        async with TransformersPolicy(name) as policy:
            prompt = policy.render((Message("user", "Compute 2 + 3."),))
            reply = await policy.generate(prompt, Sampling(max_tokens=8, seed=0))
            return f"{policy.version}, {len(reply.ids)} tokens generated"

    started = time.monotonic()
    detail = anyio.run(speak)
    elapsed_s = time.monotonic() - started
    return Finding(name="model", state="ok", detail=f"{detail} in {elapsed_s:.1f} s")


def _grading() -> Finding:
    import importlib.util

    import anyio

    from focus.tasks.grading import Grader

    kind = "math" if importlib.util.find_spec("math_verify") else "exact"

    async def grade() -> tuple[float, float]:
        async with Grader() as grader:
            right = await grader.grade(r"so \boxed{42}", "42", kind)
            return right, await grader.grade(r"so \boxed{41}", "42", kind)

    right, wrong = anyio.run(grade)
    if (right, wrong) == (1.0, 0.0):
        return Finding(name="grading", state="ok", detail=f"{kind}: known answers graded as known")
    return Finding(
        name="grading",
        state="broken",
        detail=f"{kind}: a right answer scored {right}, a wrong one {wrong}",
        remedy='pip install --force-reinstall "focus-rl[math]"',
    )


def _disk() -> Finding:
    import shutil

    from focus.viz.numbers import size

    here = Path.cwd()
    try:
        with tempfile.TemporaryFile(dir=here) as probe:
            probe.write(b"focus")
            probe.flush()
    except OSError as error:
        return Finding(
            name="disk",
            state="broken",
            detail=f"{here} cannot be written: {error.strerror}",
            remedy="go to a folder you may write to",
        )
    free = shutil.disk_usage(here).free
    return Finding(name="disk", state="ok", detail=f"{here} is writable, {size(free)} free")
