#!/usr/bin/env python3
"""How long a large tree takes in the viewer, beside a small one in the same browser.

    python bench/viewer.py [TIMES]

Exports a drawn tree of 100 and one of 10,000 nodes, opens them in turn in headless Chromium, and
prints medians: until the tree is shown and answers, and per frame while it is zoomed. Ends with 1
when the large one takes more than ten times as long to open.
"""

from __future__ import annotations

import random
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from focus.cli.view_source import ViewSource
from focus.credit import RefinedTd
from focus.records.tree_store import save_tree
from focus.testing.trees import build_tree, random_sketch
from focus.viz.web.document import document

__all__ = ("MOST_TIMES_SLOWER", "SIZES", "measured")

SIZES = (100, 10_000)
MOST_TIMES_SLOWER = 10.0

_ZOOM = """async () => {
  const canvas = document.querySelector("canvas");
  const frame = () => new Promise(requestAnimationFrame);
  const turn = { deltaY: -40, clientX: 300, clientY: 300, bubbles: true, cancelable: true };
  const started = performance.now();
  for (let step = 0; step < 10; step += 1) {
    canvas.dispatchEvent(new WheelEvent("wheel", turn));
    await frame();
  }
  return (performance.now() - started) / 10;
}"""


def exported(nodes: int, folder: Path) -> str:
    """Address of a page with one drawn tree."""
    tree = build_tree(random_sketch(random.Random(1), nodes=nodes, eagerness=0.4))
    path, page = folder / f"{nodes}.json", folder / f"{nodes}.html"
    texts = {node.id: f"step {node.id}\n" for node in tree}
    save_tree(tree, path, texts=texts, credit=RefinedTd().estimate(tree))
    source = ViewSource([path])
    run = source.run()
    parts = document(title=str(nodes), run=run, trees=source.trees())
    page.write_text("".join(parts), encoding="utf-8")
    return page.as_uri()


def opened(browser: Browser, address: str) -> tuple[float, float]:
    """Milliseconds until the tree is drawn, and per frame of zooming."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(address)
    page.wait_for_selector("canvas[data-drawn]")
    shown: Any = page.evaluate("performance.getEntriesByName('focus-shown')[0].startTime")
    frame: Any = page.evaluate(_ZOOM)
    page.close()
    return float(shown), float(frame)


def measured(times: int) -> dict[int, tuple[float, float]]:
    """Medians by size; sizes take turns, so that a busy machine slows both."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        addresses = {size: exported(size, Path(folder)) for size in SIZES}
        runs = [{size: opened(browser, addresses[size]) for size in SIZES} for _ in range(times)]
        browser.close()
    return {
        size: (
            statistics.median(run[size][0] for run in runs),
            statistics.median(run[size][1] for run in runs),
        )
        for size in SIZES
    }


def main() -> int:
    medians = measured(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
    for size, (shown, frame) in medians.items():
        print(f"{size:>6} nodes: shown after {shown:.0f} ms, {frame:.0f} ms a frame while zooming")
    small, large = (medians[size][0] for size in SIZES)
    print(f"ratio {large / small:.1f} (at most {MOST_TIMES_SLOWER:g})")
    return int(large > MOST_TIMES_SLOWER * small)


if __name__ == "__main__":
    sys.exit(main())
