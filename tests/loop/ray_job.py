"""What a Slime job is to Ray: a driver, and a rollout manager in a worker of its own.

python ray_job.py FOLDER --rounds 2 ...      the words of bench.closed_loop.actor
"""

from __future__ import annotations

import sys


class RolloutManager:
    """Slime's hooks live in such a process: not the driver's, with Ray's environment."""

    def run(self, words: list[str]) -> str:
        import ray
        from bench.closed_loop import actor

        sys.argv[1:] = words
        actor.main()
        return str(ray.get_runtime_context().get_worker_id())


def main() -> None:
    import ray

    ray.init(address="auto")
    manager = ray.remote(num_cpus=1)(RolloutManager).remote()
    worker = ray.get(manager.run.remote(sys.argv[1:]))
    print(f"all rounds done by Ray worker {worker}", flush=True)


if __name__ == "__main__":
    main()
