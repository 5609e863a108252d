"""``python -m focus.models.convert_gguf file.gguf folder``: a GGUF file as a model folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from focus._extras import require

__all__ = ("convert",)


def convert(gguf: Path, folder: Path) -> None:
    """Write a Llama-type GGUF file as config, bfloat16 safetensors and tokenizer.

    Raises:
        MissingExtra: transformers or gguf is not installed.
    """
    require("gguf", extra="local")
    torch: Any = require("torch", extra="local")
    transformers: Any = require("transformers", extra="local")
    where = {"gguf_file": gguf.name, "local_files_only": True}
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, **where)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, **where)
    # A model loaded from GGUF counts as quantised and refuses to be saved; its plain copy does not.
    plain = {
        key: value for key, value in loaded.config.to_dict().items() if key != "quantization_config"
    }
    model = transformers.AutoModelForCausalLM.from_config(type(loaded.config).from_dict(plain))
    model.load_state_dict(loaded.state_dict())
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
