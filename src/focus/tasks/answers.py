"""Where an answer stands in a text, and which references can be compared with.

Pure text functions: linear in the text, no parsing of mathematics, nothing executed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from focus.errors import ProblemError

__all__ = (
    "ANSWER_LIMIT",
    "TEXT_LIMIT",
    "Verdict",
    "last_box",
    "last_tagged",
    "reference_text",
    "same_text",
    "single_reference",
    "tail",
)

TEXT_LIMIT = 65_536
"""Characters of a reply that count, from its end; an answer before them is not seen."""

ANSWER_LIMIT = 4_096
"""Characters of one answer that are compared; a longer one is wrong, and says so."""

_BOX = re.compile(r"\\{1,2}(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_MATH_PARTS = re.compile(r"\$\$?[^$]+\$\$?|\\\([^\n]+?\\\)|\\\[.+?\\\]", re.DOTALL)
_MARKUP = re.compile(r"\\[A-Za-z]+|\\?[$]|\\[()\[\]]")
_TEXT = re.compile(r"\\(?:text|mbox|mathrm|textbf)\s*\{([^{}]*)\}")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:,(?:\\!)?\d{3})+(?![\d,])")
_CONJUNCTION = re.compile(r"(?<![A-Za-z])(?:and|or)(?![A-Za-z])")
_LIST_GLUE = re.compile(r"(?:and|or|[,;&]|\s|\\?[$]|\\[()\[\],;!]|\\q?quad)*")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What grading one text gave.

    Attributes:
        score: outcome in [0, 1].
        unverifiable: the zero stands for "could not be compared within the limits".
        reason: why a zero was given without a comparison; "" when one took place.
    """

    score: float
    unverifiable: bool = False
    reason: str = ""


def tail(text: str) -> str:
    """The part of a reply that grading looks at: its last `TEXT_LIMIT` characters."""
    return text[-TEXT_LIMIT:]


def last_box(text: str) -> str | None:
    r"""Content of the complete ``\boxed{}`` or ``\fbox{}`` that opens last; None without one.

    Braces nest, escaped braces do not count, and a box that never closes is no box.
    One pass over the text, whatever its nesting.

    >>> last_box(r"First \boxed{4}, then \fbox{\frac{1}{2}} and \boxed{5")
    '\\frac{1}{2}'
    """
    opened: list[int] = []
    found: tuple[int, int] | None = None
    for match in _BOX.finditer(text):
        token = match.group()
        if token == "}":
            start = opened.pop() if opened else -1
            if start >= 0 and (found is None or start > found[0]):
                found = (start, match.start())
        elif token == "{":
            opened.append(-1)
        elif token[-1] == "{" and len(token) > 2:
            opened.append(match.end())
    return None if found is None else text[found[0] : found[1]].strip()


def last_tagged(text: str, tag: str = "answer") -> str | None:
    """Content of the last complete ``<tag>…</tag>``; None without one.

    >>> last_tagged("<answer>1</answer> no, <answer> 2 </answer>")
    '2'
    """
    end = text.rfind(f"</{tag}>")
    start = text.rfind(f"<{tag}>", 0, max(end, 0))
    return None if start < 0 else text[start + len(tag) + 2 : end].strip()


def same_text(answer: str, reference: str) -> bool:
    """Equal up to white space and dollar signs.

    >>> same_text(" $42$ ", "42"), same_text("42.0", "42")
    (True, False)
    """
    return _plain(answer) == _plain(reference)


def reference_text(label: object) -> str:
    """The label as the text to compare with.

    Raises:
        ProblemError: it is no text or number, or empty.

    >>> reference_text(42), reference_text(r"so it is \\boxed{7}.")
    ('42', '7')
    """
    if isinstance(label, bool) or not isinstance(label, str | int | float):
        raise ProblemError(f"a reference must be text or a number, got {type(label).__name__}")
    text = str(label).strip()
    box = last_box(text)
    if box is None and re.search(r"\\(?:boxed|fbox)", text):
        raise ProblemError("the reference has no complete box: close its braces")
    answer = text if box is None else box
    if not answer:
        raise ProblemError("the reference is empty: no answer could be right")
    if len(answer) > ANSWER_LIMIT:
        raise ProblemError(f"the reference answer has {len(answer)} characters (> {ANSWER_LIMIT})")
    return answer


def single_reference(label: object) -> str:
    r"""The one mathematical answer in a label: its last box, or all of it.

    Several answers outside one box can't be compared: a grader would accept any of them.

    Raises:
        ProblemError: no answer, several answers, or a sentence instead of an answer.

    >>> single_reference(r"Hence $x=\boxed{\frac{1}{2}}$.")
    '\\frac{1}{2}'
    """
    answer = reference_text(label)
    text = str(label).strip()
    if last_box(text) is None:
        _refuse_lists(text)
        _refuse_sentences(text)
    else:
        _refuse_joined_boxes(text)
    return answer


def _plain(text: str) -> str:
    return " ".join(text.replace("$", " ").split())


def _refuse_lists(text: str) -> None:
    bare = _TEXT.sub(r" \1 ", text)
    if (
        _CONJUNCTION.search(bare)
        or len(_MATH_PARTS.findall(text)) > 1
        or _has_top_level_separator(_THOUSANDS.sub("0", text))
    ):
        raise ProblemError(
            r"the reference holds several unboxed answers; write them as one: \boxed{1, 2}"
        )


def _has_top_level_separator(text: str) -> bool:
    depth = 0
    for symbol in re.sub(r"\\[,;]", "", text):
        depth += (symbol in "([{") - (symbol in ")]}")
        if symbol in ",;" and depth <= 0:
            return True
    return False


def _refuse_sentences(text: str) -> None:
    words = re.findall(r"[A-Za-z]{2,}", _MARKUP.sub(" ", _TEXT.sub(" ", text)))
    if len(words) > 3:
        raise ProblemError(
            r"the reference is a sentence; put its answer into \boxed{}, or give the answer alone"
        )


def _refuse_joined_boxes(text: str) -> None:
    """Boxes that stand in one list are several answers; earlier boxes in the prose are not."""
    boxes = [match for match in _BOX.finditer(text) if len(match.group()) > 2]
    if len(boxes) < 2:
        return
    before = text[: boxes[-1].start()]
    previous = last_box(before)
    closed = before.rfind("}") + 1
    glue = before[closed:]
    if previous is not None and previous != last_box(text) and _LIST_GLUE.fullmatch(glue):
        raise ProblemError(r"the reference boxes several answers; put them into one box")
