#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# build_image.sh PLACE: a Debian guest image out of the distribution's packages, in the directory PLACE: disk.qcow2,
# vmlinuz, initrd.  As root.  In the environment:
#   SUITE      the release ("bookworm")
#   PACKAGES   what is installed besides the minimal system, with commas
#   SIZE       of the root file system, as truncate takes it ("2G")
#   MASKED     units of systemd that the guests do without, with blanks
#   RECIPE     "yes": what apply_recipe.sh takes is in PLACE
#   MIRRORS    where packages come from, one a line: addresses, or files of apt's; empty: this machine's own sources
set -euo pipefail
PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 022
place=$1
root=$place/root
here=$(cd "$(dirname "$0")" && pwd)

own_sources() {
    local file
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        if [ -f "$file" ] && grep -qE '^[[:space:]]*(deb|Types:)' "$file"; then
            echo "$file"
        fi
    done
}

bootstrap() {
    local mirrors kernel recipe=()
    mapfile -t mirrors < <(grep . <<<"${MIRRORS:-}" || own_sources)
    [ "${#mirrors[@]}" -gt 0 ] || { echo "no package sources: give a mirror" >&2; exit 1; }
    mkdir -p "$place/kernel"
    # the kernel of the guests' own suite, unpacked and not installed: its package would make an initramfs for any
    # machine, which takes longer to make and to boot than one for virtio alone
    # shellcheck disable=SC2016 # for the hook's own shell
    kernel='cd '"$place/kernel"' && export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" &&
        meta=linux-image-cloud-$(dpkg --print-architecture) &&
        name=$(apt-cache depends "$meta" | sed -n "s/.*Depends: \(linux-image-[^ ]*\)$/\1/p" | head -n 1) &&
        apt-get -qq -o APT::Sandbox::User=root download "$name"'
    # here the services of packages do not start yet
    # shellcheck disable=SC2016
    [ "${RECIPE:-}" != yes ] || recipe=(--customize-hook="$here"'/apply_recipe.sh "$1" '"$place")
    mmdebstrap --mode=root --variant=minbase --include="$PACKAGES" \
        --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt=force-unsafe-io --customize-hook="$kernel" "${recipe[@]}" \
        "$SUITE" "$root" "${mirrors[@]}" >"$place/log" 2>&1 || {
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

add_kernel() {
    dpkg-deb -x "$place"/kernel/*.deb "$place/kernel/tree"
    version=$(ls "$place/kernel/tree/lib/modules")
    cp "$place/kernel/tree/boot/vmlinuz-$version" "$place/vmlinuz"
    mkdir -p "$root/usr/lib/modules"
    cp -a "$place/kernel/tree/lib/modules/$version" "$root/usr/lib/modules/"
    depmod -b "$root" "$version"
}

settle() {
    local unit
    cp "$here/90_vtorque.cfg" "$root/etc/cloud/cloud.cfg.d/"
    printf 'policy: enabled\ndatasource: NoCloud\n' >"$root/etc/cloud/ds-identify.cfg"
    for unit in $MASKED; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done
    # virtual machines do not run others here, and what such a driver costs at boot is more than any other
    printf 'blacklist kvm_amd\nblacklist kvm_intel\nblacklist serio_raw\n' >"$root/etc/modprobe.d/vtorque.conf"
    echo '/dev/vda / ext4 rw,noatime 0 0' >"$root/etc/fstab"
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
    # where it is there, cloud-init checks its data with it, which is a fifth of its work; a seed is written by a
    # program that has tests
    rm -rf "$root/usr/lib/python3/dist-packages/jsonschema"
    # nobody reads a greeting in a job, and PAM runs its programs at each login
    rm -rf "$root/etc/update-motd.d" "$root/etc/motd"
    chroot "$root" dpkg-query -W >"$place/packages"
}

make_initrd() {
    local tree=$place/initrd.tree module
    mkdir -p "$tree"/{bin,modules,proc,sys,dev,new}
    cp /bin/busybox "$tree/bin/"
    ln -s busybox "$tree/bin/sh"
    modprobe -d "$root" -S "$version" -C /dev/null -a --show-depends virtio_pci virtio_mmio virtio_blk virtio_net virtio_rng ext4 |
        awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
        while read -r module; do
            cp "$module" "$tree/modules/"
            echo "${module##*/}" >>"$tree/modules/order"
        done
    install -m 0755 "$here/initrd-init.sh" "$tree/init"
    # not compressed: unpacking costs an emulated processor more than reading
    (cd "$tree" && find . -print0 | sort -z | cpio -o -0 -H newc -R 0:0 --quiet) >"$place/initrd"
}

make_disk() {
    truncate -s "$SIZE" "$place/disk.raw"
    # a guest's disk lives as long as its job: nothing is ever recovered from it
    mkfs.ext4 -q -F -O '^has_journal,^metadata_csum' -E lazy_itable_init=1,nodiscard -L root -d "$root" "$place/disk.raw"
    qemu-img convert -f raw -O qcow2 "$place/disk.raw" "$place/disk.qcow2"
}

bootstrap
check_accounts
add_kernel
settle
make_initrd
make_disk
