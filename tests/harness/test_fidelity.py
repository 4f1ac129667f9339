# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""The proof that engine, shadow and simulator are all right: they agree.

A policy decides over the blocks of vLLM's own scheduler (live), over those of its
shadow, fed by the hooks of that scheduler, and over those of the simulator, fed by
the trace. Three ways to the same hit rate, two of which share no code but the
policy's.

Live and simulator agree to the block, but for what a policy makes of the size of
the pool: live it is told of one block more, vLLM's null block. The shadow learns of
a request's output once a second and at its end, and so takes and fills those blocks
up to a second late.
"""

import pytest

from tests.harness.traffic import MIXES, traffic
from vllm.benchmarks.eviction.cost_models import from_flops
from vllm.benchmarks.eviction.harness import run_static
from vllm.benchmarks.eviction.replay import Candidate, replay
from vllm.benchmarks.eviction.virtual_engine import VirtualEngine
from vllm.v1.core.eviction.free_queue import install
from vllm.v1.core.eviction.hooks import EvictionHooks
from vllm.v1.core.eviction.model_flops import LoadedConfig, flops_of

pytestmark = pytest.mark.needs_upstream

POLICIES = ["lru", "s3fifo", "arc", "sieve"]
OF_SIMULATOR = 0.001  # as a hit rate: a tenth of a point
OF_SHADOW = 0.003

SHORT = {
    "agentic": 240.0,
    "chat": 480.0,
    "even": 360.0,
    "mooncake": 480.0,
    "miniswe": 600.0,
    "weka": 900.0,
    "dynamo": 600.0,
}
HOUR = {**dict.fromkeys(MIXES, 3600.0), "mooncake": 3600.0}


def _cases() -> list:
    short = [pytest.param(name, SHORT[name], id=name) for name in SHORT]
    hour = [
        pytest.param(name, HOUR[name], id=f"{name}-hour", marks=pytest.mark.slow)
        for name in HOUR
    ]
    return short + hour


def shadowed(name: str, seconds: float, policy: str) -> tuple[VirtualEngine, float]:
    """Run a trace with a policy live beside its own shadow.

    Returns:
        The engine after it, and the shadow's hit rate over full prompt blocks.

    """
    trace, num_blocks = traffic(name, seconds)
    other = "lru" if policy != "lru" else "s3fifo"
    options = {
        "eviction_policy": "adaptive",
        "eviction_config": {
            "candidates": [policy, other],
            "dry_run": True,
            "threaded": False,
        },
    }
    engine = VirtualEngine(trace, num_blocks, options)
    engine.run()
    host = engine.scheduler.eviction.host
    host.mark()
    _, _, hit_tokens, *_ = host.poll_answer()
    assert host.failure == "" and host.dropped == 0
    host.check()
    query_blocks = engine.result().query_blocks
    return engine, hit_tokens[0] / trace.block_size / query_blocks


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("name", "seconds"), _cases())
def test_live_shadow_and_simulator_agree(
    name: str, seconds: float, policy: str
) -> None:
    trace, num_blocks = traffic(name, seconds)
    engine, shadow = shadowed(name, seconds, policy)
    live = engine.result()
    simulated = replay(trace, num_blocks, Candidate(policy))
    print(
        f"{name} {seconds:.0f} s {policy}: live {100 * live.hit_rate:.3f} "
        f"shadow {100 * shadow:.3f} simulator {100 * simulated.hit_rate:.3f} % "
        f"of {live.query_blocks} blocks, {live.evictions} evictions"
    )
    assert live.evictions > num_blocks / 2, "the pool is not put to the test"
    assert live.query_blocks == simulated.query_blocks
    assert live.requests == simulated.requests
    assert live.hit_rate == pytest.approx(simulated.hit_rate, abs=OF_SIMULATOR)
    assert shadow == pytest.approx(live.hit_rate, abs=OF_SHADOW)
    engine.scheduler.eviction.queue.check()


@pytest.mark.parametrize("policy", ["gdsf", "asymcache"])
@pytest.mark.parametrize("name", ["chat", "mooncake"])
def test_they_agree_on_what_a_block_costs(name: str, policy: str) -> None:
    """The engine counts it from its model's config, the simulator is told."""
    seconds = SHORT[name]
    trace, num_blocks = traffic(name, seconds)
    engine, shadow = shadowed(name, seconds, policy)
    live = engine.result().hit_rate
    model = engine.scheduler.vllm_config.model_config.hf_text_config
    cost = from_flops(flops_of(LoadedConfig(model)), "the engine's")
    assert cost.per_token > 0
    simulated = replay(trace, num_blocks, Candidate(policy), cost=cost).hit_rate
    print(f"{name} {policy}: live {live:.5f} shadow {shadow:.5f} {simulated:.5f}")
    assert live == pytest.approx(simulated, abs=OF_SIMULATOR)
    # AsymCache weighs a block's age, in accesses, against its cost: that a shadow
    # learns of blocks up to a second late changes more of its order (half a point on
    # chats).
    late = OF_SHADOW if policy == "gdsf" else 2 * OF_SHADOW
    assert shadow == pytest.approx(live, abs=late)
    uniform = replay(trace, num_blocks, Candidate(policy)).hit_rate
    assert uniform != pytest.approx(simulated, abs=2 * OF_SIMULATOR)


@pytest.mark.parametrize("policy", POLICIES)
def test_shadows_beside_a_policy_do_not_change_it(policy: str) -> None:
    trace, num_blocks = traffic("even", 300.0)
    alone = run_static(trace, num_blocks, Candidate(policy))
    engine, _ = shadowed("even", 300.0, policy)
    assert engine.result().hit_blocks == alone.hit_blocks


@pytest.mark.parametrize("name", ["even", "mooncake", "miniswe"])
def test_lru_of_the_fork_is_upstreams_lru(name: str) -> None:
    trace, num_blocks = traffic(name, 300.0)
    upstream = VirtualEngine(trace, num_blocks, {"eviction_policy": "lru"})
    assert upstream.scheduler.eviction is None
    upstream.run()

    ours = VirtualEngine(trace, num_blocks, {"eviction_policy": "lru"})
    manager = ours.scheduler.kv_cache_manager
    queue = install(manager.block_pool, "lru", replace_lru=True)
    assert queue is not None
    ours.scheduler.eviction = EvictionHooks("lru", queue, manager)
    ours.run()

    assert ours.result() == upstream.result()
    assert _order(ours) == _order(upstream)


def _order(engine: VirtualEngine) -> list[int]:
    """Ids of all blocks in the order of their reuse."""
    queue = engine.scheduler.kv_cache_manager.block_pool.free_block_queue
    return [block.block_id for block in queue.get_all_free_blocks()]
