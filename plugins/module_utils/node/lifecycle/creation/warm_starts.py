# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that start warm: which can, and how they boot cold when it fails, in the same start."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import typing as t

from ....eligibility.guest_saving import NETWORKS, PCI, PLAN9, SHARED_MEMORY
from ....eligibility.warm_reasons import ASKED, CORES, IMAGE, KIND, OWN_IMAGE, QUEUES, RDMA, REASONS, SEEDS, UEFI
from ....errors import NodeFault, VTorqueError
from ....guest_kinds import kind_of
from ....system.clock import Deadline
from ....time_budget import LIBVIRT_RETURN_S, WARM_READY_S
from ....wire.messages import NodePart
from ...cache import disk_space
from ...domain.connection import Domains
from ...domain.domain_xml import DomainSpec
from ...guest import first_order
from ...removal import leftovers
from ...state.settings import NodeSettings
from ...storage import overlay as overlays
from ...storage import shares, user_disk
from ...warm import clone_xml, making, template, wants
from ...warm import start as warm_start
from .guest_forms import Guest, domain_of

OWN_SEEDS = ("user-data.j2", "meta-data.j2", "network-config.j2")
"""Templates of which cloud-init reads more than files: a site's own say things that no first order does."""
_UUID = pathlib.Path("/proc/sys/kernel/random/uuid")


