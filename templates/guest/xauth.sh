#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# sshd's xauth (XAuthLocation), in the guest, as the job's user: the cookie of the forwarded display goes into a file of
# this guest alone.  The home may be the cluster's, and an entry in its ~/.Xauthority would outlive the guest.
for xauth in /usr/bin/xauth /usr/local/bin/xauth /usr/X11R6/bin/xauth; do
    [ ! -x "$xauth" ] || exec "$xauth" -f /run/vtorque/x11/authority "$@"
done
exit 1
