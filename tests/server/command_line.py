# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Many `vllm` command lines in the time of one.

Loading what `vllm` loads takes longer than all that it does until a wrong flag is
reported. So one process loads it and forks for each command, which then runs
upstream's own `main`. Some tests start the real command, to see that it is alike.
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass

from tests.server.server_process import VLLM


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Attributes:
        status: Its exit status.
        output: Standard output.
        errors: Standard error.

    """

    status: int
    output: str
    errors: str


class CommandLine:
    """Runs `vllm` with arguments.

    Args:
        environment: Of the commands, whole.

    """

    def __init__(self, environment: dict[str, str]):
        self._environment = environment
        self._loaded: subprocess.Popen[str] | None = None

    def fresh(self, *arguments: str, seconds: float = 600) -> Outcome:
        """Run the real command in a new process."""
        done = subprocess.run(
            [VLLM, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def __call__(self, *arguments: str) -> Outcome:
        """Run the command in a fork of a process that has loaded it."""
        if self._loaded is None:
            self._loaded = subprocess.Popen(
                [sys.executable, "-m", __name__],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._loaded.stdin is not None and self._loaded.stdout is not None
        print(json.dumps(arguments), file=self._loaded.stdin, flush=True)
        return Outcome(**json.loads(self._loaded.stdout.readline()))

    def stop(self) -> None:
        """End the loaded process."""
        if self._loaded is not None:
            self._loaded.kill()
            self._loaded.wait()


def _load() -> None:
    import vllm.entrypoints.cli.benchmark.main
    import vllm.entrypoints.cli.launch
    import vllm.entrypoints.cli.openai
    import vllm.entrypoints.cli.run_batch
    import vllm.entrypoints.cli.serve  # noqa: F401


def _run(arguments: list[str]) -> int:
    """Be the command; in a child."""
    from vllm.entrypoints.cli.main import main

    sys.argv = ["vllm", *arguments]
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _serve_commands() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed while loading is no answer
    _load()
    for line in sys.stdin:
        with (
            tempfile.TemporaryFile("w+") as output,
            tempfile.TemporaryFile("w+") as errors,
        ):
            child = os.fork()
            if child == 0:
                os.dup2(output.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                status = _run(json.loads(line))
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            for stream in (output, errors):
                stream.seek(0)
            answer = {
                "status": status,
                "output": output.read(),
                "errors": errors.read(),
            }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    _serve_commands()
