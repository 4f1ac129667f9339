# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Builds the C++ core, the module `vllm._eviction_C`.

The build is CMake's and ninja's; this only finds the tools where pip put them and
keeps one build folder for each interpreter, so that a second build compiles what
has changed and nothing else.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from fork import ROOT, ForkError

MODULE = "_eviction_C"


def build_folder(python: Path, root: Path = ROOT) -> Path:
    return root / "build" / f"cmake-{interpreter_tag(python)}"


def interpreter_tag(python: Path) -> str:
    """For example `cpython-311-x86_64-linux-gnu`."""
    return extension_suffix(python).removesuffix(".so").lstrip(".")


def extension_suffix(python: Path) -> str:
    """What the interpreter's extension modules end with.

    Raises:
        ForkError: it does not run.
    """
    if python.absolute() == Path(sys.executable).absolute():
        return str(sysconfig.get_config_var("EXT_SUFFIX"))
    code = "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"
    try:
        done = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ForkError(f"{python} is not a working Python interpreter") from error
    return done.stdout.strip()


def python_tags(extension: Path) -> tuple[str, str]:
    """Wheel tags (interpreter, ABI) that an extension module can be used with.

    nanobind's stable ABI begins at Python 3.12.
    """
    if ".abi3." in extension.name:
        return "cp312", "abi3"
    if found := re.search(r"\.cpython-(\d+)", extension.name):
        return f"cp{found[1]}", f"cp{found[1]}"
    raise ForkError(
        f"{extension.name}: the file name of an extension module names its ABI, for "
        f"example {MODULE}.cpython-311-x86_64-linux-gnu.so or {MODULE}.abi3.so"
    )


def build(
    python: Path | None = None, *, folder: Path | None = None, root: Path = ROOT
) -> Path:
    """Builds the extension for an interpreter, by default the running one.

    Returns:
        The path of the module.

    Raises:
        ForkError: a tool is missing or the build fails.
    """
    python = python or Path(sys.executable)
    folder = folder or build_folder(python, root)
    if not (root / "CMakeLists.txt").is_file():
        raise ForkError(f"no CMakeLists.txt in {root}: not a checkout of the fork")
    cmake, ninja = _tool("cmake"), _tool("ninja")
    settings = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_MAKE_PROGRAM": ninja,
        "Python_EXECUTABLE": str(python),
        "nanobind_DIR": _nanobind_folder(),
    }
    stamp = folder / "fork-settings.json"
    wanted = json.dumps(settings, indent=1)
    if not stamp.is_file() or stamp.read_text() != wanted:
        # CMake caches what it found with the old settings; begin anew.
        shutil.rmtree(folder, ignore_errors=True)
        options = [f"-D{key}={value}" for key, value in settings.items()]
        _run([cmake, "-S", str(root), "-B", str(folder), "-G", "Ninja", *options])
        stamp.write_text(wanted)
    _run([cmake, "--build", str(folder)])
    modules = sorted(folder.glob(f"{MODULE}*.so"))
    if len(modules) != 1:
        raise ForkError(f"{folder} holds {len(modules)} modules {MODULE}*.so, not one")
    return modules[0]


def _run(command: list[str]) -> None:
    """Runs a step quietly; what it printed is shown if it fails."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.stderr.write(done.stdout)
        raise ForkError(f"building the C++ core failed: {' '.join(command[:4])} …")


def _tool(name: str) -> str:
    # The tools that pip installed beside this interpreter come first, also where
    # its environment is not activated.
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ.get("PATH", os.defpath)])
    if found := shutil.which(name, path=path):
        return found
    raise ForkError(
        f"{name} not found; {sys.executable} -m pip install -r requirements/build.txt"
    )


def _nanobind_folder() -> str:
    spec = importlib.util.find_spec("nanobind")
    if spec is None or spec.origin is None:
        raise ForkError(
            "nanobind not found; "
            f"{sys.executable} -m pip install -r requirements/build.txt"
        )
    return str(Path(spec.origin).parent / "cmake")
