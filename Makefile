# Every target is also one plain command; CONTRIBUTING.md lists them.
PYTHON ?= python3
PYTHONS ?= $(PYTHON)
VENV ?= .venv
OUT ?= out/audit
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# One thread a test worker: two workers that each want all cores wait for each other. Bytecode is kept even where the
# environment forbids it: the workers, and a hundred processes that tests start, would each compile everything anew.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: audit demo test coverage test-slow lint bench fuzz soak kill supply sbom docs tutorials site-test dist clean

audit: $(VENV)/.installed  ## set up, audit a small classifier on 5,000 digits, write out/audit/report.html
	$(BIN)/secondguess audit --out $(OUT)

demo: audit  ## pack the report of the audit into the package, for secondguess demo
	$(BIN)/python docs/make_demo.py $(OUT)

# A worker that keeps to its part of the tests makes what a module shares once; what is left at the end is shared out. Three
# for two cores: at almost any time one waits for a browser, a service or the disk.
TESTS := $(ONE_THREAD) PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist worksteal

test: $(VENV)/.installed-dev lint  ## set up with the development extras; lint, types, tests
	$(TESTS)

coverage: $(VENV)/.installed-dev  ## the same tests, traced line by line, for which they take half as long again
	$(TESTS) --cov --cov-report=term

test-slow: $(VENV)/.installed-dev  ## the checks that take minutes
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev
	$(BIN)/secondguess bench observe
	$(BIN)/secondguess bench fleet
	$(BIN)/secondguess bench ambiguess
	$(BIN)/secondguess bench corruptions
	$(BIN)/secondguess bench surprise
	$(BIN)/secondguess bench search
	$(BIN)/secondguess bench guard

fuzz: $(VENV)/.installed-dev  ## thousands of altered files for every parser; other ones each time
	SECONDGUESS_FUZZ_EXAMPLES=$${SECONDGUESS_FUZZ_EXAMPLES:-2000} SECONDGUESS_FUZZ_SEED=$${SECONDGUESS_FUZZ_SEED:-$$(date +%s)} \
	  $(ONE_THREAD) $(BIN)/python -m pytest tests/fuzz

soak: $(VENV)/.installed-dev  ## half an hour of good and bad callers of the service
	$(BIN)/secondguess bench soak

kill: $(VENV)/.installed-dev  ## kill every long command at random moments, run it again, compare
	$(BIN)/secondguess bench kill

supply: $(VENV)/.installed-dev  ## licences, and known vulnerabilities where pypi.org can be reached
	$(BIN)/python -m secondguess_lab.supply licences
	-$(PIP) install --quiet pip-audit
	$(BIN)/python -m secondguess_lab.supply audit

sbom: $(VENV)/.installed-dev  ## the bill of materials of a release
	$(BIN)/python -m secondguess_lab.supply sbom --out dist/secondguess.cdx.json

docs: $(VENV)/.installed-dev  ## check the documentation, run its gallery, build site/ to be read offline
	$(PIP) install --quiet -c constraints.txt -e ".[docs]"
	$(ONE_THREAD) $(BIN)/python docs/build.py

tutorials: $(VENV)/.installed-dev  ## type the tutorials and run the examples of the gallery, as slow tests do
	$(ONE_THREAD) $(BIN)/python -m pytest -m slow tests/test_tutorials.py tests/test_gallery.py

site-test: docs  ## build the site, then read it in a browser: both widths, both schemes, without the net
	$(ONE_THREAD) $(BIN)/python -m pytest -m slow tests/test_site.py

dist: $(VENV)/.installed-dev  ## build both packages, check them, use their wheels in an empty environment of each of PYTHONS
	$(PIP) install --quiet build twine
	rm -f dist/*.whl dist/*.tar.gz
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist lab
	$(BIN)/python -m twine check --strict dist/*.whl dist/*.tar.gz
	for python in $(PYTHONS); do .ci/smoke "$$python" || exit 1; done

clean:
	rm -rf $(VENV) out build dist site docs/generated docs/gallery/built .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e ".[attacks,explain]"
	touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml lab/pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e ".[dev]" -e lab
	touch $@ $(VENV)/.installed
