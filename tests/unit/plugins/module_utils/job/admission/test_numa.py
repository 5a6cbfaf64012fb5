# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NUMA cells and huge pages of a request: for guests with cores of their own, and refused with a reason for others."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission import numa
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.resolve import (
    SITE_DEFAULT,
    ImageFacts,
    Offers,
    ResolvedRequest,
    resolve,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.policy_file import load
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import RequestErrors, parse

POOL = Offers(images=(ImageFacts("tiny@1", "debian", "x86_64"),))


def resolved(text: str, **policy: str) -> ResolvedRequest:
    request = parse([(f"img=tiny,{text}".rstrip(","), "command line")])
    return resolve(request, Policy(**policy), POOL)  # type: ignore[arg-type]


def on_node(text: str, **policy: str) -> tuple[str, str]:
    found = resolved(text, **policy)
    return numa.for_wire(found.values, found.origins, SITE_DEFAULT)


@pytest.mark.parametrize(
    ("text", "pages", "wanted"),
    [
        ("", "none", ("off", "none")),
        ("", "auto", ("off", "none")),
        ("vcpu_pinning=false", "auto", ("off", "none")),
        ("vcpu_pinning=true", "none", ("auto", "none")),
        ("vcpu_pinning=true", "auto", ("auto", "auto")),
        ("vcpu_pinning=true,numa=off", "auto", ("off", "none")),
        ("vcpu_pinning=true,numa=1,hugepages=2m", "none", ("1", "2M")),
        ("vcpu_pinning=/home/alice/pins,hugepages=1G", "none", ("auto", "1G")),
    ],
)
def test_guests_with_cores_of_their_own_have_cells_and_pages_and_others_have_none(
    text: str, pages: str, wanted: tuple[str, str]
) -> None:
    """What nobody asked for changes no job: the preference of the site for pinning is none."""
    assert on_node(text, hugepages_default=pages) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("numa=1", "numa=1: needs cores of its own: vcpu_pinning=true, or a map"),
        ("numa=auto,vcpu_pinning=false", "numa=auto: needs cores of its own"),
        ("hugepages=2M", "hugepages=2M: needs cores of its own"),
        ("hugepages=2M,numa=off,vcpu_pinning=true", "numa=off has none"),
        ("hugepages=2M,ram=1025M,vcpu_pinning=true", "ram=1025M is no multiple of it"),
        ("hugepages=1G,ram=1536M,vcpu_pinning=true", "hugepages=1G: ram=1536M is no multiple of it"),
        ("hugepages=4K,vcpu_pinning=true", "none, 2M, 1G or auto"),
        ("numa=2", "auto, 1 or off"),
    ],
)
def test_request_that_does_not_go_together_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(RequestErrors) as refused:
        resolved(text)
    assert message in str(refused.value)


def test_switching_off_what_needs_cores_is_no_fault() -> None:
    assert on_node("numa=off,hugepages=none") == ("off", "none")


@pytest.mark.parametrize("text", ["off", "'off'", "false", "'False'"])
def test_site_may_write_off_as_yaml_or_a_role_makes_it(tmp_path: pathlib.Path, text: str) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "vtorque.yml"
    path.write_text(f"numa_default: {text}\n", encoding="utf-8")
    path.chmod(0o644)
    assert load(path).numa_default == "off"
