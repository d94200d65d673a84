"""A real Chromium, Debian's package, that opens our pages and says what is wrong with them. Driven by playwright.

    def test_page(chromium: browser.Chromium, tmp_path: Path) -> None:      # the fixture is in tests/conftest.py
        for width, dark in browser.LOOKS:                                   # 400 and 1280 px, light and dark
            seen = chromium.visit(page.as_uri(), width=width, dark=dark, picture=tmp_path / f"{width}.png")
            assert seen.faults() == []                                      # each fault is a line
            assert "t4-01" in seen.text

`visit` opens a page (file:// or http://), waits until it is loaded and not busy, lets axe-core check it, and
closes it. A `Visit` has what was seen. `do` works with the page before it is looked at, in the way of playwright's sync
API:

    seen = chromium.visit(url, do=lambda page: page.get_by_role("link", name="t4-01").click())

Everything of playwright runs in a thread of its own, because its event loop would stand in the way of other tests.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import amount
from places import TESTS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NARROW, WIDE = 400, 1280  # px
LOOKS = [(width, dark) for width in (NARROW, WIDE) for dark in (False, True)]
# Of many pages: a phone by day and a screen by night; `make test-all` has the other two. For loops and for parameters.
DAILY_LOOKS = [(NARROW, False), (WIDE, True)]
SOME_LOOKS = LOOKS if amount.ALL else DAILY_LOOKS
FEW_LOOKS = [amount.case(look, look in DAILY_LOOKS) for look in LOOKS]


def looks_at(pages: Iterable[str]) -> list[Any]:
    """(page, width, dark) of many pages: each by one of DAILY_LOOKS, in turn; `make test-all` has all looks at each."""
    return [
        amount.case((page, *look), look == DAILY_LOOKS[place % 2]) for place, page in enumerate(pages) for look in LOOKS
    ]


# The first is Chromium built without windows: the same pages for half the processor time of the whole program.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# As root it has no sandbox; without a GPU and with a small /dev/shm it needs the others.
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--font-render-hinting=none")
SECONDS = 300  # ends a hang
AXE = TESTS / "vendor/axe-core/axe.min.js"
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
INSIDE = ("data:", "blob:", "about:")  # requests that leave no page

# Elements that reach out of the page to the right. What lies in a box that scrolls or cuts is the box's own matter.
WIDER = """() => {
  const edge = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth <= edge) return found;
  for (const one of document.body.querySelectorAll('*')) {
    if (one.getBoundingClientRect().right <= edge + 1) continue;
    let box = one.parentElement;
    while (box && box !== document.body && getComputedStyle(box).overflowX === 'visible') box = box.parentElement;
    const name = `<${one.tagName.toLowerCase()} class="${one.getAttribute('class') || ''}">`;
    if (!box || box === document.body) found.push(`${name} ` +
      `ends at ${Math.round(one.getBoundingClientRect().right)} of ${edge} px: ${one.textContent.trim().slice(0, 40)}`);
  }
  return found.length ? found.slice(0, 10) : [`the page is ${document.documentElement.scrollWidth} of ${edge} px wide`];
}"""

# Texts that lie on each other by more than 2 px both ways. What is hidden, turned, or fixed to the window is left out.
ON_EACH_OTHER = """() => {
  const boxes = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const words = node.textContent.trim(), one = node.parentElement;
    const painted = {contentVisibilityAuto: true, opacityProperty: true, visibilityProperty: true};
    if (!words || !one.checkVisibility(painted)) continue;
    let skip = false;
    for (let up = one; up; up = up.parentElement) {
      const style = getComputedStyle(up);
      if (['fixed', 'sticky'].includes(style.position)) skip = true;
      if (style.transform !== 'none' || style.clipPath !== 'none') skip = true;
    }
    if (skip) continue;
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      // A line's box is higher than its letters.
      const spare = Math.max(0, (box.height - parseFloat(getComputedStyle(one).fontSize)) / 2);
      const {left, right, top, bottom} = box;
      if (box.width > 1) boxes.push({words, one, left, right, top: top + spare, bottom: bottom - spare});
    }
  }
  boxes.sort((a, b) => a.top - b.top);
  const found = [];
  for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length && boxes[j].top < boxes[i].bottom; j++) {
    const a = boxes[i], b = boxes[j];
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (a.one === b.one || across <= 2 || down <= 2) continue;
    found.push(`"${a.words.slice(0, 40)}" and "${b.words.slice(0, 40)}"`);
  }
  return found.slice(0, 20);
}"""

CHECK = """async (rules) => {
  const found = await axe.run(document, {resultTypes: ['violations'], runOnly: {type: 'tag', values: rules}});
  const why = node => ([...node.any, ...node.all, ...node.none][0] || {}).message || '';
  const where = node => `${node.target.join(' ')} [${why(node)}]`;
  return found.violations.map(one =>
    `${one.id} (${one.impact}): ${one.help}: ` + one.nodes.slice(0, 5).map(where).join('; '));
}"""
# WCAG 2.2 AA with its earlier versions, and what axe's authors recommend beyond it.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


class NoBrowser(Exception):
    """It is not installed here; the message is one line."""


@dataclass
class Visit:
    """What was seen of a page. The lists are empty where all is well."""

    url: str = ""  # where it ended, after redirects
    status: int = 0  # of the last page that was opened; 0 for file://
    headers: Mapping[str, str] = field(default_factory=dict)  # of the same; names in small letters
    title: str = ""
    text: str = ""  # as it is shown
    answer: Any = None  # what `do` returned
    console: list[str] = field(default_factory=list)  # warnings and errors
    errors: list[str] = field(default_factory=list)  # exceptions of scripts
    elsewhere: list[str] = field(default_factory=list)  # requests to another place than the page's; none went out
    failed: list[str] = field(default_factory=list)  # requests to the page's own place that failed, or got 400 and more
    wider: list[str] = field(default_factory=list)  # what makes the page scroll sideways
    overlaps: list[str] = field(default_factory=list)  # texts that lie on each other
    violations: list[str] = field(default_factory=list)  # of axe-core

    def faults(self) -> list[str]:
        """All that is wrong, a line each. A page that answers with an error is no fault by itself: see `status`."""
        kinds = ("console", "errors", "elsewhere", "failed", "wider", "overlaps", "violations")
        return [f"{kind}: {line}" for kind in kinds for line in getattr(self, kind)]


class Chromium:
    """A started browser. Each visit is a window of its own, without the cookies of the others."""

    def __init__(self, browser: Browser, thread: ThreadPoolExecutor) -> None:
        self._browser, self._thread = browser, thread

    def visit(
        self,
        url: str,
        *,
        width: int = WIDE,
        height: int = 900,
        dark: bool = False,
        javascript: bool = True,
        cookies: Mapping[str, str] | None = None,
        do: Callable[[Page], Any] | None = None,
        picture: Path | None = None,
        check: bool = True,
    ) -> Visit:
        """Open a page and look at it.

        `picture`: a PNG of the whole page is written there. `check`: let axe-core check the page.
        Without `javascript` the page's own scripts do not run; then there are no checks, only what was requested.
        Raises playwright's Error where the page cannot be opened.
        """
        options = {
            "viewport": {"width": width, "height": height},
            "color_scheme": "dark" if dark else "light",
            "reduced_motion": "reduce",
            "java_script_enabled": javascript,
        }
        return self._thread.submit(self._visit, url, options, cookies or {}, do, picture, check and javascript).result()

    def _visit(
        self,
        url: str,
        options: dict[str, Any],
        cookies: Mapping[str, str],
        do: Callable[[Page], Any] | None,
        picture: Path | None,
        check: bool,
    ) -> Visit:
        seen = Visit()
        context = self._browser.new_context(**options)
        try:
            context.set_default_timeout(SECONDS * 1000)
            home = _place(url)  # not the page: its path would be the cookie's
            context.add_cookies([{"name": name, "value": value, "url": home} for name, value in cookies.items()])
            page = context.new_page()
            _listen(page, url, seen)
            response = page.goto(url)
            _wait(page)
            if response:
                seen.status, seen.headers = response.status, response.headers
            if do:
                seen.answer = do(page)
                _wait(page)
            seen.url, seen.title, seen.text = page.url, page.title(), page.inner_text("body")
            if options["java_script_enabled"]:
                seen.wider, seen.overlaps = page.evaluate(WIDER), page.evaluate(ON_EACH_OTHER)
            if picture:
                page.screenshot(path=picture, full_page=True)
            if check:
                page.evaluate(_axe())  # by the browser's own door: a page's Content-Security-Policy does not hold here
                seen.violations = page.evaluate(CHECK, RULES)
        finally:
            context.close()
        return seen


def _wait(page: Page) -> None:
    page.wait_for_load_state("load")
    page.wait_for_selector("[aria-busy=true]", state="detached")  # a page of a trace unpacks its profile first


def _listen(page: Page, url: str, seen: Visit) -> None:
    home = _place(url)

    def requested(route: Any) -> None:
        asked = route.request.url
        if asked.startswith(INSIDE) or _place(asked) == home:
            route.continue_()
        else:
            seen.elsewhere.append(asked)
            route.abort()

    def said(message: Any) -> None:
        if message.type in ("error", "warning"):
            seen.console.append(f"{message.type}: {message.text}")

    def answered(response: Any) -> None:
        if response.request.is_navigation_request():
            seen.status, seen.headers = response.status, response.headers
        elif response.status >= 400:
            seen.failed.append(f"{response.status} {response.url}")

    def failed(request: Any) -> None:
        if request.url not in seen.elsewhere:
            seen.failed.append(f"{request.failure} {request.url}")

    page.route("**/*", requested)
    page.on("console", said)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("response", answered)
    page.on("requestfailed", failed)


def _place(url: str) -> str:
    """A page of a file asks for nothing but itself; one of a server for what is on that server."""
    parts = urlsplit(url)
    return f"file:{parts.path}" if parts.scheme == "file" else f"{parts.scheme}://{parts.netloc}"


def _axe() -> str:
    source = AXE.read_bytes()
    digest = hashlib.sha256(source).hexdigest()
    assert digest == AXE_SHA256, f"{AXE} is not the file that tests/vendor/axe-core/README.md names"
    return source.decode()


def program() -> str:
    """Raises NoBrowser."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        raise NoBrowser("Chromium is not installed (Debian: chromium-headless-shell)")
    return found


@contextmanager
def running() -> Iterator[Chromium]:
    """A browser, ended at the end. Raises NoBrowser."""
    path = program()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise NoBrowser("playwright is not installed (pip install playwright)") from error

    with ThreadPoolExecutor(1, "browser") as thread:
        driver = thread.submit(lambda: sync_playwright().start()).result()
        try:
            browser = thread.submit(driver.chromium.launch, executable_path=path, args=list(OPTIONS)).result()
            try:
                yield Chromium(browser, thread)
            finally:
                thread.submit(browser.close).result()
        finally:
            thread.submit(driver.stop).result()
