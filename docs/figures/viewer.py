"""Pictures of the viewer, taken in a real browser of the tree and of a run that was trained.

    python docs/figures/viewer.py [RUN]     (default: runs/demo, which `bash scripts/demo` makes)

Needs Chromium on the PATH. Look at what it wrote before you commit it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from focus.cli.view_pieces import named_pieces
from focus.cli.view_source import ViewSource
from focus.viz.web.document import document

HERE = Path(__file__).parent
TREE = HERE / "demo-tree.json"
RUN = Path("runs/demo")
SIZE = {"width": 1280, "height": 760}
SHOTS = {
    "viewer-tree": (TREE, "node=3&theme=light"),
    "viewer-replay": (TREE, "node=10&step=7&color=value&theme=dark"),
    "viewer-credit": (TREE, "node=3&against=refined_td&theme=light"),
    "viewer-overview": (RUN, "view=overview&theme=light"),
    "viewer-trees": (RUN, "view=trees&outcome=mixed&sort=-largest&theme=light"),
}


def page_of(path: Path, folder: Path) -> str:
    """Address of an exported page."""
    source = ViewSource([path], piece=named_pieces("builtin"))
    run = source.run()
    target = folder / f"{path.stem}.html"
    target.write_text(
        "".join(document(title=path.stem, run=run, trees=source.trees())), encoding="utf-8"
    )
    return target.as_uri()


def main() -> None:
    run = Path(sys.argv[1]) if len(sys.argv) > 1 else RUN
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None or not run.exists():
        sys.exit(f"needs chromium on the PATH and a trained run in {run} (bash scripts/demo)")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        opened = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        addresses = {path: page_of(path, Path(folder)) for path in (TREE, run)}
        for name, (path, state) in SHOTS.items():
            page = opened.new_page(viewport=SIZE)
            page.goto(f"{addresses[run if path == RUN else path]}#{state}")
            page.wait_for_selector("body[data-shown]")
            if path == TREE:
                page.wait_for_selector("canvas[data-drawn]")
            page.screenshot(path=HERE / f"{name}.png")
            page.close()
        opened.close()
    print(f"wrote {', '.join(f'{name}.png' for name in SHOTS)}: look at them")


if __name__ == "__main__":
    main()
