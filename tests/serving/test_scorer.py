"""The scorer over real sockets, with the client that ships: sessions, swaps, faults."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import uvicorn

from focus import Critic, RetryPolicy
from focus.critic.consistency import (
    Consistency,
    Tolerance,
    compare,
    found_consistency,
    note_consistency,
    ruling,
)
from focus.critic.snapshot import Probe, Snapshot, SnapshotFacts, Verdict
from focus.critic.store import SnapshotStore
from focus.errors import ConfigError, CriticError, FatalError, SchemaError
from focus.records.records import CriticContext
from focus.serving.leases import Leases
from focus.serving.run import bind, url_of
from focus.serving.scorer import scorer_app

pytestmark = pytest.mark.anyio

ONCE = RetryPolicy(attempts=1, corrupt_attempts=1)


def context(text: str) -> CriticContext:
    return CriticContext(renderer="token_chunk/1", text=text, ids=tuple(text.encode()))


CONTEXTS = [context("x" * n) for n in range(1, 9)]


def value(version: str, context: CriticContext) -> float:
    """Tells version and context apart."""
    return int(version[-4:]) / 10 + len(context.ids or ()) / 1000


class Served:
    """A store of dummy snapshots whose models are functions, behind a socket."""

    def __init__(self, folder: Path) -> None:
        self.store = SnapshotStore(folder / "store")
        self.store.create()
        self.asked: list[list[CriticContext]] = []
        self.loads: list[str] = []
        self.url = ""
        self.gate = asyncio.Event()
        self.gate.set()

    def publish(self, *, steering: bool = True, probes: Sequence[Probe] = ()) -> Snapshot:
        def fill(model: Path) -> None:
            (model / "model.safetensors").write_bytes(b"weights")

        origin = f"test/{len(self.store.versions())}"
        facts = SnapshotFacts(
            origin=origin,
            renderer="token_chunk/1",
            verdict=Verdict(steering, "told so"),
            constant=0.25,
        )
        return self.store.publish(fill, facts, probes=probes)

    def load(self, version: str) -> Critic:
        self.store.load(version)
        self.loads.append(version)

        async def predict(contexts: Sequence[CriticContext]) -> list[float]:
            self.asked.append(list(contexts))
            await self.gate.wait()
            return [value(version, c) for c in contexts]

        return Critic.function(predict, version=version)

    @contextlib.asynccontextmanager
    async def open(
        self, *, most: int = 2, lease_s: float = 60.0, port: int = 0
    ) -> AsyncIterator[str]:
        ready = asyncio.Event()
        leases = Leases(self.load, most=most, lease_s=lease_s, clock=time.monotonic)
        app = scorer_app(self.store, leases, on_ready=ready.set)
        with bind("127.0.0.1", port) as listener:
            config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
            server = uvicorn.Server(config)
            task = asyncio.create_task(server.serve(sockets=[listener]))
            await ready.wait()
            self.url = url_of(listener)
            try:
                yield self.url
            finally:
                server.should_exit = True
                await task

    def critic(self, version: str, **options: Any) -> Critic:
        return Critic.served(self.url, version=version, retry=options.pop("retry", ONCE), **options)


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


async def test_values_name_their_version_and_equal_contexts_are_predicted_once(
    served: Served,
) -> None:
    version = served.publish().version
    async with served.open():
        critic = served.critic(version, batch=3)
        found = await critic.score([*CONTEXTS, *CONTEXTS])
        await critic.aclose()
    assert found == [value(version, c) for c in CONTEXTS] * 2
    assert sorted(len(part) for part in served.asked) == [2, 3, 3]


async def test_requests_of_several_clients_share_batches(served: Served) -> None:
    version = served.publish().version
    async with served.open() as url, httpx.AsyncClient(base_url=url) as client:
        critics = [served.critic(version) for _ in range(12)]
        served.gate.clear()
        asks = [asyncio.create_task(critic.score(CONTEXTS)) for critic in critics]
        with anyio.fail_after(60):
            while "focus_critic_sessions 12" not in (await client.get("/metrics")).text:
                pass
        served.gate.set()
        found = [await ask for ask in asks]
        for critic in critics:
            await critic.aclose()
    assert found == [[value(version, c) for c in CONTEXTS]] * 12
    # The first eight alone, then what gathered: 64 asks of eight contexts, and the rest.
    assert [len(part) for part in served.asked] == [8, 8, 8]
    assert served.loads == [version]


async def test_a_swap_reaches_new_sessions_only(served: Served) -> None:
    first = served.publish().version
    async with served.open() as url, httpx.AsyncClient(base_url=url) as client:
        old = (await client.post("/sessions", json={})).json()
        second = served.publish().version
        new = (await client.post("/sessions", json={})).json()
        assert (old["version"], new["version"]) == (first, second)
        for session, version in ((old, first), (new, second), (old, first)):
            body = {"session": session["session"], "version": version, "contexts": []}
            assert (await client.post("/score", json=body)).json()["version"] == version
        swapped = {"session": old["session"], "version": second, "contexts": []}
        answer = await client.post("/score", json=swapped)
        assert answer.status_code == 409
        assert first in answer.json()["error"]


async def test_a_critic_keeps_its_version_over_a_restart_of_the_server(served: Served) -> None:
    first = served.publish().version
    critic_options: dict[str, Any] = {"retry": RetryPolicy(attempts=20, base_s=0.01, most_s=0.05)}
    async with served.open() as url:
        port = int(url.rsplit(":", 1)[1])
        critic = served.critic(first, **critic_options)
        before = await critic.score(CONTEXTS[:4])
    served.publish()
    async with served.open(port=port):
        after = await critic.score(CONTEXTS[4:])
        await critic.aclose()
    assert before + after == [value(first, c) for c in CONTEXTS]


async def test_a_missing_version_is_fatal_at_once(served: Served) -> None:
    served.publish()
    async with served.open():
        critic = served.critic("critic-0009", retry=RetryPolicy())
        with pytest.raises(FatalError, match="no version 'critic-0009'"):
            await critic.score(CONTEXTS)
        await critic.aclose()


async def test_a_damaged_snapshot_is_never_served(served: Served) -> None:
    snapshot = served.publish()
    (snapshot.model / "model.safetensors").write_bytes(b"Weights")
    async with served.open():
        critic = served.critic(snapshot.version)
        with pytest.raises(FatalError, match="not those published"):
            await critic.score(CONTEXTS)
        await critic.aclose()
    assert served.loads == []


async def test_a_full_server_asks_to_come_back(served: Served) -> None:
    versions = [served.publish().version for _ in range(2)]
    async with served.open(most=1):
        first, second = map(served.critic, versions)
        await first.score(CONTEXTS)
        with pytest.raises(CriticError, match="no room"):
            await second.score(CONTEXTS)
        await first.aclose()
        assert await second.score(CONTEXTS) == [value(versions[1], c) for c in CONTEXTS]
        await second.aclose()


async def test_a_context_of_another_renderer_is_refused(served: Served) -> None:
    version = served.publish().version
    odd = CriticContext(renderer="messages/9", text="x")
    async with served.open():
        critic = served.critic(version, renderer="messages/9")
        with pytest.raises(CriticError, match=r"reads .*token_chunk/1.* got .*messages/9"):
            await critic.score([odd])
        await critic.aclose()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"session": "s", "version": "critic-0001", "contexts": [{}]}',
        b'{"session": "s", "version": "critic-0001", "contexts": [], "label": "18"}',
        b'{"session": "s", "version": 1, "contexts": []}',
        b'{"session": "s", "version": "critic-0001", "contexts": NaN}',
    ],
)
async def test_a_body_of_another_shape_is_a_bad_request(served: Served, body: bytes) -> None:
    served.publish()
    async with served.open() as url, httpx.AsyncClient(base_url=url) as client:
        answer = await client.post("/score", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]


async def test_no_session_without_a_published_critic(served: Served) -> None:
    async with served.open() as url, httpx.AsyncClient(base_url=url) as client:
        assert (await client.get("/health")).json() == {"ok": True}
        assert (await client.get("/version")).json()["current"] is None
        answer = await client.post("/sessions", json={})
    assert (answer.status_code, "no critic is published" in answer.text) == (404, True)


async def test_version_and_metrics_say_what_is_going_on(served: Served) -> None:
    version = served.publish(steering=False).version
    async with served.open() as url, httpx.AsyncClient(base_url=url) as client:
        critic = served.critic(version)
        await critic.score(CONTEXTS)
        told = (await client.get("/version")).json()
        metrics = (await client.get("/metrics")).text
        await critic.aclose()
        closed = (await client.get("/version")).json()
    assert told["current"]["version"] == version
    assert told["current"]["steering"] is False
    assert told["current"]["constant"] == 0.25
    assert (told["loaded"], told["sessions"], closed["sessions"]) == ([version], 1, 0)
    assert f"focus_critic_contexts_total {len(CONTEXTS)}" in metrics
    assert f'focus_critic_loaded{{version="{version}"}} 1' in metrics


# --- served against trained ---------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 0.004, 0.02])
async def test_a_critic_steers_only_once_serving_it_changed_nothing(
    served: Served, shift: float
) -> None:
    probes = [Probe(c, value("critic-0001", c) + shift) for c in CONTEXTS]
    snapshot = served.publish(probes=probes)
    path = served.store.path
    assert not ruling(snapshot, found_consistency(path, snapshot.version)).steering
    async with served.open():
        critic = served.critic(snapshot.version)
        found = await compare(critic, snapshot.probes())
        await critic.aclose()
    note_consistency(path, found)
    assert found_consistency(path, snapshot.version) == found
    assert found.contexts == len(CONTEXTS)
    assert found.max_difference == pytest.approx(shift)
    verdict = ruling(snapshot, found, tolerance=Tolerance(most=0.01, mean=0.005))
    assert verdict.steering is (shift < 0.005)
    assert served.store.verify() == ()


def test_no_comparison_makes_a_failed_critic_steer(served: Served) -> None:
    snapshot = served.publish(steering=False)
    found = Consistency.of(snapshot.version, [0.5], [0.5])
    assert ruling(snapshot, found) == snapshot.verdict


def test_a_comparison_needs_contexts_and_a_whole_file(served: Served) -> None:
    with pytest.raises(ConfigError, match="no held contexts"):
        Consistency.of("critic-0001", [], [])
    note_consistency(served.store.path, Consistency.of("critic-0001", [0.5], [0.5]))
    (served.store.path / "served" / "critic-0001.json").write_text("{}")
    with pytest.raises(SchemaError):
        found_consistency(served.store.path, "critic-0001")
