"""A round's critic is decided once; whoever asks waits for it or refuses to start."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.slime.walks import Walks, prompt

from focus import Critic, DirectBranchTd, RefinedTd
from focus.errors import ConfigError, FatalError, LifecycleError, SchemaError, StoreError
from focus.loop.rounds import FOLDER_VARIABLE, RoundCritic, RoundCritics
from focus.loop.tags import RoundTag, RoundTags
from focus.testing.loopback import Answer, Ask, Loopback

pytestmark = pytest.mark.anyio


def tag(round: int, *, steering: bool = False, url: str = "http://127.0.0.1:9") -> RoundTag:
    snapshot = "critic-0001" if steering else None
    return RoundTag(
        round=round, steering=steering, snapshot=snapshot, constant=0.25, reason="so", url=url
    )


def test_a_tag_comes_back_and_never_changes(tmp_path: Path) -> None:
    tags = RoundTags(tmp_path / "loop")
    assert (tags.read(3), tags.rounds(), tags.wanted()) == (None, (), ())
    tags.want(3)
    tags.want(3)
    assert tags.wanted() == (3,)
    tags.write(tag(3, steering=True))
    assert (tags.read(3), tags.rounds(), tags.wanted()) == (tag(3, steering=True), (3,), ())
    with pytest.raises(StoreError, match="decided before"):
        tags.write(tag(3))
    assert tags.read(3) == tag(3, steering=True)


def test_a_damaged_tag_is_no_tag(tmp_path: Path) -> None:
    tags = RoundTags(tmp_path)
    tags.write(tag(0))
    (tmp_path / "rounds" / "round-000000.json").write_text('{"schema": "focus.round/1"}')
    with pytest.raises(SchemaError):
        tags.read(0)


@pytest.mark.parametrize("change", [{"round": -1}, {"steering": True, "snapshot": None}])
def test_a_tag_that_says_nothing_is_refused(change: dict[str, object]) -> None:
    values = {"round": 0, "steering": False, "snapshot": None, "constant": 0.5} | change
    with pytest.raises(ConfigError):
        RoundTag(reason="so", url="", **values)  # type: ignore[arg-type]


async def test_a_round_waits_for_its_tag_and_asks_for_it(tmp_path: Path) -> None:
    critics, tags = RoundCritics(tmp_path, patience_s=30), RoundTags(tmp_path)
    found: list[RoundCritic] = []

    async def ask() -> None:
        found.append(await critics.of(2))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        group.start_soon(ask)
        while tags.wanted() != (2,):
            await anyio.lowlevel.checkpoint()
        tags.write(tag(2))
    assert found[0] is found[1]
    assert found[0].critic.version == "constant-0.25"


async def test_a_round_without_a_tag_refuses_to_start(tmp_path: Path) -> None:
    critics = RoundCritics(tmp_path, patience_s=0.01)
    with pytest.raises(LifecycleError, match="round 4 has no critic"):
        await critics.of(4)


async def test_a_round_whose_version_is_not_served_refuses_to_start(tmp_path: Path) -> None:
    async def missing(ask: Ask) -> Answer:
        return Answer.of({"error": "there is no version 'critic-0001'"}, status=404)

    async with Loopback(missing) as server:
        RoundTags(tmp_path).write(tag(0, steering=True, url=server.url))
        critics = RoundCritics(tmp_path)
        with pytest.raises(FatalError, match="no version 'critic-0001'"):
            await critics.of(0)


async def test_a_session_is_given_back_two_rounds_later(tmp_path: Path) -> None:
    async def served(ask: Ask) -> Answer:
        return Answer.of({"version": "critic-0001", "values": [], "contexts": []})

    async with Loopback(served) as server:
        for round in range(4):
            RoundTags(tmp_path).write(tag(round, steering=True, url=server.url))
        critics = RoundCritics(tmp_path)
        closed = []
        for round in range(4):
            await critics.of(round)
            closed.append(len(server.asked("/sessions/close")))
        await critics.aclose()
        assert closed == [0, 0, 1, 2]
        assert len(server.asked("/sessions/close")) == 4


async def test_outside_a_loop_there_is_nothing_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match="focus loop CONFIG"):
        RoundCritics.from_environment()
    monkeypatch.setenv(FOLDER_VARIABLE, "/somewhere")
    assert RoundCritics.from_environment().folder == Path("/somewhere")
    with pytest.raises(ConfigError):
        RoundCritics("/x", patience_s=0)


@pytest.mark.parametrize("steering", [False, True])
async def test_warm_up_collects_with_a_constant_and_refined_targets(steering: bool) -> None:
    walks = Walks(credit=DirectBranchTd())
    collector = walks(None, None)  # type: ignore[arg-type]
    chosen = RoundCritic(tag(0, steering=steering), Critic.constant(0.25))
    from focus import Problem

    async with chosen.steer(collector) as steered:
        collection = await steered.collect(Problem(id=0, prompt=prompt(0).prompt))
    assert collection.tree.header.critic_version == "constant-0.25"
    expected = DirectBranchTd() if steering else RefinedTd()
    assert collection.credit.estimator == expected.estimate(collection.tree).estimator


async def test_a_collector_that_was_entered_keeps_its_critic() -> None:
    collector = Walks()(None, None)  # type: ignore[arg-type]
    async with collector:
        with pytest.raises(LifecycleError, match="keeps its critic"):
            collector.steered(critic=Critic.constant(0.5))
