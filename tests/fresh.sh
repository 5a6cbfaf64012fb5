#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# fresh.sh [--release RELEASE] [COMMAND...]: run each command ("make demo") in a clone of what is committed, on a Debian that
# has nothing but git, make and certificates: so that no missing install step hides behind what this machine has.
# RELEASE is bookworm, trixie, or trixie-backports, which has libvirt and QEMU from there; without it, that of the first two
# which this machine is not.
# The Debian is a directory in namespaces of its own (mounts, processes).  Of this machine it gets the network, the kernel,
# the mirrors of packages and, for the run, the settings of apt and pip.
set -euo pipefail
cd "$(dirname "$0")/.."
. lab/step.sh
. lab/debian.sh
[ "$(id -u)" -eq 0 ] || { echo "fresh: root is needed: a root file system is made, and a lab in it" >&2; exit 1; }
release=$(other_release)
if [ "${1:-}" = --release ]; then
    release=${2:-}
    shift 2
fi
suite=${release%-backports}
grep -q " $suite$" <<<"$DEBIAN_RELEASES" || { echo "fresh: --release $release: bookworm, trixie or trixie-backports" >&2; exit 2; }
[ $# -gt 0 ] || set -- "make demo"
place=$PWD/build/fresh-$release
root=$place/root
export STEP_LOG=$place/log LC_ALL=C.UTF-8
mkdir -p "$place"
: >"$STEP_LOG"

# one file system: what a run mounts is in its own namespace, and what it left is only files
remove() { rm -rf --one-file-system "$root"; }

make_debian() {
    write_sources "$release" "$place/sources.list"
    mmdebstrap --mode=root --variant=minbase --include=git,make,ca-certificates \
        --aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io "$suite" "$place/debian.new" "$place/sources.list"
    [ "$(os_release VERSION_CODENAME "$place/debian.new")" = "$suite" ]
    mv "$place/debian.new" "$place/debian"
}

furnish() {
    cp -a "$place/debian" "$root"
    # what is there may be links, which would lead a copy out of the root
    rm -rf "$root"/etc/{apt/sources.list*,ssl/certs,resolv.conf,hosts}
    cp "$place/sources.list" "$root/etc/apt/"
    if [ "$release" != "$suite" ]; then
        printf 'Package: src:libvirt src:libvirt-python src:qemu\nPin: release n=%s\nPin-Priority: 990\n' "$release" \
            >"$root/etc/apt/preferences.d/backports"
    fi
    cp -aL /etc/apt/apt.conf.d "$root/etc/apt/"
    cp -aL /etc/resolv.conf /etc/hosts "$root/etc/"
    cp -aL /etc/ssl/certs "$root/etc/ssl/"
    if [ -f /etc/pip.conf ]; then cp -L /etc/pip.conf "$root/etc/"; fi
    if [ -d ~/.config/pip ]; then mkdir -p "$root/root/.config" && cp -aL ~/.config/pip "$root/root/.config/"; fi
    # as a Debian has it: what runs as another user finds nothing of a clone that is root's
    chmod 700 "$root/root"
    git clone --quiet --no-hardlinks . "$root/root/vtorque"
}

# process 1 of its namespace is a shell that waits for the command: with it everything ends
run() {
    local name value kept=()
    while IFS='=' read -r -d '' name value; do
        case $name in PIP_* | http_proxy | https_proxy | no_proxy | HTTP_PROXY | HTTPS_PROXY | NO_PROXY) kept+=("$name=$value") ;; esac
    done < <(env -0)
    # shellcheck disable=SC2016 # for the inner shells
    root=$root unshare --mount --propagation private --pid --fork --kill-child bash -euc '
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs -o mode=755 run "$root/run"
        # not chroot alone: who enters namespaces that are made in it would find this machine
        cd "$root" && pivot_root . . && umount -l .
        exec chroot . "$@"' fresh \
        /usr/bin/env -i "${kept[@]}" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LC_ALL=C.UTF-8 TERM="${TERM:-dumb}" VTORQUE_LAB=/run/vtorque-fresh \
        bash -c '[ "$(stat -c %a ~)" = 700 ] && cd ~/vtorque && $1; status=$?; make down >/dev/null; exit "$status"' fresh "$1"
}

rm -rf --one-file-system "$place/debian.new"
remove
trap remove EXIT
[ -d "$place/debian" ] || step "Debian $release with git, make and certificates" make_debian
step "a copy of it, and a clone of $(git rev-parse --short HEAD)" furnish
if ! git diff --quiet HEAD; then
    echo "  (what is not committed is not in it)"
fi
for command in "$@"; do
    echo "== fresh, $release: $command"
    begin=$SECONDS
    run "$command"
    # what ran there is no less a run: `make support`
    mkdir -p build/support
    if [ -d "$root/root/vtorque/build/support" ]; then
        cp "$root"/root/vtorque/build/support/*.yml build/support/
    fi
    echo "== fresh, $release: $command: $((SECONDS - begin)) s"
done
