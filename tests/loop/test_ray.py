"""`focus loop` beside a real Ray cluster, with the job script of the how-to.

Where ray is installed in this environment, or in another of the same Python, which
FOCUS_RAY_PYTHON names:

    python -m venv ray && ray/bin/pip install "ray[default]==2.60.0"
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from bench.closed_loop.drill import audit

from focus.loop.processes import find_marked
from focus.loop.tags import RoundTags

PYTHON = os.environ.get("FOCUS_RAY_PYTHON", "") or (
    sys.executable if importlib.util.find_spec("ray") else ""
)
ROOT = Path(__file__).parents[2]
ROUNDS = 3
JOB = "focus-loop"

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON, reason="neither here nor in FOCUS_RAY_PYTHON is a ray"),
]


@dataclass(frozen=True)
class Cluster:
    """A head node of one machine.

    Attributes:
        address: of its dashboard, which takes jobs.
        environment: what a user's shell would have.
    """

    address: str
    environment: dict[str, str]

    def status(self, job: str) -> str:
        """PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED."""
        answer = httpx.get(f"{self.address}/api/jobs/{job}", trust_env=False, timeout=30)
        return str(answer.raise_for_status().json()["status"])


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    packages = [path for path in sys.path if path.endswith("site-packages")]
    environment = {
        **os.environ,
        "PATH": f"{Path(PYTHON).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), *packages]),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
    }
    head, dashboard, agent = free_ports(3)
    environment["RAY_ADDRESS"] = address = f"http://127.0.0.1:{dashboard}"
    words = f"start --head --block --node-ip-address 127.0.0.1 --port {head} --num-cpus 2"
    words += f" --dashboard-port {dashboard} --dashboard-agent-listen-port {agent}"
    # Ray's sockets lie in this folder, and their names may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        command = [str(Path(PYTHON).with_name("ray")), *words.split(), "--temp-dir", folder]
        bare = {name: value for name, value in environment.items() if name != "RAY_ADDRESS"}
        with subprocess.Popen(command, env=bare, start_new_session=True) as process:
            try:
                wait_for(process, address)
                yield Cluster(address, environment)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)


def wait_for(process: subprocess.Popen[bytes], address: str) -> None:
    """Until the cluster takes jobs."""
    deadline = time.monotonic() + 180
    while True:
        assert process.poll() is None, "ray start failed"
        try:
            httpx.get(f"{address}/api/jobs/", trust_env=False, timeout=5).raise_for_status()
        except httpx.HTTPError:
            assert time.monotonic() < deadline, "the cluster takes no jobs"
            time.sleep(0.5)
        else:
            return


def loop_in(folder: Path) -> Path:
    """A loop whose actor is the how-to's script, with our job in the place of Slime's."""
    page = (ROOT / "docs/how-to/close-the-loop.md").read_text()
    found = re.search(r'```bash title="job\.sh"\n(.*?)```', page, re.DOTALL)
    assert found is not None
    (folder / "job.sh").write_text(found[1])
    variables = {"FOCUS_LOOP": str(folder)}
    (folder / "runtime.yaml").write_text(json.dumps({"env_vars": variables}))
    job = [str(ROOT / "tests/loop/ray_job.py"), str(folder), "--rounds", str(ROUNDS)]
    job += ["--prompts", "6", "--outcomes", "40"]
    submit = f"ray job submit --submission-id {JOB} --runtime-env runtime.yaml"
    (folder / "launch_slime.sh").write_text(f"{submit} -- python {shlex.join(job)}\n")
    config = folder / "loop.toml"
    lines = [
        f"folder = {json.dumps(str(folder))}",
        f"outcomes = {json.dumps(str(folder / 'outcomes'))}",
        "staleness = 0",
        "[actor]",
        'command = ["bash", "job.sh"]',
    ]
    config.write_text("\n".join(lines))
    return config


def loop(config: Path, cluster: Cluster) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "focus", "loop", str(config)]
    return subprocess.Popen(command, env=cluster.environment, cwd=config.parent)


def until_decided(tags: RoundTags, round: int, process: subprocess.Popen[bytes]) -> None:
    """Until a round has its critic, which its job has asked for."""
    while tags.read(round) is None:
        assert process.poll() is None, "the loop ended too soon"
        time.sleep(0.1)


def until_stopped(cluster: Cluster) -> None:
    """Ray takes a moment to end a job."""
    deadline = time.monotonic() + 60
    while (status := cluster.status(JOB)) != "STOPPED":
        assert time.monotonic() < deadline, f"the job is still {status}"
        time.sleep(0.2)


def submitter(folder: Path) -> int:
    """Process group of the script that submitted the job."""
    found = find_marked(f"{os.path.realpath(folder)}#actor")
    assert found is not None
    return found.pid


def test_a_ray_job_is_ended_replaced_and_finished_by_the_loop(
    cluster: Cluster, tmp_path: Path
) -> None:
    config, tags = loop_in(tmp_path), RoundTags(tmp_path)

    # Who submitted the job is killed, the job itself runs on: the next life replaces it.
    process = loop(config, cluster)
    until_decided(tags, 0, process)
    os.killpg(submitter(tmp_path), signal.SIGKILL)
    until_decided(tags, 1, process)

    # The loop is asked to end: so is the job, although it is nobody's child.
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    until_stopped(cluster)

    process = loop(config, cluster)
    assert process.wait(600) == 0
    assert cluster.status(JOB) == "SUCCEEDED"
    assert "all rounds done by Ray worker" in (tmp_path / "logs/actor.log").read_text()
    found = audit(tmp_path)
    assert found.wrong == ()
    assert (found.rounds, found.prompts) == (ROUNDS, ROUNDS * 6)
