#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Checks and tests that want the collection where Ansible has it, on a clean copy of the working tree.
# usage: tests/collection.sh sanity|units|integration [argument of ansible-test...] | lint | galaxy | docs
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
# one at a time: they all have the same copy
if [ -z "${COLLECTION_IS_OURS:-}" ]; then
  mkdir -p build
  COLLECTION_IS_OURS=1 exec flock -o build/collection.lock "tests/$(basename "$0")" "$@"
fi
# VENV: an environment with another ansible-core
export PATH=${VENV:-$root/build/venv}/bin:$PATH
copy=$root/build/ansible-test/ansible_collections/mikelangelo/vtorque
python=$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')

# The copy holds what git knows or would add: what is shipped, and the tests that Ansible's tools run.
make_copy() {
  mkdir -p "$copy/tests"
  # what ansible-test has made for itself stays, so that the second time is quick
  find "$copy" -mindepth 1 -maxdepth 1 ! -name tests -exec rm -rf {} +
  find "$copy/tests" -mindepth 1 -maxdepth 1 ! -name output -exec rm -rf {} +
  git ls-files -z --cached --others --exclude-standard -- . ':!lab' ':!.ci' ':!tests/e2e' ':!tests/bench' |
    while IFS= read -r -d '' file; do if [ -e "$file" ] || [ -L "$file" ]; then printf '%s\0' "$file"; fi; done |
    tar --null --files-from=- -cf - | tar -C "$copy" -xf -
  git -C "$copy" init -q # ansible-test asks git what belongs to the collection, and would find our own checkout
}

# ansible-test makes virtual environments with a pip that it would fetch from a server of Ansible's: Python's own does.
make_pip() {
  local version
  version=$(python -c 'import inspect, re
from ansible_test._internal.python_requirements import get_venv_packages
print(re.search(r"pip=.([0-9.]+)", inspect.getsource(get_venv_packages))[1])')
  mkdir -p ~/.ansible/test/cache
  local file=~/.ansible/test/cache/get_pip_${version//./_}.py
  [ -e "$file" ] || printf '%s\n' 'import ensurepip' 'ensurepip.bootstrap(default_pip=True)' >"$file"
}

test_collection() {
  make_copy
  make_pip
  cd "$copy"
  ansible-test "$@"
}

# What others prove (docs/developer/testing.md) is left out, unless all of it, or a test by its name, is wanted.
sanity() {
  if [ $# -gt 0 ] || [ -n "${FULL:-}" ]; then
    test_collection sanity "$@" --python "$python" --venv
    return
  fi
  local status=0
  test_collection sanity --skip-test pep8 --skip-test pylint --skip-test import --python "$python" --venv || status=1
  ansible-test sanity --test pylint plugins/ --python "$python" --venv || status=1
  # it loads and compiles for each file anew all that the file imports
  ansible-test sanity --test import plugins/action/ plugins/inventory/ plugins/modules/ --python "$python" --venv || status=1
  return $status
}

# ansible-lint knows modules, and our action groups, only where Ansible finds the collection.
lint() {
  make_copy
  cd "$copy"
  ANSIBLE_COLLECTIONS_PATH=$root/build/ansible-test ansible-lint --profile production --offline -q
  yamllint --strict -f parsable .
  lint_docs
}

# what is said of plugins and roles is of the form that documentation is built of; it is silent when all is well
lint_docs() {
  local words
  if ! words=$(ANSIBLE_COLLECTIONS_PATH=$root/build/ansible-test antsibull-docs lint-collection-docs --plugin-docs . 2>&1) || [ -n "$words" ]; then
    echo "antsibull-docs: $words" >&2
    return 1
  fi
}

# the pages of docs/, and those of plugins and roles as antsibull-docs writes them, as one site
docs() {
  make_copy
  local out=$root/build/docs
  rm -rf "$out"
  mkdir -p "$out"
  cp "$copy/README.md" "$out/" # its first half is the front page, too
  cp -r "$copy/docs" "$out/docs"
  rm -r "$out/docs/docsite"
  # it refuses a directory that others may write
  (umask 022 && mkdir "$out/docs/reference")
  ANSIBLE_COLLECTIONS_PATH=$root/build/ansible-test antsibull-docs collection --use-current --squash-hierarchy --fail-on-error \
    --dest-dir "$out/docs/reference" mikelangelo.vtorque
  python -m sphinx -q -W --keep-going -j auto -b html "$out/docs" "$out/html"
  # the theme paints an error around a table of contents inside of a page, and Sphinx does not know
  if grep -rlE '<(nav|div|section) class="contents' "$out/html"; then
    echo "these pages have a table of contents of their own (docs/conf.py)" >&2
    return 1
  fi
  echo "build/docs/html/index.html"
}

galaxy() {
  make_copy
  local out=$root/build/galaxy
  rm -rf "$out"
  mkdir -p "$out/installed"
  (cd "$copy" && ansible-galaxy collection build --output-path "$out" >/dev/null)
  local tarball
  tarball=$(echo "$out"/mikelangelo-vtorque-*.tar.gz)
  # it gives ansible-lint two minutes, which a busy machine exceeds; `lint` runs it by the same profile
  (cd "$out" && GALAXY_IMPORTER_RUN_ANSIBLE_LINT=False python -m galaxy_importer.main "$tarball") 2>&1 | tee "$out/importer.log"
  if grep -E '^(ERROR|WARNING)|FAILED' "$out/importer.log"; then
    echo "galaxy-importer is not content" >&2
    return 1
  fi
  ansible-galaxy collection install --offline -p "$out/installed" "$tarball" >/dev/null
  (cd / && python -I "$root/tests/installed.py" "$out/installed")
  introspect "$out"
}

# what who builds an execution environment is told, as ansible-builder reads it
introspect() {
  ansible-builder introspect -v 0 --write-pip "$1/pip" --write-bindep "$1/bindep" "$1/installed" >/dev/null
  diff <(grep -v '^#' meta/ee-requirements.txt) <(sed 's/ *# from .*//' "$1/pip")
  diff meta/ee-bindep.txt <(sed 's/ *# from .*//' "$1/bindep")
}

case ${1:-} in
  sanity) shift && sanity "$@" ;;
  units | integration)
    what=$1 && shift
    test_collection "$what" "$@" --python "$python" --venv --venv-system-site-packages
    ;;
  lint) lint ;;
  galaxy) galaxy ;;
  docs) docs ;;
  *) sed -n 's/^# usage: //p' "$0" >&2 && exit 2 ;;
esac
