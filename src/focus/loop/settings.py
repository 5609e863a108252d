"""Settings of ``focus loop``, from one TOML file."""

from __future__ import annotations

import dataclasses
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focus.critic.consistency import Tolerance
from focus.errors import ConfigError

__all__ = ("ActorSettings", "LoopSettings", "RestartSettings", "ServerSettings", "TrainerSettings")

FOCUS = (sys.executable, "-m", "focus")


@dataclass(frozen=True, kw_only=True)
class ActorSettings:
    """The job that collects and trains the policy.

    Attributes:
        command: started by the loop; empty attaches to a job that was started elsewhere and
            names the loop's folder itself.
        folder: where it runs; by default the config file's folder.
    """

    command: tuple[str, ...] = ()
    folder: str = ""


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """``focus critic train`` as a child.

    Attributes:
        launch: False attaches to a trainer that was started elsewhere.
        options: added to its command line, e.g. ``["--steps", "64"]``.
        command: instead of ``focus critic train``; for trainers of your own.
    """

    launch: bool = True
    options: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """``focus critic serve`` as a child.

    Attributes:
        url: attaches to a server that was started elsewhere.
        host, port: of the server that is started; port 0 takes a free one, once.
        options: added to its command line, e.g. ``["--device", "cuda:1"]``.
    """

    url: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RestartSettings:
    """What happens when a child ends before its time.

    Attributes:
        most: deaths within `within_s` seconds after which the loop gives up.
        within_s: the window.
        first_pause_s, most_pause_s: pause before a restart; doubles with each death.
    """

    most: int = 8
    within_s: float = 600.0
    first_pause_s: float = 0.5
    most_pause_s: float = 30.0

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ConfigError(f"restart.most must be >= 1, got {self.most}")
        for name in ("within_s", "first_pause_s", "most_pause_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"restart.{name} must be > 0, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """One closed loop.

    Attributes:
        folder: state, round tags and logs; where the loop goes on after its own death.
        records: directory of critic records that the hooks write.
        outcomes: directory of fresh outcomes for the judgement; "" if there is none.
        store: folder of published critics.
        staleness: a round may be collected with a critic that has not seen the last so many
            rounds. 0 waits for the critic to be trained on the round before; 1 trains it
            while the actor trains and collects.
        first_constant: the value of every checkpoint before anything is published.
        finish_s: most seconds that the trainer is given for the last rounds once the actor
            has ended.
        actor, trainer, server, restart, consistency: settings of the parts.

    Raises:
        ConfigError: a value that cannot be honoured.
    """

    folder: str
    records: str = ""
    outcomes: str = ""
    store: str = ""
    staleness: int = 1
    first_constant: float = 0.5
    finish_s: float = 600.0
    actor: ActorSettings = field(default_factory=ActorSettings)
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    restart: RestartSettings = field(default_factory=RestartSettings)
    consistency: Tolerance = field(default_factory=Tolerance)

    def __post_init__(self) -> None:
        if not self.folder:
            raise ConfigError("folder: say where the loop keeps its state")
        if self.staleness < 0:
            raise ConfigError(f"staleness must be >= 0, got {self.staleness}")
        if not 0 <= self.first_constant <= 1:
            raise ConfigError(f"first_constant must lie in [0, 1], got {self.first_constant}")
        if not self.finish_s >= 0:
            raise ConfigError(f"finish_s must be >= 0, got {self.finish_s}")
        for name, place in (("records", "targets"), ("store", "critics")):
            if not getattr(self, name):
                object.__setattr__(self, name, str(Path(self.folder) / place))

    @classmethod
    def load(cls, path: Path) -> LoopSettings:
        """Settings of a file; relative paths in it are below its own folder.

        Raises:
            ConfigError: no TOML, an unknown name, or a value of another type.
        """
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from error
        for name in ("folder", "records", "outcomes", "store"):
            if isinstance(values.get(name), str) and values[name]:
                values[name] = str(path.absolute().parent / values[name])
        settings: LoopSettings = _read(cls, values, where=f"{path}: ")
        return settings


def _read(kind: Any, values: Mapping[str, Any], *, where: str) -> Any:
    known = {item.name: item for item in dataclasses.fields(kind)}
    if unknown := sorted(set(values) - set(known)):
        raise ConfigError(f"{where}unknown {unknown[0]!r}; known: {', '.join(known)}")
    if kind is LoopSettings and "folder" not in values:
        raise ConfigError(f"{where}folder is missing: say where the loop keeps its state")
    read = {
        name: _value(known[name], value, where=f"{where}{name}") for name, value in values.items()
    }
    return kind(**read)


def _value(known: dataclasses.Field[Any], value: Any, *, where: str) -> Any:
    default = known.default
    if known.default_factory is not dataclasses.MISSING:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} is a table, got {value!r}")
        return _read(known.default_factory, value, where=f"{where}.")
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{where} wants a list of words, got {value!r}")
        return tuple(value)
    wanted: type = str if default is dataclasses.MISSING else type(default)
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise ConfigError(f"{where} wants {wanted.__name__}, got {value!r}")
    return value
