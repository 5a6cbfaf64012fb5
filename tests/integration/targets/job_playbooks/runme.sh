#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The playbooks of a job, by ansible-playbook as the hooks call it, with a qstat and a node that answer as real ones do.
set -eux
where=$(mktemp -d)
chmod 0711 "$where"
trap 'rm -rf "$where"' EXIT
PYTHONPATH="${ANSIBLE_COLLECTIONS_PATH%%:*}${PYTHONPATH:+:$PYTHONPATH}" python play_job.py "$where"
