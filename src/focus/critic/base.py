"""The value of a checkpoint: the return still to come, as one critic snapshot sees it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread

from focus._cancellation import stray_cancellation
from focus.critic.batching import Coalescer
from focus.errors import ConfigError, CriticError, FatalError, RequestError
from focus.records.records import CriticContext

if TYPE_CHECKING:
    from focus.critic.wire import Activation, ScorerProtocol
    from focus.policies.retry import RetryPolicy

__all__ = ("Critic", "PredictFn", "Predictor", "Remote")

PredictFn = Callable[[Sequence[CriticContext]], Awaitable[Sequence[float]]]


class Predictor(Protocol):
    """An in-process value model, e.g. focus.critic.local.ValueModel."""

    @property
    def version(self) -> str: ...
    @property
    def renderer(self) -> str: ...
    @property
    def value_range(self) -> tuple[float, float]: ...

    def predict(self, contexts: Sequence[CriticContext]) -> Sequence[float]:
        """One value per context; may block, is called in a worker thread."""
        ...


class Remote(Protocol):
    """Whatever answers for a critic from outside this process."""

    async def ready(self) -> None:
        """Return once the snapshot can be asked; FatalError if it is not there."""
        ...

    async def aclose(self) -> None: ...


class Critic:
    """A frozen snapshot that values checkpoints; shared by many collectors, owned by none.

    Make one with :meth:`constant`, :meth:`function`, :meth:`local` or :meth:`served`.
    Predictions are batched across concurrent callers, equal contexts are predicted once, and
    each value is checked: one per context, finite, inside `value_range`.

    Attributes:
        version: names the snapshot; a tree is pinned to one.
        value_range: lowest and highest value.
        renderer: name and version of the context it reads (focus.critic.context).
        fixed_value: the constant, for a constant critic; such a critic makes no calls.

    >>> Critic.constant(0.5).version
    'constant-0.5'
    """

    def __init__(
        self,
        predict: PredictFn | None,
        *,
        version: str,
        value_range: tuple[float, float] = (0.0, 1.0),
        renderer: str = "token_chunk/1",
        batch: int = 64,
        deadline_s: float = math.inf,
        fixed_value: float | None = None,
        remote: Remote | None = None,
    ) -> None:
        low, high = value_range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ConfigError(f"critic {version}: value_range {value_range} is empty")
        if batch < 1:
            raise ConfigError(f"critic {version}: batch must be >= 1, got {batch}")
        if not deadline_s > 0:
            raise ConfigError(f"critic {version}: deadline_s must be > 0, got {deadline_s}")
        self.version = version
        self.value_range = value_range
        self.renderer = renderer
        self.fixed_value = fixed_value
        self._predict = predict
        self._deadline_s = deadline_s
        self._remote = remote
        self._coalesced = Coalescer(self._answer, most=batch)

    @classmethod
    def constant(
        cls,
        value: float,
        *,
        value_range: tuple[float, float] = (0.0, 1.0),
        renderer: str = "token_chunk/1",
    ) -> Critic:
        """The same value everywhere; where a run starts.

        Raises:
            ConfigError: the value lies outside the range.
        """
        if not (math.isfinite(value) and value_range[0] <= value <= value_range[1]):
            raise ConfigError(f"constant critic: {value} lies outside {value_range}")
        version = f"constant-{value:g}"
        return cls(
            None,
            version=version,
            value_range=value_range,
            renderer=renderer,
            fixed_value=float(value),
        )

    @classmethod
    def function(
        cls,
        predict: PredictFn,
        *,
        version: str,
        value_range: tuple[float, float] = (0.0, 1.0),
        renderer: str = "token_chunk/1",
        batch: int = 64,
        deadline_s: float = 600.0,
    ) -> Critic:
        """Values from your own async function over at most `batch` contexts at a time.

        A call that takes longer than `deadline_s` is cancelled and fails.
        """
        return cls(
            predict,
            version=version,
            value_range=value_range,
            renderer=renderer,
            batch=batch,
            deadline_s=deadline_s,
        )

    @classmethod
    def local(cls, model: Predictor, *, batch: int = 64) -> Critic:
        """Values from an in-process value model (needs the ``local`` extra).

        It stands for the model as it is now: once the model's version changes, it fails.
        """
        version = model.version

        async def predict(contexts: Sequence[CriticContext]) -> Sequence[float]:
            if model.version != version:
                raise CriticError(f"critic {version}: the model is now {model.version}")
            return await anyio.to_thread.run_sync(model.predict, contexts)

        return cls(
            predict,
            version=version,
            value_range=model.value_range,
            renderer=model.renderer,
            batch=batch,
        )

    @classmethod
    def served(
        cls,
        url: str,
        *,
        version: str,
        protocol: ScorerProtocol = "focus",
        value_range: tuple[float, float] = (0.0, 1.0),
        renderer: str = "token_chunk/1",
        activation: Activation | None = None,
        batch: int = 64,
        deadline_s: float = 60.0,
        retry: RetryPolicy | None = None,
        api_key: str | None = None,
    ) -> Critic:
        """Values from a server, of one snapshot; a reply from another one raises.

        Args:
            url: the server's address.
            version: the snapshot: of ``focus critic serve``'s store, SGLang's
                ``--weight-version``, or the name vLLM serves the model under.
            protocol: ``"focus"``, ``"sglang"`` (``/classify``), ``"vllm"`` (``/classify``) or
                ``"vllm-pooling"`` (``/pooling``).
            activation: ``"sigmoid"`` where a foreign server answers logits.
            batch: most contexts per request.
            deadline_s: most seconds for one try.
            retry: how transient and corrupt replies are repeated.
            api_key: bearer token, shown nowhere.

        Raises:
            ConfigError: an unknown protocol or activation, or no usable address.
        """
        from focus.critic.served import ServedScorer

        scorer = ServedScorer.at(
            url,
            api_key=api_key,
            protocol=protocol,
            version=version,
            activation=activation,
            deadline_s=deadline_s,
            retry=retry,
        )
        return cls(
            scorer,
            version=version,
            value_range=value_range,
            renderer=renderer,
            batch=batch,
            remote=scorer,
        )

    async def ready(self) -> None:
        """Make sure that a server has this snapshot; other critics are always ready.

        Raises:
            CriticError: the server does not answer.
            FatalError: it has not, or serves another one.
        """
        if self._remote is not None:
            try:
                await self._remote.ready()
            except FatalError:
                raise
            except RequestError as error:
                raise CriticError(f"critic {self.version} is not ready: {error}") from error

    async def aclose(self) -> None:
        """Let go of a server; other critics hold nothing. For whoever made the critic."""
        if self._remote is not None:
            await self._remote.aclose()

    async def score(self, contexts: Sequence[CriticContext]) -> list[float]:
        """One value per context.

        Raises:
            CriticError: the prediction failed, or a value is missing, not finite or outside
                `value_range`; the message names critic and position.
            FatalError: no prediction can succeed: another snapshot answered, or none is there.
        """
        if self.fixed_value is not None:
            return [self.fixed_value] * len(contexts)
        for context in contexts:
            if context.renderer != self.renderer:
                raise CriticError(
                    f"critic {self.version} reads {self.renderer!r}, got {context.renderer!r}"
                )
        try:
            values = await self._coalesced(contexts)
        except (CriticError, FatalError):
            raise
        except Exception as error:
            raise CriticError(f"critic {self.version}: prediction failed: {error!r}") from error
        return [self._checked(value, position) for position, value in enumerate(values)]

    async def _answer(self, contexts: Sequence[CriticContext]) -> Sequence[float]:
        """One call of the user's function, within the deadline."""
        if self._predict is None:
            raise CriticError(f"critic {self.version} has nothing to predict with")
        stray = CriticError(f"critic {self.version}: the prediction was cancelled from inside")
        with anyio.move_on_after(self._deadline_s), stray_cancellation(stray):
            return await self._predict(contexts)
        raise CriticError(f"critic {self.version}: no prediction in {self._deadline_s:g} s")

    def _checked(self, value: Any, position: int) -> float:
        low, high = self.value_range
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise CriticError(
                f"critic {self.version}: prediction {position} is {value!r}, not a number"
            ) from error
        if not math.isfinite(number) or not low <= number <= high:
            raise CriticError(
                f"critic {self.version}: prediction {position} is {number}, outside "
                f"[{low:g}, {high:g}]; fix the critic or declare its value_range"
            )
        return number
