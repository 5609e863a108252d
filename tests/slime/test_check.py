"""`focus slime check`: every real problem of a launch, and nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from focus.cli.main import app
from focus.integrations.slime._check import Report, judge, launches, load_table
from focus.integrations.slime._check.shell import commands
from focus.integrations.slime._refusals import _RULES

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "math"
SEED = ROOT.parent / "shared" / "seed" / "train-with-slime.txt"
TABLE = load_table()


def report(script: str) -> Report:
    (launch,) = launches(script)
    return judge(launch, TABLE)


def flags(script: str) -> list[str]:
    return [finding.flag for finding in report(script).findings]


def launch(*changes: str, without: str = "") -> str:
    """The shipped launch with flags added, or one taken out."""
    script = (EXAMPLES / "launch_slime.sh").read_text()
    if without:
        script, count = re.subn(rf"^ *{without}( .*)?$", "", script, flags=re.MULTILINE)
        assert count == 1, without
    return script.replace('"${PARALLEL[@]}"', '"${PARALLEL[@]}" ' + " ".join(changes))


def check(path: Path) -> Any:
    return CliRunner().invoke(app, ["slime", "check", str(path)])


def test_the_shipped_launch_is_right() -> None:
    result = check(EXAMPLES / "launch_slime.sh")
    assert result.exit_code == 0
    assert [line.split(":")[:2] for line in result.stdout.splitlines()] == [
        ["note", " --pg-loss-type"]
    ]


def test_the_shipped_launch_is_bash() -> None:
    subprocess.run(["bash", "-n", EXAMPLES / "launch_slime.sh"], check=True)


def test_the_pages_own_launch_has_its_real_problems_and_no_others(tmp_path: Path) -> None:
    if not SEED.exists():
        pytest.skip(f"the page is not here: {SEED}")
    page = SEED.read_text(encoding="utf-8")
    script = page[page.index("#!/usr/bin/env bash") : page.index("Start Ray on this dedicated")]
    (tmp_path / "launch.sh").write_text(script)
    result = check(tmp_path / "launch.sh")
    assert result.exit_code == 1
    lines = [line.split(":")[0] for line in result.stdout.splitlines()]
    assert sorted(lines) == ["--eval-interval", "--num-gpus-per-node", "note", "note"]
    assert "note: --pg-loss-type" in result.stdout


def test_a_finding_is_a_line_with_its_flag_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "launch.sh").write_text(launch("--group-rm", "--partial-rollout"))
    result = check(tmp_path / "launch.sh")
    assert result.exit_code == 1
    found = [line for line in result.stdout.splitlines() if not line.startswith("note: ")]
    assert [line.split(":")[0] for line in found] == ["--group-rm", "--partial-rollout"]
    assert "2 findings" in result.stderr


@pytest.mark.parametrize(
    ("added", "flag"),
    [
        ("--rollout-temperature 0", "--rollout-temperature"),
        ("--rollout-top-p 0.95", "--rollout-top-p"),
        ("--rollout-top-k 40", "--rollout-top-k"),
        ("--rollout-stop '</answer>'", "--rollout-stop"),
        ("--normalize-advantages", "--normalize-advantages"),
        ("--calculate-per-token-loss", "--calculate-per-token-loss"),
        ("--use-opd --opd-type sglang", "--use-opd"),
        ("--use-tis", "--use-tis"),
        ("--use-opsm", "--use-opsm"),
        ("--get-mismatch-metrics", "--get-mismatch-metrics"),
        ("--use-rollout-routing-replay", "--use-rollout-routing-replay"),
        ("--log-correct-samples", "--log-correct-samples"),
        ("--dynamic-sampling-filter-path a.b", "--dynamic-sampling-filter-path"),
        ("--over-sampling-batch-size 8", "--over-sampling-batch-size"),
        ("--global-batch-size 2", "--global-batch-size"),
        ("--num-steps-per-rollout 2 --global-batch-size 2", "--global-batch-size"),
        ("--n-samples-per-prompt 2 --global-batch-size 8", "--n-samples-per-prompt"),
        ("--reward-key score", "--reward-key"),
        ("--eval-reward-key score", "--eval-reward-key"),
        ("--log-reward-category kind", "--log-reward-category"),
        ("--apply-chat-template", "--apply-chat-template"),
        ("--advantage-estimator gspo", "--advantage-estimator"),
        ("--advantage-estimator=cispo", "--advantage-estimator"),
        ("--loss-type sft_loss", "--loss-type"),
        ("--disable-compute-advantages-and-returns", "--disable-compute-advantages-and-returns"),
        (
            "--custom-convert-samples-to-train-data-path a.b",
            "--custom-convert-samples-to-train-data-path",
        ),
        ("--eval-temperature 0", "--eval-temperature"),
        ("--eval-top-p 0.9", "--eval-top-p"),
        ("--custom-advantage-function-path focus/hooks.py:advantages", None),
        ("--custom-advantage-function-path focus.integrations.slime.preserve_advantages", None),
        ("--custom-generate-function-path generate", None),
        ("--custom-generate-function-path focus.integrations.slime.make_generate", None),
        ("--rollout-batch-size four", "--rollout-batch-size"),
        ("--rollout-batch-size", "--rollout-batch-size"),
        ("--colocate yes", "--colocate"),
        ("--lr 1e-6 1e-5", "--lr"),
        ("--num-gpus-per-node 8", "--num-gpus-per-node"),
    ],
)
def test_each_setting_is_found_by_its_flag(added: str, flag: str | None) -> None:
    assert flags(launch(added)) == [flag or added.split()[0]]


@pytest.mark.parametrize(
    "missing",
    [
        "--custom-generate-function-path",
        "--custom-reward-post-process-path",
        "--custom-advantage-function-path",
        "--custom-pg-loss-reducer-function-path",
        "--use-rollout-logprobs",
        "--use-dynamic-batch-size",
        "--max-tokens-per-gpu",
        "--global-batch-size",
        "--num-gpus-per-node",
        "--eval-interval",
        "--eval-config",
    ],
)
def test_each_missing_flag_is_found(missing: str) -> None:
    assert flags(launch(without=missing)) == [missing]


@pytest.mark.parametrize(
    "flag",
    [
        "--custom-generate-function-path",
        "--custom-advantage-function-path",
        "--use-rollout-logprobs",
        "--num-gpus-per-node",
        "--sequence-parallel",
        "--colocate",
    ],
)
def test_a_misspelt_flag_is_found_with_its_right_name(flag: str) -> None:
    spelt = flag[:-1] + flag[-2]
    found = report(launch().replace(f"  {flag}", f"  {spelt}")).findings
    assert found[0].flag == spelt
    assert found[0].text.endswith(f"did you mean {flag}?")
    assert {finding.flag for finding in found[1:]} <= {flag}


@pytest.mark.parametrize(
    "added",
    [
        "--kl-coef 0.1",
        "--entropy-coef 0.01",
        "--kl-loss-coef 0.01 --use-kl-loss",
        "--eval-prompt-data math /data/x.jsonl",
        "--rollout-top-p $TOP_P",
        "--rollout-batch-size $SIZE",
        "--sglang-some-option 3",
        "--router-policy consistent_hashing",
        "--custom-generate-function-path mine.generate",
        "--rollout-stop-token-ids 7 8",
        "--eval-temperature 0.7",
    ],
)
def test_what_works_is_no_finding(added: str) -> None:
    assert flags(launch(added)) == []


def test_notes_say_what_to_know() -> None:
    script = launch("--entropy-coef 0.01 --advantage-estimator ppo", without="--clip-grad")
    found = report(script.replace("train.py", "train_async.py"))
    assert [note.flag for note in found.notes] == [
        "--pg-loss-type",
        "--entropy-coef",
        "--clip-grad",
        "--advantage-estimator",
        "train_async.py",
    ]


def test_a_file_without_a_launch_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("echo train\n")
    result = check(tmp_path / "a.sh")
    assert result.exit_code == 1
    assert "no launch of Slime" in result.stderr
    assert check(tmp_path / "missing.sh").exit_code == 1


def test_a_bare_line_is_a_launch() -> None:
    assert "--eval-interval" in flags("python train.py --bf16")


# --- the table --------------------------------------------------------------------------


def test_the_table_names_its_revision() -> None:
    assert TABLE.revision == "624b824a898ab0ec1fcb4d373004c7f3852bf515"
    assert TABLE.date == "2026-08-21"
    assert len(TABLE.values) > 800


def test_every_rule_can_be_read_off_a_line() -> None:
    for rule in _RULES:
        name = rule.attribute or rule.flag.removeprefix("--").replace("-", "_")
        if rule.flag not in TABLE.newer:
            assert TABLE.read[rule.flag].name == name
            assert rule.flag in TABLE.values


# --- the shell --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("a b\nc", [["a", "b"], ["c"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a # it's a comment\nb", [["a"], ["b"]]),
        ("a b#c", [["a", "b#c"]]),
        ("A=(x 'y z' # no\n w); run \"${A[@]}\"", [["run", "x", "y z", "w"]]),
        ("A=(x)\nA+=(y)\nrun ${A[@]}", [["run", "x", "y"]]),
        ('N=4\nrun $N "${N}x" ${M}', [["run", "4", "4x", "${M}"]]),
        ("N=4 run $N", [["run", "$N"]]),
        ('X="--a 1 --b"\nrun $X', [["run", "--a", "1", "--b"]]),
        ("cat <<EOF\nit's $odd\nEOF\nrun", [["cat"], ["run"]]),
        ('run "$(date +"%s")" ${A:-"x y"}', [["run", '$(date +"%s")', '${A:-"x y"}']]),
        ("a && b || c; d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ('run "a\\"b" \'\'', [["run", 'a"b', ""]]),
        ("run 'unfinished", [["run", "unfinished"]]),
    ],
)
def test_words_of_a_script(script: str, words: list[list[str]]) -> None:
    assert list(commands(script)) == words


@given(st.text(alphabet="ab -'\"\\$(){}[]@#;=\n<", max_size=60))
def test_any_text_is_read_to_its_end(text: str) -> None:
    assert all(all(isinstance(word, str) for word in words) for words in commands(text))


@given(st.lists(st.from_regex(r"[a-z0-9./_-]{1,8}", fullmatch=True), max_size=6))
def test_plain_words_come_back(words: list[str]) -> None:
    found = [word for command in commands("run " + " ".join(words)) for word in command]
    assert found == ["run", *words]
