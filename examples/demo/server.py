# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""A `vllm serve` of this environment, started, asked and stopped."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

START_TIMEOUT_S = 300
STOP_TIMEOUT_S = 20
MODEL_NAME = "demo"

#: The counters that are read, without the `_total` that the exporter adds.
QUERIES = "vllm:prefix_cache_queries"
HITS = "vllm:prefix_cache_hits"
EVICTIONS = "vllm:prefix_cache_evictions"


class ServerError(RuntimeError):
    """The server did not start; the message is for the user."""


def free_port() -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server with one eviction policy; a context manager that stops it.

    Args:
        model: Folder of the model.
        policy: For ``--eviction-policy``.
        num_blocks: Of the whole pool; the engine keeps one of them for itself.
        block_size: Tokens in a block.
        max_model_len: Tokens in the longest request.
        log: Where its output goes.
    """

    def __init__(
        self,
        model: Path,
        policy: str,
        num_blocks: int,
        block_size: int,
        max_model_len: int,
        log: Path,
    ):
        self.log = log
        self.url = f"http://127.0.0.1:{free_port()}"
        log.parent.mkdir(parents=True, exist_ok=True)
        vllm = Path(sys.executable).with_name("vllm")
        if not vllm.exists():
            raise ServerError(f"no `vllm` beside {sys.executable}; run: make install")
        command = [str(vllm), "serve", str(model), "--served-model-name", MODEL_NAME]
        command += ["--host", "127.0.0.1", "--port", self.url.rpartition(":")[2]]
        command += ["--eviction-policy", policy]
        command += ["--block-size", str(block_size)]
        command += ["--num-gpu-blocks-override", str(num_blocks)]
        command += ["--max-model-len", str(max_model_len)]
        # Compiling the model would take longer than the demonstration may.
        command += ["--enforce-eager", "--enable-prompt-tokens-details"]
        environment = {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        with log.open("w") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                env=environment,
                # A group of its own: the engine's processes stop with it.
                start_new_session=True,
            )

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_until_ready(self) -> None:
        """Waits until requests are answered.

        Raises:
            ServerError: It ended, or took longer than ``START_TIMEOUT_S``.
        """
        start = time.monotonic()
        while time.monotonic() - start < START_TIMEOUT_S:
            if self._process.poll() is not None:
                raise ServerError(f"the server ended: {self._last_words()}")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.25)
        raise ServerError(f"no answer in {START_TIMEOUT_S} s: {self._last_words()}")

    def counters(self) -> dict[str, float]:
        """The prefix cache's counters; one that does not exist is not in it."""
        from prometheus_client.parser import text_string_to_metric_families

        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return {
            family.name: sum(
                sample.value
                for sample in family.samples
                if sample.name == family.name + "_total"
            )
            for family in text_string_to_metric_families(text)
            if family.name in (QUERIES, HITS, EVICTIONS)
        }

    def stop(self) -> None:
        """Stops the server and all its processes."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def _last_words(self) -> str:
        lines = [line for line in self.log.read_text().splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()]
        return f"{(errors or lines or ['nothing'])[-1]} (all of it: {self.log})"


def vocabulary_size(model: Path) -> int:
    """Token ids that a model knows, from its configuration.

    Raises:
        ServerError: There is no model in the folder.
    """
    path = model / "config.json"
    if not path.exists():
        raise ServerError(f"no model in {model}; run: make model")
    config = json.loads(path.read_text())
    return config.get("vocab_size") or config["text_config"]["vocab_size"]
