"""docs/reference/names.md lists the public names, all of them and no others."""

import re
from pathlib import Path

import focus

DOCS = Path(__file__).parents[2] / "docs"


def test_every_public_name_has_a_line() -> None:
    page = (DOCS / "reference" / "names.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(focus.__all__)


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([\w/.-]+\.md)", index))
    assert linked == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}


def test_every_decision_is_numbered_and_decided() -> None:
    pages = sorted((DOCS / "decisions").glob("*.md"))
    for number, page in enumerate(pages, start=1):
        text = page.read_text(encoding="utf-8")
        assert page.name.startswith(f"{number:04d}-")
        assert text.startswith(f"# {number}. ")
        assert "**Decided.**" in text
