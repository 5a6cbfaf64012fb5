#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# install_warm.sh ROOT: as root, put into the system in ROOT (of Debian's or Red Hat's family) what its guests need to
# start warm: warm.py and vtorque_warm, which lie beside this file, and conditions for units of sshd.  Done again, it
# changes nothing.
set -eu
umask 022
root=${1:?"the root of an image is due"}
here=$(cd "$(dirname "$0")" && pwd)

[ -x "$root/usr/bin/python3" ] || { echo "install_warm.sh: $root has no /usr/bin/python3" >&2; exit 1; }
library=$root/usr/lib/vtorque-image
rm -rf "$library/vtorque_warm"
mkdir -p "$library/vtorque_warm"
{ echo '#!/usr/bin/python3 -I'; cat "$here/warm.py"; } >"$library/warm"
chmod 0755 "$library/warm"
for module in "$here"/vtorque_warm/*.py; do
    cat "$module" >"$library/vtorque_warm/${module##*/}"
done
# a template has no host key: neither sshd nor what would make one starts in it.  A cold boot has no such file
for unit in ssh.service sshd.service sshd-keygen@.service; do
    mkdir -p "$root/etc/systemd/system/$unit.d"
    printf '[Unit]\nConditionPathExists=!/etc/vtorque/warm.env\n' >"$root/etc/systemd/system/$unit.d/vtorque-warm.conf"
done
