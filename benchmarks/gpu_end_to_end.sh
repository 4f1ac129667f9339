#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
#
# The end-to-end measurements on a GPU, with a real model: times to first token under
# lru, s3fifo and adaptive, and what the shadows cost while the GPU works. An hour and a
# half on one GPU. Nothing here has been run on a GPU yet.
#
#     MODEL=Qwen/Qwen3-8B OUT=results/gpu benchmarks/gpu_end_to_end.sh
#
# In an environment with the fork (VLLM_TARGET_DEVICE=cuda pip install .) and
# requirements/bench.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

MODEL=${MODEL:-Qwen/Qwen3-8B}
OUT=${OUT:-results/gpu}
RUNS=${RUNS:-3}
SECONDS_A_MIX=${SECONDS_A_MIX:-150}
PYTHON=${PYTHON:-python}
mkdir -p "$OUT"

# 1. P1 as it is: its lengths, its sessions, its pool of 13,653 blocks. The command
#    calibrates the engine and chooses the speed.
"$PYTHON" benchmarks/end_to_end.py --model "$MODEL" --block-size 16 \
  --scale-lengths 1 --thin 1 --output-len 150 --seconds "$SECONDS_A_MIX" \
  --max-model-len 17408 --runs "$RUNS" --out "$OUT/p1" | tee "$OUT/p1.md"

# 2. The twin of a production trace, with the pool that the GPU really has.
"$PYTHON" benchmarks/benchmark_prefix_caching.py --model "$MODEL" \
  --workload production --traffic 'max-tokens=32000' --workload-seconds 1800 \
  --speed-up 6 --output-len 200 --max-model-len 32768 \
  --compare lru,s3fifo,adaptive --runs "$RUNS" \
  --json "$OUT/production.json" --plot "$OUT/production.png" | tee "$OUT/production.md"

# 3. The scheduler's cost while the GPU works: short prompts, many at a time, so that
#    steps are short and every one schedules. The policies find the same here (nothing
#    repeats), so that a difference in tokens a second is the policy's cost.
"$PYTHON" benchmarks/benchmark_prefix_caching.py --model "$MODEL" \
  --num-prompts 4000 --input-length-range 200:300 --output-len 64 \
  --compare lru,s3fifo,arc,adaptive --runs "$RUNS" \
  --json "$OUT/overhead.json" | tee "$OUT/overhead.md"
