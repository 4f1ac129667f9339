# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""vLLM's scheduler with real requests, step by step; the model always says the same."""

from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from vllm.benchmarks.eviction.null_engine import make_scheduler

BLOCK_SIZE = 4  # tokens


class DrivenScheduler:
    """A scheduler, and what a test does with it.

    Args:
        num_blocks: Of the pool.
        max_running: Requests at a time.
        log_stats: Off by default, as in `LLM`.
        cache_options: Fields of `CacheConfig`.

    """

    def __init__(
        self,
        num_blocks: int = 64,
        max_running: int = 8,
        log_stats: bool = False,
        **cache_options: Any,
    ):
        init_none_hash(sha256)
        self.scheduler = make_scheduler(
            num_blocks, BLOCK_SIZE, max_running, cache_options, log_stats
        )
        self.preemptions = 0
        self.hits: dict[str, int] = {}
        self._added = 0

    def add(self, tokens: list[int], output: int = 1, arrival: float = 0.0) -> Request:
        """A request waits to be admitted."""
        self._added += 1
        request = Request(
            request_id=f"r{self._added}",
            prompt_token_ids=tokens,
            sampling_params=SamplingParams(max_tokens=output, ignore_eos=True),
            pooling_params=None,
            arrival_time=arrival,
            block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
        )
        self.scheduler.add_request(request)
        return request

    def step(self) -> None:
        """One scheduler step, and a token for each request in it."""
        output = self.scheduler.schedule()
        self.preemptions += len(output.preempted_req_ids or ())
        for new in output.scheduled_new_reqs:
            self.hits.setdefault(new.req_id, new.num_computed_tokens)
        ids = list(output.num_scheduled_tokens)
        self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={request_id: i for i, request_id in enumerate(ids)},
                sampled_token_ids=[[7] for _ in ids],
            ),
        )

    def run(self) -> None:
        """Until every request has ended."""
        while self.scheduler.requests:
            self.step()

    def abort(self, request: Request) -> None:
        """The client has gone away."""
        self.scheduler.finish_requests(
            request.request_id, RequestStatus.FINISHED_ABORTED
        )

    def close(self) -> None:
        """The engine stops."""
        self.scheduler.shutdown()
