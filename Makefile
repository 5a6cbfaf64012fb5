# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# `make demo` and `make test` are all a newcomer needs; both install what they use.
# Everything that is made lands in build/; `make clean` takes it away again.

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# some images of containers set it: each process of the tests would then compile all that it imports, and pytest all tests
unexport PYTHONDONTWRITEBYTECODE

# the image of the demo's guests: tiny (boots in seconds) or debian
GUEST ?= tiny
# what `make demo` shows: a few jobs (jobs), or one that outlives its nodes (survive)
STORY ?= jobs
LAB := build/runtime/bin/python -m lab
LAB_DIRECTORY := $(or $(VTORQUE_LAB),/run/vtorque-lab)
# the batch system of `make demo` and `make lab`: what acts like Torque, or a real Slurm (slurm); `make e2e BATCH=slurm`: tests on that alone
BATCH ?= torque
STORY ?= jobs
# labs in which end-to-end tests run side by side
LABS ?= 2
# end-to-end tests on nodes of the lab itself (docs/developer/testing.md says why); the others run where the roles have installed
FURNISHED := $(patsubst %,tests/e2e/test_%.py,clones debian documentation image_trial long_names mpi suggestions x11)
# other tests that run side by side: most of them wait
TESTS ?= 4
# unit tests that do: each process of theirs takes 10 s of a processor to collect them all, and those of programs wait half of the time
UNIT_TESTS ?= 3
FRESH ?= make demo
# FULL=1: also what `make test` leaves out, to be through in a third of the time (docs/developer/testing.md)
FULL ?=
SHORT := $(if $(FULL),,-m "not full")
# how guests start in those files of `make e2e` that do not say it themselves
START_WAY := $(if $(FULL),fast,warm)
SOAK ?= 500
FUZZ ?= 1000000
# faults in what happens to jobs, beside those at each step (tests/e2e/faults)
FAULTS := $(patsubst %,tests/e2e/test_%.py,endings phases killed guest_faults node_faults site_faults batch_server swept lost_node lost_guest \
many_verdicts left_processes hung clock untrue mixed)
PY := build/venv/bin/python
IMPORT := build/import/ansible_collections/mikelangelo/vtorque
# a run in the background, or under nohup, has signals ignored that hooks and jobs must not meet
PYTEST := env --default-signal PYTHONPATH=build/import $(PY) -m pytest
# tests that become other users in this process: these may not lean on what only this checkout lets them read
CLOSED := tests/closed.sh
POOL := build/pool
# the commands that end well record what they ran with: tests/support.py
RECORD := $(PY) tests/support.py record
# what may differ with the releases of libvirt, QEMU, nftables, Slurm and Python, in a few minutes
JOBS := $(addprefix tests/e2e/,test_kinds.py test_warm.py attacks/test_hostile_guest.py slurm/test_one_job.py \
slurm/test_suspended.py test_checkpoint.py)

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# what people type

.PHONY: demo lab down
demo: ## install what is needed, run a few jobs in virtual machines on this machine (GUEST=tiny|debian BATCH=torque|slurm; STORY=survive: a job that outlives its nodes; STORY=devices: one by KVM, in an emulated machine)
	@GUEST=$(GUEST) BATCH=$(BATCH) STORY=$(STORY) lab/demo.sh

lab: ## leave a small cluster running on this machine (BATCH=torque|slurm), and say what to type next
	@GUEST=$(GUEST) BATCH=$(BATCH) lab/demo.sh --stay

down: ## end the cluster of `make lab`
	@if [ -x build/runtime/bin/python ]; then $(LAB) down; [ ! -e $(LAB_DIRECTORY)-machine ] || $(LAB) machine down; else echo "no lab was ever raised here"; fi
	@for lab in $(LAB_DIRECTORY)-gw* $(LAB_DIRECTORY)-slurm; do [ ! -e "$$lab" ] || VTORQUE_LAB=$$lab $(LAB) down; done

