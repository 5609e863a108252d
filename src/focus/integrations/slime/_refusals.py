"""Settings of Slime under which prepared weights would be changed, dropped or biased.

Slime's parser accepts all of them, so the hooks look first and `focus slime check` looks
before anything starts; both read the same rules. A setting that this version of Slime
does not have is not judged.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from focus.errors import ConfigError

__all__ = ("Finding", "check_args", "check_critic_route", "findings", "wrong_scales")

_UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class Finding:
    """One flag that must change.

    Attributes:
        flag: as on the command line.
        text: what is wrong with it and what to do.
    """

    flag: str
    text: str

    def __str__(self) -> str:
        return f"{self.flag}: {self.text}"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A flag, the values that are fine, and why others are not."""

    flag: str
    fits: Callable[[Any], bool]
    reason: str
    attribute: str = ""

    def broken_by(self, args: Any) -> bool:
        name = self.attribute or self.flag.removeprefix("--").replace("-", "_")
        value = getattr(args, name, _UNKNOWN)
        return value is not _UNKNOWN and not self.fits(value)


def _is_off(value: Any) -> bool:
    return not value


def _is_on(value: Any) -> bool:
    return bool(value)


def _needs_hook(name: str) -> str:
    return f"not set, so FOCUS's weights are lost; name focus.integrations.slime.{name}"


_MASKS = "drops or rescales tokens that FOCUS has weighted; leave it out"
_NO_LISTS = "handles one sample per prompt only, and a tree gives many; leave it out"
_PARTIAL = "can't put a tree back half-grown; leave it out"
_NUMBER = "wants a dictionary as reward, FOCUS's is a number; leave it out"

_RULES = (
    _Rule("--rollout-temperature", lambda t: t > 0, "must be > 0: greedy ids have no ratio"),
    _Rule(
        "--rollout-top-p",
        lambda p: p == 1,
        "the trainer divides logits by the temperature and nothing else; use 1.0",
    ),
    _Rule(
        "--rollout-top-k",
        lambda k: k in (-1, None),
        "the trainer divides logits by the temperature and nothing else; leave it out",
    ),
    _Rule("--rollout-stop", _is_off, "FOCUS takes stops from the agent; leave it out"),
    _Rule(
        "--custom-reward-post-process-path",
        _is_on,
        _needs_hook("preserve_advantages"),
    ),
    _Rule("--custom-advantage-function-path", _is_on, _needs_hook("advantages")),
    _Rule("--custom-pg-loss-reducer-function-path", _is_on, _needs_hook("sum_policy_tokens")),
    _Rule(
        "--custom-convert-samples-to-train-data-path",
        _is_off,
        "replaces the conversion that carries FOCUS's weights; leave it out",
    ),
    _Rule(
        "--use-rollout-logprobs",
        _is_on,
        "not set, so ratios would not be taken against the policy that sampled; add it",
    ),
    _Rule(
        "--disable-compute-advantages-and-returns",
        _is_on,
        "keeps the advantage hook from being called; leave it out",
        attribute="compute_advantages_and_returns",
    ),
    _Rule(
        "--loss-type",
        lambda kind: kind in ("policy_loss", "value_loss"),
        "FOCUS's weights belong to the policy loss; use policy_loss",
    ),
    _Rule(
        "--pg-loss-type",
        lambda kind: kind in (None, "ppo"),
        "the surrogate is the clipped one; use ppo or leave it out",
    ),
    _Rule("--normalize-advantages", _is_off, "whitens the prepared weights; leave it out"),
    _Rule(
        "--calculate-per-token-loss",
        _is_off,
        "divides the sum by the batch's tokens; leave it out",
    ),
    _Rule("--use-opd", _is_off, "subtracts a distillation term from the weights; leave it out"),
    _Rule("--use-tis", _is_off, _MASKS),
    _Rule("--get-mismatch-metrics", _is_off, _MASKS),
    _Rule("--use-opsm", _is_off, _MASKS),
    _Rule(
        "--use-rollout-routing-replay",
        _is_off,
        "wants the experts of every token, which FOCUS does not record; leave it out",
    ),
    _Rule("--group-rm", _is_off, _NO_LISTS),
    _Rule("--log-correct-samples", _is_off, _NO_LISTS),
    _Rule("--partial-rollout", _is_off, _PARTIAL),
    _Rule(
        "--dynamic-sampling-filter-path",
        _is_off,
        "drops whole prompts by their weights; leave it out",
    ),
    _Rule("--reward-key", _is_off, _NUMBER),
    _Rule("--eval-reward-key", _is_off, _NUMBER),
    _Rule("--log-reward-category", _is_off, _NUMBER),
    _Rule(
        "--use-dynamic-batch-size",
        _is_on,
        "not set, but trees give varying numbers of samples; add it with --max-tokens-per-gpu",
    ),
    _Rule(
        "--apply-chat-template",
        _is_off,
        "the environment formats the prompt, and it would be formatted twice; leave it out",
    ),
)


