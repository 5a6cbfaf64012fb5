# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=bash
# Debian releases: which ones the lab runs on, the release of this machine, and where packages of any release come from.

# "VERSION_ID codename" of each release that the lab, the demo and the tests run on
DEBIAN_RELEASES="12 bookworm
13 trixie"

# os_release NAME [ROOT]: the value of that name in the description of this machine's system, or of that below ROOT
# shellcheck source=/dev/null
os_release() { (. "${2:-}/etc/os-release" && printf '%s\n' "${!1-}"); }

# require_debian: refuse another system in one sentence, before anything is installed
require_debian() {
    if [ "$(os_release ID)" != debian ] || ! grep -q "^$(os_release VERSION_ID) " <<<"$DEBIAN_RELEASES"; then
        echo "this needs Debian 12 or 13, and here is $(os_release PRETTY_NAME): nothing was installed; use a virtual machine with Debian 13" >&2
        exit 1
    fi
}

# other_release: the codename of the newest release that this machine is not
other_release() { awk -v own="$(os_release VERSION_CODENAME)" '$2 != own { other = $2 } END { print other }' <<<"$DEBIAN_RELEASES"; }

# write_sources RELEASE FILE: the sources of packages of a release, from the mirrors that this machine's apt uses; those of
# "trixie-backports" are trixie's and these.
# mmdebstrap 1.5.7 does not compare its SUITE with the sources: "bookworm" by sources of trixie would be Debian 13.
write_sources() {
    local release=${1%-backports} file=$2 own index mirror security
    own=$(os_release VERSION_CODENAME)
    index=$(apt_index)
    [ -n "$index" ] || { apt-get -qq update && index=$(apt_index); }
    mirror=$(awk -v suite="$own" '$1 == suite { print $2; exit }' <<<"$index")
    security=$(awk -v suite="$own-security" '$1 == suite { print $2; exit }' <<<"$index")
    [ -n "$mirror" ] || { echo "apt names no mirror of Debian's $own" >&2; return 1; }
    {
        printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' \
            "$mirror" "$release" "$mirror" "$release-updates"
        [ "$release" = "$1" ] || printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$1"
        [ -z "$security" ] || printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$security" "$release-security"
    } >"$file"
}

# "suite mirror" of each source; a source may name its suite "stable", so both names count
# shellcheck disable=SC2016  # apt replaces these
apt_index() {
    apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages'
    apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages'
}