.PHONY: test
test: prepare-test ## install what is needed and run checks and tests (FULL=1: all of them, in three times the time)
	@# hosts, guests and jobs are waited for most of the time; the others take what these leave, and last what has many processes.
	@# In two chains they took so much of that at the start that guests of Debian did not boot in time: daemons are no children
	@MAKE=$(MAKE) tests/parts.sh "molecule-hosts kvm" e2e -- check docs oldest sanity integration galaxy lab-tests molecule-image unit

# the parts of `make test`, each of which runs alone

.PHONY: prepare prepare-test runtime images debian-image
prepare:
	@lab/prepare.sh demo

prepare-test: $(IMPORT)
	@lab/prepare.sh test

# the import path of a collection, for tools that read the sources in place
$(IMPORT):
	@mkdir -p $(@D) && ln -sfn ../../../.. $@

runtime: prepare
	@$(LAB) runtime

images: runtime
	@: 'parts of make test that want them run side by side'; exec 9>build/images.lock && flock 9 && \
	for guest in tiny tiny-9p tiny-osv; do $(LAB).guests $$guest --pool $(POOL) || exit; done

debian-image: runtime
	@lab/debian_image.sh $(POOL)

.PHONY: check unit oldest sanity integration galaxy molecule molecule-hosts molecule-image lab-tests kvm e2e
check: prepare-test ## ruff, mypy, import-linter, shellcheck, ansible-lint, antsibull-docs, prose of the documentation
	@echo "== check"
	@$(PY) -m ruff check . && $(PY) -m ruff format --check .
	@cd build/import && MYPYPATH=.:../.. ../venv/bin/mypy --config-file ../../pyproject.toml \
	-p ansible_collections.mikelangelo.vtorque.plugins -p lab -p tests.bench -p tests.e2e
	@PYTHONPATH=build/import:. build/venv/bin/lint-imports --no-logo
	@shellcheck -x $$(git ls-files '*.sh') .ci/run
	@$(PY) tests/prose.py
	@$(PY) tests/sizes.py
	@tests/collection.sh lint

unit: prepare-test ## fast tests, no hypervisor
	@echo "== unit"
	@short=$$(mktemp -d /tmp/u.XXXXXX); trap 'rm -rf "$$short"' EXIT; chmod 711 "$$short"; : 'a socket has 107 bytes for its path'; \
	$(CLOSED) $(PYTEST) -q -n $(UNIT_TESTS) --basetemp="$$short/t" tests/unit tests/bench

oldest: prepare-test ## unit tests, modules and a role with the oldest ansible-core that is supported
	@echo "== oldest ansible-core"
	@lab/prepare.sh oldest
	@$(CLOSED) env --default-signal PYTHONPATH=build/import build/oldest/bin/python -m pytest -q tests/unit/plugins/{action,inventory,modules}
	@VENV=$$PWD/build/oldest tests/collection.sh integration seed inventory_pbs_nodefile site_config
	@$(RECORD) --python build/oldest/bin/python "make oldest"

sanity integration galaxy: prepare-test ## ansible-test sanity; ansible-test integration; galaxy-importer
	@echo "== $@"
	@tests/collection.sh $@

MOLECULE = cd extensions && ANSIBLE_HOME=$(CURDIR)/build/ansible PATH=$(CURDIR)/build/venv/bin:$$PATH molecule --base-config molecule/config.yml
# after an interrupted run it would take its hosts for created
FORGET = for place in build/ansible/tmp/molecule.*; do [[ $$place $(1) *.guest_image ]] || rm -rf "$$place"; done
ON_HOSTS := test --all --exclude guest_image
molecule: molecule-hosts molecule-image ## the roles, by molecule

molecule-hosts: prepare-test runtime images
	@echo "== molecule, on hosts"
	@$(call FORGET,==)
	@$(MOLECULE) $(if $(FULL),$(ON_HOSTS),--base-config molecule/short.yml $(ON_HOSTS) --exclude common --exclude compute_node --exclude frontend --exclude host_profile --exclude refused --exclude slurm)
	@$(RECORD) --batch torque "make molecule-hosts"

