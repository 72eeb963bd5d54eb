# `make demo` and `make test` do their own set-up, in .venv of this folder; `make PYTHON=...` chooses the Python.

RUN := .venv/bin
export PYTHON

.PHONY: demo test test-all check docs bench pins clean

demo: .venv/.runtime
	$(RUN)/ct demo

test: .venv/.dev
	$(RUN)/pytest -m "not slow and not docker" -n 2 --dist loadfile

test-all: .venv/.dev
	$(RUN)/pytest -m "slow or docker" -n 2 --dist loadfile

check: .venv/.dev
	$(RUN)/ruff check
	$(RUN)/ruff format --check
	$(RUN)/basedpyright
	$(RUN)/lint-imports
	$(RUN)/python scripts/reference.py --check
	$(RUN)/python scripts/check_tree.py

docs: .venv/.dev
	$(RUN)/python scripts/reference.py

# Ratios against Inspect alone; on a machine that does nothing else.
bench: .venv/.dev
	$(RUN)/python -m benchmarks

# Choose the newest versions that fit and write them down with their hashes.
PIN := $(or $(shell command -v uv),$(RUN)/uv) pip compile pyproject.toml --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command "make pins"
pins:
	$(PIN) --all-extras --group build --group dev -o requirements/dev.txt
	$(PIN) --group build -c requirements/dev.txt -o requirements/runtime.txt
	$(PIN) --all-extras -c requirements/dev.txt -o requirements/providers.txt

clean:
	rm -rf .venv dist

.venv/.runtime: requirements/runtime.txt pyproject.toml scripts/install
	scripts/install runtime
	@touch $@

# Everything of runtime.txt is in dev.txt too, in the same version.
.venv/.dev: requirements/dev.txt pyproject.toml scripts/install
	scripts/install dev
	@touch $@ .venv/.runtime
