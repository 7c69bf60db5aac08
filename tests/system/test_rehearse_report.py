# SPDX-License-Identifier: MIT
"""The report of a rehearsal in a browser: it needs nothing else, says nothing to the console, and can be read on a telephone, on a wide
screen and in the dark.

The report is of a rehearsal that was played for it, with every guard that has a picture.
"""
import json
import subprocess

import pytest
from harness import RESCTL
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

pytestmark = [pytest.mark.smoke, pytest.mark.plays]

PICTURES = ["Load", "What clients got", "Refused, by reason", "Breaker", "Latency", "Bulkhead", "Tokens", "Throttle"]
LEAST_TEXT = 11  # pixels
SCENARIO = {
    "title": "All guards <at once>", "about": "So that each of them has its picture.", "duration": "2s", "workers": 4, "threads": 4,
    "views": ["own", "shared"],
    "configuration": {"resources": {"prices": {
        "breaker": {"consecutive": 4, "cooldown": "200ms"}, "timeout": {"attempt": "60ms"},
        "retry": {"attempts": 3, "base": "10ms", "budget": {"ratio": 0.1, "capacity": 10}},
        "bulkhead": {"limit": 3, "max_wait": "20ms"}, "rate": {"per_second": 200, "burst": 40}, "throttle": {"window": "1s"}}}},
    "dependencies": {"prices": {"latency": "5ms", "faults": [{"kind": "hang", "from": "500ms", "to": "1200ms"}]}},
    "load": {"users": {"resource": "prices", "rate": 120, "to": "1800ms", "fallback": "stale", "patience": "500ms"}},
    "expect": [{"figure": "opened", "of": "prices", "is": "at least", "value": 1, "published": 1},
               {"figure": "served", "of": "users", "is": "at least", "value": 100000, "why": "nobody <can> serve that"}],
    "compare": [{"figure": "failing_calls", "of": "prices", "better": "less", "why": "calls that fail"}],
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    place = tmp_path_factory.mktemp("report")
    (place / "scenario.json").write_text(json.dumps(SCENARIO), encoding="utf-8")
    played = subprocess.run([RESCTL, "rehearse", "--report", str(place / "report.html"), str(place / "scenario.json")], timeout=60,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert played.returncode == 1 and played.stderr == b"", played
    return place / "report.html"


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    # What stands in /usr/bin is a script, which would end without it.
    options.binary_location = "/usr/lib/chromium/chromium-headless-shell"
    for argument in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["http://*", "https://*", "ws://*"]})
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, report):
    """page(width, scheme) is the report on a screen of that width."""
    def open_page(width, scheme="light"):
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        browser.get(report.as_uri())
        return browser

    return open_page


def test_nothing_is_asked_of_anybody_and_nothing_is_complained_about(page, report):
    driver = page(1280)
    driver.get_log("browser")
    driver.get_log("performance")
    driver.refresh()
    assert driver.get_log("browser") == []
    asked = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    urls = [event["params"]["request"]["url"] for event in asked if event["method"] == "Network.requestWillBeSent"]
    assert [url for url in urls if not url.startswith("data:")] == [report.as_uri()]
    assert driver.find_elements(By.CSS_SELECTOR, "script, iframe, img, object, link[rel=stylesheet]") == []
    assert driver.title == SCENARIO["title"]


def test_the_first_screen_has_the_verdict_and_the_expectations(page):
    driver = page(360)
    verdict = driver.find_element(By.CSS_SELECTOR, ".verdict")
    table = driver.find_element(By.TAG_NAME, "table")
    assert "1 of 2 expectations does not hold." in verdict.text and "bad" in verdict.get_attribute("class")
    assert verdict.rect["y"] < 400 and table.rect["y"] < 600
    rows = [row.text for row in table.find_elements(By.TAG_NAME, "tr")]
    assert "Published" in rows[0] and "Own views" in rows[0] and "Shared view" in rows[0]
    assert rows[2].count("\u2717") == 2 and "nobody <can> serve that" in rows[2]


