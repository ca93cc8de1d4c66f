"""The page in a real browser: each view, hostile outputs, keyboard, narrow and dark screens."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("selenium")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from ramet.lang import program
from ramet.lang.serving import PROGRAMS
from ramet.runtime.testing.scripted_model import Script
from ramet.runtime.testing.server import RunningServer

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
AXE = Path(__file__).parents[2] / ".venv/page/node_modules/axe-core/axe.min.js"
SCHEMA = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
WAIT_S = 20
BLANK_BYTES = 6_000
"""A picture of an empty page compresses to less."""


class Page:
    """The page of a server, as somebody uses it."""

    def __init__(self, browser: WebDriver, server: RunningServer) -> None:
        self.browser = browser
        self.server = server

    def open(self, view: str = "playground") -> None:
        self.browser.get("about:blank")
        self.browser.get(f"{self.server.url}/ui/#{view}")

    def find(self, css: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, css)

    def all(self, css: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, css)

    def until(self, condition: Callable[[], Any]) -> Any:
        return WebDriverWait(self.browser, WAIT_S).until(lambda _: condition())

    def ask(self, text: str) -> None:
        self.find("#question").send_keys(text + Keys.ENTER)

    def answer(self, number: int = 1) -> WebElement:
        """The assistant's answer, once it is whole."""
        self.until(
            lambda: self.find("#send").is_enabled() and len(self.all(".assistant")) >= number
        )
        return self.all(".assistant")[number - 1]

    def problem(self) -> str:
        return self.find("#problem").text

    def errors(self) -> list[str]:
        """What the browser complained of."""
        log = self.browser.get_log("browser")
        return [each["message"] for each in log if each["level"] == "SEVERE"]


@pytest.fixture
def page(browser: WebDriver, serve) -> Iterator[Callable[..., Page]]:
    def start(*scripts: Script, **options: Any) -> Page:
        found = Page(browser, serve(*scripts, extensions=(PROGRAMS,), **options))
        found.open()
        found.errors()  # of the page before
        return found

    yield start
    browser.execute_script("sessionStorage.clear()")


def test_an_answer_is_streamed_with_where_its_tokens_come_from(page) -> None:
    found = page(Script(["Hel", "lo"]), Script(['{"n":', "2", "}"]))
    found.ask("Hi")
    assert found.answer().text == "assistant\nHello"
    token = found.all(".token[tabindex]")[1]
    found.browser.execute_script("arguments[0].focus()", token)
    assert '"lo"  sampled' in found.find("#token-facts").text
    Select(found.find("#constraint-kind")).select_by_value("json_schema")
    found.find("#constraint").send_keys(json.dumps(SCHEMA))
    found.until(lambda: "Exact" in found.find("#constraint-state").text)
    found.ask("A number?")
    assert re.fullmatch(r'assistant\n\{"n":[12]\}', found.answer(2).text)
    assert found.all(".token.forced[tabindex]")
    assert "forced" in found.find("#usage").text
    assert found.errors() == []


def test_a_wrong_constraint_is_named_while_it_is_typed(page) -> None:
    found = page()
    Select(found.find("#constraint-kind")).select_by_value("json_schema")
    found.find("#constraint").send_keys('{"type": "strin"}')
    found.until(lambda: "bad" in found.find("#constraint-state").get_attribute("class"))
    assert "strin" in found.find("#constraint-state").text


def test_tools_are_answered_step_by_step(page) -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    found = page(Script([call]), Script(["It is 3."]), tool_format="hermes")
    found.browser.execute_script("document.querySelector('aside details').open = true")
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    found.find("#tools").send_keys(json.dumps([tool]))
    found.ask("Add")
    found.until(lambda: found.all(".results textarea"))
    assert "add(" in found.find(".call").text
    found.find(".results textarea").send_keys(Keys.CONTROL, "a")
    found.find(".results textarea").send_keys("3")
    found.find(".results button").click()
    assert "It is 3." in found.answer(2).text
    assert found.errors() == []


