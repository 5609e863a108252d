"""Records as plain JSON values and back.

Each stored value names its schema and number, e.g. ``"focus.critic/1"``. A field that
is added, dropped or changed gets a new number. Reading is strict: another number, an
unknown field, a wrong type and a boolean in place of a number are all errors.
"""

from __future__ import annotations

from typing import Any

from focus.errors import ProblemError, RecordError, SchemaError
from focus.problem import Message, Problem, ToolCall
from focus.records.records import ActorRecord, CriticContext, CriticRecord, RecordKey
from focus.records.strict_json import Fields, require_json
from focus.tree import Identity

__all__ = (
    "ACTOR_SCHEMA",
    "CRITIC_SCHEMA",
    "decode_actor",
    "decode_context",
    "decode_critic",
    "decode_message",
    "decode_problem",
    "decode_source",
    "encode_actor",
    "encode_context",
    "encode_critic",
    "encode_message",
    "encode_problem",
    "encode_source",
    "opened",
)

ACTOR_SCHEMA = "focus.actor/1"
CRITIC_SCHEMA = "focus.critic/1"


def opened(value: Any, *, schema: str, where: str) -> Fields:
    """The fields of a stored value that was written under `schema`.

    Raises:
        SchemaError: not an object, or of another schema or number, which is named.

    >>> opened({"schema": "focus.critic/9"}, schema="focus.critic/1", where="line 1")
    Traceback (most recent call last):
    focus.errors.SchemaError: line 1: schema is 'focus.critic/9', this reader knows 'focus.critic/1'
    """
    fields = Fields(value, where=where)
    found = fields.text("schema")
    if found != schema:
        raise SchemaError(f"{where}: schema is {found!r}, this reader knows {schema!r}")
    return fields


def encode_message(message: Message) -> dict[str, Any]:
    """A message as JSON; call ids are kept, unlike in `Message.to_dict`."""
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        plain["tool_calls"] = [
            {"name": call.name, "arguments": call.arguments, "id": call.id}
            for call in message.tool_calls
        ]
    return plain


def decode_message(value: Any, *, where: str = "message") -> Message:
    """Inverse of `encode_message`.

    Raises:
        SchemaError: another shape or type.
    """
    fields = Fields(value, where=where)
    role, content = fields.text("role"), fields.text("content")
    calls = fields.items("tool_calls") if "tool_calls" in fields else []
    fields.done()
    return Message(role, content, tuple(_decode_call(call, where) for call in calls))


def _decode_call(value: Any, where: str) -> ToolCall:
    fields = Fields(value, where=f"{where}.tool_calls")
    call = ToolCall(fields.text("name"), fields.text("arguments"), fields.text("id"))
    fields.done()
    return call


def encode_problem(problem: Problem) -> dict[str, Any]:
    """A problem as JSON, with its label and metadata.

    Raises:
        RecordError: label or metadata would not come back equal from JSON.
    """
    metadata = dict(problem.metadata)
    require_json(problem.label, where=f"problem {problem.id!r}: label")
    require_json(metadata, where=f"problem {problem.id!r}: metadata")
    prompt: Any = problem.prompt
    if not isinstance(prompt, str):
        prompt = [encode_message(message) for message in prompt]
    return {"id": problem.id, "prompt": prompt, "label": problem.label, "metadata": metadata}


def decode_problem(value: Any, *, where: str = "problem") -> Problem:
    """Inverse of `encode_problem`.

    Raises:
        SchemaError: another shape or type.
    """
    fields = Fields(value, where=where)
    problem_id, prompt = fields.name_or_number("id"), fields.raw("prompt")
    label, metadata = fields.raw("label"), fields.object("metadata")
    fields.done()
    if isinstance(prompt, list):
        prompt = tuple(decode_message(item, where=f"{where}.prompt") for item in prompt)
    try:
        return Problem(id=problem_id, prompt=prompt, label=label, metadata=metadata)
    except ProblemError as error:
        raise SchemaError(f"{where}: {error}") from error


def encode_actor(record: ActorRecord) -> dict[str, Any]:
    """An actor record as JSON; floats keep their bits.

    Raises:
        RecordError: its identity is not text and whole numbers.
    """
    return {
        "schema": ACTOR_SCHEMA,
        **encode_source(record.source),
        "nodes": list(record.nodes),
        "prefix": list(record.prefix),
        "response": list(record.response),
        "loss_mask": list(record.loss_mask),
        "log_probs": list(record.log_probs),
        "weights": list(record.weights),
        "outcome": record.outcome,
        "truncated": record.truncated,
        "temperature": record.temperature,
        "top_p": record.top_p,
        "top_k": record.top_k,
        "request_ids": list(record.request_ids),
    }


