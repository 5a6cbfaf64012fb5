# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates of warm starts: they hold nothing of the jobs before them, and are root's alone."""

from __future__ import annotations

import pytest

from ..conftest import Site
from ..test_warm import NODE, WARM, make, starts, warm
from .conftest import Attack

START_WAYS = ("fast",)  # it sets for itself how they start

pytestmark = pytest.mark.full

USERS = ("bob", "libvirt-qemu", "nobody")
JOBS = 3
CANARY = "canary-{number}-of-a-former-job"
SCRIPT = """
word={canary}
echo "$word" >/tmp/"$word"; echo "$word" | tee "$HOME/.$word" >/dev/shm/"$word"
awk -v word="$word" 'BEGIN {{ for (n = 0; n < 20000; n++) kept[n] = word n; print length(kept) }}'
"""
TRY = """
for file in {files}; do
    {{ ls -A "$file/" || cat "$file"; }} >/dev/null 2>&1 && echo "read $file"
    {{ true >>"$file"; }} 2>/dev/null && echo "wrote $file"
    {{ mv "$file" "$file.gone" || true >"$file/more"; }} 2>/dev/null && echo "changed $file"
done
true
"""


def test_template_holds_nothing_of_former_jobs_and_is_roots_alone(site: Site, attack: Attack) -> None:
    with warm(site):
        for number in range(JOBS):
            script = SCRIPT.format(canary=CANARY.format(number=number))
            ended = site.job("-l", f"nodes={NODE}", "-vm", "warm=false", stdin=script)
            assert ended.exit_status == 0, ended.err
        make(site)
        # the search itself finds what is there: the template's own token, in its memory
        token = site.root(NODE, f'sed -n \'s/.*"token": "\\([0-9a-f]*\\)".*/\\1/p\' {WARM}/*/record.json').strip()
        assert site.root(NODE, f"grep -aclF {token} {WARM}/*/mem || :") != ""
        for number in range(JOBS):
            attack(f"to find job {number} in a template")
            found = site.root(NODE, f"grep -aclF {CANARY.format(number=number)} {WARM}/*/* || :")
            assert found == ""
        files = site.root(NODE, f"sha256sum {WARM}/*/mem {WARM}/*/disk.qcow2 {WARM}/*/record.json")
        names = site.root(NODE, f"ls -d {WARM}/[0-9a-f]* {WARM}/[0-9a-f]*/*").split()
        assert f"{names[0]}/mem" in names
        for user in USERS:
            attack(f"to read or change a template as {user}")
            done = site.on(NODE, "runuser", "-u", user, "--", "/bin/sh", "-c", TRY.format(files=" ".join(names)))
            assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert site.root(NODE, f"sha256sum {WARM}/*/mem {WARM}/*/disk.qcow2 {WARM}/*/record.json") == files
        ended = site.job("-l", f"nodes={NODE}", stdin="hostname\n")
        assert (ended.exit_status, ended.out) == (0, "vcn1-1\n"), ended.err
        assert starts(site, ended.job_id) == ["yes"]
