# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What passes from a job to its nodes: all that a node must know to make one guest. Answers: `node_answers.py`.

The JSON forms are strict: a key too many, a key missing, a wrong type or a value out of form is an error.
What a node reads is what it asked for, or nothing.
"""

from __future__ import annotations

from ..effects import leaves_nothing
from ..frozen import frozen
from ..site_lists.guest_networks import ADDRESSES, CHOSEN
from . import pci
from .form import number_field, part_field, text_field

VERSION = 1

JOB_ID = r"[0-9]{1,12}(\[[0-9]{1,7}\])?\.[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?"
"""A job id as Torque prints it: `4711.head`, `72[1].head` for the member of an array (torque.md)."""
HOST_NAME = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?"
USER_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?"
GROUP_NAME = r"[^:,\x00-\x1f\x7f]{1,255}"
"""A group of a directory server may hold blanks and capitals; a colon or a comma would break group(5)."""
IMAGE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(@[1-9][0-9]{0,6})?"
ABSOLUTE_PATH = r"/[^\x00-\x1f\x7f]{0,4000}"
MAC = r"[0-9a-f]{2}(:[0-9a-f]{2}){5}"
ADDRESS = r"[0-9a-fA-F.:]{2,45}"
PUBLIC_KEY = r"ssh-ed25519 [A-Za-z0-9+/=]{68}( [A-Za-z0-9@._-]{1,100})?"
PACKAGE = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}"
"""A package of a distribution, by a name that no package manager takes for an option or a path."""
BASE64 = r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
ANY_TEXT = r"[^\x00\ud800-\udfff]+"
"""What can be a word of a command and can be written as UTF-8."""
PRIVATE_KEY = r"-----BEGIN OPENSSH PRIVATE KEY-----\n[A-Za-z0-9+/=\n]{100,2000}-----END OPENSSH PRIVATE KEY-----\n"

CORES = r"[0-9]{1,4}(,[0-9]{1,4}){0,255}"
"""Cores by their numbers, each alone; which list they count in depends on who speaks."""
AUTO_CORES = "auto"
PREFER_CORES = "prefer"
"""In place of a guest's cores: the node chooses them."""

HYPERVISORS = ("kvm", "qemu")
FS_TYPES = ("sharedfs", "local", "ramdisk")
NUMA = ("auto", "1", "off")
HUGEPAGES = ("none", "2M", "1G", "auto")
RDMA_KINDS = ("rxe", "sriov", "vhostuser")


@frozen
class Group:
    """A group of the job's user besides the one as which the job runs."""

    name: str = text_field(GROUP_NAME)
    gid: int = number_field(0, 2**32 - 2)


@frozen
class Owner:
    """The job's user, as the node knows them (getpwuid, getgrouplist).

    Attributes:
        groups: their supplementary groups, without `gid`.
    """

    user: str = text_field(USER_NAME)
    uid: int = number_field(1, 2**32 - 2)
    gid: int = number_field(1, 2**32 - 2)
    group: str = text_field(GROUP_NAME)
    home: str = text_field(ABSOLUTE_PATH)
    shell: str = text_field(ABSOLUTE_PATH)
    groups: tuple[Group, ...] = ()


@frozen
class KeyPair:
    """An ed25519 key of OpenSSH, made for one start of one job."""

    private: str = text_field(PRIVATE_KEY, secret=True)
    public: str = text_field(PUBLIC_KEY)