@pytest.mark.parametrize("width", [360, 1280])
def test_every_picture_is_drawn_with_its_axes(page, width):
    driver = page(width)
    assert [h.text.split("\n")[0] for h in driver.find_elements(By.CSS_SELECTOR, ".plots h3")] == \
        [name + " prices" if name in ("Breaker", "Bulkhead", "Tokens", "Throttle") else name for name in PICTURES]
    pictures = driver.execute_script("""
        return [...document.querySelectorAll('svg')].map(svg => {
            const box = e => { const b = e.getBBox(); return [b.x, b.y, b.width, b.height]; };
            return {title: svg.querySelector('title').textContent, text: svg.querySelector('desc').textContent,
                    named: svg.getAttribute('aria-labelledby').split(' ').map(id => document.getElementById(id).textContent !== ''),
                    size: svg.getBoundingClientRect().width, data: [...svg.querySelectorAll('.line, .area')].map(box),
                    faults: [...svg.querySelectorAll('.fault')].map(box), view: svg.viewBox.baseVal.width,
                    texts: [...svg.querySelectorAll('text')].map(t => ({words: t.textContent, box: box(t),
                        size: parseFloat(getComputedStyle(t).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width}))};
        })""")
    # One for each view; or "None." where a guard had nothing to do on that view.
    figures = [figure.text for figure in driver.find_elements(By.CSS_SELECTOR, ".plots figure")]
    assert len(figures) == 2 * len(PICTURES)
    assert len(pictures) + sum(text.endswith("None.") for text in figures) == len(figures)
    assert {picture["title"].split(" of ")[0].rsplit(",", 1)[0] for picture in pictures} == set(PICTURES)
    for picture in pictures:
        where = picture["title"]
        assert where.endswith(("own views", "shared view")) and picture["named"] == [True, True] and picture["text"], where
        assert picture["size"] > 300 and picture["data"], where
        assert all(w > 0 and w + h > 1 for _, _, w, h in picture["data"]), where
        assert len(picture["faults"]) == 1 and picture["faults"][0][2] > 50 and picture["faults"][0][3] > 20, where
        words = [text["words"] for text in picture["texts"]]
        assert "hangs" in words and "0" in words and any(word.endswith("\u00a0s") for word in words), (where, words)
        for text in picture["texts"]:
            x, _, w, _ = text["box"]
            assert x >= 0 and x + w <= picture["view"], (where, text)
            assert text["size"] >= LEAST_TEXT, (where, text)


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_the_page_is_no_wider_than_the_screen(page, width):
    driver = page(width)
    for details in driver.find_elements(By.TAG_NAME, "details"):
        driver.execute_script("arguments[0].open = true", details)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    sizes = driver.execute_script("""
        return [...document.querySelectorAll('main *')].filter(e => !e.closest('svg') && e.textContent.trim() && e.getClientRects().length)
            .map(e => parseFloat(getComputedStyle(e).fontSize))""")
    assert min(sizes) >= LEAST_TEXT


def test_views_stand_side_by_side_and_on_a_telephone_below_each_other(page):
    def tops_and_lefts(width):
        figures = page(width).find_elements(By.CSS_SELECTOR, ".plots")[0].find_elements(By.TAG_NAME, "figure")
        return [(figure.rect["y"], figure.rect["x"]) for figure in figures]

    own, shared = tops_and_lefts(1280)
    assert own[0] == shared[0] and own[1] < shared[1]
    own, shared = tops_and_lefts(360)
    assert own[0] < shared[0] and own[1] == shared[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(page, scheme):
    """WCAG AA: 4.5 to 1, for text of the page and names in pictures."""
    driver = page(360, scheme)
    colors = driver.execute_script("""
        const back = getComputedStyle(document.body).backgroundColor;
        const html = [...document.querySelectorAll('main *')].filter(e => !e.closest('svg') && e.textContent.trim());
        return [back, [...new Set([...html.map(e => getComputedStyle(e).color),
                                   ...[...document.querySelectorAll('svg text')].map(e => getComputedStyle(e).fill)])]]""")

    def luminance(color):
        parts = [float(part) / 255 for part in color[color.index("(") + 1:-1].split(",")[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    back = luminance(colors[0])
    assert back < 0.05 if scheme == "dark" else back > 0.9
    for color in colors[1]:
        light, dark = sorted((luminance(color), back), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (color, colors[0])


def test_tables_are_readable_aloud_and_by_keyboard(page):
    driver = page(360)
    assert driver.find_element(By.TAG_NAME, "html").get_attribute("lang") == "en"
    assert all(th.get_attribute("scope") for th in driver.find_elements(By.TAG_NAME, "th"))
    boxes = driver.find_elements(By.CSS_SELECTOR, ".scroll")
    assert boxes and all(box.get_attribute("tabindex") == "0" and box.get_attribute("aria-label") for box in boxes)
    assert len(driver.find_elements(By.TAG_NAME, "caption")) == len(driver.find_elements(By.TAG_NAME, "table")) == len(boxes)
    ids = driver.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


