#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# make.sh PLACE: what all hosts start from, in the directory PLACE:
#   plain       a minimal Debian with systemd, Python and sshd
#   libvirt     what the distribution's libvirt and qemu add to it
#   offered     packages of the distribution (debs/) and of Python (wheels/) that a host may install: its only sources
# As root, of this machine's release, from its mirrors, none of which stay in a host.  In the environment, with blanks:
#   PLAIN LIBVIRT OFFERED     packages of the distribution
#   PIP REQUIREMENTS          pip of an environment; a file of requirements
set -euo pipefail
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
umask 022
# shellcheck source=lab/debian.sh
. "$(dirname "$0")/../debian.sh"
place=$1
# Python packages are built by this machine's Python for theirs
release=$(os_release VERSION_CODENAME)
apt=(apt-get -qq -o APT::Sandbox::User=root -o APT::Install-Recommends=false)

make_plain() {
    local fetch
    # while the machine's sources are there, everything a host may ask for is fetched, as far as plain does not have it
    # shellcheck disable=SC2016 # for the hook's own shell
    fetch='export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"; '"${apt[*]}"' -o Dir::Cache::Archives='"$place/offered/debs"' install -y --download-only '"$LIBVIRT $OFFERED"
    mkdir -p "$place/offered/debs/partial"
    write_sources "$release" "$place/sources.list"
    mmdebstrap --mode=root --variant=minbase --include="${PLAIN// /,}" --aptopt='APT::Install-Recommends "false"' \
        --aptopt='Acquire::Languages "none"' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt=force-unsafe-io --customize-hook="$fetch" \
        "$release" "$place/plain" "$place/sources.list"
    rm -rf "$place/offered/debs/partial" "$place/offered/debs/lock" "$place"/plain/etc/apt/sources.list*
    (cd "$place/offered/debs" && dpkg-scanpackages --multiversion . >Packages)
    # each host gets its own from its maker
    rm -f "$place"/plain/etc/{hostname,resolv.conf} "$place"/plain/etc/ssh/ssh_host_*
    : >"$place/plain/etc/machine-id"
    mkdir -p "$place/plain/srv/offered" "$place/plain/etc/apt/sources.list.d"
    echo 'deb [trusted=yes] file:/srv/offered/debs ./' >"$place/plain/etc/apt/sources.list"
    printf '[global]\nno-index = true\nfind-links = /srv/offered/wheels\n' >"$place/plain/etc/pip.conf"
}

# at midnight they would write what a test takes for somebody else's
stop_the_clock() {
    local timer directory
    for timer in apt-daily apt-daily-upgrade dpkg-db-backup e2scrub_all fstrim logrotate man-db; do
        directory=$place/plain/etc/systemd/system/$timer.timer.d
        mkdir -p "$directory"
        printf '[Timer]\nOnCalendar=\nOnCalendar=2100-01-01\nPersistent=no\n' >"$directory/never.conf"
    done
}

make_wheels() {
    "$PIP" wheel --quiet --disable-pip-version-check --require-hashes --wheel-dir "$place/offered/wheels" -r "$REQUIREMENTS"
}

# on an overlay, whose mounts end with their namespace
make_libvirt() {
    mkdir -p "$place"/{libvirt,work,seen}
    export place LIBVIRT
    # shellcheck disable=SC2016 # for the inner shell
    unshare --mount --propagation private bash -euc '
        mount -t overlay host -o "lowerdir=$place/plain,upperdir=$place/libvirt,workdir=$place/work" "$place/seen"
        mount --bind "$place/offered" "$place/seen/srv/offered"
        printf "#!/bin/sh\nexit 101\n" >"$place/seen/usr/sbin/policy-rc.d"
        chmod 0755 "$place/seen/usr/sbin/policy-rc.d"
        mount -t proc proc "$place/seen/proc"
        chroot "$place/seen" apt-get -qq update
        chroot "$place/seen" apt-get -qq install -y --no-install-recommends $LIBVIRT
        chroot "$place/seen" apt-get clean
        rm "$place/seen/usr/sbin/policy-rc.d"'
    rm -rf "$place/work" "$place/seen"
}

make_plain
stop_the_clock
make_wheels
make_libvirt