molecule-image: prepare-test
	@echo "== molecule, an image"
	@$(call FORGET,!=)
	@$(MOLECULE) $(if $(FULL),,--base-config molecule/short.yml) test -s guest_image

lab-tests: prepare-test runtime images ## the lab against the recorded facts of Torque, and with a real Slurm
	@echo "== lab"
	@$(PYTEST) -q -n $(TESTS) lab

kvm: prepare-test runtime images ## a job by KVM, in a machine of the lab that has one
	@echo "== kvm"
	@$(PYTEST) -q --durations=5 $(SHORT) tests/e2e/kvm
	@$(RECORD) --batch torque "make kvm"

e2e: prepare-test runtime images ## jobs in real guests, on the lab (BATCH=slurm: all that run on Slurm)
	@echo "== end to end"
ifeq ($(BATCH),slurm)
	@$(PYTEST) -q --durations=30 -n $(LABS) --dist loadfile -m slurm tests/e2e
	@$(RECORD) --batch slurm "make e2e BATCH=slurm"
else
	@: 'the roles install while an image is made, and tests run that need none of it'; $(LAB) install & installing=$$!; failed=; \
	export VTORQUE_START_WAY=$(START_WAY); \
	lab/debian_image.sh $(POOL) && $(PYTEST) -q --durations=10 -n $(LABS) --dist loadfile $(SHORT) $(FURNISHED) || failed=yes; wait $$installing || exit; \
	VTORQUE_BY_ROLES=1 $(PYTEST) -q --durations=30 -n $(LABS) --dist loadfile --no-loadscope-reorder $(SHORT) tests/e2e \
	--ignore=tests/e2e/kvm $(FURNISHED:%=--ignore=%) || failed=yes; [ -z "$$failed" ]
	@$(RECORD) --batch torque --batch slurm "make e2e"
endif

.PHONY: jobs
jobs: $(IMPORT) ## a short set of jobs in guests, on Torque's stand-in and on Slurm: what may differ between releases of the distribution
	@echo "== jobs"
	@lab/prepare.sh jobs
	@$(LAB) runtime
	@for guest in tiny tiny-9p; do $(LAB).guests $$guest --pool $(POOL) || exit; done
	@$(PYTEST) -q --durations=10 -n $(LABS) --dist loadfile $(SHORT) $(JOBS)
	@$(RECORD) --batch torque --batch slurm "make jobs"

.PHONY: docs
docs: prepare-test ## the manuals and the reference of plugins and roles as web pages, in build/docs/html
	@tests/collection.sh docs

.PHONY: support
support: prepare-test ## fold what commands on this machine and `make test-fresh` ran with into the table of supported versions
	@$(PY) tests/support.py merge && PYTHONPATH=build/import $(PY) tests/generated.py

.PHONY: generated
generated: prepare-test ## write anew what repeats a table or a parser: tables of pages, manual pages, options of roles
	@PYTHONPATH=build/import $(PY) tests/generated.py

.PHONY: test-security
test-security: prepare-test runtime images debian-image ## attacks of users, guests and neighbours, every test that docs/security names, and `make fuzz` (BATCH=slurm: those that run on Slurm)
	@echo "== attacks"
ifeq ($(BATCH),slurm)
	@rm -f build/test/security-*.xml; failed=; \
	$(PYTEST) -q -n $(LABS) --dist loadfile -m slurm --junitxml=build/test/security-slurm.xml tests/e2e/attacks \
	tests/e2e/slurm/test_hostile.py tests/e2e/slurm/test_guests.py $$($(PY) tests/tried.py names docs/security tests/e2e/test_) || failed=yes; \
	$(PY) tests/tried.py count attacks build/test/security-*.xml && [ -z "$$failed" ]
