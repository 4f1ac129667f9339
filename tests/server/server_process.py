# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`vllm serve` as a user starts it, and what a user and a scraper see of it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import requests
from prometheus_client.parser import text_string_to_metric_families

#: The command that stands beside the interpreter of the tests.
VLLM = str(Path(sys.executable).parent / "vllm")


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """Starts at once; `wait_until_ready` waits.

    Args:
        model: Folder of the model.
        flags: More arguments of `vllm serve`.
        environment: Of the process, whole.
        log: File for what it prints.

    """

    def __init__(
        self, model: str, flags: list[str], environment: dict[str, str], log: Path
    ):
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self._log = log
        with log.open("w") as output:
            # A session of its own, so that its engine goes with it.
            self._process = subprocess.Popen(
                [VLLM, "serve", model, "--port", str(port), *flags],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """All that it printed so far."""
        return self._log.read_text()

    def wait_until_ready(self, seconds: float = 600) -> None:
        """Return when it answers.

        Raises:
            RuntimeError: It ended, or does not answer in time; with the log's end.

        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                if requests.get(f"{self.url}/health", timeout=5).ok:
                    return
            except requests.RequestException:
                time.sleep(0.2)
        raise RuntimeError(
            f"The server does not answer (status {self._process.poll()}):\n"
            + "\n".join(self.log.splitlines()[-30:])
        )

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """Send JSON; the answer must be JSON, or empty."""
        response = requests.post(f"{self.url}{path}", json=body, timeout=300)
        response.raise_for_status()
        return response.json() if response.content else {}

    def samples(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        """Labels and value of each sample of /metrics, by the name of the sample."""
        response = requests.get(f"{self.url}/metrics", timeout=30)
        response.raise_for_status()
        found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(response.text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
        return found

    def wait_for_log(self, text: str, seconds: float = 120) -> str:
        """Return the first line that holds a text, once it is there.

        Raises:
            TimeoutError: It does not come.

        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for line in self.log.splitlines():
                if text in line:
                    return line
            time.sleep(0.2)
        raise TimeoutError(f"{text!r} is not in the log:\n{self.log[-4000:]}")

    def stop(self) -> None:
        """End it, and whatever it started, for sure."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
