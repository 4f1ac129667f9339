# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What a policy has learnt, kept from one run of the engine to the next.

Numbers only, learnt from when blocks return: nothing of a prompt, no hash. A file is
replaced as a whole, so a reader sees the old one or the new one. What cannot be read
is no reason not to serve: one warning, and the policy learns anew.
"""

import json
import logging
from pathlib import Path
from typing import Protocol

from vllm.v1.core.eviction.whole_file import replace_file

# Not vllm.logger: the registry imports this module when a policy is made.
logger = logging.getLogger(__name__)

_FORMAT = "vllm-eviction-model"
_VERSION = 1


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


def save_state(policy: _Learner, name: str, path: str) -> bool:
    """Write what a policy has learnt; see `write_model`."""
    return write_model(policy.model(), name, path)


def write_model(model: list[float], name: str, path: str) -> bool:
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