else
	@$(LAB) install
	@rm -f build/test/security-*.xml; short=$$(mktemp -d /tmp/u.XXXXXX); trap 'rm -rf "$$short"' EXIT; chmod 711 "$$short"; \
	named() { $(PY) tests/tried.py names docs/security "$$1"; }; failed=; \
	$(CLOSED) $(PYTEST) -q -n $(TESTS) --basetemp="$$short/t" --junitxml=build/test/security-unit.xml $$(named tests/unit) || failed=yes; \
	$(PYTEST) -q -n $(LABS) --dist loadfile -m "not slurm" --junitxml=build/test/security-e2e.xml tests/e2e/attacks \
	$$(named tests/e2e/test_) || failed=yes; \
	$(MAKE) fuzz || failed=yes; \
	$(PY) tests/tried.py count attacks build/test/security-*.xml && [ -z "$$failed" ]
endif

.PHONY: lock
lock: ## write anew which libraries hosts get, each with its digests (requirements*.lock)
	@lab/prepare.sh lock
	@for kind in "" -libvirt; do build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-emit-package pip --custom-compile-command 'make lock' requirements$$kind.txt -o requirements$$kind.lock || exit; done

.PHONY: fuzz
fuzz: prepare-test ## a million random inputs (FUZZ=N: so many), on all processors, for whatever reads what others write
	@VTORQUE_CASES=$(FUZZ) $(CLOSED) $(PYTEST) -q -n auto --dist worksteal tests/unit/fuzz

.PHONY: test-soak
test-soak: prepare-test runtime images ## many short jobs of several users, one in ten cancelled (SOAK=500 BATCH=torque|slurm): nothing left, nothing grown
	@VTORQUE_SOAK=$(SOAK) $(PYTEST) -q -m $(if $(filter slurm,$(BATCH)),slurm,"not slurm") tests/e2e/soak

.PHONY: test-faults
test-faults: prepare-test runtime images ## a fault at each step of a node and of a mother superior, then of guests, nodes, site and batch server: nothing left, the verdict right (BATCH=slurm: those that run on Slurm)
	@echo "== faults"
ifeq ($(BATCH),slurm)
	@rm -f build/test/faults-*.xml; failed=; \
	$(PYTEST) -q -n $(LABS) --dist loadfile -m slurm --junitxml=build/test/faults-slurm.xml $(FAULTS) tests/e2e/slurm || failed=yes; \
	$(PY) tests/tried.py count faults build/test/faults-*.xml && [ -z "$$failed" ]
else
	@: 'in this order one lab has the first file and the last share, the other the longest between'; \
	rm -f build/test/faults-*.xml; failed=; VTORQUE_FAULTS=1 $(PYTEST) -q -n $(LABS) --dist loadgroup --junitxml=build/test/faults-steps.xml \
	tests/e2e/faults/test_steps.py tests/e2e/faults/test_mother_superior.py tests/e2e/faults/test_saving.py || failed=yes; \
	$(PYTEST) -q -n $(LABS) --dist loadfile -m "not slurm" --junitxml=build/test/faults-jobs.xml $(FAULTS) || failed=yes; \
	$(PY) tests/tried.py count faults build/test/faults-*.xml && [ -z "$$failed" ]
endif

.PHONY: test-fresh
test-fresh: ## `make demo` (FRESH='make test': that) of what is committed, on a Debian of the release that this machine is not (RELEASE=bookworm|trixie|trixie-backports), with git and make alone; FULL=1: also `make jobs` with libvirt and QEMU of backports
	@lab/prepare.sh test
	@tests/fresh.sh $(RELEASE:%=--release %) "$(FRESH)"
	@$(if $(FULL),tests/fresh.sh --release trixie-backports "make jobs")

.PHONY: bench
bench: ## measure what a job in a virtual machine costs (GUEST=tiny|debian PART=job|guests|warm|survive|nodes|cache|boot|slurm|page|devices)
	@GUEST=$(GUEST) PART=$(PART) BATCH=$(BATCH) tests/bench/run.sh

.PHONY: bench-iron
bench-iron: ## what pinning, NUMA cells, huge pages, I/O cores and shared memory gain on a site's own hardware (IRON='--submit ... --vm ...')
	@python3 tests/bench/iron.py $(or $(IRON),--help)

.PHONY: clean
clean: down ## remove build/
	@rm -rf build
