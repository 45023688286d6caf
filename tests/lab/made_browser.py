"""A browser for test modules that name this one in pytest_plugins, and visits to pages with it."""

import shutil

import pytest

CONTRAST_LEAST = 4.5
PATIENCE_MS = 200_000


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium")
    if not program:
        pytest.fail("there is no chromium; install Debian's packages chromium and fonts-dejavu-core")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"],
                                       timeout=PATIENCE_MS)  # fmt: skip
        yield started
        started.close()


class Visit:
    """A page that is opened without a network, and what went wrong meanwhile."""

    def __init__(self, browser, file, width=1280, scheme="light", script=True):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme,
                                           java_script_enabled=script)  # fmt: skip
        self.context.set_default_timeout(PATIENCE_MS)
        self.page, self.faults, url = self.context.new_page(), [], file.as_uri()
        self.page.on(
            "console", lambda said: self.faults.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.faults.append("a dialog"), dialog.dismiss()))

        def route(call):
            if call.request.url == url:
                return call.continue_()
            self.faults.append(f"request: {call.request.url}")
            return call.abort()

        self.page.route("**/*", route)
        self.page.goto(url)

    def overflow(self):
        return self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


CONTRAST = """() => {
  const numbers = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(node).backgroundColor);
      if (a > 0 && r !== undefined) return [r, g, b];
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || node.closest("style, script, option") || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const ink = numbers(node.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(node))].sort((x, y) => y - x);
    const found = (a + 0.05) / (b + 0.05);
    if (found < worst[0]) worst = [found, node.outerHTML.slice(0, 200)];
  }
  return worst;
}"""
