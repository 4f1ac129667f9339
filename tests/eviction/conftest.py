# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The policies: the fork must be installed, upstream's engine need not be."""

from tests.installed_fork import require_fork

require_fork()