def decode_actor(value: Any, *, where: str = "actor record") -> ActorRecord:
    """Inverse of `encode_actor`.

    Raises:
        SchemaError: another schema, shape or type.
    """
    fields = opened(value, schema=ACTOR_SCHEMA, where=where)
    record = ActorRecord(
        source=decode_source(fields),
        nodes=fields.integers("nodes"),
        prefix=fields.integers("prefix"),
        response=fields.integers("response"),
        loss_mask=fields.integers("loss_mask"),
        log_probs=fields.numbers("log_probs"),
        weights=fields.numbers("weights"),
        outcome=fields.optional_number("outcome"),
        truncated=fields.flag("truncated"),
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        top_k=fields.optional_integer("top_k"),
        request_ids=fields.texts("request_ids"),
    )
    fields.done()
    return record


def encode_critic(record: CriticRecord) -> dict[str, Any]:
    """A critic record as JSON; floats keep their bits.

    Raises:
        RecordError: its identity is not text and whole numbers.
    """
    return {
        "schema": CRITIC_SCHEMA,
        **encode_source(record.source),
        "node": record.node,
        "depth": record.depth,
        "target": record.target,
        "count": record.count,
        "prior": record.prior,
        "truncated": record.truncated,
        "context": encode_context(record.context),
        "diagnostics": dict(record.diagnostics),
    }


def decode_critic(value: Any, *, where: str = "critic record") -> CriticRecord:
    """Inverse of `encode_critic`.

    Raises:
        SchemaError: another schema, shape or type.
    """
    fields = opened(value, schema=CRITIC_SCHEMA, where=where)
    record = CriticRecord(
        source=decode_source(fields),
        node=fields.integer("node"),
        depth=fields.integer("depth"),
        target=fields.number("target"),
        count=fields.integer("count", least=1),
        prior=fields.number("prior"),
        truncated=fields.flag("truncated"),
        context=decode_context(fields.fields("context")),
        diagnostics=fields.numbers_by_name("diagnostics"),
    )
    fields.done()
    return record


def encode_source(source: RecordKey) -> dict[str, Any]:
    """The identity fields that every stored record starts with.

    Raises:
        RecordError: run, versions or problem id have another type, or round or attempt
            is negative.
    """
    identity = source.identity
    plain: dict[str, Any] = {
        "run": identity.run,
        "round": identity.round,
        "attempt": identity.attempt,
        "problem": source.problem,
        "key": source.key,
        "policy_version": source.policy_version,
        "critic_version": source.critic_version,
    }
    try:
        decode_source(Fields(plain, where="identity"))
    except SchemaError as error:
        raise RecordError(f"problem {source.problem!r}: {error}") from error
    return plain


def decode_source(fields: Fields) -> RecordKey:
    """Inverse of `encode_source`.

    Raises:
        SchemaError: another shape or type.
    """
    identity = Identity(
        run=fields.text("run"), round=fields.integer("round"), attempt=fields.integer("attempt")
    )
    return RecordKey(
        identity=identity,
        problem=fields.name_or_number("problem"),
        key=fields.text("key"),
        policy_version=fields.text("policy_version"),
        critic_version=fields.text("critic_version"),
    )


def encode_context(context: CriticContext) -> dict[str, Any]:
    """What is absent stays absent, so a text critic's records carry no empty token fields."""
    plain: dict[str, Any] = {"renderer": context.renderer, "text": context.text}
    if context.ids is not None:
        plain["ids"] = list(context.ids)
    if context.tokenizer_hash:
        plain["tokenizer_hash"] = context.tokenizer_hash
    plain["remaining"] = {"tokens": context.remaining_tokens, "turns": context.remaining_turns}
    if context.workspace is not None:
        plain["workspace"] = dict(context.workspace)
    return plain


def decode_context(fields: Fields) -> CriticContext:
    """Inverse of `encode_context`.

    Raises:
        SchemaError: another shape or type.
    """
    remaining = fields.fields("remaining")
    context = CriticContext(
        renderer=fields.text("renderer"),
        text=fields.text("text"),
        ids=fields.integers("ids") if "ids" in fields else None,
        tokenizer_hash=fields.text("tokenizer_hash") if "tokenizer_hash" in fields else "",
        remaining_tokens=remaining.optional_integer("tokens"),
        remaining_turns=remaining.optional_integer("turns"),
        workspace=fields.text_by_name("workspace") if "workspace" in fields else None,
    )
    remaining.done()
    fields.done()
    return context
