# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr site report` writes a page of the site's records and of its batch system."""

from __future__ import annotations

import json
import os
import pathlib
import stat
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import ServerSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import job_record
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.site_report import gather
from ansible_collections.mikelangelo.vtorque.tests import made_up_week


class Server:
    """A batch server with jobs of a made-up week."""

    def __init__(self) -> None:
        self.fault = ""
        self.public = True

    def all_jobs(self) -> tuple[t.Any, ...]:
        """Its jobs, or no answer."""
        if self.fault:
            raise SiteFault(self.fault, "no answer within 10 s")
        return made_up_week.jobs()

    def nodes(self) -> tuple[t.Any, ...]:
        """Its nodes."""
        return made_up_week.nodes()

    def server(self) -> ServerSettings:
        """What it allows."""
        return ServerSettings((), (), query_other_jobs=self.public, down_on_error=True)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """The batch server that is asked."""
    found = Server()
    monkeypatch.setattr(gather, "open_batch", lambda *_one, **_more: found)
    return found


@pytest.fixture
def records(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Three records of today, as root leaves them."""
    place = tmp_path / "records"
    monkeypatch.setattr(job_record, "RECORDS", place)
    for number, raw in enumerate(made_up_week.records(3), 1):
        directory = place / f"{raw['job_id']}.1"
        directory.mkdir(parents=True)
        moved = raw | {"ended": time.time() - 60 * number, "name": f"name-{number}"}
        (directory / "record.json").write_text(json.dumps(moved))
        (directory / "record.json").chmod(0o400)
    return place


def vmgr_site(tmp_path: pathlib.Path, *arguments: str, configuration: str = "") -> int:
    """Its exit status."""
    path = tmp_path / "vtorque.yml"
    path.write_text(configuration or "{}\n")
    return main.run_subject(["site", "report", *arguments], path)


def test_report_writes_a_page_that_everybody_may_read_and_nothing_else(
    tmp_path: pathlib.Path, server: Server, records: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "www"
    assert vmgr_site(tmp_path, "--html", str(place)) == 0
    assert capsys.readouterr() == ("", "")
    assert [path.name for path in place.iterdir()] == ["index.html"]
    assert stat.S_IMODE((place / "index.html").stat().st_mode) == 0o444
    text = (place / "index.html").read_text()
    assert "name-1" in text
    assert "new kernel on Monday" in text
    assert "train-43" in text


def test_report_without_a_directory_uses_the_sites_or_asks_for_one(
    tmp_path: pathlib.Path, server: Server, records: pathlib.Path
) -> None:
    place = tmp_path / "of-the-site"
    assert vmgr_site(tmp_path, configuration=f"report_dir: {place}\n") == 0
    assert (place / "index.html").exists()
    with pytest.raises(UserFault, match="report_dir"):
        vmgr_site(tmp_path)


def test_report_replaces_the_page_whole(tmp_path: pathlib.Path, server: Server, records: pathlib.Path) -> None:
    """A reader who has opened the former page reads that to its end, and half of a killed one's goes."""
    place = tmp_path / "www"
    place.mkdir()
    (place / "index.html").write_text("former")
    half, foreign, busy = place / ".index.html.4194303", place / ".other.4194303", place / ".index.html.1"
    for path in (half, foreign, busy):
        path.write_text("half")
    with (place / "index.html").open() as former:
        assert vmgr_site(tmp_path, "--html", str(place)) == 0
        assert former.read() == "former"
    assert "</html>" in (place / "index.html").read_text()
    assert sorted(path.name for path in place.iterdir()) == [".index.html.1", ".other.4194303", "index.html"]


def test_report_follows_no_link_that_lies_in_the_place_of_the_page(
    tmp_path: pathlib.Path, server: Server, records: pathlib.Path
) -> None:
    place, target = tmp_path / "www", tmp_path / "target"
    place.mkdir()
    target.write_text("not the page")
    (place / "index.html").symlink_to(target)
    (place / f".index.html.{os.getpid()}").symlink_to(target)
    assert vmgr_site(tmp_path, "--html", str(place)) == 0
    assert target.read_text() == "not the page"
    assert not (place / "index.html").is_symlink()


def test_report_cannot_be_written_keeps_the_former_page(
    tmp_path: pathlib.Path, server: Server, records: pathlib.Path
) -> None:
    with pytest.raises(UserFault, match="No such file"):
        vmgr_site(tmp_path, "--html", str(tmp_path / "away" / "www"))
    (tmp_path / "file").write_text("")
    with pytest.raises(UserFault):
        vmgr_site(tmp_path, "--html", str(tmp_path / "file"))


def test_report_of_a_silent_server_has_the_records_and_warns(
    tmp_path: pathlib.Path, server: Server, records: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.fault = "qstat"
    assert vmgr_site(tmp_path, "--html", str(tmp_path / "www")) == 0
    assert "no answer within 10 s" in capsys.readouterr().err
    text = (tmp_path / "www/index.html").read_text()
    assert "The batch system does not answer" in text
    assert "4711" in text


@pytest.mark.parametrize(
    ("euid", "public", "named"),
    [
        pytest.param(0, True, True, id="root, and everybody sees all jobs"),
        pytest.param(0, False, False, id="root, and users see their own jobs alone"),
        pytest.param(70_001, False, True, id="a user, of their own jobs"),
    ],
)
def test_report_names_users_and_jobs_where_everybody_may_see_them(
    tmp_path: pathlib.Path, server: Server, records: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
    euid: int, public: bool, named: bool,
) -> None:  # fmt: skip
    server.public = public
    monkeypatch.setattr(gather.os, "geteuid", lambda: euid)
    assert vmgr_site(tmp_path, "--html", str(tmp_path / "www")) == 0
    text = (tmp_path / "www/index.html").read_text()
    assert ("name-1" in text, "train-43" in text, ">alice<" in text) == (named,) * 3
    assert "4711" in text


def test_report_prints_facts_for_programs(
    tmp_path: pathlib.Path, server: Server, records: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vmgr_site(tmp_path, "--json", configuration=f"report_dir: {tmp_path / 'unused'}\n") == 0
    facts = json.loads(capsys.readouterr().out)
    assert [job["name"] for job in facts["listed"]] == ["name-1", "name-2", "name-3"]
    assert {node["note"] for node in facts["nodes"]} > {"new kernel on Monday"}
    assert not (tmp_path / "unused").exists()
    assert vmgr_site(tmp_path, "--query", "images[].image", "--html", str(tmp_path / "both")) == 0
    assert json.loads(capsys.readouterr().out)
    assert (tmp_path / "both/index.html").exists()


def test_report_reads_no_more_records_than_a_page_can_wait_for(
    tmp_path: pathlib.Path, server: Server, records: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(gather, "MOST_RECORDS", 2)
    assert vmgr_site(tmp_path, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["starts"], facts["incomplete"]) == (2, True)
