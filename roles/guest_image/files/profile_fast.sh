# shellcheck shell=bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What build_image.sh does for images that are ready for a job as early as they can be.  They boot without a boot loader,
# by a kernel and an initrd that lie beside the disk.
here=${here:?} place=${place:?} root=${root:?}

bootstrap_options() {
    local kernel
    mkdir -p "$place/kernel"
    # the kernel of the guests' own suite, unpacked and not installed: its package would make an initramfs for any
    # machine, which takes longer to make and to boot than one for virtio alone
    # shellcheck disable=SC2016 # for the hook's own shell
    kernel='cd '"$place/kernel"' && export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" &&
        meta=${KERNEL:?}-$(dpkg --print-architecture) &&
        name=$(apt-cache depends "$meta" | sed -n "s/.*Depends: \(linux-image-[^ ]*\)$/\1/p" | head -n 1) &&
        apt-get -qq -o APT::Sandbox::User=root download "$name"'
    options+=(--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*'
        --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/locale/*'
        --customize-hook="$kernel")
}

add_kernel() {
    dpkg-deb -x "$place"/kernel/*.deb "$place/kernel/tree"
    # since Debian 13 a kernel's modules lie below /usr
    [ -d "$place/kernel/tree/lib" ] || ln -s usr/lib "$place/kernel/tree/lib"
    version=$(ls "$place/kernel/tree/lib/modules")
    cp "$place/kernel/tree/boot/vmlinuz-$version" "$place/vmlinuz"
    mkdir -p "$root/usr/lib/modules"
    cp -a "$place/kernel/tree/lib/modules/$version" "$root/usr/lib/modules/"
    depmod -b "$root" "$version"
}

make_initrd() {
    local tree=$place/initrd.tree module name
    mkdir -p "$tree"/{bin,modules,proc,sys,dev,new}
    cp /bin/busybox "$tree/bin/"
    ln -s busybox "$tree/bin/sh"
    modprobe -d "$root" -S "$version" -C /dev/null -a --show-depends virtio_pci virtio_mmio virtio_blk virtio_net virtio_rng ext4 |
        awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
        while read -r module; do
            name=${module##*/}
            # compressed since Debian 13: a guest would try each as it is, and then unpack it
            case $name in
                *.xz) name=${name%.xz} && xz -dc "$module" >"$tree/modules/$name" ;;
                *) cp "$module" "$tree/modules/" ;;
            esac
            echo "$name" >>"$tree/modules/order"
        done
    install -m 0755 "$here/initrd-init.sh" "$tree/init"
    # not compressed: unpacking costs an emulated processor more than reading
    (cd "$tree" && find . -print0 | sort -z | cpio -o -0 -H newc -R 0:0 --quiet) >"$place/initrd"
}

settle() {
    local unit
    add_kernel
    sh "$here/install_warm.sh" "$root"
    make_initrd
    cp "$here/90_vtorque.cfg" "$root/etc/cloud/cloud.cfg.d/"
    printf 'policy: enabled\ndatasource: NoCloud\n' >"$root/etc/cloud/ds-identify.cfg"
    for unit in ${MASKED:-}; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done
    if [ -L "$root/etc/systemd/system/cloud-init-main.service" ]; then
        # since 24.3 one process runs all stages and waits for each to be called: it would wait for those that are masked,
        # and stay for the life of the guest
        mkdir -p "$root/etc/systemd/system/cloud-init-local.service.d"
        printf '[Service]\nExecStart=\nExecStart=/usr/bin/cloud-init init --local\n' \
            >"$root/etc/systemd/system/cloud-init-local.service.d/vtorque.conf"
    fi
    # virtual machines do not run others here, and what such a driver costs at boot is more than any other
    printf 'blacklist kvm_amd\nblacklist kvm_intel\nblacklist serio_raw\n' >"$root/etc/modprobe.d/vtorque.conf"
    echo '/dev/vda / ext4 rw,noatime 0 0' >"$root/etc/fstab"
    # where it is there, cloud-init checks its data with it, which is a fifth of its work; a seed is written by a
    # program that has tests
    rm -rf "$root/usr/lib/python3/dist-packages/jsonschema"
    # nobody reads a greeting in a job, and PAM runs its programs at each login
    rm -rf "$root/etc/update-motd.d" "$root/etc/motd"
}

make_disk() {
    # a guest's disk lives as long as its job: nothing is ever recovered from it
    mkfs.ext4 -q -F -O '^has_journal,^metadata_csum' -E lazy_itable_init=1,nodiscard -L root -d "$root" "$place/disk.raw"
}
