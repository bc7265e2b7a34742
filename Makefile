# On a fresh machine, `make demo` and `make test` set up their own environment.
PYTHON ?= python3
VENV := .venv
CONSTRAINTS := constraints.txt
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
READY := $(VENV)/.ready
PIP := -m pip install --quiet --disable-pip-version-check
PINNED := $(PIP) $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
WHEEL = dist/recollect-$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)-py3-none-any.whl
AVX2 := ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 NUMBA_CPU_NAME=haswell

.PHONY: demo test test-all test-lowest test-newest test-wheel torture test-avx2 test-spark check docs docs-pictures wheel sbom bench paper clean

demo: $(READY)  ## learn an invented world, ask it questions, write a report
	$(BIN)/python -m examples.demo --out recollect-demo

test: $(READY)  ## the fast tests and all doctests
	$(BIN)/python -m pytest -m "not long"

test-all: $(READY)  ## the tests that `make test` leaves out
	$(BIN)/python -m pytest -m long

# an old version of one dependency uses what a newer one of another deprecates
test-lowest:  ## the fast tests with the oldest versions that pyproject.toml admits
	PYTEST_ADDOPTS="-W default::DeprecationWarning" $(MAKE) test VENV=.venv-lowest CONSTRAINTS=constraints-lowest.txt

test-newest:  ## the fast tests with the newest versions that can be had; on Linux, PyTorch's is one for CUDA
	$(MAKE) test VENV=.venv-newest CONSTRAINTS=

test-wheel: sbom  ## the wheel in an environment of its own: a first answer, types, licences, the bill of materials
	RECOLLECT_WHEEL_PYTHON=.venv-wheel/$(SCRIPTS)/python $(BIN)/python -m pytest -m long tests/test_installed.py -rA

torture: $(READY)  ## the fault injection at full size: kills, concurrent writers, hostile files
	RECOLLECT_TORTURE=1 $(BIN)/python -m pytest tests/torture tests/serve/test_schema.py tests/serve/test_oracle.py -rA

test-avx2: $(READY)  ## the fast tests as on a CPU without AVX-512
	$(AVX2) $(BIN)/python -m pytest -m "not long"

test-spark: $(READY)  ## the tests that need Spark, which no other target installs: 450 MB, and Java 17
	$(BIN)/python $(PINNED) -e '.[spark]'
	$(BIN)/python -m pytest tests/io/test_spark_events.py

check: $(READY)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.docs  ## the site of the documents, in build/site; `make test` and `make test-all` run their commands and code
	$(BIN)/python docs/prepare.py
	$(BIN)/python -m examples.live --out build/docs/live
	$(BIN)/zensical build --strict --config-file mkdocs.yml

docs-pictures: docs  ## every page of the site in Chromium, desktop and phone, in build/pictures
	$(BIN)/python -m examples.site_pictures

wheel: $(READY)  ## the package in dist/: the same sources give the same bytes
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

sbom: wheel  ## what the wheel installs, as CycloneDX: build/recollect.cdx.json
	rm -rf .venv-wheel .venv-sbom
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/$(SCRIPTS)/python $(PIP) $$(grep '^torch==' constraints.txt)
	.venv-wheel/$(SCRIPTS)/python $(PIP) $(WHEEL)
	$(PYTHON) -m venv .venv-sbom
	.venv-sbom/$(SCRIPTS)/python $(PIP) cyclonedx-bom==7.5.0
	mkdir -p build
	.venv-sbom/$(SCRIPTS)/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
		--output-file build/recollect.cdx.json .venv-wheel/$(SCRIPTS)/python

bench: $(READY)  ## ratios against references and bounds, measured in turns; needs minutes to hours
	$(BIN)/python -m benchmarks contests

paper: $(READY)  ## all tables and figures of the paper; hours, can be interrupted and continued
	$(BIN)/python -m paper all --out docs/results

clean:
	rm -rf .venv .venv-* recollect-demo

# torch first and by its exact pin: a range would fetch a build with gigabytes of accelerator libraries
$(READY): pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "recollect needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PINNED) $(if $(CONSTRAINTS),$$(grep '^torch==' $(CONSTRAINTS))) hatchling editables
	$(BIN)/python $(PINNED) --no-build-isolation -e '.[dev]'
	touch $(READY)

$(VENV)/.docs: $(READY)
	$(BIN)/python $(PINNED) --no-build-isolation -e '.[docs]'
	touch $@
