# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`python -m fork`: check, diff, build, apply, revert, develop."""

import argparse
import os
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from fork import ROOT, ForkError, upstream

# Imported where they are needed, so that help and errors come at once.
TOOLS = ("libcst", "packaging", "tqdm")
COMMANDS = ("check", "diff", "build", "apply", "revert", "develop")


class _Parser(argparse.ArgumentParser):
    """Errors in one line, with the nearest command."""

    def error(self, message: str) -> NoReturn:
        if found := re.search(r"invalid choice: '(.*?)'", message):
            word = found[1]
            message = f"unknown command {word!r}: {upstream.nearest(word, [*COMMANDS])}"
        sys.stderr.write(f"{self.prog}: error: {message}\n")
        raise SystemExit(2)


def check(args: argparse.Namespace) -> int:
    """Prints, for each release, whether each edit matches once."""
    from fork.series import SERIES
    from fork.tree import edit_tree, read_wheel

    wheels: list[tuple[str, Path | upstream.Release]] = []
    if args.wheel:
        wheels = [(path.name, path) for path in args.wheel]
    elif args.releases:
        for selector in args.releases:
            wheels += [(r.name, r) for r in upstream.select(selector)]
    else:
        wheels = [(r.name, r) for r in upstream.RELEASES]

    failed = False
    for name, place in wheels:
        path = upstream.fetch(place) if isinstance(place, upstream.Release) else place
        with _open_wheel(path) as archive:
            result = edit_tree(read_wheel(archive), SERIES)
        last = ""
        print(name)
        for outcome in result.outcomes:
            if outcome.path != last:
                print(f"  {outcome.path}")
                last = outcome.path
            scope = outcome.edit.scope or "module"
            mark = "ok    " if outcome.problem is None else "FAILED"
            print(f"    {mark} {outcome.edit.name} ({scope})")
            if outcome.problem is not None:
                print(f"           {outcome.problem}")
        total, bad = len(result.outcomes), len(result.failures)
        print(f"  {total - bad} of {total} edits match once")
        failed = failed or bool(bad)
    return 1 if failed else 0


def diff(args: argparse.Namespace) -> int:
    from fork.diff import patch

    release, wheel = _source(args)
    sys.stdout.writelines(patch(wheel))
    return 0


def build(args: argparse.Namespace) -> int:
    from fork import extension
    from fork.wheel import build_wheel

    release, source = _source(args)
    module = _extension(args) or extension.build(args.python)
    print(build_wheel(release, source, module, args.out))
    return 0


def apply(args: argparse.Namespace) -> int:
    from fork import extension, graft
    from fork.environment import interpreter_of

    site = _site(args.dir)
    graft.find_upstream(site)  # before minutes of compiling
    python = args.python or interpreter_of(site)
    module = _extension(args) or extension.build(python)
    release, edited = graft.apply(site, module)
    print(f"{site}: {release.name} is now {release.fork_version}, {len(edited)} edited")
    return 0


def revert(args: argparse.Namespace) -> int:
    from fork import graft

    site = _site(args.dir)
    count = graft.revert(site)
    print(f"{site}: {count} files are as they were")
    return 0


def develop(args: argparse.Namespace) -> int:
    from fork.environment import refuse_other_vllm

    refuse_other_vllm()
    from fork import develop as development
    from fork import extension
    from fork.wheel import build_wheel

    release = _release(args)
    module = _extension(args) or extension.build()
    if not development.up_to_date(release):
        source = args.wheel or upstream.fetch(release)
        upstream.verify(release, source)
        wheel = build_wheel(release, source, module, ROOT / "build" / "wheel")
        development.install(release, wheel)
    count = development.link(module)
    print(f"vllm {release.fork_version}: {count} files linked to {ROOT}")
    return 0


def _release(args: argparse.Namespace) -> upstream.Release:
    if args.wheel and not args.release:
        return upstream.release_of(args.wheel)
    return upstream.select_buildable(args.release)


def _source(args: argparse.Namespace) -> tuple[upstream.Release, Path]:
    release = _release(args)
    if args.wheel:
        return release, upstream.verify(release, args.wheel)
    return release, upstream.fetch(release)


def _extension(args: argparse.Namespace) -> Path | None:
    if args.extension is None:
        return None
    if not args.extension.is_file():
        raise ForkError(f"no such extension module: {args.extension}")
    return args.extension.absolute()


def _site(path: Path | None) -> Path:
    if path is None:
        from fork.environment import site_of

        return site_of("vllm")
    if not path.is_dir():
        raise ForkError(f"no such folder: {path}")
    return path.absolute()


def _open_wheel(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise ForkError(f"cannot read the wheel {path}: {error}") from error


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m fork", description=__doc__)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="{" + ",".join(COMMANDS) + "}"
    )

    def command(run, words: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(run.__name__, help=words, description=words)
        sub.set_defaults(run=run)
        return sub

    names = ", ".join(r.name for r in upstream.RELEASES)
    sub = command(check, "does every edit match once?")
    sub.add_argument(
        "releases",
        nargs="*",
        metavar="RELEASE",
        help=f"a version, a device (cpu, cuda) or one of {names}; default: all",
    )
    sub.add_argument(
        "--wheel",
        type=Path,
        action="append",
        help="a wheel file instead, also of a release that is not pinned yet",
    )
    source = _Parser(add_help=False)
    source.add_argument(
        "--release", help="what to build from; default: by VLLM_TARGET_DEVICE"
    )
    source.add_argument(
        "--wheel", type=Path, help="the pinned wheel file, if it is here already"
    )
    binary = _Parser(add_help=False)
    binary.add_argument(
        "--extension", type=Path, help="a built _eviction_C module; default: build it"
    )
    python = _Parser(add_help=False)
    python.add_argument(
        "--python", type=Path, help="the interpreter that the extension is for"
    )
    for run, parents, words in (
        (diff, [source], "print the whole change as one patch"),
        (build, [source, binary, python], "build the wheel"),
        (apply, [binary, python], "make an installed upstream the fork, in place"),
        (revert, [], "undo apply, byte for byte"),
        (develop, [source, binary], "install here, linked to this checkout"),
    ):
        sub = commands.add_parser(
            run.__name__, parents=parents, help=words, description=words
        )
        sub.set_defaults(run=run)
        if run in (apply, revert):
            sub.add_argument(
                "dir",
                type=Path,
                nargs="?",
                metavar="DIR",
                help="the site-packages with vllm/; default: this interpreter's",
            )
        if run is build:
            sub.add_argument("-o", "--out", type=Path, default=Path("dist"))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 if a check failed, 2 for bad input."""
    args = _parser().parse_args(arguments)
    try:
        return args.run(args)
    except ForkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in TOOLS:
            raise
        print(
            f"error: {error.name} is not installed; "
            f"{sys.executable} -m pip install -r {ROOT / 'requirements' / 'build.txt'}",
            file=sys.stderr,
        )
        return 2
    except BrokenPipeError:  # fork diff | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    raise SystemExit(main())
