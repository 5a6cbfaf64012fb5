# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The seed: what one guest is told about its job, as cloud-init's NoCloud data on a small disk."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pathlib
import re
import tempfile
import typing as t

from ...effects import leaves_nothing
from ...errors import SiteFault, UserFault, VTorqueError
from ...guest_kinds import OSV_LAUNCHER, SLG, kind_of
from ...rendering.templates import SITE_DIR
from ...rendering.templates import render as render_template
from ...site_lists.mounts import Mount
from ...slow_libraries import load_library
from ...wire.messages import ABSOLUTE_PATH, ADDRESS, HOST_NAME, JOB_ID, MAC, PUBLIC_KEY, Additions, KeyPair, Owner
from .user_data import check_header


class Card(t.Protocol):
    """A card besides the first; the template is rendered with it (`network/cards.py`, `devices/api.py`)."""

    @property
    def mac(self) -> str:
        """Return the card's MAC address."""

    @property
    def interface(self) -> str:
        """Return the card's address with its network."""

    @property
    def mtu(self) -> int:
        """Return the card's MTU; 0: as the guest has it."""


LABEL = "cidata"
"""Volume label by which cloud-init's NoCloud finds its seed."""
FAMILIES = {
    "debian": "debian",
    "ubuntu": "debian",
    "redhat": "redhat",
    "centos": "redhat",
    "rocky": "redhat",
    "alma": "redhat",
    "osv": "osv",
}
"""Distributions that can be contextualised, and the family whose ways they have."""


def _text(pattern: str) -> t.Any:
    return dataclasses.field(metadata={"pattern": pattern})  # pylint: disable=invalid-field-call


def _texts(pattern: str) -> t.Any:
    return dataclasses.field(metadata={"pattern": pattern}, default=())  # pylint: disable=invalid-field-call


@dataclasses.dataclass(frozen=True, kw_only=True)
@leaves_nothing
class Seed:
    """What one guest is told.

    Attributes:
        name: host name of the guest, without a domain.
        instance_id: new for each start; cloud-init sets nothing up for an id that it has seen.
        mac: address of its network card, by which the card is found.
        distro: distribution of the image, a key of `FAMILIES`.
        job_id: as the batch system prints it.
        token: new for each guest; the ready line on the console repeats it.
        node_address: of the node, to which the guest speaks first.
        torque_home: Torque's home directory, the same in the guest.
        owner: the job's user, exactly as on the node.
        host_key: the guest's one ssh host key.
        authorized_key: with which the user enters.
        domain: of the guest's full name, or "".
        name_servers, search_domains, ntp_servers: where the site sets them.
        mounts: what its root mounts before it is ready.
        mount_s: seconds for which it tries each.
        additions: the user's own.
        data_disk: whether the guest has a disk of the user.
        shares_region: whether it has memory that it shares with others of its job.
        cards: besides the first.
        rdma: of which kind its RDMA device is; "": it has none.
        rdma_mac: of which of these cards it is made; "": of the first, or of none.
        scripts: where the job's scripts lie, below `torque_home`.
        programs: templates of the batch system's own for guests, `.../NAME.sh`, which are found there by their names.
        vcpus: so often the node file of a guest of OSv names it; others are told later.

    Raises:
        SiteFault: a value is not of its form; it is named.
    """

    name: str = _text(HOST_NAME)
    instance_id: str = _text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,255}")
    mac: str = _text(MAC)
    distro: str = _text("[a-z]{1,16}")
    job_id: str = _text(JOB_ID)
    token: str = _text("[A-Za-z0-9]{8,64}")
    node_address: str = _text(ADDRESS)
    torque_home: str = _text(ABSOLUTE_PATH)
    owner: Owner
    host_key: KeyPair
    authorized_key: str = _text(PUBLIC_KEY)
    domain: str = dataclasses.field(metadata={"pattern": f"({HOST_NAME})?"}, default="")
    name_servers: tuple[str, ...] = _texts(ADDRESS)
    search_domains: tuple[str, ...] = _texts(HOST_NAME)
    ntp_servers: tuple[str, ...] = _texts(f"{HOST_NAME}|{ADDRESS}")
    mounts: tuple[Mount, ...] = ()
    mount_s: int = 3
    additions: Additions = Additions()  # noqa: RUF009 - frozen
    data_disk: bool = False
    shares_region: bool = False
    rdma: str = dataclasses.field(metadata={"pattern": "[a-z]{0,16}"}, default="")
    scripts: str = dataclasses.field(metadata={"pattern": "[a-z_]+(/[a-z_]+)*"}, default="jobs")
    programs: tuple[str, ...] = _texts("[a-z_/]+/[a-z_]+[.]sh")
    vcpus: int = 1
    cards: tuple[Card, ...] = ()
    rdma_mac: str = dataclasses.field(metadata={"pattern": f"({MAC})?"}, default="")
    launcher: t.ClassVar[str] = OSV_LAUNCHER

    def __post_init__(self) -> None:
        for thing in (self, self.owner, self.host_key, *self.owner.groups):
            _check(thing)

    @property
    def fqdn(self) -> str:
        """The guest's full name; its short one where the site has no domain."""
        return f"{self.name}.{self.domain}" if self.domain else self.name

    @property
    def family(self) -> str:
        """`debian`, `redhat` or `osv`.

        Raises:
            UserFault: no seed can be written for this distribution.
        """
        if self.distro not in FAMILIES:
            raise UserFault(
                f"distro={self.distro}", "its guests cannot be told their job yet", f"one of {', '.join(FAMILIES)}"
            )
        return FAMILIES[self.distro]


