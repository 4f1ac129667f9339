# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`benchmarks/benchmark_prefix_caching.py`; its modules import each other by name."""

import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from fork import ROOT  # noqa: E402
from tests.installed_fork import require_fork  # noqa: E402

require_fork()
sys.path.insert(0, str(ROOT / "benchmarks"))
