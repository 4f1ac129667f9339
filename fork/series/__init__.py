# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The series: every edit that makes upstream the fork, one module a file.

Series modules hold edits and nothing else. To add an edit, add it to the `EDITS` of
its file; to edit another file, write its module and name it here.
"""

from fork.series import (
    bench_main,
    cli_args,
    cli_main,
    config_cache,
    engine_arg_utils,
    engine_core,
    kv_cache_manager,
    metrics_loggers,
    metrics_stats,
    sched_scheduler,
    serve_dev_routers,
)
from fork.tree import EditedFile

SERIES: tuple[EditedFile, ...] = (
    config_cache.FILE,
    engine_arg_utils.FILE,
    cli_args.FILE,
    cli_main.FILE,
    bench_main.FILE,
    sched_scheduler.FILE,
    kv_cache_manager.FILE,
    metrics_stats.FILE,
    metrics_loggers.FILE,
    engine_core.FILE,
    serve_dev_routers.FILE,
)