@frozen
class GuestSpec:
    """One guest of a job on one node.

    Attributes:
        rank: position of the guest in the job, 0 first; the job script runs in rank 0.
        index: position among the job's guests on this node, 0 first (not the slot: that is the node's to give).
        image: name in the pool, with its revision once it is resolved (`debian12@3`); or the path of the user's own.
        ram_mib: memory of the guest in MiB.
        host_key: the guest's ssh host key, known before it boots.
        authorized_key: public key of the job, with which its user enters the guest.
        data_disk: path of a disk of the user's own; "": none.
        image_digest: of the user's own image as it was submitted (`user_image.py`); "": whatever it is.
        vcpu_cores: which cores each vCPU has for itself, by positions in the list of the job's cores on the node, in
            the order of the vCPUs and parted by `;`; `auto`: the node chooses; `prefer`: it does
            where the job has enough; "": all vCPUs share all of the job's.
        other_cores: the same for the threads of qemu that are no vCPU's; "": those that no vCPU has.
        pci: devices of the host.
        numa: the guest's NUMA cells: `auto`: as of its cores; `1`: one, or no guest; `off`: none.
        hugepages: of which pages its memory is, counted in each cell; `auto`: of the largest that there are.
        shared_mib: of the region that all guests of the start on this node share, in MiB; 0: there is none.
        rdma: of which kind its RDMA device is; "": it has none.
        warm: whether it may start from a template of the node.
        io_min: of the cores that all guests of the start on this node have for virtual I/O, how many at least.
        io_max: how many at most; 0: there are none.
        io_required: no guest without them; else they are a default of the site's, without which the job runs too.
        networks: names of the site's further networks that it is on, in the order of its cards, parted by `+`.
        saved_in: the directory of a checkpoint from which it returns; "": it boots.
        saved_digest: of the list of its files there.
    """

    rank: int = number_field(0, 100_000)
    index: int = number_field(0, 1_000)
    image: str = text_field(f"{IMAGE_NAME}|{ABSOLUTE_PATH}")
    distro: str = text_field(r"[a-z]{1,16}")
    arch: str = text_field(r"[a-z0-9_]{1,16}")
    vcpus: int = number_field(1, 4096)
    ram_mib: int = number_field(16, 2**24)
    hypervisor: str = text_field("|".join(HYPERVISORS))
    fs_type: str = text_field("|".join(FS_TYPES))
    host_key: KeyPair = part_field()
    authorized_key: str = text_field(PUBLIC_KEY)
    data_disk: str = text_field(f"({ABSOLUTE_PATH})?", default="")
    image_digest: str = text_field(r"([0-9a-f]{64})?", default="")
    vcpu_cores: str = text_field(f"({AUTO_CORES}|{PREFER_CORES}|{CORES}(;{CORES}){{0,4095}})?", default="")
    other_cores: str = text_field(f"({CORES})?", default="")
    pci: tuple[pci.DeviceWish, ...] = part_field(default=())
    numa: str = text_field("|".join(NUMA), default="off")
    hugepages: str = text_field("|".join(HUGEPAGES), default="none")
    shared_mib: int = number_field(0, 2**24, default=0)
    rdma: str = text_field(f"({'|'.join(RDMA_KINDS)})?", default="")
    warm: bool = False
    io_min: int = number_field(0, 4096, default=0)
    io_max: int = number_field(0, 4096, default=0)
    io_required: bool = False
    networks: str = text_field(CHOSEN, default="")
    saved_in: str = text_field(f"({ABSOLUTE_PATH})?", default="")
    saved_digest: str = text_field(r"([0-9a-f]{64})?", default="")

    @property
    def gpus(self) -> int:
        """How many processors of graphics it has of its host."""
        return sum(wish.count for wish in self.pci if wish.gpu)

    @property
    def own_image(self) -> bool:
        """Return whether it boots an image of the user's, and none of the pool."""
        return self.image.startswith("/")


@frozen
class Package:
    """A package that a user wants in their guests; from the site's list."""

    name: str = text_field(PACKAGE)


@frozen
class AddedFile:
    """A file that the user writes in their guests.

    Attributes:
        mode: permissions, three octal digits.
        content: in base64.
    """

    path: str = text_field(ABSOLUTE_PATH)
    mode: str = text_field("[0-7]{3}")
    content: str = text_field(BASE64, secret=True)


@frozen
class Command:
    """A line for a shell, which the user runs in their guests."""

    line: str = text_field(ANY_TEXT, secret=True)


@frozen
class Additions:
    """What a user adds to each guest of their job (`-vm metadata=`), in the order in which it is done there.

    Attributes:
        packages: installed by the guest's root.
        files: written by the user.
        commands: run by the user.
    """

    packages: tuple[Package, ...] = part_field(default=())
    files: tuple[AddedFile, ...] = part_field(default=())
    commands: tuple[Command, ...] = part_field(default=())

    @property
    def any(self) -> bool:
        """Return whether there is anything to do."""
        return bool(self.packages or self.files or self.commands)


_NOBODY = Owner("nobody", 65534, 65534, "nogroup", "/nonexistent", "/bin/false")


@frozen
@leaves_nothing
class NodePart:
    """What the mother superior asks of one node: this job's guests, there or gone.

    Attributes:
        do: `present` or `absent`.
        start: Torque's start_count of the job; a requeued job has a higher one.
        timeout_s: seconds from the reading of this request until the node must have answered.
        guests: empty for `absent`, which removes whatever of this start is there.
        bare_slots: how often the job's node file names this host, which stays bare (mixed request); 0: it is to have
            guests, or nobody knows.
        additions: the user's own, to each of the guests.
        log_level: what the job's log on this node shows.
        checkpoint_min: its guests are saved so often by themselves, in minutes; 0: at a request; -1: never.
        peers: all nodes with guests of the job, by rank, parted by blanks, where it has a network for itself; else "".
    """

    version: int = number_field(VERSION, VERSION)
    do: str = text_field("present|absent")
    job_id: str = text_field(JOB_ID)
    start: int = number_field(0, 2**31)
    node: str = text_field(HOST_NAME)
    timeout_s: float = number_field(0, 86_400)
    owner: Owner = part_field()
    guests: tuple[GuestSpec, ...] = part_field()
    bare_slots: int = number_field(0, 100_000, default=0)
    additions: Additions = part_field(default=Additions())
    log_level: str = text_field("info|debug|trace", default="info")
    checkpoint_min: int = number_field(-1, 100_000, default=-1)
    peers: str = text_field(r"[A-Za-z0-9. -]{0,2000000}", default="")

    @classmethod
    def removal(cls, job_id: str, start: int, node: str, timeout_s: float, bare_slots: int = 0) -> NodePart:
        """The request to remove whatever of a start is on a node; it is about no guest, and so about no owner.

        Args:
            job_id: the job.
            start: Torque's start_count of the job.
            node: which node is asked.
            timeout_s: seconds until it must have answered.
            bare_slots: as the plan says it of a bare host, which need not have libvirt; 0: it is not known to be one.

        Returns:
            A part with `absent` and without guests.
        """
        return cls(VERSION, "absent", job_id, start, node, timeout_s, _NOBODY, (), bare_slots)


