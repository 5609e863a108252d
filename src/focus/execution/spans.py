"""One OpenTelemetry span per try of a request, by a tracer that the caller brings.

The tracer is used, never imported: any object with OpenTelemetry's
``start_as_current_span`` will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from focus.policies.base import RequestTag
from focus.sampling import Sampling
from focus.tokens import Generation, TokenIds

__all__ = ("Span", "Tracer", "describe_reply", "request_span")

_NAME = "focus.generate"


class Span(Protocol):
    """The part of an OpenTelemetry span that is used."""

    def set_attributes(self, attributes: Mapping[str, Any], /) -> None:
        """Add what became known."""
        ...


class Tracer(Protocol):
    """The part of an OpenTelemetry tracer that is used."""

    def start_as_current_span(
        self, name: str, /, *, attributes: Any = None
    ) -> AbstractContextManager[Any]:
        """A span that ends with the block and records what it raises."""
        ...


@contextmanager
def request_span(
    tracer: Tracer | None, tag: RequestTag, prefix: TokenIds, sampling: Sampling
) -> Iterator[Span | None]:
    """A span around one try; None without a tracer.

    Attributes are named after OpenTelemetry's conventions for generative AI where those
    have a name, else ``focus.*``. No token and no text is recorded.
    """
    if tracer is None:
        yield None
        return
    attributes = {
        "gen_ai.operation.name": "text_completion",
        "focus.request": tag.request,
        "focus.tree": tag.tree,
        "gen_ai.usage.input_tokens": len(prefix),
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.temperature": sampling.temperature,
    }
    known = {name: value for name, value in attributes.items() if value is not None}
    with tracer.start_as_current_span(_NAME, attributes=known) as span:
        yield span


def describe_reply(span: Span | None, generation: Generation) -> None:
    """Add to the span what an accepted reply holds."""
    if span is None:
        return
    attributes: dict[str, Any] = {
        "gen_ai.usage.output_tokens": len(generation.ids),
        "gen_ai.response.finish_reasons": [generation.finish.value],
    }
    if generation.cached_tokens is not None:
        attributes["focus.cached_tokens"] = generation.cached_tokens
    span.set_attributes(attributes)
