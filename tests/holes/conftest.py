# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Hole filling under the fork's real scheduler, with a worker that has no model."""

from scheduler_fixtures import model, root_of_all_hashes

__all__ = ["model", "root_of_all_hashes"]
