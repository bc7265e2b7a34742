# On a fresh machine, `make demo` and `make test` set up their own environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
READY := $(VENV)/.ready
AVX2 := ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 NUMBA_CPU_NAME=haswell

.PHONY: demo test test-all torture test-avx2 test-spark check docs docs-pictures wheel bench paper clean

demo: $(READY)  ## learn an invented world, ask it questions, write a report
	$(BIN)/python -m examples.demo --out recollect-demo

test: $(READY)  ## the fast tests and all doctests
	$(BIN)/python -m pytest -m "not long"

test-all: $(READY)  ## the tests that `make test` leaves out
	$(BIN)/python -m pytest -m long

torture: $(READY)  ## the fault injection at full size: kills, concurrent writers, hostile files
	RECOLLECT_TORTURE=1 $(BIN)/python -m pytest tests/torture tests/serve/test_schema.py tests/serve/test_oracle.py -rA

test-avx2: $(READY)  ## the fast tests as on a CPU without AVX-512
	$(AVX2) $(BIN)/python -m pytest -m "not long"

test-spark: $(READY)  ## the tests that need Spark, which no other target installs: 450 MB, and Java 17
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark]'
	$(BIN)/python -m pytest tests/io/test_spark_events.py

check: $(READY)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.docs  ## the site of the documents, in build/site; `make test` runs every command and code block of them
	$(BIN)/python docs/prepare.py
	$(BIN)/python -m examples.live --out build/docs/live
	$(BIN)/zensical build --strict --config-file mkdocs.yml

docs-pictures: docs  ## every page of the site in Chromium, desktop and phone, in build/pictures
	$(BIN)/python -m examples.site_pictures

wheel: $(READY)  ## the package in dist/: the same sources give the same bytes
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

bench: $(READY)  ## ratios against references and bounds, measured in turns; needs minutes to hours
	$(BIN)/python -m benchmarks contests

paper: $(READY)  ## all tables and figures of the paper; hours, can be interrupted and continued
	$(BIN)/python -m paper all --out docs/results

clean:
	rm -rf $(VENV) recollect-demo

# torch first and by its exact pin: a range would fetch a build with gigabytes of accelerator libraries
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "recollect needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $$(grep '^torch==' constraints.txt) hatchling editables
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	touch $(READY)

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[docs]'
	touch $@
