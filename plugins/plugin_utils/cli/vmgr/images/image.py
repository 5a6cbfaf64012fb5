# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr image`: the images that VM jobs can boot."""

from __future__ import annotations

import argparse
import typing as t

from .....module_utils.job.config.parameters import Policy
from .....module_utils.job.records.image_usage import last_uses
from ....bridge.node_settings import read_configuration
from ...output.json_output import add_json
from ...output.verbs import add_verb
from . import image_changes, image_compose, image_facts, image_list, image_profile, image_push, image_trial, image_warm

HELP = "images that VM jobs can boot"
LIST_EPILOG = """\
A name is an image of the pool; name@N is its revision N, and without a number the newest one.  A revision never
changes.  "last use" is told out of the records of jobs that are here and that you may read.

examples:
  vmgr image list
  vmgr image list --query "[?wrong!=''].name"    those that cannot be used
"""
ADD_EPILOG = """\
FILE is a whole disk, qcow2 or raw: one that names other files, is encrypted or cut off is refused.  It is copied, read
through once, and appears in the pool as the next revision of NAME, or not at all.  Other formats become one by
qemu-img convert -O qcow2 OLD NEW.qcow2.

Before it appears it is booted once on this host, in a guest of its own with no way to any network: does it boot, does
cloud-init take its seed by NoCloud, and what takes its time?  An image in which no job could run is refused.  A host
that cannot boot it (no libvirt; no KVM, and allow_emulation is not set) says so and adds it.

With --osv-base the image is a base of OSv, for vmgr image compose: DIR holds the kernel (loader-stripped.elf), root/
with the files of every image, and packages/ with packages of capstan.  It is not booted.

exit status:
  0  it is in the pool
  2  it cannot be an image, or no job could run in it
  3  the pool cannot be written

examples:
  vmgr image add debian12 debian12.qcow2 --description 'Debian 12, Open MPI 4.1'
  vmgr image add rocky9 rocky9.raw --distro rocky --boot uefi
  vmgr image add rocky9 rocky9.qcow2 --boot uefi --boot-timeout 900 --query trial.costs
  vmgr image add tiny disk.qcow2 --distro debian --kernel vmlinuz --initrd initrd --cmdline 'console=ttyS0 quiet'
  vmgr image add osv-base --osv-base /srv/osv --description 'OSv 0.57'
"""
UPDATE_EPILOG = """\
What is not said stays as it is.  Without FILE the disk is the same one, and takes no more room.

examples:
  vmgr image update debian12 newer.qcow2
  vmgr image update debian12 --description 'Debian 12, for all'
"""
DELETE_EPILOG = """\
Refused while a guest or another program of this host uses the image, and while the batch server has a job that runs on
it or would not find it.  --force does not ask the batch server; what this host uses stays nonetheless.

examples:
  vmgr image delete debian12@3        one revision
  vmgr image delete debian12 --all    all of them
"""
VERIFY_EPILOG = """\
The whole of each image is read and compared with its record.

exit status:
  0  all are what their records say
  1  some are not: add them again, and delete these

examples:
  vmgr image verify                   the whole pool
  vmgr image verify debian12@3
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of `vmgr image`.

    Args:
        parser: of the subject.
    """
    names = ("list", "show", "add", "compose", "update", "delete", "verify", "push", "profile", "warm")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar=" | ".join(names))

    def verb(name: str, summary: str, epilog: str = "") -> argparse.ArgumentParser:
        own = add_verb(verbs, name, summary, epilog)
        add_json(own)
        return own

    verb("list", "all images of the pool", LIST_EPILOG)
    one = verb("show", "one image")
    one.add_argument("name", metavar="NAME", help="the image, with or without its revision (debian12@3)")
    add = verb("add", "put an image into the pool, as root", ADD_EPILOG)
    add.add_argument("name", metavar="NAME", help="letters, digits and . _ -, without a revision")
    add.add_argument("file", metavar="FILE", nargs="?", help="its disk")
    add.add_argument("--osv-base", metavar="DIR", help="no disk, but a base of OSv for vmgr image compose")
    image_compose.add_arguments(verb("compose", "compose an image of OSv out of packages", image_compose.EPILOG))
    update = verb("update", "put the next revision of an image into the pool, as root", UPDATE_EPILOG)
    update.add_argument("name", metavar="NAME", help="an image of the pool, without a revision")
    update.add_argument("file", metavar="FILE", nargs="?", help="its new disk (the same one)")
    for own in (add, update):
        image_facts.add_arguments(own)
        image_trial.add_arguments(own)
    delete = verb("delete", "take an image out of the pool, as root", DELETE_EPILOG)
    delete.add_argument("name", metavar="NAME", help="the image, with its revision where it has several")
    delete.add_argument("--all", action="store_true", help="all its revisions")
    delete.add_argument("--force", action="store_true", help="without a look at the batch server's jobs")
    verify = verb("verify", "compare images with their records", VERIFY_EPILOG)
    verify.add_argument("names", metavar="NAME", nargs="*", help="these images alone (all)")
    profile = verb("profile", "where the seconds of its boot go, as root", image_profile.EPILOG)
    image_profile.add_arguments(profile)
    warm = verb("warm", "templates from which guests of this node start warm, as root", image_warm.EPILOG)
    image_warm.add_arguments(warm)
    image_push.add_arguments(verb("push", "have nodes copy an image before jobs want it, as root", image_push.EPILOG))


def run(call: argparse.Namespace, load: t.Callable[[], Policy]) -> int:
    """Do what was asked for; see `Subject` of `main.py`.

    Raises:
        VTorqueError: it could not be done, and nothing was changed.
    """
    configuration = read_configuration(load)
    if call.verb in ("add", "update", "delete", "verify"):
        return image_changes.VERBS[call.verb](call, configuration)
    if call.verb == "compose":
        return image_compose.run(call, configuration)
    if call.verb == "push":
        return image_push.run(call, configuration)
    if call.verb == "warm":
        return image_warm.run(call, configuration)
    if call.verb == "profile":
        return image_profile.run(call, configuration.settings)
    return image_list.VERBS[call.verb](call, configuration.settings.pool, last_uses())
