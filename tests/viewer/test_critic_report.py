"""The page of `focus critic report` in a real browser: whole, quiet, alone, readable."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from focus.critic.snapshot import Snapshot, SnapshotFacts
from focus.training.gate import BaseRates, GateSample
from focus.training.judgement import Judgement, examine
from focus.viz.critic_plots import critics_html
from focus.viz.critics import Shown

from .browser import Tab, chromium
from .conftest import HOSTILE


def judgement(seed: int) -> Judgement:
    rng = random.Random(seed)
    samples = []
    for problem in range(300):
        chance = rng.random()
        samples += [
            GateSample(str(problem), depth, chance, float(rng.random() < chance))
            for depth in range(2)
        ]
    return examine(samples, BaseRates(0.5), outcomes={"policy_versions": [HOSTILE]})


def shown(number: int) -> Shown:
    found = judgement(number)
    facts = SnapshotFacts(
        origin=HOSTILE,
        renderer="token_chunk/1",
        verdict=found.verdict,
        parent=HOSTILE,
        metrics={"held_out_by_pass": [0.25, 0.2, 0.21]},
    )
    version = f"critic-{number:04d}"
    created = "2026-01-02T03:04:05+00:00"
    return Shown(
        Snapshot(version=version, folder=Path("x"), created=created, facts=facts, files={}), found
    )


@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_is_whole_quiet_and_alone(tmp_path: Path, width: int) -> None:
    critics = [shown(number) for number in range(1, 4)]
    file = tmp_path / "page.html"
    page_text = critics_html(critics, current="critic-0002", chosen="critic-0003")
    file.write_text(page_text, encoding="utf-8")
    with chromium() as browser:
        tab = Tab(browser.new_page(viewport={"width": width, "height": 900}))
        asked: list[str] = []
        tab.page.on("request", lambda request: asked.append(request.url))
        tab.page.goto(file.as_uri())
        assert asked == [file.as_uri()]
        assert tab.complaints == []
        assert tab.page.evaluate("window.hurt") is None
        assert tab.page.locator("figure svg").count() == 4
        assert tab.page.locator("tr.current").inner_text().startswith("critic-0002 (current)")
        for box in [svg.bounding_box() for svg in tab.page.locator("figure svg").all()]:
            assert box is not None
            assert box["width"] > 200
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert tab.page.evaluate(overflow) <= 0
        assert tab.serious_findings() == []
