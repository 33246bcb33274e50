# Every target first creates a virtual environment in .venv with the tested versions.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
# Tests of the core, which needs no extra.
CORE_TESTS := tests/geometry tests/objectives tests/operators tests/energy tests/orthogonal tests/test_angular.py tests/test_neurons.py
INSTALL := $(PY) -m pip install -q --disable-pip-version-check -c constraints.txt

.PHONY: demo demo-faces test test-oldest coverage test-slow check bench bench-check attack reproduce docs pictures format clean
.DELETE_ON_ERROR:

demo: $(VENV)/.train
	$(PY) -m hypersphere.cli.main demo

# Recognize people on your photographs with a pretrained model, which is downloaded on first use:
#   make demo-faces KNOWN=members STRANGERS=strangers NEW=party.jpg
# KNOWN and STRANGERS contain one folder of photographs per person. The threshold is calibrated on STRANGERS (59 people for 0.05).
FACES := runs/demo-faces
FPIR ?= 0.05
demo-faces: $(VENV)/.faces
	@test -n "$(KNOWN)" -a -n "$(STRANGERS)" -a -n "$(NEW)" || \
		{ echo "usage: make demo-faces KNOWN=members STRANGERS=strangers NEW=party.jpg [FPIR=0.05]"; exit 2; }
	@mkdir -p $(FACES) && rm -f $(FACES)/known.db*
	$(VENV)/bin/hypersphere gallery enrol $(FACES)/known.db sface $(KNOWN)
	$(VENV)/bin/hypersphere gallery calibrate $(FACES)/known.db sface $(STRANGERS) --fpir $(FPIR)
	$(VENV)/bin/hypersphere gallery identify $(FACES)/known.db sface $(NEW)

# Bytecode is kept; otherwise every worker and every child process compiles a thousand files again. With worksteal, a worker gets
# whole files, so the fixtures of a file are usually set up once.
test: $(VENV)/.dev
	PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -n 2 --dist worksteal -m "not slow" $(ARGS)

# Run the core tests with the lowest versions that pyproject.toml allows, in a separate environment.
test-oldest: .venv-oldest/.core
	PYTHONDONTWRITEBYTECODE= .venv-oldest/bin/python -m pytest -n 2 --dist worksteal -m "not slow" $(CORE_TESTS) $(ARGS)

# Separate from the tests, because line tracing makes tests of compiled code ten times slower.
coverage: $(VENV)/.dev
	$(PY) -m pytest -n 2 -m "not slow" --cov --cov-report=term:skip-covered $(ARGS)

test-slow: $(VENV)/.dev
	$(PY) -m pytest -m slow $(ARGS)

check: $(VENV)/.dev
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

format: $(VENV)/.dev
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

bench: $(VENV)/.dev
	@for script in benchmarks/*.py; do case $$script in benchmarks/_*) ;; *) echo "== $$script"; $(PY) $$script || exit 1;; esac; done

# Measure the figures of the README again; fail if one differs by more than 15 %.
bench-check: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(PY) benchmarks/check_readme.py

# Run the missing runs of the study. This takes hours on one core and can be interrupted. `hypersphere data list` shows the datasets.
reproduce: $(VENV)/.train
	$(PY) -m studies.liu2020 --missing --threads 1 $(ARGS)

# make attack ARGS="images flips" runs only these attacks. Parts that have a row are repeated only with --again.
attack: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(PY) -m tests.attack $(ARGS)

docs: $(VENV)/.docs
	$(VENV)/bin/mkdocs build --strict

# Draw the pictures of the theory pages, which are stored in the repository.
pictures: $(VENV)/.train
	$(PY) docs/theory_pictures.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# Installed again when the metadata or the pinned versions change; the package itself is installed in place.
$(VENV)/.train: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e ".[train]" && touch $@

$(VENV)/.faces: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e ".[train,models]" && touch $@ $(VENV)/.train

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e ".[train,dev]" && touch $@ $(VENV)/.train

.venv-oldest/.core: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install -q --disable-pip-version-check -c constraints-oldest.txt -e . \
		pytest pytest-xdist pytest-randomly hypothesis beartype \
		scipy scikit-learn pytorch-metric-learning geotorch torch-geometric && touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e ".[docs]" && touch $@

clean:
	rm -rf $(VENV) .venv-oldest site .mypy_cache .ruff_cache .hypothesis
