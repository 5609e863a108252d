"""Records, problems and messages come back equal; anything else is refused by name."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus.credit.base import Credit
from focus.errors import RecordError, SchemaError
from focus.problem import Message, Problem, ToolCall
from focus.records import (
    actor_records,
    critic_records,
    decode_actor,
    decode_critic,
    decode_message,
    decode_problem,
    encode_actor,
    encode_critic,
    encode_message,
    encode_problem,
)
from focus.records.strict_json import dumps, loads
from focus.testing.records import CONTEXTS, CREDIT, GOLDEN, critic_record, golden_tree
from focus.tree import Identity, Tree

from .strategies import (
    any_text,
    contexts_of,
    credited_trees,
    critic_records_of_one_prompt,
    json_values,
)

messages = st.builds(
    Message,
    any_text,
    any_text,
    st.lists(st.builds(ToolCall, any_text, any_text, any_text), max_size=2).map(tuple),
)
problems = st.builds(
    Problem,
    id=st.integers() | any_text,
    prompt=any_text.filter(bool) | st.lists(messages, min_size=1, max_size=3).map(tuple),
    label=json_values,
    metadata=st.dictionaries(any_text, json_values, max_size=3),
)


def through_json(plain: dict[str, Any]) -> Any:
    return loads(dumps(plain, what="value"), where="value")


@given(credited_trees())
def test_actor_and_critic_records_round_trip(case: tuple[Tree[None], Credit]) -> None:
    tree, credit = case
    for record in actor_records(tree, credit, packing="path"):
        assert decode_actor(through_json(encode_actor(record))) == record
    for target in critic_records(tree, credit, contexts_of(tree)):
        assert decode_critic(through_json(encode_critic(target))) == target


@given(critic_records_of_one_prompt())
def test_any_text_in_a_record_round_trips(records: list[Any]) -> None:
    for record in records:
        assert decode_critic(through_json(encode_critic(record))) == record


@given(problems)
def test_problems_round_trip_and_keep_their_key(problem: Problem) -> None:
    again = decode_problem(through_json(encode_problem(problem)))
    assert again == problem
    assert again.key == problem.key


@given(messages)
def test_messages_round_trip(message: Message) -> None:
    assert decode_message(through_json(encode_message(message))) == message


@pytest.mark.parametrize("workspace", [None, {}, {"a/b": ""}])
def test_no_workspace_and_an_empty_one_stay_apart(workspace: dict[str, str] | None) -> None:
    record = critic_record()
    context = dataclasses.replace(record.context, workspace=workspace)
    record = dataclasses.replace(record, context=context)
    assert decode_critic(through_json(encode_critic(record))) == record


def test_7_and_the_text_7_stay_apart() -> None:
    for problem in (7, "7"):
        again = decode_critic(through_json(encode_critic(critic_record(problem=problem))))
        assert again.source.problem == problem
        assert type(again.source.problem) is type(problem)


def golden_lines() -> dict[str, bytes]:
    tree = golden_tree()
    actor = actor_records(tree, CREDIT, packing="path")
    critic = critic_records(tree, CREDIT, {**contexts_of(tree), **CONTEXTS})
    return {
        "actor-1.jsonl": b"".join(dumps(encode_actor(r), what="") + b"\n" for r in actor),
        "critic-1.jsonl": b"".join(dumps(encode_critic(r), what="") + b"\n" for r in critic),
        "problem.json": dumps(encode_problem(tree.header.problem), what="") + b"\n",
    }


@pytest.mark.parametrize("name", ["actor-1.jsonl", "critic-1.jsonl", "problem.json"])
def test_what_is_written_is_the_golden_file_byte_for_byte(name: str) -> None:
    assert golden_lines()[name] == (GOLDEN / name).read_bytes()


def test_golden_records_read_back() -> None:
    tree = golden_tree()
    actor = [decode_actor(line) for line in golden("actor-1.jsonl")]
    critic = [decode_critic(line) for line in golden("critic-1.jsonl")]
    assert tuple(actor) == actor_records(tree, CREDIT, packing="path")
    assert tuple(critic) == critic_records(tree, CREDIT, {**contexts_of(tree), **CONTEXTS})
    assert decode_problem(golden("problem.json")[0]) == tree.header.problem


def golden(name: str) -> list[Any]:
    data = (GOLDEN / name).read_bytes()
    return [loads(line, where=name) for line in data.split(b"\n") if line]


@pytest.mark.parametrize("schema", ["focus.critic/2", "focus.actor/1", "focus.critic", "x", ""])
def test_another_schema_is_refused_by_name(schema: str) -> None:
    plain = encode_critic(critic_record()) | {"schema": schema}
    with pytest.raises(SchemaError, match=rf"line 4: schema is '{schema}'.*'focus.critic/1'"):
        decode_critic(plain, where="line 4")


WRONG: dict[str, tuple[Any, ...]] = {
    "schema": (None, 1),
    "run": (None, 1),
    "round": (True, -1, 1.0, "0", None),
    "attempt": (False, -1),
    "problem": (True, 1.0, None, []),
    "node": (True, -1, "0"),
    "target": (True, "0.5", None),
    "count": (0, True, 1.0),
    "prior": (None, True),
    "truncated": (0, None, "false"),
    "context": (None, [], {"renderer": "x"}),
    "diagnostics": (None, {"x": True}, {"x": "1"}, {"x": None}),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_a_wrong_type_is_refused_with_its_field(name: str, value: Any) -> None:
    plain = encode_critic(critic_record()) | {name: value}
    with pytest.raises(SchemaError, match=name):
        decode_critic(plain)


@pytest.mark.parametrize("name", list(encode_critic(critic_record())))
def test_a_missing_field_is_refused(name: str) -> None:
    plain = encode_critic(critic_record())
    del plain[name]
    with pytest.raises(SchemaError, match=f"'{name}' is missing"):
        decode_critic(plain)


def test_an_unknown_field_is_refused() -> None:
    [actor, *_] = golden("actor-1.jsonl")
    with pytest.raises(SchemaError, match="novelty"):
        decode_actor(actor | {"novelty": 1})
    with pytest.raises(SchemaError, match="novelty"):
        decode_critic(encode_critic(critic_record()) | {"novelty": 1})


@pytest.mark.parametrize(
    ("field", "value"),
    [("response", [True]), ("response", [-1]), ("log_probs", [None]), ("log_probs", "x")],
)
def test_damaged_actor_columns_are_refused(field: str, value: Any) -> None:
    [plain, *_] = golden("actor-1.jsonl")
    with pytest.raises(SchemaError, match=field):
        decode_actor(plain | {field: value})


@pytest.mark.parametrize(
    "identity",
    [{"round": -1}, {"attempt": True}, {"run": 3}, {"round": 0.0}],
)
def test_an_identity_of_wrong_types_is_refused_before_it_is_written(identity: Any) -> None:
    record = critic_record()
    source = dataclasses.replace(record.source, identity=Identity(**identity))
    with pytest.raises(RecordError, match="problem 7"):
        encode_critic(dataclasses.replace(record, source=source))


@pytest.mark.parametrize("problem_id", [True, None, 1.5, b"x"])
def test_a_problem_id_of_another_type_is_refused(problem_id: Any) -> None:
    with pytest.raises(RecordError, match=r"identity\.problem"):
        encode_critic(critic_record(problem=problem_id))


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"label": (1, 2)}, "label: a tuple"),
        ({"label": float("nan")}, "label: nan"),
        ({"label": object()}, "label: a object"),
        ({"metadata": {"x": {1: 2}}}, r"metadata\.x: key 1"),
        ({"metadata": {"x": b""}}, r"metadata\.x: a bytes"),
    ],
)
def test_labels_and_metadata_that_are_not_json_are_refused(
    fields: dict[str, Any], place: str
) -> None:
    with pytest.raises(RecordError, match=f"problem 1: {place}"):
        encode_problem(Problem(id=1, prompt="p", **fields))


def test_a_stored_problem_without_a_prompt_is_refused() -> None:
    plain = encode_problem(Problem(id=1, prompt="p"))
    for prompt in ("", [], 3, [{"role": "user"}]):
        with pytest.raises(SchemaError):
            decode_problem(plain | {"prompt": prompt})