def findings(args: Any) -> Iterator[Finding]:
    """Every setting in `args` that FOCUS cannot honour.

    Args:
        args: Slime's namespace, or one read off a launch line.
    """
    for rule in _RULES:
        if rule.broken_by(args):
            yield Finding(rule.flag, rule.reason)
    yield from _estimator(args)
    yield from _batches(args)


def _estimator(args: Any) -> Iterator[Finding]:
    estimator = getattr(args, "advantage_estimator", "grpo")
    if estimator not in ("grpo", "ppo"):
        yield Finding(
            "--advantage-estimator",
            f"{estimator} selects another loss, or needs other advantages; use grpo",
        )


def _batches(args: Any) -> Iterator[Finding]:
    prompts = getattr(args, "rollout_batch_size", None)
    each = getattr(args, "n_samples_per_prompt", 1)
    if prompts is None:
        return
    batch = getattr(args, "global_batch_size", None)
    if batch is not None and batch != prompts * each:
        yield Finding(
            "--global-batch-size",
            f"{batch} is not --rollout-batch-size {prompts} x --n-samples-per-prompt {each}; a "
            "round is one step over all its prompts, and prompts beyond whole steps are dropped",
        )
    sampled = getattr(args, "over_sampling_batch_size", None)
    if sampled not in (None, prompts):
        yield Finding(
            "--over-sampling-batch-size",
            f"{sampled} prompts would be started for {prompts} wanted, and the slow ones lost; "
            "leave it out",
        )
    if each > 1 and getattr(args, "log_passrate", False):
        yield Finding("--log-passrate", _NO_LISTS)


def wrong_scales(args: Any) -> Iterator[Finding]:
    """Auxiliary terms that work, on another scale than FOCUS's sum over tokens."""
    if getattr(args, "kl_coef", 0):
        yield Finding("--kl-coef", "has no effect: FOCUS's weights replace the estimator's")
    for name in ("entropy_coef", "kl_loss_coef"):
        if getattr(args, name, 0) and (name == "entropy_coef" or getattr(args, "use_kl_loss", 1)):
            yield Finding(
                f"--{name.replace('_', '-')}",
                "multiplies a mean over each prompt's tokens, the policy loss is their sum",
            )


def check_args(args: Any) -> None:
    """Refuse what FOCUS cannot honour; warn of terms on another scale.

    Raises:
        ConfigError: naming each flag.
    """
    found = list(findings(args))
    if found:
        lines = "".join(f"\n  {finding}" for finding in found)
        raise ConfigError(f"Slime was started with settings that FOCUS cannot honour:{lines}")
    for finding in wrong_scales(args):
        warnings.warn(str(finding), UserWarning, stacklevel=3)


def check_critic_route(args: Any, *, in_slime: bool) -> None:
    """Refuse an estimator that does not fit where the critic is trained.

    Raises:
        ConfigError: naming the flag.
    """
    estimator = getattr(args, "advantage_estimator", None)
    if in_slime and estimator not in (None, "ppo"):
        raise ConfigError(
            f'--advantage-estimator: critic="slime" needs ppo, which starts Slime\'s critic, '
            f"not {estimator}"
        )
    if in_slime and getattr(args, "megatron_config_path", "") is None:
        raise ConfigError(
            '--megatron-config-path: not set; critic="slime" needs a file of roles that names '
            "focus.integrations.slime.critic_init (examples/math/roles.yaml)"
        )
    if not in_slime and estimator == "ppo":
        raise ConfigError(
            "--advantage-estimator: ppo trains a critic that FOCUS gives no targets; use grpo, "
            'or make_generate(..., critic="slime")'
        )