def test_outputs_and_names_are_never_markup(page) -> None:
    found = page(Script([HOSTILE]))
    found.ask(HOSTILE)
    assert HOSTILE in found.answer().text
    nodes = [
        {"kind": "text", "id": "0", "parent": None, "parts": ["x"]},
        {"kind": "gen", "id": "1", "parent": "0", "name": HOSTILE, "params": {"max_tokens": 2}},
    ]
    graph = {"name": HOSTILE, "nodes": nodes}
    httpx.post(f"{found.server.url}/v1/programs", json={"graph": graph}, timeout=30)
    for view in ("cache", "programs"):
        found.find(f"#tab-{view}").click()
        found.until(lambda view=view: found.all(f"#{view} svg"))
    found.until(lambda: HOSTILE in found.find("#runs").text)
    assert found.browser.title == "Ramet"
    assert not found.all("#timeline script")
    assert found.errors() == []


@program
def three_ways(s):
    s.user("x")
    for branch in s.fork(3):
        branch.gen("view", max_tokens=4)


def test_a_program_is_a_timeline(page) -> None:
    found = page(Script(["a", "b"], repeat=True))
    body = {"graph": three_ways.graph().to_json()}
    assert httpx.post(f"{found.server.url}/v1/programs", json=body, timeout=30).status_code == 200
    found.find("#tab-programs").click()
    found.until(lambda: len(found.all("#timeline .bar")) >= 3)
    assert "three_ways: 3 calls" in found.find("#program-summary").text
    assert found.all("#timeline .critical")


def test_the_tree_grows_as_requests_run(page) -> None:
    found = page(Script(["x"], repeat=True))
    found.find("#tab-cache").click()
    found.until(lambda: "send a request" in found.find("#cache-summary").text)
    for prompt in ("a common beginning, then this", "a common beginning, then that"):
        body = {"prompt": prompt, "max_tokens": 1}
        httpx.post(f"{found.server.url}/v1/completions", json=body, timeout=30)
    found.until(lambda: found.all(".node"))
    found.browser.execute_script("document.querySelector('.node').focus()")
    assert "a common beginning" in found.find("#node-facts").text
    assert found.errors() == []


def test_the_engine_is_charted(page) -> None:
    found = page()
    found.find("#tab-engine").click()
    found.until(lambda: found.all("#charts figure"))
    assert "Tokens per second" in found.find("#charts").text
    assert found.errors() == []


def test_a_key_is_asked_for_and_kept(page, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"tenants": [{"name": "one", "keys": ["sk-one"], "admin": True}]}))
    found = page(Script(["Hello"]), api_keys_file=keys)
    found.ask("Hi")
    found.until(lambda: "key" in found.problem().lower())
    found.find("#api-key").send_keys("sk-one" + Keys.TAB)
    found.find("#clear").click()
    found.ask("Hi")
    assert "Hello" in found.answer().text


def test_tabs_work_by_keyboard(page) -> None:
    found = page()
    found.find("#tab-playground").send_keys(Keys.ARROW_RIGHT)
    assert found.find("#tab-cache").get_attribute("aria-selected") == "true"
    assert found.find("#cache").is_displayed()
    assert not found.find("#playground").is_displayed()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 380])
def test_views_are_accessible_and_fit(page, width: int, scheme: str) -> None:
    found = page(Script(["Hello"]))
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    found.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    found.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        found.ask("Hi")
        found.answer()
        for view in ("playground", "cache", "programs", "engine"):
            found.find(f"#tab-{view}").click()
            shown = found.browser.execute_script("return document.documentElement.scrollWidth")
            assert shown <= width
            assert len(found.browser.get_screenshot_as_png()) > BLANK_BYTES
            assert _violations(found) == []
    finally:
        found.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        found.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_documentation_needs_nothing_from_elsewhere(page) -> None:
    found = page()
    found.browser.get(f"{found.server.url}/docs")
    found.until(lambda: len(found.all("#routes details")) > 5)
    assert "POST /v1/chat/completions" in found.find("#routes").text
    assert found.errors() == []


def _violations(page: Page) -> list[str]:
    """What axe-core finds, where it is installed (``make test-page`` does that)."""
    if not AXE.exists():
        return []
    page.browser.execute_script(AXE.read_text())
    script = "const done = arguments[arguments.length - 1]; axe.run().then(done, done)"
    found = page.browser.execute_async_script(script)
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found["violations"]]
