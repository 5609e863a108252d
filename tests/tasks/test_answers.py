"""Where an answer stands, and which labels are references."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.errors import ProblemError
from focus.tasks.answers import (
    ANSWER_LIMIT,
    TEXT_LIMIT,
    last_box,
    last_tagged,
    reference_text,
    same_text,
    single_reference,
    tail,
)

plain = st.text(st.characters(exclude_characters="\\{}", exclude_categories=["Cs"]), max_size=20)
balanced = st.recursive(plain, lambda inner: st.builds("{}{{{}}}{}".format, plain, inner, plain))
box = st.sampled_from([r"\boxed", r"\fbox"])


@given(plain, box, balanced, plain)
def test_a_complete_box_gives_its_content(before, command, content, after):
    assert last_box(f"{before}{command}{{{content}}}{after}") == content.strip()


@given(plain, box, balanced, box, balanced)
def test_an_open_box_changes_nothing(before, command, content, other, rest):
    complete = f"{before}{command}{{{content}}}"
    assert last_box(f"{complete} {other}{{{rest}") == content.strip()


@given(box, balanced, plain, box, balanced)
def test_of_several_boxes_the_last_counts(first, early, between, second, late):
    assert last_box(f"{first}{{{early}}}{between}{second}{{{late}}}") == late.strip()


@given(box, balanced, st.data())
def test_a_box_cut_anywhere_is_no_box(command, content, data):
    whole = f"{command}{{{content}}}"
    assert last_box(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


@given(st.text(alphabet="\\{}boxedf ", max_size=60))
def test_any_text_gives_a_part_of_it_or_nothing(text):
    found = last_box(text)
    assert found is None or found in text


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\boxed{4}}", "4"),
        (r"\boxed{\text{so } \boxed{4}, yes}", "4"),
        (r"a set {1 and \boxed{4}", "4"),
        (r"} \boxed{4}", "4"),
        (r"\\boxed{4}", "4"),
        (r"\boxed {4}", "4"),
        (r"\boxed 4", None),
        (r"boxed{4}", None),
        (r"\boxed{4\}", None),
        ("", None),
    ],
)
def test_b59_b62_boxes_by_hand(text, content):
    assert last_box(text) == content


def test_b59_a_box_split_over_chunks_is_read_from_the_whole_text():
    assert last_box(r"\boxed{4") is None
    assert last_box(r"\boxed{4" + "2}") == "42"


def test_nesting_without_end_stays_cheap():
    depth = TEXT_LIMIT // 8
    assert last_box(r"\boxed{" * depth) is None
    assert last_box(r"\boxed{" * depth + "4" + "}" * depth) == "4"
    assert last_box("\\" * TEXT_LIMIT) is None


@given(plain, st.text(st.characters(exclude_characters="<>", exclude_categories=["Cs"])))
def test_the_last_answer_pair_counts(early, late):
    assert last_tagged(f"<answer>{early}</answer> <answer>{late}</answer> bye") == late.strip()


@pytest.mark.parametrize("text", ["", "<answer>4", "4</answer>", "</answer>4<answer>"])
def test_an_incomplete_pair_is_no_answer(text):
    assert last_tagged(text) is None


@given(plain)
def test_same_text_ignores_space_and_dollars(text):
    assert same_text(f" ${text}$ ", text)


def test_only_the_end_of_a_long_reply_counts():
    assert last_box(tail(r"\boxed{4}" + " " * TEXT_LIMIT)) is None
    assert last_box(tail("x" * 10**6 + r"\boxed{4}")) == "4"


@pytest.mark.parametrize(
    ("label", "answer"),
    [
        ("42", "42"),
        (42, "42"),
        (0.5, "0.5"),
        ("1,000", "1,000"),
        ("(1, 2)", "(1, 2)"),
        (r"\{1, 2\}", r"\{1, 2\}"),
        (r"[0, \infty)", r"[0, \infty)"),
        (r"12 \text{ square inches}", r"12 \text{ square inches}"),
        (r"We find $x=3$, so the sum of both is $\boxed{7}$.", "7"),
        (r"First \boxed{4}. But on reflection it is \boxed{5}.", "5"),
        (r"\boxed{1, 2}", "1, 2"),
    ],
)
def test_a_label_with_one_answer_is_a_reference(label, answer):
    assert single_reference(label) == answer


@pytest.mark.parametrize("label", ["", "   ", r"\boxed{}", r"\boxed{ }"])
def test_b62_an_empty_reference_is_refused(label):
    with pytest.raises(ProblemError, match="empty"):
        single_reference(label)


@pytest.mark.parametrize(
    "label",
    [
        "1331 and 1728",
        r"$1331$ and $1728$",
        "1331, 1728",
        "1331; 1728",
        "3 or 5",
        r"x=1 \text{ or } x=2",
        r"$3$ $5$",
        r"\boxed{3} and \boxed{5}",
        r"$x=\boxed{3}$ or $\boxed{5}$",
    ],
)
def test_b58_several_answers_outside_one_box_are_refused(label):
    with pytest.raises(ProblemError, match=r"several (unboxed )?answers"):
        single_reference(label)


@pytest.mark.parametrize(
    ("label", "why"),
    [
        ("We add both numbers up to get 42.", "sentence"),
        (r"\boxed{4", "complete box"),
        (r"\boxed 4", "complete box"),
        (r"\boxed{" + "9" * (ANSWER_LIMIT + 1) + "}", "characters"),
        (None, "NoneType"),
        (True, "bool"),
        (["42"], "list"),
    ],
)
def test_a_label_without_an_answer_is_refused(label, why):
    with pytest.raises(ProblemError, match=why):
        single_reference(label)


def test_an_exact_reference_may_be_any_text():
    assert reference_text("red, green and blue") == "red, green and blue"
