# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The `eviction` subcommand of `vllm bench`: the lab."""

import argparse

from vllm.entrypoints.cli.benchmark.base import BenchmarkSubcommandBase
from vllm.utils.argparse_utils import FlexibleArgumentParser

from vllm.benchmarks.eviction.cli import add_cli_args, main


class BenchmarkEvictionSubcommand(BenchmarkSubcommandBase):
    """Replays recorded traffic under other eviction policies; no model, no GPU."""

    name = "eviction"
    help = "Replay a trace under other prefix-cache eviction policies."

    @classmethod
    def add_cli_args(cls, parser: FlexibleArgumentParser) -> None:
        add_cli_args(parser)

    @staticmethod
    def cmd(args: argparse.Namespace) -> None:
        status = main(args)
        if status:
            raise SystemExit(status)
