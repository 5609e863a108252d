#!/usr/bin/env bash
# Three rounds of MATH on two GPUs. Look it over first: focus slime check launch_slime.sh
set -euo pipefail

: "${FOCUS_HOOKS:?the folder of train_slime.py and its companions}"
: "${FOCUS_MODEL:?the model folder, in Hugging Face form}"
: "${FOCUS_DATA:?the training problems that prepare_math.py wrote}"
: "${FOCUS_INITIAL:?the same model, converted for Megatron}"
: "${FOCUS_RUN:?an output folder of this experiment alone}"
: "${SLIME_DIR:=/root/slime}"

cd "$SLIME_DIR"
source scripts/models/qwen3-4B-Instruct-2507.sh # sets MODEL_ARGS

MACHINE=(
  --train-backend megatron
  --actor-num-nodes 1
  --actor-num-gpus-per-node 2
  --num-gpus-per-node 2
  --colocate
  --rollout-num-gpus-per-engine 2
  --sglang-mem-fraction-static 0.7
)
CHECKPOINTS=(
  --hf-checkpoint "$FOCUS_MODEL"
  --ref-load "$FOCUS_INITIAL"
  --save "$FOCUS_RUN/checkpoints"
  --save-interval 1
  # To resume: --load "$FOCUS_RUN/checkpoints", and a larger --num-rollout below.
)
ROUNDS=(
  --prompt-data "$FOCUS_DATA"
  --input-key problem
  --label-key solution
  --num-rollout 3
  --rollout-batch-size 4
  --n-samples-per-prompt 1
  --global-batch-size 4 # all prompts of a round are one step
  --rollout-max-response-len 4096
  --rollout-max-context-len 8192
  --rollout-temperature 0.7
  --rollout-top-p 1.0
)
EVALUATION=(
  --eval-interval 1
  --eval-config "$FOCUS_HOOKS/eval_config.yaml"
)
HOOKS=(
  --custom-generate-function-path train_slime.generate
  --custom-reward-post-process-path focus.integrations.slime.preserve_advantages
  --custom-advantage-function-path focus.integrations.slime.advantages
  --custom-pg-loss-reducer-function-path focus.integrations.slime.sum_policy_tokens
)
LOSS=(
  --use-rollout-logprobs
  --advantage-estimator grpo
  --loss-type policy_loss
  --pg-loss-type ppo
  --eps-clip 0.2
  --eps-clip-high 0.2
  --kl-coef 0
  --entropy-coef 0
)
OPTIMIZER=(
  --optimizer adam
  --lr 1e-6
  --lr-decay-style constant
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.98
  # The loss is a sum over tokens: its norm is far above 1, so every step is cut to this
  # length. Weights keep their proportions within a step, not between steps.
  --clip-grad 1.0
)
PARALLEL=(
  --tensor-model-parallel-size 2
  --pipeline-model-parallel-size 1
  --context-parallel-size 1
  --sequence-parallel
  --use-dynamic-batch-size
  --max-tokens-per-gpu 8192
  --log-probs-chunk-size 1024
  --recompute-granularity full
  --recompute-method uniform
  --recompute-num-layers 1
  --seq-length 8192
  --max-position-embeddings 262144
  --bf16
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --accumulate-allreduce-grads-in-fp32
  --attention-softmax-in-fp32
  --attention-backend flash
)

ray job submit --address http://127.0.0.1:8265 \
  --runtime-env "$FOCUS_HOOKS/slime_runtime.yaml" \
  -- python "$SLIME_DIR/train.py" \
  "${MODEL_ARGS[@]}" "${MACHINE[@]}" "${CHECKPOINTS[@]}" "${ROUNDS[@]}" "${EVALUATION[@]}" \
  "${HOOKS[@]}" "${LOSS[@]}" "${OPTIMIZER[@]}" "${PARALLEL[@]}"
