# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""One process in which engines live, one after the other.

A process of its own, because an engine on the CPU changes the process it runs in
(environment, threads, memory binding), and because one that hangs or crashes must
end a test and not the session. One for all engines, because loading vLLM takes ten
times as long as starting a tiny model. Within it the engine core is not a process
again, so that a test can look into the scheduler.
"""

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.engine.tiny_model import ENGINE_ENVIRONMENT


class EngineProcess:
    """Runs jobs, one at a time. Starts with the first, and anew after a crash.

    Args:
        path: A folder for the front of the process's path.

    """

    def __init__(self, path: Path):
        self._path = str(path)
        self._connection: Connection | None = None
        self._process: Any = None

    def run(self, job: Callable[..., Any], *args: Any, seconds: float = 600) -> Any:
        """Call a function there and return what it returns.

        Args:
            job: A function of a module.
            args: Its arguments.
            seconds: After that the process is given up. Far more than any job takes
                where nothing hangs.

        Raises:
            RuntimeError: The job raised; its traceback is in the message.
            TimeoutError: It took too long.
            EOFError: The process died.

        """
        connection = self._connection or self._start()
        connection.send((job, args))
        try:
            if not connection.poll(seconds):
                raise TimeoutError(f"{job.__name__}{args} took over {seconds} s.")
            succeeded, answer = connection.recv()
        except (TimeoutError, EOFError):
            self.stop()
            raise
        if not succeeded:
            raise RuntimeError(f"{job.__name__} failed where engines live:\n{answer}")
        return answer

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        if self._connection is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self._connection = None

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_work, args=(theirs, self._path), daemon=True
        )
        self._process.start()
        theirs.close()
        return self._connection


def _work(connection: Connection, path: str) -> None:
    os.environ.update(ENGINE_ENVIRONMENT)  # before anything imports torch
    sys.path.insert(0, path)
    while True:
        try:
            job, args = connection.recv()
        except EOFError:
            return
        try:
            answer = (True, job(*args))
        except Exception:
            answer = (False, traceback.format_exc())
        connection.send(answer)
