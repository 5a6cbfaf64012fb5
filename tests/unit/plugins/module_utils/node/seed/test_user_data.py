# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which texts of user data cloud-init knows, as its own sources have it."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed import nocloud
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed.user_data import check_header

MULTIPART = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="==x=="

--==x==
Content-Type: {}

{}
--==x==--
"""


@pytest.mark.parametrize(
    "text",
    [
        "#cloud-config\na: 1\n", "#cloud-config", "#Cloud-Config\r\na: 1\r\n", "#cloud-config # ours\na: 1\n",
        "#!/bin/sh\ntrue\n", "#cloud-config-archive\n- '#!/bin/sh'\n", "#cloud-config-jsonp\n[]\n",
        "#include\nhttps://a.example/b\n", "#include-once https://a.example/b\n", "#cloud-boothook\n#!/bin/sh\n",
        "#part-handler\n", "## template: jinja\n#cloud-config\na: {{ v1.region }}\n",
        "## template: jinja\n{% if true %}\n#cloud-config\n{% endif %}\n", "## template: jinja\n#!/bin/sh\n",
        MULTIPART.format("text/cloud-config", "a: 1"), MULTIPART.format("text/x-shellscript", "#!/bin/sh"),
        MULTIPART.format("text/plain", "#cloud-config\na: 1"),
        "Content-Type: text/cloud-config\nMIME-Version: 1.0\n\na: 1\n",
        "#cloud-config\n# mime-version: none of this\na: 1\n",
    ],
)  # fmt: skip
def test_user_data_that_cloud_init_knows_is_taken(text: str) -> None:
    assert nocloud.files_of(text, {}, None)["user-data"] == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\n#cloud-config\na: 1\n", "the first line is empty"),
        ("\n#!/bin/sh\n", "the first line is empty"),
        (" #cloud-config\n", "the first line"),
        ("---\n#cloud-config\na: 1\n", "the first line is ---"),
        ("---\nusers: []\n", "the first line is ---"),
        ("# our guests\n#cloud-config\na: 1\n", "the first line is a comment"),
        ("cloud-config\na: 1\n", "the first line, 'cloud-config', is no header, as `#` must stand right before"),
        ("# cloud-config\na: 1\n", "the first line, '# cloud-config', is no header"),
        ("\ufeff#cloud-config\na: 1\n", "the first line is no header"),
        ("users: []\n", "the first line is no header"),
        ("echo hello\n", "the first line is no header"),
        ("I2Nsb3VkLWNvbmZpZwo=\n", "the first line is no header"),
        ("\x1f\x8b\x08", "the first line is no header"),
        ("## template: jinja\na: 1\n", "no header follows"),
        ("## template: jinja\n", "no header follows"),
        ("## template: jinja2\n#cloud-config\n", "names a template that is not"),
        ("\n" + MULTIPART.format("text/cloud-config", "a: 1"), "the first line is empty"),
        ("MIME-Version: 1.0\n\na: 1\n", "the first line is no header"),
        (MULTIPART.format("text/plain", "a: 1"), "part 1: the first line is no header"),
    ],
)
def test_user_data_that_cloud_init_would_ignore_is_refused(text: str, why: str) -> None:
    with pytest.raises(VTorqueError) as caught:
        nocloud.files_of(text, {}, None)
    assert why in str(caught.value)
    assert "cloud-init would ignore" in str(caught.value)
    assert "#cloud-config" in str(caught.value)


def test_line_that_may_be_a_secret_is_not_told() -> None:
    with pytest.raises(VTorqueError) as caught:
        check_header("password: hunter2\n")
    assert "hunter2" not in str(caught.value)
