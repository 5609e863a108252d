"""What a check of an environment found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ("EnvFinding", "EnvReport")

_WIDTH = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvFinding:
    """One law, and whether it held.

    Attributes:
        name: of the law.
        state: ``"absent"``: the environment does not offer what the law is about;
            ``"skipped"``: another law broke, so this one could not be judged.
        detail: what was tried, or what went wrong.
        script: the shortest sequence found that breaks it, a line per call.
    """

    name: str
    state: Literal["ok", "broken", "absent", "skipped"]
    detail: str
    script: tuple[str, ...] = ()

    def __str__(self) -> str:
        mark = {"ok": "ok", "broken": "FAIL", "absent": "--", "skipped": "??"}[self.state]
        indent = " " * (_WIDTH + 6)
        detail = self.detail.replace("\n", "\n" + indent)
        lines = [f"{mark:<4}  {self.name:<{_WIDTH}}{detail}"]
        lines += [f"{indent}{number}. {line}" for number, line in enumerate(self.script, start=1)]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class EnvReport:
    """All findings; ``print(report)`` shows them, ``assert report.ok, report`` tests them.

    >>> print(EnvReport((EnvFinding(name="isolation", state="ok", detail="3 sequences"),)))
    ok    isolation         3 sequences
    """

    findings: tuple[EnvFinding, ...]

    @property
    def ok(self) -> bool:
        """No law was broken, and none could not be judged."""
        return all(finding.state in ("ok", "absent") for finding in self.findings)

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the laws that did not hold."""
        return tuple(each.name for each in self.findings if each.state == "broken")

    def __str__(self) -> str:
        return "\n".join(str(finding) for finding in self.findings)

    def to_plain(self) -> list[dict[str, Any]]:
        """As JSON."""
        return [
            {"name": f.name, "state": f.state, "detail": f.detail, "script": list(f.script)}
            for f in self.findings
        ]
