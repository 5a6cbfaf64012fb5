# Everything that is made lands in build/; `make clean` takes it away again.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BUILD := build
PY := $(BUILD)/venv/bin/python
COLLECTION := $(BUILD)/import/ansible_collections/mikelangelo/vtorque

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# the import path of a collection, for tools that read the sources in place
$(COLLECTION):
	@mkdir -p $(@D) && ln -sfn ../../../.. $@
