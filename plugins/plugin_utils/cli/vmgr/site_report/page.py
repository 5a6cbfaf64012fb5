# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site's facts as one page of HTML that needs nothing else: no script, no other file, no network.

Its Content-Security-Policy lets a browser use the page's one style, by its digest, and nothing besides.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import pathlib
import typing as t

from .....module_utils.job.verdict.decide import OUT_OF_USE
from .....module_utils.rendering.templates import render
from ...output.node_names import fold_names
from ..job import duration
from ..job_usage import format_joules
from . import drawing
from .facts import DAYS, KINDS, NodeState, RecentJob, RunningJob, SiteFacts

TEMPLATE, STYLE = "site-report/page.html.j2", "site-report/style.css"
MOST_NODES = 200
"""Nodes with a note, or not in use, that have a line each."""
MANY_NAMES = 20
MOST_IMAGES = 20
OUTCOME_NAMES = {
    "finished": "finished",
    "lost": "guest lost",
    "refused": "refused",
    "requeued": "tried again",
    "held": "held",
    "unknown": "end not known",
}
ACTION_NAMES = {"refuse": "refused", "requeue": "tried again", "hold": "held", "lost": "guest lost"}


def render_page(facts: SiteFacts, site_dir: pathlib.Path | None) -> str:
    """Return the page.

    Args:
        facts: of the site.
        site_dir: the site's own templates, searched first; None: the collection's alone.

    Raises:
        SiteFault: a template cannot be rendered.
    """
    style = render(STYLE, site_dir=site_dir)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    return render(
        TEMPLATE,
        site_dir=site_dir,
        style=style,
        style_digest=digest,
        facts=facts,
        made_at=_moment(facts.now, "%Y-%m-%d %H:%M:%S %Z"),
        days=DAYS,
        running=[_running(job, facts.now) for job in facts.running],
        nodes=_nodes(facts.nodes),
        outcomes=[(kind, OUTCOME_NAMES[kind], total) for kind in KINDS if (total := _total(facts, kind))],
        calendar=_calendar(facts),
        verdicts=[
            (one, ACTION_NAMES.get(one.action, one.action), fold(one.offline), _moment(one.last))
            for one in facts.verdicts
        ],
        images=_images(facts),
        listed=[_recent(job) for job in facts.listed],
        phases=list(drawing.PHASE_NAMES.items()),
    )


def fold(names: t.Sequence[str]) -> str:
    """Return names of hosts in one short word, or beside each other where they are no usual ones.

    Args:
        names: of hosts.
    """
    try:
        return fold_names(names)
    except Exception:  # what the library makes of a name that it cannot read
        return ", ".join(names)


def _moment(seconds: float, form: str = "%a %d %b %H:%M") -> str:
    try:
        return datetime.datetime.fromtimestamp(seconds).astimezone().strftime(form)
    except (OverflowError, ValueError):
        return "-"


def _names(names: t.Sequence[str]) -> str:
    """Names of a job's nodes in a line, the first of many."""
    return fold(names) if len(names) <= MANY_NAMES else f"{fold(names[:MANY_NAMES])} and {len(names) - MANY_NAMES} more"


def _running(job: RunningJob, now: float) -> dict[str, t.Any]:
    """What a line about a running job is rendered with."""
    elapsed = max(0.0, now - job.began) if job.began else None
    share = min(1.0, elapsed / job.walltime_s) if elapsed is not None and job.walltime_s else None
    return {
        "job": job,
        "id": _short(job.job_id),
        "nodes": _names(job.nodes),
        "elapsed": "" if elapsed is None else duration(elapsed),
        "walltime": duration(job.walltime_s) if job.walltime_s else "",
        "width": None if share is None else max(drawing.LEAST, round(share * drawing.WIDTH)),
    }


def _short(job_id: str) -> str:
    """A job's number and member, as users write it."""
    return job_id.partition(".")[0]


def _nodes(nodes: t.Sequence[NodeState]) -> dict[str, t.Any]:
    """Nodes that have a line each, and the others by their state."""
    noted = [(node, unusable) for node in nodes if (unusable := _is_unusable(node)) or node.note][:MOST_NODES]
    names = {node.name for node, _unusable in noted}
    groups: dict[str, list[str]] = {}
    for node in nodes:
        if node.name not in names:
            groups.setdefault(", ".join(node.states) or "-", []).append(node.name)
    return {
        "all": len(nodes),
        "noted": noted,
        "unusable": sum(map(_is_unusable, nodes)),
        "groups": [(state, len(names), fold(names)) for state, names in sorted(groups.items())],
    }


def _is_unusable(node: NodeState) -> bool:
    return node.offline or bool(OUT_OF_USE.intersection(node.states))


def _total(facts: SiteFacts, kind: str) -> int:
    return sum(day.counts.get(kind, 0) for day in facts.days)


def _calendar(facts: SiteFacts) -> list[tuple[str, int, list[drawing.Bar]]]:
    """Label, sum and bars of each day, the last one first."""
    most = max((sum(day.counts.values()) for day in facts.days), default=0)
    return [
        (
            datetime.date.fromisoformat(day.date).strftime("%a %d %b"),
            sum(day.counts.values()),
            drawing.draw_day(day, most),
        )
        for day in reversed(facts.days)
    ]


def _images(facts: SiteFacts) -> dict[str, t.Any]:
    """The distributions of starts, on one scale."""
    chosen = facts.images[:MOST_IMAGES]
    if not chosen:
        return {"rows": [], "ticks": [], "more": 0}
    low, high = drawing.span_of(chosen)
    rows = [
        {
            "image": one.image,
            "starts": len(one.seconds),
            "figures": [
                (name, duration(one.quantile(share)))
                for name, share in (("half within", 0.5), ("nine in ten", 0.9), ("longest", 1.0))
            ],
            "columns": drawing.draw_distribution(one, low, high),
        }
        for one in chosen
    ]
    return {"rows": rows, "ticks": drawing.ticks_of(low, high), "more": len(facts.images) - len(chosen)}


def _recent(job: RecentJob) -> dict[str, t.Any]:
    """What a line about a job that is over is rendered with."""
    states = [OUTCOME_NAMES[job.outcome]] if job.outcome != "finished" or job.exit_status is None else []
    states += [f"exit status {job.exit_status}"] if job.exit_status is not None else []
    details = [
        f"{job.guests} guest{'s' if job.guests != 1 else ''}" if job.guests else "",
        _names(job.images),
        f"on {_names(job.nodes)}" if job.nodes else "",
        f"{job.cpu_share * 100:.0f} % of its vCPUs worked" if job.cpu_share is not None else "",
        f"{job.wait_share * 100:.0f} % of their time they waited" if job.wait_share is not None else "",
        f"{format_joules(job.energy_j)}{', estimated' if job.energy_estimated else ''}"
        if job.energy_j is not None
        else "",
        f"start {job.start} of it" if job.start > 1 else "",
    ]
    return {
        "job": job,
        "id": _short(job.job_id),
        "state": ", ".join(states),
        "tone": "unknown" if job.outcome == "finished" and job.exit_status else job.outcome,
        "when": _moment(job.moment),
        "details": [text for text in details if text],
        "bars": drawing.draw_timeline(job.pieces),
        "parts": drawing.describe_timeline(job.pieces),
    }
