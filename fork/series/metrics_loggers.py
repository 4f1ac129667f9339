# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The stat loggers: Prometheus metrics and a line in the periodic log."""

from fork.anchors import assignment, call, not_none_test
from fork.edits import AddImport, InsertAfter, InsertFirstIn
from fork.tree import EditedFile

FILE = EditedFile(
    paths=("vllm/v1/metrics/loggers.py",),
    edits=(
        AddImport(
            "import",
            "vllm.v1.core.eviction.metrics",
            ("EvictionLogging", "EvictionProm"),
        ),
        # The logger's own classes: Ray replaces them.
        InsertAfter(
            "Prometheus metrics",
            "PrometheusStatLogger.__init__",
            assignment("self.perf_metrics_prom"),
            """self.eviction_prom = EvictionProm(
    vllm_config,
    labelnames,
    per_engine_labelvalues,
    self._counter_cls,
    self._gauge_cls,
    self._histogram_cls,
)
""",
        ),
        InsertFirstIn(
            "Prometheus record",
            "PrometheusStatLogger.record",
            not_none_test("scheduler_stats"),
            "self.eviction_prom.observe(scheduler_stats.eviction_stats, engine_idx)\n",
        ),
        InsertAfter(
            "log state",
            "LoggingStatLogger.__init__",
            assignment("self.kv_connector_logging"),
            "self.eviction_logging = EvictionLogging()\n",
        ),
        InsertFirstIn(
            "log record",
            "LoggingStatLogger.record",
            not_none_test("scheduler_stats"),
            "self.eviction_logging.observe(scheduler_stats.eviction_stats)\n",
        ),
        InsertAfter(
            "log line",
            "LoggingStatLogger.log",
            call("self.kv_connector_logging.log"),
            "self.eviction_logging.log(log_fn=log_fn, log_prefix=self.log_prefix)\n",
        ),
    ),
)
