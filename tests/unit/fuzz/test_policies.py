# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever stands in the site's configuration is a policy, or the site's fault, in words.

Seen to fail: with a lone surrogate, before that was told as an error of ours.
"""

from __future__ import annotations

import json

import hypothesis.strategies as st
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import PARAMETERS
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.policy_file import parse
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.policy_writer import policy_text
from hypothesis import given

from .inputs import JSON, TEXTS, check_message, damaged, tried

NAMES = st.one_of(st.sampled_from(sorted(PARAMETERS)), TEXTS)
GOOD = b"bridge: br1\nmounts: [nfs]\nram_max: 4G\nparallel: true\ntimeout: 300\ndomain: 'a.example'\n# a remark\n"


def looked(text: str) -> None:
    try:
        found = parse(text, "x.yml").policy
    except SiteFault as error:
        check_message(error)
        return
    assert set(vars(found)) == set(PARAMETERS)
    values = {name: getattr(found, name) for name in PARAMETERS}
    assert parse(policy_text(values), "x.yml").policy == found


@tried
@given(st.lists(st.tuples(NAMES, TEXTS), max_size=4))
def test_any_lines_are_a_policy_or_told(lines: list[tuple[str, str]]) -> None:
    looked("".join(f"{name}: {value}\n" for name, value in lines))


@tried
@given(st.dictionaries(NAMES, JSON, max_size=3))
def test_any_values_of_parameters_are_good_or_told(values: dict[str, object]) -> None:
    looked(json.dumps(values))


@tried
@given(damaged(GOOD))
def test_any_damage_is_read_or_told(data: bytes) -> None:
    looked(data.decode("utf-8", "replace"))


@tried
@given(st.text(st.sampled_from("a:b- [{}],&*!|>'\"#\n%?<@~"), max_size=30))
def test_any_yaml_is_what_yaml_makes_of_it_or_told(text: str) -> None:
    looked("bridge: " + text)
    assert yaml.safe_load(json.dumps({"bridge": text})) == {"bridge": text}
