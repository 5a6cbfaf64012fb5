#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# prepare.sh [demo|devices|slurm|jobs|test|oldest|lock]: install what the lab needs (demo), also for the story of devices, also
# for a real Slurm, what tests of jobs need on top of it (jobs), and what the checks need (test), an environment with the
# oldest ansible-core that is supported (oldest), and one with what writes the lock files (lock).
# Debian 12 or 13, as root. Done again, it does nothing and says so with its silence.
set -euo pipefail
cd "$(dirname "$0")/.."
. lab/step.sh
. lab/debian.sh
kind=${1:-demo}
require_debian

LAB_PACKAGES="
    python3 python3-venv python3-libvirt libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils
    dnsmasq-base openssh-server openssh-client iproute2 procps util-linux acl busybox-static dropbear-bin
    cpio kmod xz-utils e2fsprogs nftables nfs-ganesha nfs-ganesha-vfs bindfs gcc libc6-dev uidmap"
DEVICES_PACKAGES="numactl pciutils"
# the package starts its daemons where the distribution's policy (policy-rc.d) lets it; nodes of a lab have their own
SWITCH_PACKAGES="openvswitch-switch-dpdk"
SLURM_PACKAGES="munge slurmctld slurmd slurm-client"
TEST_PACKAGES="shellcheck mmdebstrap fdisk dpkg-dev systemd-container git genisoimage libxml2-utils groff-base xauth xvfb chromium"
# what reads the figures of nodes; an installed one would serve this machine's
PROMETHEUS_PACKAGES="prometheus"
# packages that each release names or divides in its own way
case $(os_release VERSION_ID) in
    12) SWITCH_PACKAGES+=" librte-mempool-ring23" ;;
    13)
        LAB_PACKAGES+=" virtiofsd" # on 12 in qemu-system-common
        SWITCH_PACKAGES+=" librte-mempool-ring25"
        PROMETHEUS_PACKAGES+=" promtool"
        ;;
esac

[ "$(id -u)" -eq 0 ] || { echo "prepare: root is needed: the lab makes network namespaces and mounts" >&2; exit 1; }

missing() {
    local package
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || echo "$package"
    done
}

apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    apt-get -qq install -y --no-install-recommends "$@"
}

wanted=$LAB_PACKAGES
case $kind in
    demo) ;;
    devices) wanted="$wanted $DEVICES_PACKAGES" ;;
    slurm | jobs) wanted="$wanted $SLURM_PACKAGES" ;;
    *) wanted="$wanted $SLURM_PACKAGES $SWITCH_PACKAGES $TEST_PACKAGES" ;;
esac
# shellcheck disable=SC2086  # names, one a word
lacking=$(missing $wanted)
if [ -n "$lacking" ]; then
    # shellcheck disable=SC2086
    step "packages of the distribution ($(wc -w <<<"$lacking"))" apt_install $lacking
fi

# The distribution's Python, whose libvirt binding the venv shares; another python3 may stand first on PATH.
venv() {
    local directory=$1 requirements=$2 stamp
    shift 2
    stamp=$directory/.installed-$(sha256sum requirements.txt "$requirements" | sha256sum | cut -c1-16)
    [ ! -e "$stamp" ] || return 0
    step "python environment $directory" install_venv "$directory" "$requirements" "$stamp" "$@"
}

install_venv() {
    /usr/bin/python3 -m venv --system-site-packages "$1" &&
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:4}" -r "$2" &&
        touch "$3"
}

# unpack PLACE PACKAGES DEPTH PATTERN...: files of packages (names, with blanks) that are not to be installed; each has a file
# of each pattern. DEPTH folders of their names are left out
unpack() {
    local place=$1 packages=$2 depth=$3 file
    shift 3
    rm -rf "$place" && mkdir -p "$place" || return
    # else apt's lists have just come, with the packages
    [ -n "$lacking" ] || apt-get -qq update || return
    # shellcheck disable=SC2086  # names, one a word
    (cd "$place" && apt-get -qq -o APT::Sandbox::User=root download $packages) || return
    for file in "$place"/*.deb; do
        dpkg-deb --fsys-tarfile "$file" | tar -C "$place" -xf - --wildcards --strip-components="$depth" "$@" || return
        rm "$file"
    done
}

# what a site's hosts have, and nothing else
venv build/runtime requirements.lock --require-hashes --only-binary :all:
case $kind in demo | devices | slurm) exit 0 ;; esac
venv build/venv requirements-dev.txt
if [ "$kind" != jobs ]; then
    # cloud-init's own word on what a seed may say; an installed one would set up this machine when it boots
    [ -e build/cloud-init/schema-cloud-config-v1.json ] ||
        step "cloud-init's schema" unpack build/cloud-init cloud-init 8 '*/schema-cloud-config-v1.json'
    [ -e build/prometheus/promtool ] ||
        step "Prometheus" unpack build/prometheus "$PROMETHEUS_PACKAGES" 3 './usr/bin/prom*'
fi
if [ "$kind" = oldest ]; then
    venv build/oldest requirements-oldest.txt
fi
if [ "$kind" = lock ]; then
    venv build/lock lab/requirements-lock.txt
fi
