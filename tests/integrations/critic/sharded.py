"""`focus`, with the module sharded (FSDP2) over processes of a CPU.

accelerate shards on accelerators only, so its state is told here that it may; everything
else goes the way that it goes on GPUs.
"""

from __future__ import annotations

import sys

from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

from focus.cli.main import app


def main() -> None:
    Accelerator(cpu=True)
    state = AcceleratorState()
    state.fsdp_plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap", cpu_ram_efficient_loading=False
    )
    state.distributed_type = DistributedType.FSDP
    app(sys.argv[1:])


if __name__ == "__main__":
    main()
