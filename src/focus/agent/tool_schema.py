"""JSON schemas from annotations, and arguments against them."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from focus.errors import ConfigError, SchemaError, ToolError
from focus.records.strict_json import loads

__all__ = ("Described", "Parameter", "described", "typed")

_NAMES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_SIMPLE: dict[str, type] = {"string": str, "boolean": bool, "null": type(None)}
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool: its name, JSON schema, and whether a call must give it."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool


@dataclass(frozen=True, slots=True)
class Described:
    """What a function's signature and docstring tell.

    Attributes:
        summary: first paragraph, on one line.
        texts: what ``Args:`` says of each parameter.
        signature: names, defaults.
    """

    name: str
    summary: str
    texts: Mapping[str, str]
    signature: inspect.Signature

    def parameters(
        self, hints: Mapping[str, Any], *, leave_out: Sequence[str]
    ) -> Iterator[Parameter]:
        """The parameters that a policy gives, with their schemas.

        Raises:
            ConfigError: one has no annotation, or one that JSON cannot say.
        """
        for name, parameter in self.signature.parameters.items():
            if name in leave_out:
                continue
            if name not in hints or parameter.kind in (
                inspect.Parameter.VAR_POSITIONAL,
                inspect.Parameter.VAR_KEYWORD,
                inspect.Parameter.POSITIONAL_ONLY,
            ):
                raise ConfigError(f"tool {self.name!r}: parameter {name!r} needs a name and a type")
            schema = _schema(hints[name], where=f"tool {self.name!r}: parameter {name!r}")
            if text := self.texts.get(name):
                schema["description"] = text
            is_required = parameter.default is inspect.Parameter.empty
            if not is_required and parameter.default is not None:
                schema["default"] = parameter.default
            yield Parameter(name, schema, is_required)


def described(function: Callable[..., Any]) -> Described:
    """Read a function's signature and docstring."""
    doc = inspect.getdoc(function) or ""
    summary = " ".join(doc.partition("\n\n")[0].split())
    section = re.search(r"^Args:\n((?:[ \t]+.*\n?|\n)*)", doc, re.MULTILINE)
    entries = re.findall(
        r"^ {4}(\w+):[ ]*((?:.+\n?)(?:^ {8}.+\n?)*)", section.group(1) if section else "", re.M
    )
    texts = {name: " ".join(text.split()) for name, text in entries}
    return Described(function.__name__, summary, texts, inspect.signature(function))


def _schema(hint: Any, *, where: str) -> dict[str, Any]:
    if hint in _NAMES:
        return {"type": _NAMES[hint]}
    if hint is Any:
        return {}
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is list and inner:
        return {"type": "array", "items": _schema(inner[0], where=where)}
    if origin is dict and inner and inner[0] is str:
        return {"type": "object", "additionalProperties": _schema(inner[1], where=where)}
    if origin in (Union, types.UnionType):
        kinds = [_schema(each, where=where) for each in inner if each is not type(None)]
        kinds += [{"type": "null"}] * (type(None) in inner)
        return {"anyOf": kinds}
    raise ConfigError(f"{where} is annotated {hint!r}, which has no JSON schema here")


def typed(
    tool: str, parameters: Sequence[Parameter], given: Mapping[str, Any], *, as_text: bool
) -> dict[str, Any]:
    """The arguments of a call, by the schemas of a tool.

    Raises:
        ToolError: one is missing, unknown or of another type.

    >>> n = Parameter("n", {"type": "integer"}, True)
    >>> typed("f", [n], {"n": "3"}, as_text=True)
    {'n': 3}
    >>> typed("f", [n], {"n": "three"}, as_text=False)
    Traceback (most recent call last):
    focus.errors.ToolError: f: n must be of type integer, got 'three'
    """
    known = {parameter.name: parameter for parameter in parameters}
    strangers = [name for name in given if name not in known]
    missing = [p.name for p in parameters if p.is_required and p.name not in given]
    if strangers or missing:
        wrong = [f"no parameter {name!r}" for name in strangers]
        wrong += [f"{name!r} is missing" for name in missing]
        raise ToolError(f"{tool}: {'; '.join(wrong)}; it takes {', '.join(known) or 'nothing'}")
    values = {}
    for name, value in given.items():
        schema = known[name].schema
        values[name] = _from_text(value, schema) if as_text else value
        if not _fits(values[name], schema):
            shown = repr(value)[:_SHOWN]
            raise ToolError(f"{tool}: {name} must be {_named(schema)}, got {shown}")
    return values


def _from_text(value: Any, schema: Mapping[str, Any]) -> Any:
    """Text stays text where the schema takes it; else it is read as JSON."""
    if not isinstance(value, str) or _fits(value, schema):
        return value
    try:
        return loads(value.encode("utf-8", "surrogatepass"), where="the value")
    except SchemaError:
        return value


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(_fits(value, each) for each in schema["anyOf"])
    if "enum" in schema:
        return any(value == each and type(value) is type(each) for each in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return isinstance(value, list) and all(_fits(each, schema["items"]) for each in value)
    if kind == "object":
        inner = schema["additionalProperties"]
        return isinstance(value, dict) and all(_fits(each, inner) for each in value.values())
    if kind in ("integer", "number"):
        allowed = (int,) if kind == "integer" else (int, float)
        return isinstance(value, allowed) and not isinstance(value, bool)
    return kind is None or isinstance(value, _SIMPLE[kind])


def _named(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(map(repr, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(_named(each) for each in schema["anyOf"])
    return f"of type {schema.get('type')}"
