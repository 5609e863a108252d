"""Tool-call dialects: how a model writes calls into its reply, and how they are read.

A reply is read once, from the text of its own ids. What cannot be decoded becomes a call
with a fault, which is answered and never executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from focus.errors import ConfigError, SchemaError
from focus.records.strict_json import loads

__all__ = ("DIALECTS", "Call", "Dialect", "Reading", "dialect_named")

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_THINK, _THOUGHT = "<think>", "</think>"
_MOST_CLOSES = 8
_XML = re.compile(r"\s*<function=([^<>\n]+)>(.*)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]+)>(.*?)</parameter>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a reply.

    Attributes:
        name: the tool; "" when it could not be read.
        arguments: by parameter.
        fault: why it cannot be executed; "" for a sound call.
    """

    name: str
    arguments: Mapping[str, Any]
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reply taken apart.

    Attributes:
        text: what is left once reasoning and calls are cut out.
        reasoning: everything up to the first closing think tag.
        calls: in order.
        is_thinking: the reasoning was opened and never closed, so nothing else was said.
    """

    text: str
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    is_thinking: bool = False


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way to write calls.

    Attributes:
        name: what users write, e.g. ``"hermes"``.
        example: a call as the model is told to write it.
        has_text_arguments: every argument arrives as text, to be typed by the tool's schema.
        markers: structural text that data must not bring in.
    """

    name: str
    example: str
    has_text_arguments: bool
    markers: tuple[str, ...]
    _read: Callable[[str], Call]
    _write: Callable[[str, Mapping[str, Any]], str]

    def read(self, reply: str) -> Reading:
        """Reasoning, text and calls of a complete reply.

        >>> reading = dialect_named("hermes").read(
        ...     'Hm.</think>Look: <tool_call>{"name": "f", "arguments": {"n": 1}}</tool_call>')
        >>> reading.reasoning, reading.text, reading.calls
        ('Hm.', 'Look:', (Call(name='f', arguments={'n': 1}, fault=''),))
        """
        before, closed, visible = reply.partition(_THOUGHT)
        if not closed:
            _, opened, _ = before.partition(_THINK)
            if opened:
                return Reading("", reasoning=_stripped(before), is_thinking=True)
            before, visible = "", reply
        parts: list[str] = []
        calls: list[Call] = []
        while True:
            text, opened, rest = visible.partition(_OPEN)
            parts.append(text)
            if not opened:
                break
            call, visible = self._next(rest)
            calls.append(call)
        return Reading("".join(parts).strip(), _stripped(before), tuple(calls))

    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        """A call as a model would write it; the inverse of `read`.

        Raises:
            ConfigError: this dialect cannot say it.
        """
        text = self._write(name, arguments)
        read = self.read(text).calls
        wanted = dict(arguments)
        if self.has_text_arguments:
            wanted = {key: _as_text(value) for key, value in wanted.items()}
        if read != (Call(name, wanted),):
            raise ConfigError(f"dialect {self.name!r} cannot write a call of {name!r}: {text!r}")
        return text

    def instructions(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """What a model is told where its template does not tell it."""
        schemas = "\n".join(json.dumps(dict(tool), ensure_ascii=False) for tool in tools)
        return f"You can call these tools (JSON schemas):\n{schemas}\nTo call one:\n{self.example}"

    def _next(self, rest: str) -> tuple[Call, str]:
        """The call that begins here, and the text after it.

        A closing tag may stand inside an argument, so later ones are tried as well.
        """
        first: tuple[Call, str] | None = None
        end = -1
        for _ in range(_MOST_CLOSES):
            end = rest.find(_CLOSE, end + 1)
            if end < 0:
                break
            call, after = self._read(rest[:end]), rest[end + len(_CLOSE) :]
            if not call.fault:
                return call, after
            first = first or (call, after)
        return first or (Call("", {}, fault=f"the call is not closed with {_CLOSE}"), "")


def dialect_named(name: str) -> Dialect:
    """The dialect that users call `name`.

    Raises:
        ConfigError: there is none; the text lists those there are.
    """
    dialect = DIALECTS.get(name)
    if dialect is None:
        raise ConfigError(f"unknown dialect {name!r}; known: {', '.join(sorted(DIALECTS))}")
    return dialect


def _stripped(reasoning: str) -> str:
    return reasoning.strip().removeprefix(_THINK).strip()


def _read_hermes(block: str) -> Call:
    try:
        value = loads(block.strip().encode("utf-8", "surrogatepass"), where="the call")
    except SchemaError as error:
        return Call("", {}, fault=str(error))
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return Call("", {}, fault='the call is no object with a text "name"')
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        return Call(value["name"], {}, fault='"arguments" is not an object')
    strangers = sorted(value.keys() - {"name", "arguments"})
    if strangers:
        return Call(value["name"], {}, fault=f"unexpected {strangers[0]!r} beside the arguments")
    return Call(value["name"], arguments)


def _write_hermes(name: str, arguments: Mapping[str, Any]) -> str:
    call = {"name": name, "arguments": dict(arguments)}
    return f"{_OPEN}\n{json.dumps(call, ensure_ascii=False)}\n{_CLOSE}"


def _read_xml(block: str) -> Call:
    found = _XML.fullmatch(block)
    if found is None:
        return Call("", {}, fault="the call is not one <function=NAME> … </function>")
    name, body = found.groups()
    arguments: dict[str, str] = {}
    at = 0
    while at < len(body.rstrip()):
        parameter = _PARAMETER.match(body, at)
        if parameter is None:
            return Call(name, {}, fault="text between its parameters")
        key, value = parameter.groups()
        if key in arguments:
            return Call(name, {}, fault=f"parameter {key!r} appears twice")
        arguments[key] = value.removeprefix("\n").removesuffix("\n")
        at = parameter.end()
    return Call(name, arguments)


def _write_xml(name: str, arguments: Mapping[str, Any]) -> str:
    parameters = "".join(
        f"<parameter={key}>\n{_as_text(value)}\n</parameter>\n" for key, value in arguments.items()
    )
    return f"{_OPEN}\n<function={name}>\n{parameters}</function>\n{_CLOSE}"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_MARKERS = (_OPEN, _CLOSE, "<tool_response>", "</tool_response>", _THINK, _THOUGHT)

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            "hermes",
            f'{_OPEN}\n{{"name": "NAME", "arguments": {{"PARAMETER": VALUE}}}}\n{_CLOSE}',
            False,
            _MARKERS,
            _read_hermes,
            _write_hermes,
        ),
        Dialect(
            "qwen_xml",
            f"{_OPEN}\n<function=NAME>\n<parameter=PARAMETER>\nVALUE\n</parameter>\n</function>\n"
            f"{_CLOSE}",
            True,
            (*_MARKERS, "<function=", "<parameter=", "</function>", "</parameter>"),
            _read_xml,
            _write_xml,
        ),
    )
}
"""hermes: a JSON object inside the call tags. qwen_xml: function and parameter tags."""
