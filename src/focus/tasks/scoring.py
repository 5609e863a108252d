"""How each kind of answer is compared. Runs in a grader process only.

=================  ==========================  ======================================
kind               the answer is               the reference is
=================  ==========================  ======================================
``math``           the last complete box       one mathematical answer, or a solution
                                               text whose last box holds it
``exact``          the last complete box       text, compared up to white space
``reasoning_gym``  the last ``<answer>`` pair  ``{"dataset", "config", "entry"}``
=================  ==========================  ======================================

Answers are parsed, never executed: the ``math`` kind reads LaTeX by its grammar (the
verifier's plain-expression reader, which calls ``eval``, stays off), and gym generators
whose scorer evaluates text are refused (:data:`focus.tasks.gym_catalogue.REFUSED`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from focus._extras import require
from focus.errors import ConfigError, GraderError, ProblemError
from focus.tasks.answers import (
    ANSWER_LIMIT,
    Verdict,
    last_box,
    last_tagged,
    reference_text,
    same_text,
    single_reference,
)
from focus.tasks.gym_catalogue import open_dataset

__all__ = ("KINDS", "ExactScorer", "GymScorer", "MathScorer", "Scorer", "scorer_for")

KINDS = ("exact", "math", "reasoning_gym")

_NO_BOX = Verdict(0.0, reason="no complete box")
_NO_TAG = Verdict(0.0, reason="no <answer> pair")
_TOO_LONG = Verdict(0.0, unverifiable=True, reason=f"answer longer than {ANSWER_LIMIT} characters")

_THIN_GROUP = re.compile(r"(?<=\d)\\[,!](?=\d{3}(?!\d))")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\s*\{(\d{1,99})\}")
_SIGNS = str.maketrans(
    {"∞": r"\infty ", "√": r"\sqrt ", "·": r"\cdot ", "°": r"^{\circ}", "−": "-", "$": " "}
)


class Scorer(Protocol):
    """One kind of grading."""

    packages: tuple[str, ...]
    known: tuple[tuple[str, Any, bool], ...]

    def score(self, text: str, reference: Any) -> Verdict:
        """Compare the answer in `text` with `reference`."""
        ...

    def check(self, reference: Any) -> None:
        """Refuse a reference that no answer can match.

        Raises:
            ProblemError: it is empty, ambiguous or cannot be read.
        """
        ...


class ExactScorer:
    """Equal text, up to white space and dollar signs."""

    packages: tuple[str, ...] = ()
    known: tuple[tuple[str, Any, bool], ...] = (
        (r"so \boxed{ 42 }", "42", True),
        (r"\boxed{42}, no, \boxed{43}", "42", False),
    )

    def score(self, text: str, reference: Any) -> Verdict:
        answer = last_box(text)
        if answer is None:
            return _NO_BOX
        return Verdict(float(same_text(answer, reference_text(reference))))

    def check(self, reference: Any) -> None:
        reference_text(reference)


class MathScorer:
    """Mathematical equality by math-verify, on the last complete box alone.

    Both sides go through the same reader, so the reference is never searched for in
    prose. Comparisons that go wrong inside the verifier count as "not equal".
    """

    packages: tuple[str, ...] = (
        "math-verify",
        "latex2sympy2_extended",
        "sympy",
        "antlr4-python3-runtime",
    )
    known: tuple[tuple[str, Any, bool], ...] = (
        (r"\boxed{\frac{1}{2}}", "0.5", True),
        (r"\fbox{(x-1)(x+1)}", "x^2-1", True),
        (r"First \boxed{4}, then on reflection \boxed{5}", "5", True),
        (r"\boxed{\{3, \sqrt{8}\}}", r"\{2\sqrt{2}, 3\}", True),
        (r"\boxed{\frac{1}{3}}", "0.33", False),
        (r"\boxed{5}, or rather \boxed{4}", "5", False),
        (r"\boxed{1728}", r"\{1331, 1728\}", False),
        (r"\boxed{4", "4", False),
    )

    def __init__(self) -> None:
        self._verifier = require("math_verify", extra="math")
        self._reader = (self._verifier.LatexExtractionConfig(boxed_match_priority=0),)

    def score(self, text: str, reference: Any) -> Verdict:
        answer = last_box(text)
        if answer is None:
            return _NO_BOX
        if len(answer) > ANSWER_LIMIT:
            return _TOO_LONG
        return Verdict(float(self._equal(self._read(reference_text(reference)), answer)))

    def check(self, reference: Any) -> None:
        answer = single_reference(reference)
        read = self._read(answer)
        if not read:
            raise ProblemError("the reference cannot be read as mathematics")
        if not self._equal(read, answer):
            raise ProblemError("the reference does not equal itself: no answer could be right")

    def _equal(self, reference: list[Any], answer: str) -> bool:
        # The caller bounds the time, so the verifier's own alarms stay off.
        return bool(
            self._verifier.verify(
                reference, self._read(answer), allow_set_relation_comp=True, timeout_seconds=None
            )
        )

    def _read(self, answer: str) -> list[Any]:
        latex = _legible(answer)
        read: list[Any] = self._verifier.parse(
            rf"\boxed{{{latex}}}", self._reader, fallback_mode="no_fallback", parsing_timeout=None
        )
        return read


class GymScorer:
    """The generator's own scorer, on the last ``<answer>`` pair."""

    packages: tuple[str, ...] = ("reasoning-gym",)
    known: tuple[tuple[str, Any, bool], ...] = tuple(
        (text, {"dataset": "chain_sum", "config": {}, "entry": {"answer": "12"}}, right)
        for text, right in (("<answer>12</answer>", True), ("<answer>13</answer>", False))
    )

    def __init__(self) -> None:
        require("reasoning_gym", extra="tasks")

    def score(self, text: str, reference: Any) -> Verdict:
        answer = last_tagged(text)
        if answer is None:
            return _NO_TAG
        if len(answer) > ANSWER_LIMIT:
            return _TOO_LONG
        dataset, entry = self._opened(reference)
        return Verdict(_as_outcome(dataset.score_answer(answer, entry)))

    def check(self, reference: Any) -> None:
        dataset, entry = self._opened(reference)
        if _as_outcome(dataset.score_answer(entry.get("answer"), entry)) != 1.0:
            raise ProblemError("the generator's own answer does not score 1")

    def _opened(self, reference: Any) -> tuple[Any, Any]:
        if not isinstance(reference, Mapping) or not {"dataset", "entry"} <= set(reference):
            raise ProblemError('a gym reference needs "dataset" and "entry"')
        return (
            open_dataset(reference["dataset"], reference.get("config") or {}),
            reference["entry"],
        )


