"""Spans of requests, by OpenTelemetry's own SDK: one per try, faults recorded, nothing secret."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from focus import AdmissionPool, Execution, ExecutionServices, RetryPolicy, Sampling
from focus.errors import TransientError
from focus.execution import RequestCounts
from focus.policies.base import RequestTag
from focus.testing.policies import ScriptedPolicy, Wrapper
from focus.tokens import FinishReason, Generation, TokenIds

GOOD = Generation(
    ids=(5, 6), log_probs=(-0.5, -0.25), finish=FinishReason.STOP, version="v1", cached_tokens=1
)


class Failing(Wrapper):
    """Fails as often as it is told, then answers."""

    def __init__(self, failures: int) -> None:
        super().__init__(ScriptedPolicy(lambda *_: ""))
        self._left = failures

    async def generate(
        self, prefix: TokenIds, sampling: Sampling, *, tag: RequestTag | None = None
    ) -> Generation:
        self._left -= 1
        if self._left >= 0:
            raise TransientError("busy")
        return GOOD


def spans_of(policy: Wrapper, *, retry: RetryPolicy) -> Sequence[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    execution = Execution(
        services=ExecutionServices(AdmissionPool(1)),
        retry=retry,
        tracer=provider.get_tracer("test"),
    )

    async def ask() -> None:
        await execution.generate(
            policy,
            (1, 2, 3),
            Sampling(max_tokens=4, temperature=1.0),
            name="run/0",
            tree="tree-7",
            version="v1",
            counts=RequestCounts(),
        )

    try:
        anyio.run(ask)
    except TransientError:
        pass
    finally:
        provider.shutdown()
    return exporter.get_finished_spans()


def test_an_accepted_reply_is_a_span_with_its_figures() -> None:
    [span] = spans_of(Failing(0), retry=RetryPolicy(base_s=0.0))
    assert span.attributes is not None
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "text_completion",
        "focus.request": "run/0/1",
        "focus.tree": "tree-7",
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.request.max_tokens": 4,
        "gen_ai.request.temperature": 1.0,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.response.finish_reasons": ("stop",),
        "focus.cached_tokens": 1,
    }


@pytest.mark.parametrize("failures", [1, 2])
def test_each_try_is_a_span_and_a_failed_one_says_why(failures: int) -> None:
    spans = spans_of(Failing(failures), retry=RetryPolicy(base_s=0.0))
    assert len({(span.attributes or {})["focus.request"] for span in spans}) == failures + 1
    assert [span.status.status_code for span in spans] == [
        *[StatusCode.ERROR] * failures,
        StatusCode.UNSET,
    ]
    assert "busy" in (spans[0].status.description or "")
