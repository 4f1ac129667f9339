# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""vLLM's scheduler with requests that a test makes, and what became of them."""

import tempfile
from pathlib import Path
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.request import Request, RequestStatus

from tests.core.real_scheduler import (
    BLOCK_SIZE,
    draw_tokens,
    make_scheduler,
    write_model,
)


class DrivenScheduler:
    """A scheduler, and what a test does with it. Statistics are off, as in `LLM`.

    Args:
        num_blocks: Of the pool, the null block among them.
        policy: `--eviction-policy`.
        options: Of `make_scheduler`, and further fields of `CacheConfig`.

    Attributes:
        scheduler: vLLM's.
        preemptions: So far.
        hits: Of each request at its first admission, in tokens.

    """

    def __init__(self, num_blocks: int = 64, policy: str = "lru", **options: Any):
        init_none_hash(sha256)
        with tempfile.TemporaryDirectory() as folder:
            model = write_model(Path(folder))
            self.scheduler = make_scheduler(
                model, policy, num_blocks=num_blocks, **{"log_stats": False} | options
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
        """One scheduler step; the model says the same token to everyone."""
        output = self.scheduler.schedule()
        self.preemptions += len(output.preempted_req_ids or ())
        for new in output.scheduled_new_reqs:
            self.hits.setdefault(new.req_id, new.num_computed_tokens)
        answer = draw_tokens(self.scheduler, output, 7)
        self.scheduler.update_from_output(output, answer)

    def run(self) -> None:
        """Until every request has ended."""
        for _ in range(10_000):
            if not self.scheduler.has_unfinished_requests():
                return
            self.step()
        raise AssertionError("no progress")

    def abort(self, request: Request) -> None:
        """The client has gone away."""
        self.scheduler.finish_requests(
            request.request_id, RequestStatus.FINISHED_ABORTED
        )

    def close(self) -> None:
        """The engine stops."""
        self.scheduler.shutdown()
