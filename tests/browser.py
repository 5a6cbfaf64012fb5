# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A page as a reader has it: opened in a real Chromium without a window, which has no network.

The browser is driven over two pipes by its own protocol (https://chromedevtools.github.io/devtools-protocol/): a page
of any width, dark or light, is measured and drawn.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import typing as t

PROGRAM = "/usr/bin/chromium"
ANSWER_S = 120
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync",
    "--proxy-server=127.0.0.1:9", "--remote-debugging-pipe", "--force-color-profile=srgb", "--lang=en",
)  # fmt: skip
MEASURE = """
(() => {
  const wide = [...document.querySelectorAll('body *')].filter(
    one => !one.closest('.wide') && !one.closest('svg') && one.getBoundingClientRect().right > innerWidth + 0.5
      && getComputedStyle(one.parentElement).overflowX === 'visible');
  return JSON.stringify({
    title: document.title, text: document.body.innerText, width: innerWidth,
    scroll: document.documentElement.scrollWidth, wide: wide.map(one => one.outerHTML.slice(0, 200)),
    background: getComputedStyle(document.body).backgroundColor,
    scripts: document.scripts.length,
    elements: [...new Set([...document.querySelectorAll('*')].map(one => one.localName))],
    smallest: Math.min(...[...document.querySelectorAll('body *')].filter(
      one => [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim())
        && one.getClientRects().length).map(
      one => parseFloat(getComputedStyle(one).fontSize) * (one.getScreenCTM ? one.getScreenCTM().d : 1))),
    tallest: Math.max(0, ...[...document.querySelectorAll('.head bdi, .facts bdi')].map(
      one => one.getBoundingClientRect().height)),
  });
})()
"""


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a reader sees.

    Attributes:
        facts: of `MEASURE`.
        requests: addresses that the page made the browser ask for, its own not among them.
        complaints: what the browser has logged, such as what its policy forbade.
    """

    facts: dict[str, t.Any]
    requests: tuple[str, ...]
    complaints: tuple[str, ...]


class Browser:
    """A browser that runs."""

    def __init__(self, orders: int, answers: int) -> None:
        self._orders, self._answers = orders, answers
        self._buffer, self._number = b"", 0
        self._events: list[dict[str, t.Any]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self._ask(f"{domain}.enable")

    def open(
        self, path: pathlib.Path, *, width: int, dark: bool, picture: pathlib.Path, top: int = 0, height: int = 0
    ) -> Seen:
        """Open a file, measure it and draw it.

        Args:
            path: of the page.
            width: of the window.
            dark: does the reader want it dark?
            picture: where it is drawn.
            top: where the picture begins.
            height: of the picture; 0: the whole page.
        """
        self._events.clear()
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._ask("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1}
        self._ask("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)
        address = path.resolve().as_uri()
        self._ask("Page.navigate", url=address)
        self._wait_for("Page.loadEventFired")
        found = json.loads(self._ask("Runtime.evaluate", expression=MEASURE)["result"]["value"])
        clip = {"clip": {"x": 0, "y": top, "width": width, "height": height, "scale": 1}} if height else {}
        drawn = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, **clip)
        picture.write_bytes(base64.b64decode(drawn["data"]))
        sent = [one["params"] for one in self._events if one.get("method") == "Network.requestWillBeSent"]
        requests = tuple(one["request"]["url"] for one in sent if one["request"]["url"] != address)
        logged = [one["params"] for one in self._events if one.get("method") == "Log.entryAdded"]
        return Seen(found, requests, tuple(one["entry"]["text"] for one in logged))

    def _ask(self, method: str, **parameters: t.Any) -> dict[str, t.Any]:
        return self._call(method, session=self._session, **parameters)

    def _call(self, method: str, session: str = "", **parameters: t.Any) -> dict[str, t.Any]:
        self._number += 1
        order = {"id": self._number, "method": method, "params": parameters}
        if session:
            order["sessionId"] = session
        data = memoryview(json.dumps(order).encode() + b"\0")
        while data:
            data = data[os.write(self._orders, data) :]
        while (answer := self._read()).get("id") != self._number:
            self._events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, t.Any] = answer["result"]
        return result

    def _wait_for(self, event: str) -> None:
        while not any(one.get("method") == event for one in self._events):
            self._events.append(self._read())

    def _read(self) -> dict[str, t.Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._answers, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        line, _null, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, t.Any] = json.loads(line)
        return message


@contextlib.contextmanager
def browser() -> t.Iterator[Browser]:
    """Run a browser, and end it with all of its processes; what does not answer in time is ended as well."""
    orders_in, orders_out = os.pipe()
    answers_in, answers_out = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        # the browser reads orders from descriptor 3, and answers on 4
        script = f'exec 3<&{orders_in} 4>&{answers_out}; exec "$@"'
        command = ["/bin/bash", "-c", script, "-", "timeout", "--kill-after=5", str(ANSWER_S), PROGRAM, *OPTIONS,
                   f"--user-data-dir={home}/profile"]  # fmt: skip
        environment = {**os.environ, "HOME": home, "XDG_RUNTIME_DIR": home, "TZ": "UTC"}
        with open(os.devnull, "w") as nothing:
            process = subprocess.Popen(
                command, pass_fds=(orders_in, answers_out), stdin=subprocess.DEVNULL, stdout=nothing, stderr=nothing,
                env=environment, start_new_session=True,
            )  # fmt: skip
        os.close(orders_in)
        os.close(answers_out)
        try:
            yield Browser(orders_out, answers_in)
        finally:
            os.close(orders_out)
            os.close(answers_in)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
