#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# build_image.sh PLACE: a Debian guest image out of the distribution's packages, in the directory PLACE: disk.qcow2, and
# vmlinuz and initrd, where it boots by them.  As root.  In the environment:
#   PROFILE    "fast" or "stock": profile_PROFILE.sh, which lies beside this file, says what is done to the system
#   SUITE      the release ("bookworm")
#   PACKAGES   what is installed besides the minimal system, with commas
#   KERNEL     the package that a kernel is of in the fast profile, without its architecture ("linux-image-cloud")
#   SIZE       of the disk, as truncate takes it ("2G")
#   MASKED     units of systemd that fast guests do without, with blanks
#   RECIPE     "yes": what apply_recipe.sh takes is in PLACE
#   MIRRORS    where packages come from, one a line: addresses, or files of apt's; empty: this machine's own sources, or
#              what their mirrors have of the release, where this machine is Debian of another one
set -euo pipefail
PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 022
place=$1
root=$place/root
here=$(cd "$(dirname "$0")" && pwd)
options=()

# bootstrap_options: adds to options, of mmdebstrap; settle: makes the system in $root what it is to be; make_disk: puts
# it on $place/disk.raw, which is there and empty
# shellcheck source=/dev/null
. "$here/profile_$PROFILE.sh"

own_sources() {
    local file
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        if [ -f "$file" ] && grep -qE '^[[:space:]]*(deb|Types:)' "$file"; then
            echo "$file"
        fi
    done
}

# codename ROOT: the release that a system is
codename() { sed -n 's/^VERSION_CODENAME=//p' "$1/usr/lib/os-release"; }

# "suite mirror" of each source of this machine; one may be named "stable", so both names count
# shellcheck disable=SC2016 # apt replaces these
apt_index() {
    apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages'
    apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages'
}

# mmdebstrap 1.5.7 takes what its sources have, whatever the suite that it is called with
default_sources() {
    local own index part mirror
    own=$(codename "")
    if [ "$own" = "$SUITE" ] || ! grep -qx 'ID=debian' /usr/lib/os-release; then
        own_sources
        return
    fi
    index=$(apt_index)
    for part in "" -updates -security; do
        # updates come from the mirror of the release, as they do where no source of this machine names them
        mirror=$(awk -v suite="$own${part/-updates/}" '$1 == suite { print $2; exit }' <<<"$index")
        [ -z "$mirror" ] ||
            echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $SUITE$part main"
    done
}

check_release() {
    local made
    case $SUITE in *stable | testing | sid) return ;; esac # names that move
    made=$(codename "$root")
    if [ "$made" != "$SUITE" ]; then
        echo "the packages are of ${made:-no release}, and the image was to be $SUITE: give guest_image_mirrors that have it" >&2
        return 1
    fi
}

bootstrap() {
    local mirrors
    mapfile -t mirrors < <(grep . <<<"${MIRRORS:-}" || default_sources)
    [ "${#mirrors[@]}" -gt 0 ] || { echo "no package sources: give a mirror" >&2; exit 1; }
    bootstrap_options
    # here the services of packages do not start yet
    # shellcheck disable=SC2016
    [ "${RECIPE:-}" != yes ] || options+=(--customize-hook="$here"'/apply_recipe.sh "$1" '"$place")
    mmdebstrap --mode=root --variant=minbase --include="$PACKAGES" \
        --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
        --dpkgopt=force-unsafe-io "${options[@]}" "$SUITE" "$root" "${mirrors[@]}" >"$place/log" 2>&1 || {
        cat "$place/recipe.failed" >&2 2>/dev/null || tail -n 30 "$place/log" >&2
        exit 1
    }
}

# the job's user is the only one of a guest, and what somebody knows the password of is open in every guest
check_accounts() {
    local users open
    users=$(awk -F: '($3 >= 1000 && $3 != 65534) || ($3 == 0 && $1 != "root") { print $1 }' "$root/etc/passwd")
    open=$(awk -F: '$2 !~ /^[!*]/ { print $1 }' "$root/etc/shadow")
    [ -z "$users" ] || echo "an image has no users, and a package or the recipe made some: ${users//$'\n'/ }" >&2
    [ -z "$open" ] || echo "an image has no passwords, and a package or the recipe gave some: ${open//$'\n'/ }" >&2
    [ -z "$users$open" ]
}

clean() {
    # of every guest its own: the same ones in two guests are the same guest for DHCP and for ssh
    rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/hostname" "$root/etc/resolv.conf" "$root/var/lib/dbus/machine-id" \
        "$root/var/lib/systemd/random-seed" "$root"/var/lib/dhcp/*.leases
    rm -f "$root/etc/machine-id"
    : >"$root/etc/machine-id"
    # cloud-init sets nothing up for an instance that it has seen
    rm -rf "$root"/var/lib/cloud/* "$root"/var/log/cloud-init*
    find "$root/tmp" "$root/var/tmp" -mindepth 1 -delete
    rm -rf "$root/root/.bash_history" "$root/root/.ssh"
    mkdir -p "$root/opt-vm"
}

bootstrap
check_release
check_accounts
clean
settle
truncate -s "$SIZE" "$place/disk.raw"
make_disk
qemu-img convert -f raw -O qcow2 "$place/disk.raw" "$place/disk.qcow2"
