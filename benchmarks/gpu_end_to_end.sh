#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
#
# The end-to-end measurements on a GPU, with a real model: times to first token under
# lru, s3fifo and adaptive, and what the shadows cost while the GPU works. Nothing here
# has been run on a GPU yet.
#
#     MODEL=Qwen/Qwen3-8B OUT=results/gpu benchmarks/gpu_end_to_end.sh
#
# In an environment with the fork (VLLM_TARGET_DEVICE=cuda pip install .) and
# requirements/bench.txt. The runs alone take two and a half hours, and there are fifty
# starts of an engine besides. A first look, in a quarter of an hour:
#
#     RUNS=1 SECONDS_A_MIX=30 SCENARIOS=drift PARTS="p1 overhead" \
#       ENGINE_ARGS=--enforce-eager benchmarks/gpu_end_to_end.sh
#
# What the variables mean:
#
#     PARTS          of p1, production, overhead; below
#     RUNS           of each policy
#     SECONDS_A_MIX  that a mix of P1 takes; the drift takes two
#     SCENARIOS      of P1: agents, single turns, drift
#     ENGINE_ARGS    for every engine. Where only a model's config.json is at hand, with
#                    MODEL its folder: "--load-format dummy --skip-tokenizer-init"
#     PYTHON         of the environment
set -euo pipefail
cd "$(dirname "$0")/.."

MODEL=${MODEL:-Qwen/Qwen3-8B}
OUT=${OUT:-results/gpu}
PARTS=${PARTS:-p1 production overhead}
RUNS=${RUNS:-3}
SECONDS_A_MIX=${SECONDS_A_MIX:-150}
SCENARIOS=${SCENARIOS:-agents,single turns,drift}
PYTHON=${PYTHON:-python}
read -ra ENGINE <<< "${ENGINE_ARGS:-}"

fail() {
  echo "gpu_end_to_end.sh: error: $1" >&2
  exit 2
}
for part in $PARTS; do
  case $part in
    p1 | production | overhead) ;;
    *) fail "PARTS has '$part': must be of p1, production, overhead." ;;
  esac
done
"$PYTHON" -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null \
  || fail "no GPU: torch of $PYTHON sees none, or is not there (PYTHON=...)."
"$PYTHON" -c 'import vllm._eviction_C' 2> /dev/null \
  || fail "$PYTHON has no vLLM with the fork: VLLM_TARGET_DEVICE=cuda pip install ."
mkdir -p "$OUT"

for part in $PARTS; do
  case $part in
    # P1 as it is: its lengths, its sessions, its pool of 13,653 blocks. The command
    # calibrates the engine and chooses the speed. A GPU is busy with dozens of requests.
    p1)
      "$PYTHON" benchmarks/end_to_end.py --model "$MODEL" --block-size 16 \
        --scale-lengths 1 --thin 1 --output-len 150 --seconds "$SECONDS_A_MIX" \
        --scenarios "$SCENARIOS" --at-once 32 --max-model-len 17408 --runs "$RUNS" \
        --out "$OUT/p1" "${ENGINE[@]}" | tee "$OUT/p1.md"
      ;;
    # The twin of a production trace, in a pool of 48 GiB of the paper's model.
    production)
      "$PYTHON" benchmarks/benchmark_prefix_caching.py --model "$MODEL" \
        --block-size 16 --num-gpu-blocks-override 32768 \
        --workload production --traffic 'max-tokens=32000' --workload-seconds 1800 \
        --speed-up 6 --output-len 200 --max-model-len 32768 \
        --compare lru,s3fifo,adaptive --runs "$RUNS" "${ENGINE[@]}" \
        --json "$OUT/production.json" --plot "$OUT/production.png" \
        | tee "$OUT/production.md"
      ;;
    # The scheduler's cost while the GPU works: short prompts, many at a time, so that
    # steps are short and every one schedules. The pool holds little more than what
    # runs: every new block evicts one. The policies find the same here (nothing
    # repeats), so that a difference in tokens a second is the policy's cost.
    overhead)
      "$PYTHON" benchmarks/benchmark_prefix_caching.py --model "$MODEL" \
        --block-size 16 --num-gpu-blocks-override 8192 --max-num-seqs 256 \
        --max-model-len 4096 --num-prompts 4000 --input-length-range 200:300 \
        --output-len 64 --compare lru,s3fifo,arc,adaptive --runs "$RUNS" \
        "${ENGINE[@]}" --json "$OUT/overhead.json" | tee "$OUT/overhead.md"
      ;;
  esac
done
