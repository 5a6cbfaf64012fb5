#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# An inventory from a node file, without a batch system, as ansible-inventory shows it.
set -eux
where=$(mktemp -d)
trap 'rm -rf "$where"' EXIT
printf '%s\n' "$(hostname)" n10 "$(hostname)" n1 n10 >"$where/nodes"
printf '%s\n' 'plugin: mikelangelo.vtorque.pbs_nodefile' "nodefile: $where/nodes" >"$where/my.pbs_nodefile.yml"

export ANSIBLE_INVENTORY_ENABLED=mikelangelo.vtorque.pbs_nodefile ANSIBLE_INVENTORY_UNPARSED_FAILED=true
ansible-inventory -i "$where/my.pbs_nodefile.yml" --list >"$where/list.json"
python - "$where/list.json" "$(hostname)" <<'PY'
import json, sys
found, here = json.load(open(sys.argv[1])), sys.argv[2]
assert found["job_nodes"]["hosts"] == [here, "n10", "n1"], found
assert found["mother_superior"]["hosts"] == [here], found
assert found["sisters"]["hosts"] == ["n10", "n1"], found
ranks = {host: found["_meta"]["hostvars"][host]["vtorque_rank"] for host in found["job_nodes"]["hosts"]}
assert ranks == {here: 0, "n10": 1, "n1": 2}, ranks
PY

# this machine is reached without a connection
ansible mother_superior -i "$where/my.pbs_nodefile.yml" -m ansible.builtin.raw -a 'echo here' | grep here

# what is wrong is said
printf 'n1 n2;id\n' >"$where/nodes"
if ansible-inventory -i "$where/my.pbs_nodefile.yml" --list >"$where/said" 2>&1; then exit 1; fi
grep -q "not of the form of a host name" "$where/said"
