# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""RECORD, the list by which pip removes what it installed (PEP 376, PEP 427)."""

import base64
import csv
import hashlib
import io


def digest(data: bytes) -> str:
    """The hash field of a row: sha256, url-safe base64 without padding."""
    raw = hashlib.sha256(data).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def row(path: str, data: bytes) -> tuple[str, str, str]:
    return path, digest(data), str(len(data))


def unhashed(path: str) -> tuple[str, str, str]:
    """A row for what may change after the installation: RECORD itself, links."""
    return path, "", ""


def parse(data: bytes) -> dict[str, tuple[str, str, str]]:
    """Rows by path, in the order of the file."""
    rows = csv.reader(io.StringIO(data.decode()))
    return {r[0]: (r[0], r[1], r[2]) for r in rows if r}


def render(rows: dict[str, tuple[str, str, str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows.values())
    return text.getvalue().encode()