class WarmStarts:
    """The warm starts of one start of a job.

    Args:
        part: what is asked.
        settings: NodeSettings of this node.
        domains: libvirt.
        mounts: what guests share with the node.
    """

    def __init__(self, part: NodePart, settings: NodeSettings, domains: Domains, mounts: shares.GuestMounts) -> None:
        self._part, self._settings, self._domains, self._mounts = part, settings, domains, mounts

    def furnish(self, guest: Guest, deadline: Deadline) -> bool:
        """Give a guest the disks of its template; False: it has none, and why is with the guest.

        Args:
            guest: whose image is held.
            deadline: of the wait for who counts the disk's space.

        Raises:
            VTorqueError: the node has no room for its disk.
        """
        if not self._settings.warm_start:
            return False
        domain = domain_of(guest, self._part, self._settings, self._mounts, ())
        found = _objections(guest, domain, self._settings, self._mounts)
        if found:
            guest.warm = _no("; ".join(reason for name, reason in REASONS.items() if name in found))
            return False
        spec = clone_xml.shape_of(domain)
        try:
            key = making.key_of(making.TemplateSpec(spec, guest.image), self._settings, self._domains)
            guest.template = template.find(key, self._settings)
        except (OSError, VTorqueError) as error:
            guest.warm = _no(str(error))
            if isinstance(error, template.NoTemplate):
                one = guest.spec
                size = clone_xml.Size(one.vcpus, one.ram_mib, one.hypervisor, one.arch)
                wants.want(self._settings, wants.TemplateWant(guest.image.name, size, one.fs_type))
            return False
        with disk_space.counted(self._settings, deadline) as taken:
            overlays.check_room(guest.image, guest.directory, taken)
            try:
                warm_start.copy_disks(guest.template, guest.directory)
            except (OSError, VTorqueError) as error:
                self._blame(guest, str(error))
                return False
        return True

    def start(self, guest: Guest, xml: str, user_data: str, deadline: Deadline) -> bool:
        """Start a guest from its template; False: it must boot, and nothing of it runs.

        Args:
            guest: that was furnished.
            xml: as it would be after a cold start.
            user_data: of its seed.
            deadline: of the whole start.
        """
        made = guest.template
        if made is None:
            return False
        try:
            files, identity = first_order.files_of(user_data), self._identity(guest)
            agent = self._settings.agent_socket(guest.guest_file.slot)
            order = functools.partial(first_order.format_first_order, identity, files, made.record.files)
            clone = warm_start.Clone(guest.guest_file.name, guest.directory, xml, agent, order)
            warm_start.start(made, clone, self._domains, self.within(deadline))
        except (OSError, VTorqueError) as error:
            self.give_up(guest, str(error))
            return False
        guest.warm = "yes"
        return True

    def await_ready(
        self,
        guests: list[Guest],
        wait: t.Callable[[list[Guest], Deadline], dict[str, str]],
        boot: t.Callable[[list[Guest]], None],
        deadline: Deadline,
    ) -> dict[str, str]:
        """Wait until guests are ready, of which some have started warm.

        Args:
            guests: of the start.
            wait: waits, and returns the proven address of each by its name.
            boot: boots guests that were to be warm.
            deadline: of the start.

        Returns:
            The addresses; {}: none has started warm, or those that had boot by now.

        Raises:
            VTorqueError: libvirt was lost, or they cannot boot either.
        """
        begun = [guest for guest in guests if guest.template is not None]
        if not begun:
            return {}
        try:
            # what boots beside them has its own time
            proven = wait(guests, self.within(deadline) if begun == guests else deadline)
        except NodeFault:
            raise
        except VTorqueError as error:
            # one of them proves nothing of another, and each of them would cost its wait
            for guest in begun:
                self.give_up(guest, str(error))
            boot(begun)
            return {}
        for guest in begun:
            if guest.template is not None:
                template.note_success(guest.template)  # what was made from it speaks for it
        return proven

    def give_up(self, guest: Guest, why: str) -> None:
        """End a guest that was to be warm, and what serves it: it boots cold, and is served anew.

        Args:
            guest: it.
            why: for its record.

        Raises:
            NodeFault: libvirt was lost, and did not come back.
            VTorqueError: it would not go.
        """
        self._blame(guest, why)
        # libvirt may have been restarted while the guest came up: no node is blamed for that
        end = functools.partial(self._domains.destroy, guest.guest_file.name)
        self._domains.repeat_if_lost(end, LIBVIRT_RETURN_S)
        leftovers.end_servers(guest.directory, self._settings)
        servers = [*(tag for tag, _socket in guest.virtiofs), user_disk.DATA]
        names = ("console.log", *(f"{server}.{kind}" for server in servers for kind in ("sock", "log")))
        for path in (*(guest.directory / name for name in names), self._settings.agent_socket(guest.guest_file.slot)):
            path.unlink(missing_ok=True)

    def _blame(self, guest: Guest, why: str) -> None:
        if guest.template is not None:
            with contextlib.suppress(VTorqueError):  # the next start finds it as bad
                template.note_failure(guest.template, self._settings)
        guest.template, guest.warm = None, _no(why)

    def _identity(self, guest: Guest) -> first_order.Identity:
        guest_file, settings = guest.guest_file, self._settings
        return first_order.Identity(
            hostname=guest_file.name,
            mac=guest_file.mac,
            machine_id=guest_file.uuid.replace("-", ""),
            boot_id=_UUID.read_text("ascii").strip(),
            instance_id=guest_file.uuid,
            name_servers=tuple(filter(None, [settings.name_server])),
            search_domains=tuple(filter(None, [settings.search_domain])),
        )

    @staticmethod
    def within(deadline: Deadline) -> Deadline:
        """Return until when a warm start is waited for: a cold boot has the rest.

        Args:
            deadline: of the start.
        """
        return Deadline.after(min(WARM_READY_S, deadline.left_s() / 3))


def _no(why: str) -> str:
    text = "".join(character if character.isprintable() else " " for character in why)
    return f"no, because {text[:300]}"


def _objections(guest: Guest, domain: DomainSpec, settings: NodeSettings, mounts: shares.GuestMounts) -> set[str]:
    spec, kinds = guest.spec, {share.kind for share in mounts.shares}
    own = settings.template_dir and settings.template_dir / "cloud-init"
    shape = guest.shape
    there = {
        ASKED: not spec.warm,
        KIND: not kind_of(spec.distro).linux,
        IMAGE: not guest.image.record.get("warm") and not spec.own_image,
        UEFI: guest.image.boot.mode == "uefi",
        CORES: shape is not None and bool(shape.cells or domain.dedicated or domain.huge),
        QUEUES: domain.queues > 0,
        SEEDS: own is not None and any((own / name).exists() for name in OWN_SEEDS),
        PLAN9: "9p" in kinds,
        PCI: bool(spec.pci),
        RDMA: bool(spec.rdma),
        NETWORKS: bool(spec.networks),
        SHARED_MEMORY: spec.shared_mib > 0,
        OWN_IMAGE: spec.own_image,
    }
    return {name for name, has in there.items() if has}
