# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The series holds on the releases that it is made for."""

import zipfile

import pytest

from fork import upstream
from fork.series import SERIES
from fork.tree import NOTICE, edit_tree, read_wheel

DEFAULT = upstream.default_release("cpu")


@pytest.mark.parametrize("release", upstream.RELEASES, ids=lambda r: r.name)
def test_every_edit_matches_once(release):
    # The CUDA wheels are 330 MB each: `python -m fork check` fetches them, this test
    # takes part where that has been done.
    if release != DEFAULT and not (upstream.cache_dir() / release.filename).is_file():
        pytest.skip(f"{release.filename} is not here; python -m fork check fetches it")
    with zipfile.ZipFile(upstream.fetch(release)) as wheel:
        result = edit_tree(read_wheel(wheel), SERIES)
    assert [str(failure) for failure in result.failures] == []
    for path, (before, after) in result.files.items():
        compile(after, path, "exec")
        assert after.decode().count(NOTICE) == 1
        # Edits add; apart from a return that is wrapped nothing of upstream's goes.
        gone = set(before.splitlines()) - set(after.splitlines())
        assert len(gone) <= 1, gone


def test_names_of_edits_are_unique_in_their_file():
    for file in SERIES:
        names = [(edit.scope, edit.name) for edit in file.edits]
        assert len(names) == len(set(names)), file.paths
