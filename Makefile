# make demo [DATA=<your data>] [IMAGES=<folder>]   set up, and run the demo
# make test                                        set up, and run lint, type check and tests
# make test-all                                    the same, with more examples for each law and all combinations
# make test-readers                                set up once more, and compare readers with py123d and av2
# make gpu-check                                   set up, and check a machine with a GPU, in ten minutes at most
# make mutants [MUTANTS="--count 40 --only sampling"]   make small changes to the packages that tests must notice
# make durations                                   run all tests, and write what each file of them takes
# make docs | bench | wheel-test | clean           what the names say
# make canary                                      the tests with the newest DALI, in an environment of their own
# make test-matrix [MATRIX="--python 3.12"]        the wheel with each Python and each wheel of DALI, in empty environments
# make lock                                        write the versions that all these install

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?=
MUTANTS ?=
IMAGES ?=
OUTPUT ?= demo_output
# Versions of what is installed, for Python 3.10 to 3.14: tests that pass today pass tomorrow.
CONSTRAINTS := tests/constraints.txt
INSTALL := -m pip install -q -c $(CONSTRAINTS)
# What tests compare with. It asks for packages of its time (NumPy 1, Shapely 1); those in `test` do.
DEVKIT := nuscenes-devkit==1.1.11
# Two more, with what they ask for (notebooks, Ray, another PyAV), get an environment of their own.
READERS := build/readers/venv
PY123D := py123d==0.7.0
AV2 := av2==0.3.6
# Tests run file by file, by tests/durations.txt: the longest are not among the last. In more processes
# than there are cores, since tests wait: for workers to start and to end, for other processes, for time to pass.
# Where one of these processes is lost, the run ends: several at once would end it without naming what they ran.
PYTEST := -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart=0

# Without GPUs: once CUDA is initialised in a process, DALI forks no workers there. `make gpu-check` runs tests of GPUs.
HIDDEN := CUDA_VISIBLE_DEVICES=""

# Tests start hundreds of processes, and each would compile the package anew; pytest would compile the tests twice.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all pytest durations test-readers mutants lint types docs bench gpu-check wheel-test test-matrix canary lock clean

demo: $(VENV)/demo.stamp
	$(BIN)/python examples/driving_data/demo.py --data "$(DATA)" --images "$(IMAGES)" --output "$(OUTPUT)"

# Types are checked beside the tests: while these wait, a core is free.
test: lint
	$(MAKE) -j 2 types pytest

test-all: lint
	$(MAKE) -j 2 types pytest OPTIONS=--wide

pytest: $(VENV)/test.stamp
	$(HIDDEN) $(BIN)/python $(PYTEST) $(OPTIONS)

durations: $(VENV)/test.stamp
	$(HIDDEN) $(BIN)/python $(PYTEST) --wide -p support.durations

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

mutants: $(VENV)/test.stamp
	$(HIDDEN) $(BIN)/python tests/mutants.py $(MUTANTS)

types: $(VENV)/test.stamp
	$(BIN)/mypy

docs: $(VENV)/test.stamp
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

# A file of figures and a page with tables, in benchmarks/results, and the table of prices in the docs.
bench: $(VENV)/bench.stamp
	$(BIN)/python benchmarks/bench.py

gpu-check: $(VENV)/gpu.stamp
	$(BIN)/python benchmarks/gpu_check.py

# The tests against a built wheel, in a folder without the source.
wheel-test: $(VENV)/test.stamp
	rm -rf build/wheel
	$(BIN)/python -m pip wheel -q --no-deps -w build/wheel/dist .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/python $(INSTALL) "$$(ls $(CURDIR)/build/wheel/dist/*.whl)[test]"
	build/wheel/venv/bin/python -m pip install -q --no-deps $(DEVKIT)
	mkdir build/wheel/elsewhere
	cp -r tests docs examples benchmarks README.md CHANGELOG.md CONTRIBUTING.md Makefile LICENSE pyproject.toml \
		build/wheel/elsewhere/
	cd build/wheel/elsewhere && $(HIDDEN) ../venv/bin/python $(PYTEST)

test-matrix: $(VENV)/bin/python
	$(HIDDEN) $(BIN)/python tests/matrix.py $(MATRIX)

# Says early when a new release of DALI changes a private name that the package uses.
canary:
	rm -rf build/canary
	$(PYTHON) -m venv build/canary
	build/canary/bin/python $(INSTALL) -e ".[test]"
	build/canary/bin/python -m pip install -q --upgrade nvidia-dali-cuda120
	$(HIDDEN) CANARY=1 build/canary/bin/python $(PYTEST) --wide

lock: $(VENV)/bin/python
	$(BIN)/python -m pip install -q uv
	$(BIN)/uv pip compile -q --universal --upgrade --python-version 3.10 --extra test --no-annotate --no-header \
		--output-file $(CONSTRAINTS) pyproject.toml

test-readers: build/readers/stamp
	$(HIDDEN) $(READERS)/bin/python -m pytest tests/driving_data/datasets/test_arrow_logs.py tests/driving_data/datasets/test_argoverse.py

build/readers/stamp: pyproject.toml
	$(PYTHON) -m venv $(READERS)
	$(READERS)/bin/python -m pip install -q -e ".[arrow]" $(PY123D) $(AV2) torch==2.13.0 simplejpeg \
		opencv-python-headless==5.0.0.93 hypothesis psutil pytest pytest-timeout
	$(READERS)/bin/python -m pip install -q --no-deps "av>=17,<19"
	touch $@

clean:
	rm -rf $(VENV) build dist docs/_build $(OUTPUT)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# `pip install` is repeated when the list of dependencies has changed.
$(VENV)/demo.stamp: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	$(BIN)/python $(INSTALL) -e ".[examples]"
	touch $@

$(VENV)/bench.stamp: $(VENV)/test.stamp
	$(BIN)/python -m pip install -q --no-deps torchcodec==0.13.0
	touch $@

# What PyTorch is compared by; where it cannot be fetched, the check says that this was left out.
$(VENV)/gpu.stamp: $(VENV)/test.stamp
	$(BIN)/python -m pip install -q --no-deps torchvision==0.28.0 && touch $@ || true

$(VENV)/test.stamp: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	$(BIN)/python $(INSTALL) -e ".[test]"
	$(BIN)/python -m pip install -q --no-deps $(DEVKIT)
	# Compiles the tests once; each of the processes that run them would.
	$(HIDDEN) $(BIN)/python -m pytest --collect-only -q > /dev/null || true
	touch $@ $(VENV)/demo.stamp
