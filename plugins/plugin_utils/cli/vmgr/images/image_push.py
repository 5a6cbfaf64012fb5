# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr image push`: copies of an image on nodes, before jobs want them."""

from __future__ import annotations

import argparse
import dataclasses
import os
import typing as t

from .....module_utils.errors import UserFault
from .....module_utils.node.cache.copy_store import sources_of
from .....module_utils.node.pool import images
from ....bridge.node_settings import Configuration
from ....site.compute_nodes import list_nodes
from ....site.image_push import HERE, SILENT, push
from ...output.json_output import print_json
from ...output.node_names import expand_names, fold_names
from ...output.progress import waiting

if t.TYPE_CHECKING:
    from ....site.image_push import PushResult

FAILED, UNASKED = 1, 4
EPILOG = """\
Each node copies the image out of the pool by itself, verified, at no more than cache_rate; 32 nodes at once.  Jobs with
fs_type=local then begin on it at once.  Interrupted, the nodes go on; called again, it tells how far they are.

exit status:
  0  all nodes have it
  1  some cannot; it is said why
  2  the command line is wrong, or there is no such image
  3  the batch server does not tell of its nodes
  4  a node could not be asked, whatever else there is

examples:
  vmgr image push debian12                          the newest revision, on all compute nodes
  vmgr image push debian12@3 --node cn[01-16]
  vmgr image push debian12 --query "[?state!='here'].node"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `vmgr image push`.

    Args:
        parser: of the verb.
    """
    parser.add_argument("name", metavar="NAME", help="the image, with or without its revision (debian12@3)")
    parser.add_argument(
        "--node", "--nodes", dest="nodes", metavar="NODE", nargs="+", help="these nodes: cn1 cn2, or cn[01-16] (all)"
    )
    parser.add_argument("--fs-type", choices=("local", "ramdisk"), default="local", help="where to (%(default)s)")


def run(call: argparse.Namespace, configuration: Configuration) -> int:
    """Bring an image to nodes; see `image.run`.

    Raises:
        UserFault: who calls is not root; there is no such image, or it has no record.
        SiteFault: the batch server does not tell of its nodes.
    """
    if os.geteuid() != 0:
        raise UserFault("image push", "reaches nodes as root", "call it as root")
    policy = configuration.policy
    image = images.find(call.name, configuration.settings.pool)
    sources_of(image)
    nodes = expand_names(call.nodes) if call.nodes is not None else list_nodes(policy)
    latest: dict[str, str] = {}
    with waiting(wanted=not call.json) as say:

        def report(node: str, text: str) -> None:
            latest[node] = text
            have = sum(state == HERE for state in latest.values())
            say(f"{have} of {len(nodes)} nodes have {image.name}; {node}: {text}")

        brought = push(
            image.name,
            nodes,
            fs_type=call.fs_type,
            ssh_timeout_s=float(policy.ssh_timeout),
            prefix=policy.prefix_nodes,
            report=report,
        )
    if call.json:
        print_json(call, [{"image": image.name, **dataclasses.asdict(one)} for one in brought])
    else:
        _print_results(image.name, brought)
    if any(one.state == SILENT for one in brought):
        return UNASKED
    return 0 if all(one.state == HERE for one in brought) else FAILED


def _print_results(image: str, brought: t.Sequence[PushResult]) -> None:
    """Nodes that agree together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for one in brought:
        alike.setdefault((one.state, one.reason), []).append(one.node)
    for (state, text), nodes in alike.items():
        print(f"{fold_names(nodes)}: {image} is here" if state == HERE else f"{fold_names(nodes)}: {state}: {text}")
