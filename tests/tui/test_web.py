"""The explorer in a headless browser: drawn, moved by keys, and nothing left after any end."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("textual_serve", reason="textual-serve is not installed")

PORT = 19_600 + os.getpid() % 300


def processes(word):
    """Return the ids of living processes whose command line holds a word."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if word in words and state not in "ZX":
            found.append(int(place.name))
    return found


def opened(url, *, within_s=30):
    end = time.monotonic() + within_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2) as page:  # noqa: S310  # our own server
                return page.read()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


@pytest.fixture
def server():
    """(process, address) of an explorer that is served, its scenario named after this test."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-m", "firstlight", "explore", "--web", "--port", str(PORT)]
    process = subprocess.Popen([*command, f"fl:1?power_w=1e5&d={PORT}"], **quiet)
    url = f"http://127.0.0.1:{PORT}/"
    opened(url)
    yield process, url
    if process.poll() is None:
        process.terminate()
        process.wait(20)


def left(*, within_s=8):
    """Return what is still served after a while."""
    end = time.monotonic() + within_s
    while (found := processes(f"d={PORT}")) and time.monotonic() < end:
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("order", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_nothing_is_left_however_it_ends(server, order):
    process, _ = server
    assert len(processes(f"d={PORT}")) >= 2
    process.send_signal(order)
    process.wait(20)
    assert left() == []


class Browser:
    """A page of a headless Chromium, told what to do over its debugging socket."""

    def __init__(self, socket):
        self.socket, self.number = socket, 0

    async def tell(self, method, **parameters):
        self.number += 1
        await self.socket.send_json({"id": self.number, "method": method, "params": parameters})
        async for message in self.socket:
            answer = json.loads(message.data)
            if answer.get("id") == self.number:
                return answer["result"]
        raise AssertionError("the browser has gone")

    async def picture(self):
        found = await self.tell("Page.captureScreenshot", format="png")
        return base64.b64decode(found["data"])

    async def press(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" else {}
            code = {"windowsVirtualKeyCode": ord(key.upper())}
            await self.tell("Input.dispatchKeyEvent", type=kind, key=key, **text, **code)


async def looked_at(url, port, place):
    """Return pictures of the first screen and of the map."""
    import aiohttp

    async with aiohttp.ClientSession() as session:
        for _ in range(100):
            try:
                async with session.put(f"http://127.0.0.1:{port}/json/new?{url}") as answer:
                    target = await answer.json()
                    break
            except aiohttp.ClientError:
                await asyncio.sleep(0.2)
        address = target["webSocketDebuggerUrl"]
        async with session.ws_connect(address, max_msg_size=1 << 26) as socket:
            page = Browser(socket)
            pictures = []
            for key in ("", "3"):
                if key:
                    await page.press(key)
                await asyncio.sleep(12)
                pictures.append(await page.picture())
                (place / f"web{len(pictures)}.png").write_bytes(pictures[-1])
            return pictures


def colors(picture):
    from PIL import Image

    image = Image.open(io.BytesIO(picture)).convert("RGB")
    return {color: count for count, color in image.getcolors(1 << 24)}


@pytest.mark.long
def test_a_browser_shows_it_and_moves_it(tmp_path, server):
    """FIRSTLIGHT_PICTURES=folder keeps the pictures."""
    pytest.importorskip("PIL", reason="Pillow is not installed")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium")
    _, url = server
    place = Path(os.environ.get("FIRSTLIGHT_PICTURES", tmp_path))
    port = PORT + 1
    chromium = subprocess.Popen(
        [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1500,900",
         f"--remote-debugging-port={port}", f"--user-data-dir={tmp_path / 'profile'}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        first, second = asyncio.run(looked_at(url, port, place))
    finally:
        chromium.terminate()
        chromium.wait(20)
    shown, mapped = colors(first), colors(second)
    # The colours of the three designs: the table and the curves are there.
    for design in ((0xE6, 0x9F, 0x00), (0x56, 0xB4, 0xE9), (0x2F, 0xC0, 0x8D)):
        assert shown.get(design, 0) > 100, design
    assert shown != mapped
