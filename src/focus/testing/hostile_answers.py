"""Answers that cost a grader time, memory or its life, each in its own way."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ("HOSTILE", "TOWER", "hostile_answers")

TOWER = r"\boxed{9^{9^{9^{9}}}}"
HOSTILE: dict[str, str] = {
    "power tower": TOWER,
    "tower of tens": r"\boxed{10^{10^{10}}}",
    "tower in a fraction": r"\boxed{\frac{1}{9^{9^{9}}}}",
    "7945 digits": r"\boxed{" + "9" * 7945 + "}",
    "4000 digits": r"\boxed{" + "9" * 4000 + "}",
    "a million digits": r"\boxed{" + "9" * 10**6 + "}",
    "2 MB box": r"\boxed{" + "x" * 2 * 10**6 + "}",
    "200 parentheses": r"\boxed{" + "(" * 200 + "1" + ")" * 200 + "}",
    "2000 parentheses": r"\boxed{" + "(" * 2000 + "1" + ")" * 2000 + "}",
    "1 MB nest": r"\boxed{" + "{" * 500_000 + "1" + "}" * 500_000 + "}",
    "open boxes": r"\boxed{" * 150_000,
    "nested boxes": r"\boxed{" * 8000 + "1" + "}" * 8000,
    "nested fractions": r"\boxed{" + r"\frac{1}{" * 150 + "2" + "}" * 151,
    "nested roots": r"\boxed{" + r"\sqrt{" * 150 + "2" + "}" * 151,
    "nested text": r"\boxed{" + r"\text{" * 300 + "a" + "}" * 301,
    "factorial": r"\boxed{10000000!}",
    "factorial of factorials": r"\boxed{((20!)!)!}",
    "binomial": r"\boxed{\binom{100000}{50000}}",
    "long sum": r"\boxed{\sum_{k=1}^{10000000} \frac{1}{k^2}}",
    "integral": r"\boxed{\int_0^1 \sin(x^x) e^{\cos x} dx}",
    "sine of a tower": r"\boxed{\sin(10^{10^{8}})}",
    "many signs": r"\boxed{" + "-" * 4000 + "1}",
    "many factorials": r"\boxed{3" + "!" * 4000 + "}",
    "many terms": r"\boxed{" + "1+" * 1900 + "1}",
    "regex dollars": r"\boxed{" + "$" * 4000 + "}",
    "regex spaces": r"\boxed{1" + " " * 4000 + "x}",
    "regex digits": r"\boxed{" + "1." * 2000 + r"\overline{3}}",
    "regex repeats": r"\boxed{" + "1" * 4000 + ".}",
    "regex and": r"\boxed{" + " and " * 800 + "}",
    "backslashes": r"\boxed{" + "\\" * 4000 + "}",
    "NUL": "\\boxed{\x00}",
    "lone surrogate": "\\boxed{\ud800}",
    "line separators": "\\boxed{\u2028\u2029\x85\n}",
    "wide matrix": r"\boxed{\begin{pmatrix}" + "&".join("1" * 900) + r"\end{pmatrix}}",
    "equation": r"\boxed{x^{17}+x^5+\sin(x)=\cos(y)}",
    "Python": r"\boxed{__import__('os').system('true')}",
}


def hostile_answers(count: int) -> Iterator[tuple[str, str]]:
    """`count` named answers: those above, then towers, nests and repeats of growing size.

    >>> [name for name, _ in hostile_answers(2)]
    ['power tower', 'tower of tens']
    >>> len(dict(hostile_answers(200)))
    200
    """
    yield from list(HOSTILE.items())[:count]
    for number in range(count - len(HOSTILE)):
        size = 3 + number // len(_GROWING)
        name, text = _GROWING[number % len(_GROWING)]
        yield f"{name} {size}", rf"\boxed{{{text(size)}}}"


_GROWING = (
    ("tower of height", lambda n: "8^{" * n + "8" + "}" * n),
    ("factorials in a row", lambda n: "9" + "!" * n),
    ("nested roots", lambda n: r"\sqrt{" * (40 * n) + "2" + "}" * (40 * n)),
    ("digits, thousands", lambda n: "7" * (1_000 * n)),
    ("nested fractions", lambda n: r"\frac{1}{" * (31 * n) + "2" + "}" * (31 * n)),
    ("terms, hundreds", lambda n: "+".join(["x^2"] * (100 * n))),
    ("sum to ten to the", lambda n: rf"\sum_{{k=1}}^{{10^{n}}} \frac{{1}}{{k^2}}"),
    ("power of a sum", lambda n: rf"(x+y+z)^{{{10**n}}}"),
    ("binomial", lambda n: rf"\binom{{{3 * 10**n}}}{{{10**n}}}"),
    ("intervals", lambda n: r"\cup".join(["[0,1)"] * (50 * n))),
)
