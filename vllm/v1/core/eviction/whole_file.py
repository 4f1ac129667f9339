# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Replaces a file as a whole: a reader sees the old one or the new one.

With the rights that any new file has, because who reads it is perhaps not who wrote it.
"""

import os
import secrets
from pathlib import Path


def replace_file(path: str | Path, text: str) -> None:
    """Write, flush to the disk, and only then put it in place.

    Args:
        path: The file; need not be there.
        text: All that it is to hold.

    Raises:
        OSError: It cannot be written. What was there is still there.
        ValueError: The path names no file.

    """
    target = Path(path)
    new = target.with_name(f"{target.name}.{secrets.token_hex(8)}")
    try:
        with new.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