def scorer_for(kind: str) -> Scorer:
    """The scorer of one kind, its packages imported and its known pairs graded.

    Raises:
        ConfigError: no such kind.
        MissingExtra: its packages are not installed.
        GraderError: it grades a known pair wrongly where it runs.
    """
    makers: dict[str, Callable[[], Scorer]] = {
        "exact": ExactScorer,
        "math": MathScorer,
        "reasoning_gym": GymScorer,
    }
    if kind not in makers:
        raise ConfigError(f"unknown kind of grading {kind!r}; known: {', '.join(KINDS)}")
    scorer = makers[kind]()
    wrong = [
        text for text, gold, right in scorer.known if (scorer.score(text, gold).score == 1) != right
    ]
    if wrong:
        raise GraderError(
            f"kind {kind!r} grades {len(wrong)} of {len(scorer.known)} known pairs wrongly "
            f"({'; '.join(wrong)}) with {_versions(scorer)}"
        )
    return scorer


def _legible(answer: str) -> str:
    """LaTeX that the verifier reads: plain signs, thin spaces, repeating decimals.

    >>> _legible("0.1\\\\overline{6}"), _legible("12\\\\,345.")
    ('\\\\frac{15}{90}', '12345')
    """
    latex = _THIN_GROUP.sub("", answer.translate(_SIGNS))
    return _REPEATING.sub(_fraction, latex).strip().removesuffix(".")


def _fraction(match: re.Match[str]) -> str:
    whole, fixed, repeated = match.groups()
    below = (10 ** len(repeated) - 1) * 10 ** len(fixed)
    above = int(whole + fixed + repeated) - int((whole + fixed) or "0")
    return rf"\frac{{{above}}}{{{below}}}"


def _versions(scorer: Scorer) -> str:
    found = []
    for package in scorer.packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} (missing)")
    return ", ".join(found)


def _as_outcome(score: Any) -> float:
    """A plain float in [0, 1]; bool and numpy numbers are taken, NaN is refused."""
    value = float(score)
    if not (math.isfinite(value) and 0.0 <= value <= 1.0):
        raise ValueError(f"score {value} lies outside [0, 1]")
    return value