def _check(thing: t.Any) -> None:
    for field in dataclasses.fields(thing):
        if field.name == "mounts":
            continue
        value = getattr(thing, field.name)
        for text in value if isinstance(value, tuple) else (value,):
            if not isinstance(text, str):
                continue
            excerpt = repr(text)[:80] if field.repr else "the value"
            if not re.fullmatch(field.metadata["pattern"], text):
                raise SiteFault(f"seed, {field.name}", f"{excerpt} is not of the form demanded")
            try:
                text.encode()
            except UnicodeEncodeError:
                # a directory server's name in another encoding: Python keeps its bytes as lone surrogates
                raise SiteFault(f"seed, {field.name}", f"{excerpt} is not UTF-8", "see to the directory") from None


@leaves_nothing
def render(
    seed: Seed, site_dir: pathlib.Path | None = SITE_DIR, compiled: pathlib.Path | None = None
) -> dict[str, str]:
    """The files of the seed, by name.

    Args:
        seed: what the guest is told.
        site_dir: the site's own templates, searched first; None for the collection's alone.
        compiled: see `templates.render`.

    Raises:
        UserFault: the distribution is none that can be contextualised.
        SiteFault: a template is wrong; says which, and where. cloud-init would ignore what one makes.
    """
    seed.family  # noqa: B018 - refuses a distribution before any template is read
    kind = kind_of(seed.distro)
    files = {
        name: render_template(f"{kind.seeds}/{name}.j2", site_dir=site_dir, compiled=compiled, seed=seed)
        for name in kind.seed_files
    }
    if kind is SLG:  # OSv has a cloud-init of its own, which knows no headers
        try:
            check_header(files["user-data"])
        except VTorqueError as error:
            raise SiteFault(f"template {kind.seeds}/user-data.j2", error.why, error.hint) from None
    return files


def write_iso(files: t.Mapping[str, str], path: pathlib.Path, mode: int = 0o400) -> None:
    """Write the seed's disk (ISO 9660 with Joliet and Rock Ridge), whole or not at all.

    Args:
        files: content by name, as `render` gives them.
        path: the disk's image; an existing one is replaced.
        mode: its permissions, from its first byte on, whatever the umask is.

    Raises:
        VTorqueError: it cannot be written; says why.
    """
    content = _iso(files)
    path = pathlib.Path(path)
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                os.fchmod(file.fileno(), mode)
                file.write(content)
                file.flush()
                pathlib.Path(file.name).rename(path)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file.name)
                raise
    except OSError as error:
        raise VTorqueError(f"seed {path}", f"it cannot be written: {error.strerror}") from error


def _iso(files: t.Mapping[str, str]) -> bytes:
    pycdlib = load_library("pycdlib")
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=LABEL)
    for number, (name, text) in enumerate(files.items()):
        data = text.encode()
        iso.add_fp(
            io.BytesIO(data), len(data), f"/FILE{number}.;1", rr_name=name, joliet_path=f"/{name}", file_mode=0o100400
        )
    target = io.BytesIO()
    iso.write_fp(target)
    iso.close()
    return target.getvalue()


def read_iso(path: pathlib.Path) -> dict[str, str] | None:
    """The files of a seed that `write_iso` wrote, by name; None when there is no such file.

    Raises:
        VTorqueError: it cannot be read, or is no seed.
    """
    pycdlib = load_library("pycdlib")
    iso = pycdlib.PyCdlib()
    try:
        with path.open("rb") as file:
            iso.open_fp(file)
            files = {}
            for child in iso.list_children(rr_path="/"):
                if child is not None and child.is_file():
                    target = io.BytesIO()
                    name = child.rock_ridge.name().decode()
                    iso.get_file_from_iso_fp(target, rr_path=f"/{name}")
                    files[name] = target.getvalue().decode()
            iso.close()
            return files
    except FileNotFoundError:
        return None
    except (OSError, pycdlib.pycdlibexception.PyCdlibException, UnicodeDecodeError) as error:
        raise VTorqueError(f"seed {path}", f"it cannot be read: {error}") from error
