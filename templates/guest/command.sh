# shellcheck shell=sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Included where a program of the guest calls another host by ssh: its arguments as text for the shell there (`command`),
# with the variables that it has here (`exports`).
quote() { # word: as one word for a shell
    printf "'"
    printf '%s' "$1" | sed "s/'/'\\\\''/g"
    printf "' "
}

# what belongs to this guest, this login or this shell stays here
# shellcheck disable=SC2034 # for the program that includes it
exports=$(
    unset -v HOME USER LOGNAME SHELL MAIL HOSTNAME PWD OLDPWD SHLVL _ TMPDIR DISPLAY XAUTHORITY XDG_RUNTIME_DIR \
        XDG_SESSION_ID SSH_AUTH_SOCK SSH_CLIENT SSH_CONNECTION SSH_TTY BASH_ENV ENV
    export -p
)
# shellcheck disable=SC2034
command=$(for word in "$@"; do quote "$word"; done)
