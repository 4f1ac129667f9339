# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What a policy has learnt, kept from one run of the engine to the next.

Numbers only, learnt from when blocks return: nothing of a prompt, no hash. A file is
replaced as a whole, so a reader sees the old one or the new one. What cannot be read
is no reason not to serve: one warning, and the policy learns anew.
"""

import json
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vllm.v1.core.eviction.whole_file import replace_file

if TYPE_CHECKING:
    from vllm._eviction_C import ShadowHost

# Not vllm.logger: the registry imports this module when a policy is made.
logger = logging.getLogger(__name__)

_FORMAT = "vllm-eviction-model"
_VERSION = 1
_SECONDS = 60.0
"""Between writes. A server's engine is killed when the server ends, unless it is given
a shutdown timeout."""


class _Learner(Protocol):
    def model(self) -> list[float]: ...
    def load_model(self, model: list[float]) -> bool: ...


def load_state(policy: _Learner, name: str, path: str) -> bool:
    """Give a policy what an earlier run of it learnt.

    Args:
        policy: Of `_eviction_C`, or a free queue with one.
        name: Of the policy; a file of another one is not used.
        path: The file. When there is none the policy starts anew, without a word.

    Returns:
        Whether it was loaded.

    """
    try:
        state = json.loads(Path(path).read_text(encoding="utf-8"))
        why = _fault(state, name)
        if why is None and not policy.load_model([float(x) for x in state["model"]]):
            why = "its model is not one of this version of the policy"
    except FileNotFoundError:
        return False
    except (OSError, ValueError, TypeError, RecursionError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
    if why is None:
        return True
    logger.warning(
        "State file %s of eviction policy %s is ignored: %s.", path, name, why
    )
    return False


def _fault(state: object, name: str) -> str | None:
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        return "it is no state file"
    if state.get("version") != _VERSION:
        return f"its version is {state.get('version')!r}, not {_VERSION}"
    if state.get("policy") != name:
        return f"it is of the policy {state.get('policy')!r}"
    if not isinstance(state.get("model"), list):
        return "it has no model"
    return None


def save_state(model: list[float], name: str, path: str) -> bool:
    """Write the model of a policy of that name; a fault is one warning.

    Returns:
        Whether it was written.

    """
    state = {
        "format": _FORMAT,
        "version": _VERSION,
        "policy": name,
        "model": model,
    }
    try:
        replace_file(path, json.dumps(state))
    except (OSError, ValueError) as error:  # ValueError: no path can be like that
        logger.warning(
            "What eviction policy %s has learnt could not be written: %s.", name, error
        )
        return False
    return True


class ShadowModel:
    """What a candidate's shadow has learnt, which outlives its turns as live policy.

    Args:
        host: Of the shadows.
        candidate: Its index.

    """

    def __init__(self, host: "ShadowHost", candidate: int):
        self._host = host
        self._candidate = candidate

    def model(self) -> list[float]:
        """As of the last time that the shadows were asked for their hits."""
        return self._host.model(self._candidate)

    def load_model(self, model: list[float]) -> bool:
        """Before the first event."""
        return self._host.load_model(self._candidate, model)


class StateKeeper:
    """Writes what a policy learns now and then, by a thread, and at the end.

    Args:
        policy: Whose model is empty once another policy has taken over: that has
            learnt nothing, and what was written stays.
        name: Of the policy.
        path: The file.

    """

    def __init__(self, policy: _Learner, name: str, path: str):
        self._policy = policy
        self._name = name
        self._path = path
        self._saved_at: float | None = None
        self._writing: threading.Thread | None = None

    def step(self, now: float) -> None:
        """Write if it is time.

        Args:
            now: Seconds, monotonic.

        """
        if self._saved_at is None:
            self._saved_at = now
        busy = self._writing is not None and self._writing.is_alive()
        if busy or abs(now - self._saved_at) < _SECONDS:
            return
        self._saved_at = now
        if model := self._policy.model():  # the disk may take its time
            self._writing = threading.Thread(
                target=save_state,
                args=(model, self._name, self._path),
                name="eviction-state",
                daemon=True,
            )
            self._writing.start()

    def wait(self) -> None:
        """Until what is being written is written; for tests."""
        if self._writing is not None:
            self._writing.join()

    def close(self) -> None:
        """Write for the last time."""
        if model := self._policy.model():
            save_state(model, self._name, self._path)
