#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# nft prints a look-up that it was given by offset under a name, and refuses to read what it printed.
#
# A set of `typeof @th,192,32` (32 bits, type integer) is looked up by `@nh,96,32`, the source address of IPv4.  Where the
# rule has matched the protocol before, `nft list ruleset` prints that look-up as `ip saddr @s`; `nft -f` of this very text
# ends with "datatype mismatch, expected IPv4 address, expression has type integer".  So a valid set of rules cannot be
# stored and restored as text.  With the look-up first in its rule it is printed as it was given, and can.
# Seen on 2026-11-28: nftables 1.0.6-2+deb12u2 (Debian 12); 1.1.3 (Debian 13) and 1.1.7 (forky) do the same.  Linux 6.18.
# Needs: root, apt of Debian 12, unshare.  Ends with 0 where the behaviour is as described.
set -euo pipefail
VERSION=1.0.6-2+deb12u2
if [ "${1-}" != inside ]; then
    place=$(mktemp -d)
    trap 'rm -rf "$place"' EXIT
    (cd "$place" && apt-get -qq -o APT::Sandbox::User=root download "nftables=$VERSION" "libnftables1=$VERSION" && for file in *.deb; do dpkg-deb -x "$file" root; done)
    LD_LIBRARY_PATH=$(dirname "$(find "$place/root" -name 'libnftables.so.1' | head -n 1)") unshare --net "$0" inside "$place"
    exit
fi
place=$2 nft=$2/root/usr/sbin/nft
try() { # the look-up's place in its rule, what the listing has, how loading it again ends
    "$nft" flush ruleset
    "$nft" -f - <<<"table bridge t { set s { typeof @th,192,32; elements = { 0x0a4d0064 }; }; chain c { $1 accept; }; }"
    "$nft" list ruleset >"$place/listing"
    grep -F "$2" "$place/listing" || { echo "changed: the listing is"; cat "$place/listing"; exit 1; }
    "$nft" flush ruleset
    local status=0
    "$nft" -f "$place/listing" 2>"$place/why" || status=$?
    cat "$place/why"
    [ "$status" = "$3" ] || { echo "changed: loading the listing again ended with $status"; exit 1; }
}
"$nft" --version
try 'ether type ip @nh,96,32 @s' 'ip saddr @s accept' 1
grep -q 'datatype mismatch, expected IPv4 address, expression has type integer' "$place/why" || { echo "changed: another reason"; exit 1; }
try '@nh,96,32 @s ether type ip' '@nh,96,32 @s' 0
echo "as described"
