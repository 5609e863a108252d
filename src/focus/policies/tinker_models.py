"""What a Tinker service serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from focus._extras import require
from focus.errors import ConfigError

__all__ = ("ServedModel", "served_model")


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What the service says of one of its models.

    Attributes:
        name: as in ``create_lora_training_client``.
        context_limit: most tokens of prompt plus reply; None when it does not say.
        trainable, sampleable: whether it may be trained, and sampled from.
    """

    name: str
    context_limit: int | None
    trainable: bool
    sampleable: bool


async def served_model(name: str, *, rest_client: Any = None) -> ServedModel:
    """Ask the service for one of its models; needs no session.

    Args:
        name: of the base model.
        rest_client: a ``tinker.RestClient``; None makes one from the environment.

    Raises:
        ConfigError: the service has no such model; the text names those it has.
    """
    client = rest_client or require("tinker", extra="tinker").RestClient()
    told = (await client.get_server_capabilities()).supported_models
    for model in told:
        if model.model_name == name:
            return ServedModel(
                name=name,
                context_limit=model.max_context_length,
                trainable=model.trainable is not False,
                sampleable=model.sampleable is not False,
            )
    known = ", ".join(sorted(str(model.model_name) for model in told)) or "none"
    raise ConfigError(f"this Tinker service has no model {name!r}; it has: {known}")
