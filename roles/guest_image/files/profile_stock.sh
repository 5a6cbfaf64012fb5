# shellcheck shell=bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What build_image.sh does for images as Debian's own cloud image is (debian-cloud-images, config_space/12): nothing that
# a package brings is changed.  They boot by GRUB in a BIOS.  What Debian's has besides has no part in such a boot: the
# partition for UEFI, and programs of convenience.
place=${place:?} root=${root:?}
SECTOR=512
# as Debian's partitions lie: GRUB's core, then the root file system
CORE_SECTOR=2048
CORE_SECTORS=6144
ROOT_SECTOR=262144

part=$(cat /proc/sys/kernel/random/uuid)
filesystem=$(cat /proc/sys/kernel/random/uuid)

# the kernel is a package as any other, and the initramfs what its scripts make, for any machine and this fstab
bootstrap_options() {
    echo "PARTUUID=$part / ext4 rw,discard,errors=remount-ro,x-systemd.growfs 0 1" >"$place/fstab"
    # shellcheck disable=SC2016 # for the hook's own shell
    options+=(--essential-hook='cp '"$place/fstab"' "$1/etc/fstab"')
}

settle() {
    chroot "$root" systemctl --quiet enable systemd-networkd.service systemd-resolved.service
    ln -sf /run/systemd/resolve/resolv.conf "$root/etc/resolv.conf"
    printf 'blacklist pcspkr\nblacklist floppy\n' >"$root/etc/modprobe.d/blacklist.conf"
    add_boot_loader
}

# grub-install and update-grub want a disk that this kernel knows: here GRUB's own programs are told what they would find
add_boot_loader() {
    local grub=$root/boot/grub told=$root/run/grub
    mkdir -p "$grub/i386-pc" "$root/etc/default/grub.d" "$told"
    cp "$root"/usr/lib/grub/i386-pc/*.{mod,lst} "$grub/i386-pc/"
    printf 'GRUB_DISABLE_LINUX_UUID=true\nGRUB_DISABLE_LINUX_PARTUUID=\n' >"$root/etc/default/grub.d/10_cloud.cfg"
    echo 'GRUB_TIMEOUT=0' >"$root/etc/default/grub.d/15_timeout.cfg"
    printf 'export grub_probe=/run/grub/grub-probe\n. /usr/share/grub/grub-mkconfig_lib\n' >"$told/grub-mkconfig_lib"
    cat >"$told/grub-probe" <<TEXT
#!/bin/sh
case "\$*" in
    *target=device*) echo "PARTUUID=$part" ;;
    *target=fs_uuid*) echo "$filesystem" ;;
    *target=partuuid*) echo "$part" ;;
    *target=fs*) echo ext2 ;;
    *target=partmap*) echo gpt ;;
    *target=compatibility_hint*) echo hd0,gpt1 ;;
    *target=hints_string*) echo --hint-bios=hd0,gpt1 ;;
esac
TEXT
    chmod 0755 "$told/grub-probe"
    chroot "$root" env pkgdatadir=/run/grub grub-mkconfig >"$grub/grub.cfg" 2>>"$place/log"
    chroot "$root" grub-mkimage -O i386-pc -o /boot/grub/i386-pc/core.img -p '(,gpt1)/boot/grub' biosdisk part_gpt ext2
    rm -rf "$told"
}

# bytes, little end first, at a place of a file
number() {
    local value=$2 bytes='' count
    for count in 1 2 3 4 5 6 7 8; do
        bytes+=$(printf '\\x%02x' $((value >> (8 * (count - 1)) & 255)))
    done
    printf '%b' "$bytes" | dd of="$1" bs=1 seek="$3" conv=notrunc status=none
}

make_disk() {
    local disk=$place/disk.raw grub=$root/boot/grub/i386-pc core=$place/core.img sectors
    # the last MiB is for the second copy of the table; a file system has whole blocks of 8 sectors
    sectors=$((($(stat -c %s "$disk") / SECTOR - 2048 - ROOT_SECTOR) / 8 * 8))
    sfdisk --quiet "$disk" <<TEXT
label: gpt
unit: sectors
14 : start=$CORE_SECTOR, size=$CORE_SECTORS, type=21686148-6449-6E6F-744E-656564454649
1 : start=$ROOT_SECTOR, size=$sectors, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, uuid=$part
TEXT
    # what GRUB of the same release cannot read is off
    mkfs.ext4 -q -F -O '^metadata_csum_seed,^orphan_file' -U "$filesystem" -d "$root" \
        -E "offset=$((ROOT_SECTOR * SECTOR))" "$disk" $((sectors * SECTOR / 1024))k
    # as grub-bios-setup does: the boot sector is told where the core begins, the core where it goes on
    cp "$grub/core.img" "$core"
    number "$core" $((CORE_SECTOR + 1)) $((SECTOR - 12))
    dd if="$core" of="$disk" bs="$SECTOR" seek="$CORE_SECTOR" conv=notrunc status=none
    dd if="$root/usr/lib/grub/i386-pc/boot.img" of="$disk" bs=440 count=1 conv=notrunc status=none
    number "$disk" "$CORE_SECTOR" 92
}
