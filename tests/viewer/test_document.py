"""The page as text: no data can leave its element, and nothing else may run or load."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from focus.records.tree_store import StoredTree
from focus.tree import Tree
from focus.viz.web.document import document, inline_json, packed
from focus.viz.web.run_data import run_data, tree_row
from focus.viz.web.tree_data import tree_data

from .conftest import HOSTILE

WEB = files("focus.viz.web")

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class Elements(HTMLParser):
    """Start tags with attributes, and the text of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        self._inside = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def exported(stored: StoredTree, title: str = "run") -> str:
    run = run_data(
        name=title,
        kind="tree",
        settings={"note": title},
        rows=(),
        summary=None,
        trees=[tree_row(stored, key=f"0/{title}")],
    )
    trees = [(f"0/{title}", tree_data(stored, key=f"0/{title}"))]
    return "".join(document(title=title, run={"runs": [run]}, trees=trees))


def parsed(page: str) -> Elements:
    elements = Elements()
    elements.feed(page)
    return elements


@given(json_values)
def test_inlined_json_has_no_markup_and_comes_back(value: Any) -> None:
    text = inline_json(value)
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == value


@given(json_values)
def test_packed_json_has_no_markup_and_comes_back(value: Any) -> None:
    text = packed(value)
    assert re.fullmatch(r"[A-Za-z0-9+/=]*", text)
    assert json.loads(gzip.decompress(base64.b64decode(text))) == value


def test_hostile_text_adds_no_element(hostile: StoredTree, plain: StoredTree) -> None:
    tags = [
        [tag for tag, _ in parsed(exported(tree, title)).tags]
        for tree, title in ((hostile, HOSTILE), (plain, "run"))
    ]
    assert tags[0] == tags[1]


def test_the_policy_admits_the_own_script_and_nothing_else(plain: StoredTree) -> None:
    elements = parsed(exported(plain))
    [policy] = [a["content"] or "" for tag, a in elements.tags if "http-equiv" in a]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    digest = base64.b64encode(hashlib.sha256(elements.scripts[-1].encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert (rules["default-src"], rules["connect-src"]) == ("'none'", "'none'")
    assert "unsafe" not in policy


def test_the_page_names_no_other_place(plain: StoredTree) -> None:
    """Links of licences and of XML names aside, no address stands in what we wrote."""
    for entry in (WEB / "page").iterdir():
        text = entry.read_text(encoding="utf-8")
        assert set(re.findall(r"https?://[^\"' ]+", text)) <= {"http://www.w3.org/2000/svg"}
    for tag, attributes in parsed(exported(plain)).tags:
        assert not {"src", "href"} & attributes.keys(), tag


def test_data_enters_elements_as_text_only() -> None:
    for entry in (WEB / "page").iterdir():
        text = entry.read_text(encoding="utf-8")
        found = re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text)
        assert not found, entry.name


def test_every_library_has_its_licence_and_its_line() -> None:
    vendor = WEB / "vendor"
    names = {entry.name for entry in vendor.iterdir()}
    libraries = {name.removesuffix(".min.js") for name in names if name.endswith(".js")}
    listed = re.findall(r"^\| (d3-\w+) \|", (vendor / "README.md").read_text("utf-8"), re.MULTILINE)
    assert libraries == set(listed)
    assert names == {"README.md"} | {
        f"{n}{end}" for n in libraries for end in (".min.js", ".LICENSE")
    }


def test_a_fold_keeps_the_context_that_follows_it(plain: StoredTree) -> None:
    node = plain.tree[1]
    tree: Tree[None] = Tree(plain.tree.header, None, value=0.5)
    tree.attach(0, node.incoming, None, value=0.5, rebased=(7, 8, 9))
    data = tree_data(StoredTree(tree=tree), key="0/t", piece=lambda token: f"<{token}>")
    assert data["nodes"]["rebased"] == [None, [7, 8, 9]]
    assert {"7", "8", "9"} <= data["pieces"].keys()


def test_hostile_figures_and_names_are_in_the_data(hostile: StoredTree) -> None:
    data = tree_data(hostile, key="0/t")
    assert data["nodes"]["text"] == [HOSTILE] * 4
    assert data["failures"][0]["message"] == HOSTILE
    assert data["launches"][0] == {
        "expansion": 1,
        "node": 0,
        "phase": 0,
        "score": 0.5,
        "rivals": 1,
        "free_tokens": 9,
    }
