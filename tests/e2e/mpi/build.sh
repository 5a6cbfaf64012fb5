#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# build.sh PLACE: PLACE/ring out of ring.c and PLACE/mca_*_tm.so out of tm.c, against the Open MPI of the distribution,
# which the guests have.  Two packages are unpacked and none is installed: the development package asks for a Fortran
# compiler, 90 MB in all.  Done again, it does nothing as long as the programs have not changed.
set -euo pipefail
mkdir -p "$1"
place=$(realpath "$1")
sources=$(realpath "$(dirname "$0")")
if [ "$place/ring" -nt "$sources/ring.c" ] && [ "$place/ring" -nt "$sources/tm.c" ]; then
    exit 0
fi
cd "$place"
if ! ls libopenmpi-dev_*.deb libopenmpi3_*.deb >/dev/null 2>&1; then
    # apt's own user may not write here; root downloads
    apt-get -qq -o APT::Sandbox::User=root download libopenmpi-dev libopenmpi3
fi
rm -rf tree
for package in libopenmpi-dev_*.deb libopenmpi3_*.deb; do
    dpkg-deb -x "$package" tree
done
headers=(tree/usr/lib/*/openmpi/include)
libraries=(tree/usr/lib/*/libmpi.so.*.*.*)
for framework in plm ras; do
    gcc -O1 -s -Wall -Werror -fPIC -shared -DFRAMEWORK=$framework -I"${headers[0]}" -I"${headers[0]}/openmpi" \
        -o "mca_${framework}_tm.so" "$sources/tm.c"
done
gcc -O1 -s -Wall -Werror -I"${headers[0]}" -o ring.new "$sources/ring.c" "${libraries[0]}" -Wl,--allow-shlib-undefined
mv ring.new ring
