# SPDX-License-Identifier: MIT
"""docs/scenario.schema.json against the program: the same files of tests/scenarios and examples, and the same table of keys.

The table in docs/scenarios.md is what the program prints (tests/unit/test_scenario.c compares them), so a schema that agrees with the
table agrees with the program.
"""

import json
import re

import jsonschema
import pytest
from test_config_schema import ROOT, decimal, strict

CORPUS = ROOT / "tests" / "scenarios"
DOCS = ROOT / "docs"
SCHEMA = json.loads((DOCS / "scenario.schema.json").read_text())
CONFIG = json.loads((DOCS / "config.schema.json").read_text())

# What the program refuses and a schema of this kind does not see.
BEYOND_A_SCHEMA = {"short", "too_much"}
# Where the objects of the file are in the schema, by the paths of the manual.
BLOCKS = {"variants.NAME": "variant", "dependencies.NAME": "dependency", "dependencies.NAME.latency[]": "span",
          "dependencies.NAME.latency[].lognormal": "lognormal", "dependencies.NAME.faults[]": "fault", "load.NAME": "load",
          "expect[]": "expectation", "compare[]": "comparison", "game_day": "game_day"}
# What is written once in the table and can stand in these too.
FIGURE = {"figure", "of", "variant", "view", "from", "to", "nth", "width"}


def validator():
    resolver = jsonschema.RefResolver("", SCHEMA, store={"config.schema.json": CONFIG})
    return jsonschema.Draft202012Validator(SCHEMA, resolver=resolver)


def names(directory):
    return sorted(path.stem for path in (CORPUS / directory).glob("*.json"))


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", sorted([*(CORPUS / "valid").glob("*.json"), *(ROOT / "examples" / "scenarios").glob("*.json")]),
                         ids=lambda path: path.stem)
def test_what_the_program_accepts_is_accepted(path):
    document = strict(path)
    assert document is not None
    assert [error.message for error in validator().iter_errors(document)] == []


@pytest.mark.parametrize("name", names("invalid"))
def test_what_the_program_refuses_is_refused(name):
    document = strict(CORPUS / "invalid" / f"{name}.json")
    if document is None:
        return
    # A list and not a set of exceptions to look away from: what the schema learns must leave it.
    assert validator().is_valid(document) == (name in BEYOND_A_SCHEMA)


def table():
    """The rows of the manual: (block, key) -> (kind, range, default)."""
    page = (DOCS / "scenarios.md").read_text()
    found = {}
    for row in page.split("<!-- keys: begin -->\n")[1].split("<!-- keys: end -->")[0].splitlines()[2:]:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        block, _, key = cells[0].strip("` ").rpartition(".")
        found[block, key] = tuple(cells[1:4])
    return found


def properties(block):
    return (SCHEMA["$defs"][BLOCKS[block]] if block else SCHEMA)["properties"]


def test_the_keys_are_those_of_the_program():
    inherited = {("compare[]", key) for key in FIGURE - {"view"} | {"why"}}
    assert {(block, key) for block in ["", *BLOCKS] for key in properties(block)} - inherited == set(table())
    assert set(SCHEMA["$defs"]["relative"]["properties"]) == FIGURE


def check_form(node, kind, span):
    if kind in ("whole number", "number"):
        assert node["type"] == ("integer" if kind == "whole number" else "number")
        assert f"{decimal(node['minimum'])} – {decimal(node['maximum'])}" == span
    elif kind in ("duration", "share"):
        assert node["$ref"] == "#/$defs/" + kind
    elif kind == "word":
        assert ", ".join(f'"{word}"' for word in node["enum"]) == span
    elif kind == "array of words":
        assert ", ".join(f'"{word}"' for word in node["items"]["enum"]) == span
    elif kind == "string":
        assert f"at most {node['maxLength']} bytes" == span
    elif kind == "array of objects":
        assert node["type"] == "array"
    elif kind in ("boolean", "object"):
        assert "$ref" in node or "allOf" in node or node["type"] == kind


@pytest.mark.parametrize("block, key", list(table()))
def test_types_ranges_and_defaults_are_those_of_the_program(block, key):
    kind, span, default = table()[block, key]
    node = properties(block)[key]
    check_form(node, kind, span)
    value = re.fullmatch(r"`?(\"[^\"]*\"|true|false|[0-9.]+)`?", default)
    assert node.get("default") == (json.loads(value.group(1)) if value else None)
