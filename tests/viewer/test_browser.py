"""The page in headless Chromium, on real runs: open, zoom, replay, compare, follow."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page
from typer.testing import CliRunner

from focus.cli.main import app
from focus.cli.view_server import ViewServer
from focus.cli.view_source import ViewSource
from focus.credit import RefinedTd
from focus.records.tree_store import StoredTree, load_stored_tree, save_tree
from focus.testing.trees import build_tree, random_sketch

from .browser import Tab, chromium
from .conftest import HOSTILE

# One worker trains the runs and drives the browser.
pytestmark = pytest.mark.xdist_group("browser")

SETTINGS = (
    "prompts=2",
    "tokens_per_prompt=96",
    "eval_problems=4",
    "keep_trees=2",
    "gate.checkpoints=8",
    "critic.steps=1",
    "actor.minibatches=1",
)


def focus(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two real runs of one round, of different seeds."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs")
    for name, seed in (("first", 1), ("second", 2)):
        changes = [part for change in SETTINGS for part in ("--set", change)]
        focus(
            "train",
            "--preset",
            "smoke",
            "--out",
            folder / name,
            "--rounds",
            1,
            "--seed",
            seed,
            *changes,
        )
    return [folder / "first", folder / "second"]


@pytest.fixture(scope="module")
def exported(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a page with both."""
    target = tmp_path_factory.mktemp("page") / "runs.html"
    said = focus("view", runs[0], "--compare", runs[1], "--export", target)
    assert "4 trees" in said
    return target.as_uri()


@pytest.fixture(scope="module")
def browser(exported: str) -> Iterator[Browser]:
    """After the runs: nothing else may own an event loop in this thread while it runs."""
    with chromium() as running:
        yield running


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    opened = Tab(page)
    yield opened
    assert opened.complaints == []
    page.close()


def page_of(stored: StoredTree, folder: Path) -> str:
    """Address of a page with one tree."""
    path, target = folder / "tree.json", folder / "tree.html"
    save_tree(stored.tree, path, texts=stored.texts, credit=stored.credit, failures=stored.failures)
    focus("view", path, "--export", target)
    return target.as_uri()


def drawing(page: Page) -> str:
    """What the canvas shows, once it has drawn."""
    page.wait_for_selector("canvas[data-drawn]")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    shown: str = page.evaluate("document.querySelector('canvas').toDataURL()")
    return shown


def first_key(page: Page) -> str:
    key: str = page.evaluate(
        "JSON.parse(document.getElementById('run-data').textContent).runs[0].trees[0].key"
    )
    return key


def test_the_overview_tells_the_result_of_both_runs(tab: Tab, exported: str) -> None:
    page = tab.open(exported)
    text = page.inner_text("main")
    for part in (
        "first",
        "second",
        "Held-out accuracy",
        "Critic Brier",
        "mixed outcomes",
        "Budget used",
        "wasted",
        "eta_gen",
        "Critic calibration",
    ):
        assert part in text, part
    assert page.get_by_role("heading", name="Settings that differ").is_visible()
    assert page.locator("td", has_text="seed").count() >= 1


def test_trees_are_filtered_sorted_and_opened(tab: Tab, exported: str) -> None:
    page = tab.open(exported + "#view=trees")
    assert "4 trees" in page.inner_text("main")
    page.get_by_label("Run", exact=True).select_option("1")
    page.get_by_text("2 trees").wait_for()
    page.get_by_label("Problem, prompt or file").fill("no such problem")
    page.get_by_text("0 trees").wait_for()
    assert tab.state()["q"] == "no such problem"
    page.get_by_label("Problem, prompt or file").fill("")
    page.get_by_role("button", name="nodes").click()
    page.get_by_text("2 trees").wait_for()
    sizes = [int(cell) for cell in page.locator("tbody tr td:nth-child(4)").all_inner_texts()]
    assert sizes == sorted(sizes, reverse=True)
    page.locator("tbody a").first.click()
    page.wait_for_selector("canvas")
    page.go_back()
    page.get_by_text("2 trees").wait_for()


def test_a_node_shows_its_exact_tokens(tab: Tab, exported: str, runs: list[Path]) -> None:
    page = tab.open(exported)
    key = first_key(page)
    stored = load_stored_tree(runs[0] / key.partition("/")[2])
    tab.open(f"{exported}#view=tree&tree={key}&node=1")
    page.locator("details", has_text="Table of").click()
    rows = page.locator("details[open] tbody tr").all_inner_texts()
    edge = stored.tree[1].incoming
    assert stored.credit is not None
    assert [int(row.split("\t")[1]) for row in rows] == list(edge.ids)
    log_probs, masks, weights = (
        [float(row.split("\t")[column].replace("−", "-")) for row in rows] for column in (3, 4, 5)
    )
    assert log_probs == pytest.approx(edge.log_probs, abs=1e-6, rel=1e-5)
    assert masks == [1.0] * len(rows)
    assert weights == pytest.approx([stored.credit.advantages[1]] * len(rows), abs=1e-4)
    pieces = page.locator("details[open] tbody td:nth-child(3)").all_text_contents()
    assert "".join(pieces).replace("⏎\n", "\n") == stored.texts[1]