@frozen
class JobHost:
    """One host of a job, as the others know it.

    Attributes:
        name: host name.
        address: where it is reached.
        slots: how often the job's node file names it: vCPUs of a guest, slots of a bare host.
        host_key: the public ssh key that answers there.
        bare: whether it is a host of the cluster itself, and no guest.
        gpus: how many processors of graphics a guest has of its host.
        networks: its addresses on further networks, as `GuestFacts.networks`.
    """

    name: str = text_field(HOST_NAME)
    address: str = text_field(ADDRESS)
    slots: int = number_field(0, 100_000)
    host_key: str = text_field(PUBLIC_KEY)
    bare: bool = False
    gpus: int = number_field(0, 1_000, default=0)
    networks: str = text_field(ADDRESSES, default="")


@frozen
class JobMap:
    """What every host of a job learns when all guests are ready.

    Attributes:
        do: `join`.
        node: whose guests are told; or a bare host, which is told itself.
        timeout_s: seconds from the reading of this request until the node must have answered.
        hosts: of the whole job, in the order of the node file: the guests by rank, then the bare hosts.
        job_key: with which the job's user goes from host to host.
    """

    version: int = number_field(VERSION, VERSION)
    do: str = text_field("join")
    job_id: str = text_field(JOB_ID)
    start: int = number_field(0, 2**31)
    node: str = text_field(HOST_NAME)
    timeout_s: float = number_field(0, 86_400)
    hosts: tuple[JobHost, ...] = part_field()
    job_key: KeyPair = part_field()


@frozen
class LostGuest:
    """What a sister tells the mother superior while the job runs: a guest of hers ended or was paused.

    Attributes:
        do: `lost`.
        node: who tells it, and whose guest it was.
        guest: its host name.
        reason: what libvirt or the kernel said of it, in words.
        console: the last lines of its console, in one line; "" when it was silent.
    """

    version: int = number_field(VERSION, VERSION)
    do: str = text_field("lost")
    job_id: str = text_field(JOB_ID)
    start: int = number_field(0, 2**31)
    node: str = text_field(HOST_NAME)
    guest: str = text_field(HOST_NAME)
    reason: str = text_field(r"[^\x00-\x1f\x7f]{1,500}")
    console: str = text_field(r"[^\x00-\x1f\x7f]{0,4000}")


@frozen
class Suspension:
    """What the mother superior of a job tells its other nodes when the batch system has suspended it, or resumed it.

    Attributes:
        do: `suspend`: its guests stand still from now on; `resume`: they go on; `fit`: report whether they could.
    """

    version: int = number_field(VERSION, VERSION)
    do: str = text_field("suspend|resume|fit")
    job_id: str = text_field(JOB_ID)
    start: int = number_field(0, 2**31)
    node: str = text_field(HOST_NAME)


@frozen
class CheckpointStep:
    """What the mother superior of a job tells its other nodes while its guests are saved to begin again from there.

    Attributes:
        do: `can_save`: report what keeps them from being saved; `hold`: pause them, and write them to the disk;
            `held`: report which are not there yet; `store`: copy them into the checkpoint; `let_go`: let them go on.
        generation: number of the checkpoint.
        seconds: that they stand still at most, for `hold`; that the copies may take, for `store`.
    """

    version: int = number_field(VERSION, VERSION)
    do: str = text_field("can_save|hold|held|store|let_go")
    job_id: str = text_field(JOB_ID)
    start: int = number_field(0, 2**31)
    node: str = text_field(HOST_NAME)
    generation: int = number_field(1, 10**8)
    seconds: float = number_field(0, 3600)


@frozen
class SavedRequest:
    """What root of a host asks of a node about guests of suspended jobs whose memory is on its disk.

    Attributes:
        do: `saved`: which there are; `forget`: remove those of a job that the node's own batch server no longer runs.
        job_id: for `forget`; "" otherwise.
        timeout_s: seconds for the answer.
    """

    version: int = number_field(VERSION, VERSION)
    do: str = text_field("saved|forget")
    job_id: str = text_field(f"({JOB_ID})?", default="")
    timeout_s: float = number_field(1, 600, default=60.0)


@frozen
class ImageOrder:
    """What a front end asks of a node ahead of jobs: a copy of an image of the pool, and how far that is.

    Attributes:
        do: `image`.
        image: with its revision, so that all nodes get the same.
        again: it was asked for before; what has failed since is told, and not begun anew.
        timeout_s: seconds that the answer may wait for the copy.
    """

    version: int = number_field(VERSION, VERSION)
    do: str = text_field("image")
    image: str = text_field(IMAGE_NAME)
    fs_type: str = text_field("local|ramdisk")
    again: bool = part_field()
    timeout_s: float = number_field(0, 600)
