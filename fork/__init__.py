# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""How upstream's wheel becomes the fork.

The repository holds only what differs from upstream: edits keyed by names
(`series/`), files that upstream does not have (`vllm/`), and the C++ core
(`csrc/`). This package puts them together. It imports nothing from the overlay,
so it runs where vLLM is not installed and cannot be broken by it.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class ForkError(Exception):
    """Something the user can act on: the message is one line, no traceback."""
