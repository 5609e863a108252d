"""Model folders: read safely, refused early when the engine cannot serve them."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from focus.errors import ConfigError
from focus.models.weights import load_pretrained

__all__ = (
    "content_version",
    "context_limit_of",
    "end_ids",
    "fuse_norms",
    "install_weights",
    "load_model",
    "read_weights",
)


def load_model(folder: Path, *, device: str | None, dtype: str | None) -> Any:
    """The causal LM of a folder, in eval mode on its device.

    Weights are read from safetensors only, and none may be missing. `device` None takes the
    GPU when there is one; `dtype` None is float32 on the CPU and the checkpoint's own elsewhere.

    Raises:
        ConfigError: the folder or a setting cannot be used.
    """
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    kind = dtype or ("float32" if place == "cpu" else "auto")
    try:
        model = load_pretrained(
            "AutoModelForCausalLM", folder, dtype=kind if kind == "auto" else getattr(torch, kind)
        ).to(place)
    except Exception as error:
        raise ConfigError(
            f"no model could be loaded from {str(folder)!r} on {place} as {kind} "
            f"({type(error).__name__}: {error})"
        ) from error
    _refuse_unsupported(model)
    fuse_norms(model)
    return model


@torch.no_grad()
def fuse_norms(model: Any) -> None:
    """Let torch compute the root-mean-square norms that it knows; their weights stay.

    A norm of transformers is six operations, and a small model waits for their launches more
    than for its matrix products. One is replaced only where both give the same numbers.

    >>> from transformers.models.llama.modeling_llama import LlamaRMSNorm
    >>> model = torch.nn.Sequential(LlamaRMSNorm(8))
    >>> fuse_norms(model)
    >>> type(model[0]).__name__
    'RMSNorm'
    """
    for parent in list(model.modules()):
        for name, norm in list(parent.named_children()):
            fused = _fused(norm)
            if fused is not None:
                setattr(parent, name, fused.eval())


def _fused(norm: Any) -> torch.nn.RMSNorm | None:
    """The same norm as one operation of torch, if this is one; in half precision none is."""
    weights = dict(norm.named_parameters())
    if not hasattr(norm, "variance_epsilon") or list(weights) != ["weight"]:
        return None
    weight, takes = weights["weight"], inspect.signature(norm.forward).parameters
    if weight.dtype not in (torch.float32, torch.float64) or weight.ndim != 1 or len(takes) != 1:
        return None
    fused = torch.nn.RMSNorm(len(weight), eps=norm.variance_epsilon, device="meta")
    fused.weight = norm.weight
    probe = torch.linspace(-3, 5, 2 * len(weight)).reshape(2, -1).to(weight)
    before = norm(probe)
    error = (fused(probe) - before).abs().max()
    return fused if error <= 1e-6 * before.abs().max() else None


def _refuse_unsupported(model: Any) -> None:
    name = type(model).__name__
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise ConfigError(f"{name} takes no position ids and cannot be batched here")
    if not _sees_everything(model.config.get_text_config(), context_limit_of(model)):
        raise ConfigError(
            f"{name}: only full attention is supported, and this model slides a window or mixes "
            "in other layers. Serve it with another policy."
        )


def _sees_everything(config: Any, context_limit: int) -> bool:
    """Whether each token attends to all before it, anywhere in the context."""
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None)
    if not kinds and window and getattr(config, "use_sliding_window", True):
        kinds = {"sliding_attention"}
    if "sliding_attention" in kinds and window and window >= context_limit:
        kinds.discard("sliding_attention")
    return kinds <= {"full_attention"}


def context_limit_of(model: Any) -> int:
    """Most tokens of prompt plus reply.

    Raises:
        ConfigError: the model's config does not say.
    """
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if not isinstance(limit, int):
        raise ConfigError(f"{type(model).__name__}: its config names no max_position_embeddings")
    return limit


def end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Ids that complete a reply: the generation config's and the tokenizer's own."""
    named = getattr(model.generation_config, "eos_token_id", None)
    ids = [named] if isinstance(named, int) else list(named or ())
    return frozenset(ids) | {i for i in (tokenizer.eos_token_id,) if i is not None}


def content_version(folder: Path) -> str:
    """A version made of the folder's name and a digest of its weights."""
    digest = hashlib.blake2b(digest_size=4)
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return f"{folder.name}@{digest.hexdigest()}"


def read_weights(source: Mapping[str, torch.Tensor] | str | Path) -> Mapping[str, torch.Tensor]:
    """A state dict as given, or all safetensors of a folder as one.

    Raises:
        ConfigError: the folder holds none.
    """
    if isinstance(source, Mapping):
        return source
    paths = sorted(Path(source).glob("*.safetensors"))
    if not paths:
        raise ConfigError(f"{str(source)!r} holds no *.safetensors")
    return {name: tensor for path in paths for name, tensor in load_file(path).items()}


def install_weights(model: Any, state: Mapping[str, torch.Tensor]) -> None:
    """Copy `state` into the model; a tied weight may be named once.

    Raises:
        ConfigError: names or shapes do not fit; nothing is changed.
    """
    own: Mapping[str, torch.Tensor] = model.state_dict()
    wrong = [name for name in state if name not in own or own[name].shape != state[name].shape]
    given = {own[name].data_ptr() for name in state if name in own}
    missing = [name for name in own if name not in state and own[name].data_ptr() not in given]
    if wrong or missing:
        raise ConfigError(
            f"these weights do not fit {type(model).__name__}: "
            f"unknown or misshapen {wrong[:3]}, missing {missing[:3]}"
        )
    model.load_state_dict(dict(state), strict=False)
