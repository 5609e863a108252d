"""`focus view` without a browser: what is served and to whom, what is exported, how it fails."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from focus.cli.view_server import ViewServer
from focus.cli.view_source import ViewSource
from focus.credit import RefinedTd
from focus.records.tree_store import save_tree
from focus.testing.trees import build_tree, end, fork

from .conftest import Invoke


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with two trees and one round."""
    root = tmp_path / "run"
    for name in ("a", "b"):
        tree = build_tree(fork(0.5, end(1.0), end(0.0)))
        save_tree(tree, root / "trees" / "r" / f"{name}.json", credit=RefinedTd().estimate(tree))
    (root / "metrics.jsonl").write_text('{"round": 0}\n')
    return root


@pytest.fixture
def server(run: Path) -> Iterator[ViewServer]:
    with ViewServer(ViewSource([run]), title="run") as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def get(server: ViewServer, path: str, **headers: str) -> httpx.Response:
    return httpx.get(server.url.rstrip("/") + path, headers=headers, trust_env=False)


def test_the_server_gives_page_run_and_trees(server: ViewServer) -> None:
    assert "Content-Security-Policy" in get(server, "/").text
    [run] = get(server, "/run.json").json()["runs"]
    assert [tree["key"] for tree in run["trees"]] == ["0/trees/r/a.json", "0/trees/r/b.json"]
    tree = get(server, "/tree.json?key=0/trees/r/b.json").json()
    assert tree["nodes"]["outcome"] == [None, 1.0, 0.0]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1"])
def test_a_name_that_was_pointed_here_gets_nothing(server: ViewServer, host: str) -> None:
    assert get(server, "/run.json", Host=host).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "/tree.json?key=0/../../run/metrics.jsonl",
        "/tree.json",
        "/trees/r/a.json",
        "/../metrics.jsonl",
    ],
)
def test_only_listed_trees_are_read(server: ViewServer, path: str) -> None:
    get(server, "/run.json")
    assert get(server, path).status_code == 404


def test_a_damaged_tree_is_named(server: ViewServer, run: Path) -> None:
    get(server, "/run.json")
    path = run / "trees" / "r" / "a.json"
    path.write_text(path.read_text().replace("1.0", "0.5"))
    answer = get(server, "/tree.json?key=0/trees/r/a.json")
    assert answer.status_code == 500
    assert str(path) in answer.text


def test_the_latest_trees_are_listed_and_the_others_counted(run: Path) -> None:
    [listed] = ViewSource([run], most=1).run()["runs"]
    assert [tree["key"] for tree in listed["trees"]] == ["0/trees/r/b.json"]
    assert listed["left_out"] == 1


def test_an_exported_page_holds_its_trees(run: Path, tmp_path: Path, invoke: Invoke) -> None:
    target = tmp_path / "page.html"
    said = invoke("view", run, "--compare", run, "--export", target).stdout
    assert "4 trees" in said
    assert target.read_text("utf-8").count('class="tree-data"') == 4


def test_a_taken_port_is_named(run: Path, invoke: Invoke) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = invoke("view", run, "--no-open", "--port", port, code=1).output
    assert f"port {port} cannot be used" in said


def test_what_is_no_run_is_refused(tmp_path: Path, invoke: Invoke) -> None:
    assert "holds no run" in invoke("view", tmp_path, "--no-open", code=1).output


def test_a_tokenizer_that_is_not_there_is_named(run: Path, invoke: Invoke) -> None:
    said = invoke("view", run, "--export", run / "x.html", "--tokenizer", "nowhere", code=1).output
    assert "nowhere" in said