def test_why_a_node_was_bought_stands_beside_it(tab: Tab, exported: str, runs: list[Path]) -> None:
    page = tab.open(exported)
    key = first_key(page)
    tree = load_stored_tree(runs[0] / key.partition("/")[2]).tree
    launch = tree.selections[-1]
    node = next(
        n.id
        for n in tree.edges()
        if n.incoming.provenance.expansion == launch.expansion and n.incoming.provenance.index == 0
    )
    tab.open(f"{exported}#view=tree&tree={key}&node={node}")
    panel = page.inner_text(".panel")
    assert (
        f"Launch {launch.expansion} continued node {launch.node} in phase {launch.phase}" in panel
    )
    assert f"{launch.rivals} rival" in panel
    assert f"{launch.free_tokens} tokens of the phase left" in panel


def test_zoom_and_pan_survive_a_reload(tab: Tab, exported: str) -> None:
    page = tab.open(f"{exported}#view=tree")
    before = drawing(page)
    page.mouse.move(300, 300)
    page.mouse.wheel(0, -400)
    page.wait_for_url(lambda address: "zoom=" in address)
    zoomed = drawing(page)
    assert zoomed != before
    tab.open(page.url)
    assert drawing(page) == zoomed
    page.get_by_role("button", name="Fit the whole tree").click()
    assert drawing(page) == before


def test_the_search_is_replayed_purchase_by_purchase(tab: Tab, exported: str) -> None:
    tab.page.add_init_script(
        "window.ticks = []; window.setInterval = (tick) => window.ticks.push(tick)"
    )
    page = tab.open(f"{exported}#view=tree&step=0")
    seen = [drawing(page)]
    for step in (1, 2):
        page.get_by_role("button", name="Next").click()
        page.get_by_text(f"Step {step} of").wait_for()
        seen.append(drawing(page))
    assert len(set(seen)) == 3
    assert "Launch 1 continued node 0" in page.inner_text(".replay")
    page.get_by_role("button", name="Back").click()
    page.get_by_text("Step 1 of").wait_for()
    assert drawing(page) == seen[1]
    page.get_by_role("button", name="Play").click()
    for step in (2, 3):
        page.evaluate("window.ticks[0]()")
        page.get_by_text(f"Step {step} of").wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Whole tree", exact=True).click()
    assert "step" not in tab.state()


def test_two_estimators_are_compared_on_one_tree(tab: Tab, exported: str) -> None:
    page = tab.open(f"{exported}#view=tree")
    alone = drawing(page)
    page.get_by_label("against").select_option(index=1)
    other = tab.state()["against"]
    panel = page.inner_text(".panel")
    assert f"against {other}" in panel
    assert "correlation" in panel
    assert "opposite signs" in panel
    assert "difference of advantage" in page.inner_text(".legend")
    assert drawing(page) != alone


def test_colours_and_text_search(tab: Tab, exported: str) -> None:
    page = tab.open(f"{exported}#view=tree")
    pictures = {drawing(page)}
    for color in ("value", "surprise"):
        page.get_by_label("Colour").select_option(color)
        pictures.add(drawing(page))
    assert len(pictures) == 3
    page.get_by_label("Find text").fill("boxed")
    page.get_by_text("found").wait_for()
    page.keyboard.press("Enter")
    assert "boxed" in page.inner_text(".panel")


def test_keys_walk_the_tree_and_say_where(tab: Tab, exported: str) -> None:
    page = tab.open(f"{exported}#view=tree")
    page.locator("canvas").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url(lambda address: "node=" in address)
    page.locator("#announce", has_text="node").wait_for()
    page.keyboard.press("ArrowLeft")
    page.locator("#announce", has_text="root").wait_for()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.className") == "panel"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    "view", ["overview", "trees", "tree", "tree&node=1&step=3", "tree&against=rloo"]
)
def test_axe_finds_nothing_serious(tab: Tab, exported: str, view: str, theme: str) -> None:
    tab.open(f"{exported}#view={view}&theme={theme}")
    assert tab.serious_findings() == []


def test_hostile_text_stays_text(tab: Tab, hostile: StoredTree, tmp_path: Path) -> None:
    page = tab.open(page_of(hostile, tmp_path))
    for place in ("#view=trees", "#view=tree&node=1&find=script", "#view=tree&node=1&step=1"):
        page = tab.open(page.url.partition("#")[0] + place)
        assert page.evaluate("window.hurt") is None
        assert page.locator("main img, main script, main svg[onload]").count() == 0
    assert HOSTILE[:30] in page.inner_text(".panel")


def test_of_a_large_tree_only_what_is_in_sight_is_drawn(tab: Tab, tmp_path: Path) -> None:
    tree = build_tree(random_sketch(random.Random(1), nodes=10_000, eagerness=0.4))
    stored = StoredTree(tree=tree, credit=RefinedTd().estimate(tree))
    page = tab.open(page_of(stored, tmp_path))
    drawing(page)
    assert int(page.locator("canvas").get_attribute("data-drawn") or 0) == 10_000
    tab.open(page.url.partition("#")[0] + "#node=5000&zoom=1,-300,0")
    drawing(page)
    assert 0 < int(page.locator("canvas").get_attribute("data-drawn") or 0) < 1_000


def test_a_live_page_follows_the_run(tab: Tab, runs: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "growing"
    shutil.copytree(runs[0], root)
    trees = sorted((root / "trees").glob("*/*.json"))
    kept = trees[-1].rename(tmp_path / "later.json")
    with ViewServer(ViewSource([root]), title="growing") as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        page = tab.open(f"{server.url}#view=trees")
        assert "1 trees" in page.inner_text("main")
        kept.rename(trees[-1])
        page.get_by_text("2 trees").wait_for()
        page.locator("tbody a").last.click()
        page.wait_for_selector("canvas")
        assert tab.serious_findings() == []
        page.goto("about:blank")
        server.shutdown()
        serving.join()
