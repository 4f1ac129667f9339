# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""Eviction policies for the engine's prefix cache.

Import what you need from the modules; this package imports nothing by itself,
because `vllm.config` reaches into it long before the engine exists.
"""
