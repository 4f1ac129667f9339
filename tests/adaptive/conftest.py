# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The adaptive manager and what it stands on: rules, shadows, the change of policy."""

import os

os.environ.setdefault("VLLM_LOGGING_LEVEL", "DEBUG")  # tests look at what is logged

from tests.installed_fork import require_fork

require_fork()
