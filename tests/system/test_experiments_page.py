# SPDX-License-Identifier: MIT
"""docs/experiments.md is what `make experiments` writes of the scenarios that are there: none is missing, and nothing in it is of others."""
import glob
import importlib.machinery
import importlib.util
import json
import os
import re

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TITLE = re.compile(r"^## (.*)$", re.M)
WORDS = {"COUNT": "count", "SHARE": "share", "MS": "ms", "RATIO": "ratio"}


def load_program():
    path = os.path.join(TOP, "tests", "experiments")
    loader = importlib.machinery.SourceFileLoader("experiments", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("experiments", loader))
    loader.exec_module(module)
    return module


program = load_program()


def read(*parts):
    with open(os.path.join(TOP, *parts), encoding="utf-8") as file:
        return file.read()


def experiments():
    found = [json.loads(read(path)) for path in sorted(glob.glob(os.path.join(TOP, "examples", "scenarios", "*.json")))]
    return [s for s in found if "experiment" in s]


def sections():
    page = read("docs", "experiments.md")
    parts = TITLE.split(page)
    return dict(zip(parts[1::2], parts[2::2]))


def units():
    table = read("tools", "rehearse", "figures_table.h")
    return {name: WORDS[unit] for name, unit in re.findall(r"X\((\w+),\s*\w+,\s*(\w+),", table) if unit in WORDS}


def number(value, unit):
    """A value of a scenario as a figure is: milliseconds, shares as 0 to 1."""
    if not isinstance(value, str):
        return value
    if value.endswith("%"):
        return float(value[:-1]) / 100
    assert unit == "ms"
    return float(value[:-2]) if value.endswith("ms") else float(value[:-1]) * 1000


def expected_rows(scenario, known):
    """(variant, published) of each figure, in the order of the page."""
    found = {}
    for variant in scenario.get("variants", {None: None}):
        for e in scenario.get("expect", []):
            if e.get("variant", variant) != variant:
                continue
            key = (variant, *(json.dumps(e.get(k)) for k in ("figure", "of", "from", "to", "nth", "width", "relative_to")))
            unit = "ratio" if "relative_to" in e else known[e["figure"]]
            published = program.said(number(e["published"], unit), unit) if "published" in e else None
            found[key] = found.get(key) or published
    return sorted((str(key[0]), published or "–") for key, published in found.items())


def page_rows(section):
    variant, rows = "None", []
    for line in section.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 5 or cells[0] in ("", "---"):
            continue
        if cells[0].startswith("**"):
            variant = cells[0].strip("*")
        else:
            rows.append((variant, cells[1]))
    return sorted(rows)


def test_every_experiment_is_on_the_page_and_no_other():
    titles = ["%s: %s" % (s["experiment"], s["title"]) for s in experiments()]
    assert [t.split(":")[0] for t in titles] == ["E%d" % n for n in range(1, 19)]
    assert list(sections()) == titles


def test_every_expectation_has_its_row_and_its_published_figure():
    known = units()
    for scenario in experiments():
        section = sections()["%s: %s" % (scenario["experiment"], scenario["title"])]
        assert page_rows(section) == expected_rows(scenario, known), scenario["experiment"]


def test_whatever_is_explained_is_explained_on_the_page():
    for scenario in experiments():
        section = sections()["%s: %s" % (scenario["experiment"], scenario["title"])]
        assert scenario["about"] in section
        for e in scenario.get("expect", []):
            assert "why" not in e or program.sentence(e["why"]) in section, e
        for variant in scenario.get("variants", {}).values():
            assert variant.get("about", "") in section


def test_everything_on_the_page_came_out_as_expected():
    page = read("docs", "experiments.md")
    assert "(no)" not in page
    for passed, of in re.findall(r"\| (\d+) of (\d+) \|", page):
        assert passed == of
