# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0

PYTHON ?= python3
BIN := .venv/bin
DEMO := build/demo
# For `make test` and `make test-full`, for example PYTEST_OPTIONS=--require-tools
PYTEST_OPTIONS ?=
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST_OPTIONS)

.PHONY: help setup demo test test-full lint synth clean

help:
	@echo "make demo       generate an accelerator and simulate it on rows of real models"
	@echo "make test       format, lint, types and the quick tests"
	@echo "make test-full  all tests"
	@echo "make synth      synthesis, placement and routing with open tools"
	@echo "make setup      only .venv, with all that the others need"

setup: .venv/ready

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[sim,synth,dev]'
	@command -v iverilog >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		{ apt-get update --quiet && apt-get install --yes --quiet iverilog; } >/dev/null; } || \
		echo "Icarus Verilog is missing (apt-get install iverilog): tests with it will be skipped."
	@touch $@

demo: .venv/ready
	$(BIN)/haan generate --preset ecp5 --output $(DEMO)
	$(BIN)/python examples/real_rows.py $(DEMO)
	$(BIN)/haan simulate --preset ecp5 --input $(DEMO)/smollm2_rmsnorm.npz --output $(DEMO)/smollm2_rmsnorm_result.npz
	$(BIN)/haan simulate examples/ecp5_fp32_parameters.toml --input $(DEMO)/minilm_layernorm.npz --output $(DEMO)/minilm_layernorm_result.npz
	@echo "The Verilog of the preset ecp5 is in $(DEMO)/haan_axi.v, its registers in $(DEMO)/haan_registers.html, its ports and latencies in $(DEMO)/manifest.json."

test: lint
	$(PYTEST) -m "not slow"

test-full: lint
	$(PYTEST)

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

synth: .venv/ready
	$(BIN)/python bench/synth.py

clean:
	rm -rf build dist .venv
