# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Draws that are a function of a seed and their number: SplitMix64."""

MASK = 2**64 - 1


def split_mix_bits(seed: int, n: int) -> int:
    """Return the n-th 64 bits."""
    bits = (seed + (n + 1) * 0x9E3779B97F4A7C15) & MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK
    return bits ^ (bits >> 31)


def split_mix(seed: int, n: int) -> float:
    """Return the n-th draw from [0, 1)."""
    return (split_mix_bits(seed, n) >> 11) / 2**53


def split_mix_below(seed: int, n: int, bound: int) -> int:
    """Return the n-th draw from the whole numbers below a bound."""
    return (split_mix_bits(seed, n) >> 32) * bound >> 32
