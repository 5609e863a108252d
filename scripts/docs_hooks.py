"""What the docs site has beyond the Markdown files: the API reference and a tree to touch.

mkdocs calls the functions `on_...`; the pages that they make exist in the site only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
TREE = ROOT / "docs" / "figures" / "demo-tree.json"
API = "reference/api"
OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "README.md", "LICENSE")
SECTIONS = ("index.md", "Tutorials", "How to", "Concepts", "Reference", "Decisions")
ORDER = (
    "tutorials/first-tree.md",
    "tutorials/train-locally.md",
    "tutorials/slime.md",
    "tutorials/tinker.md",
    "tutorials/agents.md",
    "tutorials/own-environment.md",
    "tutorials/own-estimator.md",
    "tutorials/own-allocator.md",
    "concepts/tree.md",
    "concepts/search.md",
    "concepts/exact-tokens.md",
    "concepts/credit.md",
    "concepts/critic.md",
)
PICTURE = re.compile(r"\[!\[[^\]]*\]\(figures/viewer-tree\.png\)\]\([^)]*\)")
FRAME = (
    '<iframe src="figures/demo-tree.html#node=3" title="A rollout tree in focus view" '
    'style="width: 100%; height: 34rem; border: 1px solid var(--md-default-fg-color--lightest)">'
    "</iframe>\n\n[Open it on a page of its own](figures/demo-tree.html){target=_blank}"
)


@dataclass(frozen=True)
class Module:
    """A public module: its dotted name and what it lists in `__all__`."""

    name: str
    names: tuple[str, ...]
    tree: ast.Module

    @property
    def package(self) -> str:
        """The part of FOCUS that it belongs to."""
        return self.name.split(".")[1] if "." in self.name else self.name

    def defined(self) -> Iterator[tuple[str, ast.AST]]:
        """Classes and functions that are public here and made here."""
        for node in self.tree.body:
            kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            if isinstance(node, kinds) and node.name in self.names and not _is_overload(node):
                yield node.name, node


def modules() -> Iterator[Module]:
    """Every module of FOCUS whose path has no leading underscore."""
    for path in sorted((SOURCE / "focus").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if any(part.startswith("_") for part in parts):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield Module(".".join(parts), _listed(tree), tree)


def _listed(tree: ast.Module) -> tuple[str, ...]:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            found: tuple[str, ...] = ast.literal_eval(node.value)
            return found
    return ()


def _is_overload(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list)


def undocumented() -> list[str]:
    """Public modules, classes and functions without a docstring."""
    missing = []
    for module in modules():
        if not ast.get_docstring(module.tree):
            missing.append(module.name)
        bare = (name for name, node in module.defined() if not ast.get_docstring(node))
        missing += [f"{module.name}.{name}" for name in bare]
    return missing


def reference_pages() -> dict[str, str]:
    """Markdown of the API reference by path below docs/: one page per part, and their list."""
    missing = undocumented()
    if missing:
        raise PluginError(f"public and without a docstring: {', '.join(missing)}")
    parts: dict[str, list[Module]] = {}
    for module in modules():
        if any(module.defined()):
            parts.setdefault(module.package, []).append(module)
    pages = {f"{API}/{part}.md": _page(part, found) for part, found in parts.items()}
    return {f"{API}/index.md": _index(parts), **pages}


def _page(part: str, found: list[Module]) -> str:
    title = "focus" if part == "focus" else f"focus.{part}"
    blocks = [f"# {title}\n"]
    for module in found:
        members = "".join(f"\n        - {name}" for name, _ in module.defined())
        blocks.append(f"::: {module.name}\n    options:\n      members:{members}\n")
    return "\n".join(blocks)


def _index(parts: dict[str, list[Module]]) -> str:
    lines = [
        "# API reference\n",
        "Made from the docstrings; the tests run every example in them.\n",
    ]
    for part, found in parts.items():
        title = "focus" if part == "focus" else f"focus.{part}"
        lines.append(f"## [{title}]({part}.md)\n")
        lines += [_line(module) for module in found]
        lines.append("")
    return "\n".join(lines)


def _line(module: Module) -> str:
    names = ", ".join(f"[{name}][{module.name}.{name}]" for name, _ in module.defined())
    return f"- `{module.name}`: {names}"


def viewer_page() -> str:
    """The README's tree as `focus view --export` writes it."""
    from focus.cli.view_pieces import named_pieces
    from focus.cli.view_source import ViewSource
    from focus.viz.web.document import document

    source = ViewSource([TREE], piece=named_pieces("builtin"))
    run = source.run()
    return "".join(document(title="A rollout tree · FOCUS", run=run, trees=source.trees()))


def on_files(files: Any, config: Any) -> Any:
    """Adds the generated pages."""
    for path, text in reference_pages().items():
        files.append(File.generated(config, path, content=text))
    files.append(File.generated(config, "figures/demo-tree.html", content=viewer_page()))
    return files


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """Sections in reading order; a page that `ORDER` does not name comes after those it does."""
    nav.items.sort(key=lambda item: _place(SECTIONS, item.title or item.file.src_uri))
    for section in nav.items:
        if section.children:
            section.children.sort(key=lambda item: _place(ORDER, _path(item)))
            for inner in section.children:
                inner.title = "API" if inner.title == "Api" else inner.title
    return nav


def _path(item: Any) -> str:
    """Of a page, or of the first page of a section."""
    return str(item.file.src_uri) if getattr(item, "file", None) else _path(item.children[0])


def _place(order: tuple[str, ...], name: str) -> tuple[int, str]:
    return (order.index(name) if name in order else len(order), name)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The landing page holds the tree itself; links that leave docs/ go to the repository."""
    if page.file.src_uri == "index.md":
        markdown = PICTURE.sub(FRAME, markdown)
        page.meta["hide"] = ["navigation", "toc"]
    return _without_outside_links(markdown)


def _without_outside_links(markdown: str) -> str:
    """A file beside docs/ is named, as the site does not hold it."""
    names = "|".join(map(re.escape, OUTSIDE))
    return re.sub(rf"\[([^\]]+)\]\((?:\.\./)+(?:{names})(?:#[^)]*)?\)", r"\1", markdown)
