# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Runs upstream's own core tests on the fork and compares, test by test.

Some of upstream's tests fail without a GPU or a network, whoever runs them. So the
yardstick is not "all pass" but the unmodified release: ``expected/`` names the
tests that pass there. The fork with ``lru`` must pass the same ones. Where a policy
replaces the queue, those named in ``expected/may_differ.txt`` may fail, and only for
the reason given there: they read the linked list itself, or name LRU's victims.

    python -m tests.upstream.run                      the fork as it is, all files
    python -m tests.upstream.run test_prefix_caching --policy s3fifo
    python -m tests.upstream.run --policy lru --replace-lru
    python -m tests.upstream.run --stock --record     writes expected/ anew

Exit status: 0 the same passes, 1 something else, 2 it could not be run.
"""

import argparse
import difflib
import importlib.util
import os
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from fork import ForkError
from tests.upstream.fetch import CACHE, RELEASE, FetchError, fetch
from tests.upstream.hub_cache import make_hub_cache

HERE = Path(__file__).resolve().parent
PLUGINS = HERE / "plugins"
EXPECTED = HERE / "expected"
MAY_DIFFER = EXPECTED / "may_differ.txt"

#: Below upstream's ``tests/``: the core's own folder, and what of the connectors'
#: tests drives the block pool and passes on a CPU.
FILES = (
    "v1/core/prefix_cache/test_mamba_eagle_resume_checkpoint.py",
    "v1/core/prefix_cache/test_partial_prefix_cache_hits.py",
    "v1/core/prefix_cache/test_partial_prefix_cache_primitives.py",
    "v1/core/test_async_scheduler.py",
    "v1/core/test_contiguous_kv_packing.py",
    "v1/core/test_deferred_block_free.py",
    "v1/core/test_kv_cache_metrics.py",
    "v1/core/test_kv_cache_utils.py",
    "v1/core/test_mamba_align_chunk_split.py",
    "v1/core/test_prefix_caching.py",
    "v1/core/test_prefix_replay.py",
    "v1/core/test_priority_preemption_bug.py",
    "v1/core/test_scheduler.py",
    "v1/core/test_single_type_kv_cache_manager.py",
    "v1/core/test_swa_inflight_window_free.py",
    "v1/kv_connector/unit/offloading_connector/test_scheduler.py",
    "v1/kv_connector/unit/test_cache_pollution_prevention.py",
    "v1/kv_connector/unit/test_hisparse_connector.py",
    "v1/kv_connector/unit/test_invalid_blocks_correctness.py",
    "v1/kv_connector/unit/test_kv_load_failure_recovery.py",
    "v1/kv_connector/unit/test_remote_decode_lifecycle.py",
    "v1/kv_connector/unit/test_remote_prefill_lifecycle.py",
    "v1/simple_kv_offload/test_scheduler.py",
    "v1/test_kv_cache_spec_registry.py",
)

#: What upstream's tests import that vLLM does not install.
REQUIREMENTS = ("pytest", "pytest_asyncio", "pytest_timeout", "tblib")

TEST_TIMEOUT_S = 300


class RunError(RuntimeError):
    """The tests could not be run; the message is one line for the user."""


@dataclass
class Outcomes:
    """What became of the tests of one file, by node id within the file.

    Attributes:
        passed: In the order of the file.
        other: Outcome and first line of the reason.
    """

    passed: list[str] = field(default_factory=list)
    other: dict[str, str] = field(default_factory=dict)


def flat_name(file: str) -> str:
    """A file's name without folders; three of upstream's have the same last part."""
    return file.removesuffix(".py").replace("/", ".")


def expected_path(file: str) -> Path:
    """Where the names of the passing tests of an upstream file are kept."""
    return EXPECTED / (flat_name(file) + ".txt")


def read_names(path: Path) -> list[str]:
    """The lines of a list of names, without comments."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def choose_files(names: list[str]) -> list[str]:
    """The files that the command line names by the end of their path; else all.

    Raises:
        RunError: a name is none of ``FILES``.
    """
    chosen = []
    for name in names:
        wanted = "/" + name.removesuffix(".py")
        matches = [f for f in FILES if ("/" + f.removesuffix(".py")).endswith(wanted)]
        if not matches:
            stems = [Path(file).stem for file in FILES]
            near = difflib.get_close_matches(Path(name).stem, stems, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise RunError(f"no test file {name!r}; {hint}known: {', '.join(FILES)}")
        chosen += matches
    return chosen or list(FILES)


def stock_tree() -> Path:
    """The unmodified CPU wheel, unpacked; goes before the fork on the path.

    The fork's environment has all that upstream needs, so the unmodified release
    needs no environment of its own.
    """
    from fork.upstream import fetch as fetch_wheel
    from fork.upstream import select

    release = next(r for r in select(RELEASE) if r.device == "cpu")
    target = CACHE / f"stock-{release.version}-{release.sha256[:12]}"
    if not target.exists():
        wheel = fetch_wheel(release)
        partial = target.with_name(target.name + f".partial-{os.getpid()}")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(partial)
        partial.rename(target)
    return target


def test_environment(stock: bool, policy: str | None, replace_lru: bool) -> dict:
    """Environment of the process that runs the tests."""
    paths = [str(stock_tree())] if stock else []
    environment = {
        **os.environ,
        "HF_HOME": str(make_hub_cache(CACHE / "hub")),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([*paths, str(PLUGINS)]),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_TARGET_DEVICE": "cpu",
    }
    if policy is not None:
        environment["UPSTREAM_TEST_POLICY"] = policy
        environment["UPSTREAM_TEST_REPLACE_LRU"] = str(int(replace_lru))
    return environment


def run_file(
    root: Path, file: str, environment: dict, policy: str | None, logs: Path
) -> Outcomes:
    """Runs one file in a process of its own, with a progress bar.

    Args:
        root: folder that holds ``tests/``.
        file: below ``tests/``.
        environment: of the process.
        policy: forced, or None to leave everything as it is.
        logs: folder for pytest's output.

    Returns:
        The outcomes.

    Raises:
        RunError: pytest ended before it ran a test; the message holds its output.
    """
    from tqdm import tqdm

    log = logs / (flat_name(file) + ".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    found = log.with_suffix(".outcomes")
    found.write_text("")
    command = [sys.executable, "-m", "pytest", f"tests/{file}", "--tb=short", "-q"]
    command += ["-p", "no:cacheprovider", "-p", "upstream_outcomes"]
    command += [f"--timeout={TEST_TIMEOUT_S}"]
    if policy is not None:
        command += ["-p", "upstream_forced_policy"]
    environment = {**environment, "UPSTREAM_TEST_OUTCOMES": str(found)}
    total = len(read_names(expected_path(file))) or None
    bar = tqdm(total=total, desc=file, unit="test", leave=False, disable=None)
    with log.open("w") as output, bar:
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdout=output, stderr=output
        )
        try:
            while process.poll() is None:
                time.sleep(0.5)
                bar.n = found.read_text().count("\n")
                bar.refresh()
        finally:
            process.kill()
            process.wait()
    outcomes = Outcomes()
    for line in found.read_text().splitlines():
        outcome, node, reason = line.split("\t", 2)
        name = node.partition("::")[2]
        if outcome == "passed":
            outcomes.passed.append(name)
        else:
            outcomes.other[name] = f"{outcome}: {reason}"
    if not outcomes.passed and not outcomes.other:
        lines = [line for line in log.read_text().splitlines() if line.strip()]
        raise RunError(f"{file}: no test ran: {lines[-1] if lines else ''} ({log})")
    return outcomes


def compare(file: str, outcomes: Outcomes, queue_replaced: bool) -> tuple[str, bool]:
    """Says how the outcomes of a file differ from the unmodified release's.

    Args:
        file: below ``tests/``.
        outcomes: of the run.
        queue_replaced: the forced policy stands in the place of upstream's queue.

    Returns:
        A report of one or more lines, and whether the comparison holds.
    """
    expected = read_names(expected_path(file))
    passed = set(outcomes.passed)
    lost = [name for name in expected if name not in passed]
    rules = read_names(MAY_DIFFER) if queue_replaced else []
    reasons = dict(rule.split("\t") for rule in rules)
    allowed = [
        name
        for name in lost
        if (reason := reasons.get(f"{file}::{name}"))
        and reason in outcomes.other.get(name, "")
    ]
    wrong = [name for name in lost if name not in allowed]
    gained = sorted(passed - set(expected))
    summary = f"{file}: {len(passed)} passed, {len(expected)} expected"
    if allowed:
        summary += f", {len(allowed)} differ as listed"
    lines = [summary]
    lines += [
        f"  LOST {name} ({outcomes.other.get(name, 'not run')})" for name in wrong
    ]
    lines += [f"  passes, though not on the unmodified release: {n}" for n in gained]
    return "\n".join(lines), not wrong


def record(file: str, outcomes: Outcomes) -> None:
    """Writes the names of the passing tests of the unmodified release."""
    EXPECTED.mkdir(exist_ok=True)
    header = (
        f"# Tests of tests/{file} that pass on unmodified vllm-cpu {RELEASE}.\n"
        "# Written by: python -m tests.upstream.run --stock --record\n"
    )
    expected_path(file).write_text(header + "\n".join(outcomes.passed) + "\n")


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.upstream.run",
        description="Upstream's core tests, compared with the unmodified release.",
    )
    parser.add_argument("files", nargs="*", help="test files; all without any")
    parser.add_argument("--policy", help="force this eviction policy in every test")
    parser.add_argument(
        "--replace-lru",
        action="store_true",
        help="with --policy lru: the C++ LRU in the place of upstream's queue",
    )
    parser.add_argument(
        "--stock", action="store_true", help="the unmodified release, not the fork"
    )
    parser.add_argument(
        "--record", action="store_true", help="with --stock: write expected/"
    )
    arguments = parser.parse_args(argv)
    if arguments.record and not arguments.stock:
        parser.error("--record needs --stock: only the unmodified release is recorded")
    if arguments.stock and arguments.policy:
        parser.error("--policy needs the fork: the unmodified release has only LRU")
    if arguments.replace_lru and arguments.policy != "lru":
        parser.error("--replace-lru needs --policy lru")
    return arguments


