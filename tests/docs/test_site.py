"""The docs site: it builds strictly, holds every public name, and fetches nothing."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import focus

ROOT = Path(__file__).parents[2]
# One worker builds the site.
pytestmark = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """scripts/docs_hooks.py."""
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "scripts" / "docs_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_hooks"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as scripts/docs builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_no_public_name_is_undocumented(hooks: ModuleType) -> None:
    assert hooks.undocumented() == []


def test_a_public_name_without_docstring_stops_the_build(
    hooks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "focus").mkdir()
    (tmp_path / "focus" / "bare.py").write_text(
        '"""A module."""\n__all__ = ("bare",)\ndef bare() -> None: ...\n'
    )
    monkeypatch.setattr(hooks, "SOURCE", tmp_path)
    with pytest.raises(Exception, match=r"without a docstring: focus\.bare\.bare"):
        hooks.reference_pages()


def test_every_public_name_has_its_place(site: Path) -> None:
    """Names of `focus` are found on a page of the reference, by the module that makes them."""
    pages = "".join(
        page.read_text("utf-8") for page in (site / "reference" / "api").rglob("*.html")
    )
    anchors = set(re.findall(r'id="(focus\.[\w.]+)"', pages))
    for name in focus.__all__:
        made_in = getattr(getattr(focus, name), "__module__", None)
        if made_in is not None and made_in.startswith("focus"):
            assert f"{made_in}.{name}" in anchors, name


def test_the_landing_page_holds_a_tree_that_works(site: Path) -> None:
    assert '<iframe src="figures/demo-tree.html' in (site / "index.html").read_text("utf-8")
    page = (site / "figures" / "demo-tree.html").read_text("utf-8")
    assert page.count('class="tree-data"') == 1


def test_no_page_fetches_from_elsewhere(site: Path) -> None:
    fetched = re.compile(
        r'<(?:script|img|iframe)[^>]* src="(https?:[^"]+)"|<link[^>]* href="(https?:[^"]+)"'
    )
    found = {
        (page.name, *match.groups())
        for page in site.rglob("*.html")
        for match in fetched.finditer(page.read_text("utf-8"))
        if 'rel="canonical"' not in match[0]
    }
    assert found == set()


def test_examples_in_docstrings_become_code(site: Path) -> None:
    page = (site / "reference" / "api" / "credit" / "index.html").read_text("utf-8")
    assert "<blockquote>" not in page
    assert '<span class="gp">&gt;&gt;&gt; </span>' in page
