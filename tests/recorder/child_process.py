# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Runs a function in a forked child: for what would harm the test run itself."""

import json
import os
import traceback
from collections.abc import Callable
from typing import Any


def run_in_child(function: Callable[[], Any]) -> Any:
    """What `function` returns, as JSON has it; None if it killed its process."""
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.close(reader)
            answer = json.dumps(function()).encode()
            while answer:
                answer = answer[os.write(writer, answer) :]
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as stream:
        answer = stream.read()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) <= 0, "the child has failed; see stderr"
    return json.loads(answer) if answer else None