def run(arguments: argparse.Namespace) -> bool:
    """Runs what the command line asks for and prints the report.

    Raises:
        RunError: a package is missing, or see ``choose_files`` and ``run_file``.
        FetchError: see ``fetch``.
    """
    files = choose_files(arguments.files)
    missing = [name for name in REQUIREMENTS if not importlib.util.find_spec(name)]
    if missing:
        raise RunError(
            f"not installed: {', '.join(missing)}; "
            "run: pip install -r requirements/test.txt"
        )
    root = fetch()
    environment = test_environment(
        arguments.stock, arguments.policy, arguments.replace_lru
    )
    queue_replaced = arguments.replace_lru or arguments.policy not in (None, "lru")
    # Runs under different policies may go on at the same time.
    replaced = "replaced" if arguments.replace_lru else ""
    who = "stock" if arguments.stock else "fork"
    logs = CACHE / "log" / "-".join(filter(None, [who, arguments.policy, replaced]))
    total, same = 0, True
    for file in files:
        outcomes = run_file(root, file, environment, arguments.policy, logs)
        total += len(outcomes.passed)
        if arguments.record:
            record(file, outcomes)
        report, holds = compare(file, outcomes, queue_replaced)
        print(report, flush=True)
        same = same and holds
    under = f" with {arguments.policy} forced" if arguments.policy else ""
    who = "unmodified release" if arguments.stock else "fork"
    verdict = "the same passes" if same else "NOT the same passes"
    print(f"{who} {RELEASE}{under}: {total} passed, {verdict}")
    return same


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    arguments = parse_arguments(argv)
    # So that whoever ends this ends pytest too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return 0 if run(arguments) else 1
    except (RunError, FetchError, ForkError) as error:
        print(f"tests.upstream.run: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
