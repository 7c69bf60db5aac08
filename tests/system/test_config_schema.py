# SPDX-License-Identifier: MIT
"""docs/config.schema.json against the program: the same files of tests/config, and the same table of keys.

The table in docs/configuration.md is what the program prints (tests/unit/test_config.c compares them), so a schema that agrees with the
table agrees with the program.
"""

import json
import pathlib
import re

import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "config"
SCHEMA = json.loads((ROOT / "docs" / "config.schema.json").read_text())

# What the program refuses and a schema of this kind does not see.
BEYOND_A_SCHEMA = {"contradictions", "contradictions_more", "group_unknown", "metrics_address", "metrics_port"}
RESOURCE = "resources.NAME."


class NotStrict(ValueError):
    pass


def no_doubles(pairs):
    keys = [key for key, _ in pairs]
    if len(keys) != len(set(keys)):
        raise NotStrict("doubled key")
    return dict(pairs)


def no_constants(name):
    raise NotStrict(name)


def strict(path):
    """The document, or None where it is not strict JSON, which is not a schema's business."""
    try:
        text = path.read_bytes().decode("utf-8")
        if "\\u0000" in text or "\\ud800" in text:
            return None
        document = json.loads(text, object_pairs_hook=no_doubles, parse_constant=no_constants)
    except (UnicodeDecodeError, json.JSONDecodeError, NotStrict, RecursionError):
        return None
    return document


def validator():
    return jsonschema.Draft202012Validator(SCHEMA)


def names(directory):
    return sorted(path.stem for path in (CORPUS / directory).glob("*.json"))


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", names("valid"))
def test_what_the_program_accepts_is_accepted(name):
    document = strict(CORPUS / "valid" / f"{name}.json")
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
    """The rows of the manual: path -> [(kind, range, default)]; a key whose value can be of two types has two rows.

    The keys of the file come first, to `resources`; the paths of the others get a RESOURCE in front.
    """
    page = (ROOT / "docs" / "configuration.md").read_text()
    rows = page.split("<!-- keys: begin -->\n")[1].split("<!-- keys: end -->")[0].splitlines()[2:]
    found, prefix = {}, ""
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        path = prefix + cells[0].strip("` ")
        found.setdefault(path, []).append(tuple(cells[1:4]))
        prefix = RESOURCE if path == "resources" else prefix
    return found


def resolve(node):
    while "$ref" in node:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        node = {**SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[1]], **rest, "ref": node["$ref"].rsplit("/", 1)[1]}
    return node


def properties(node):
    return next(part for part in [node, *node.get("anyOf", [])] if "properties" in part)["properties"]


def schema_keys():
    """All keys of the schema, by the paths of the manual."""
    found = dict(SCHEMA["properties"].items())

    def walk(node, prefix):
        for name, value in properties(resolve(node)).items():
            value = resolve(value)
            found[prefix + name] = value
            if "anyOf" in value and {"const": False} in value["anyOf"]:
                walk(value, prefix + name + ".")

    walk({"$ref": "#/$defs/resource"}, RESOURCE)
    return {path: resolve(node) for path, node in found.items()}


def test_the_keys_are_those_of_the_program():
    assert set(schema_keys()) == set(table())


def decimal(number):
    return f"{number:f}".rstrip("0").rstrip(".")


def check_form(node, kind, span):
    if kind in ("whole number", "number"):
        assert node["type"] == ("integer" if kind == "whole number" else "number")
        assert f"{decimal(node['minimum'])} – {decimal(node['maximum'])}" == span
    elif kind == "duration":
        assert node["ref"] == "duration"
    elif kind == "share":
        assert node["ref"] == {"0 – 1": "share", "above 0 – 1": "positive_share", "above 0 – 10": "limit_share"}[span]
    elif kind == "word":
        assert ", ".join(f'"{word}"' for word in node["enum"]) == span
    elif kind == "array of words":
        assert node["type"] == "array"
        assert ", ".join(f'"{word}"' for word in node["items"]["enum"]) == span
    elif kind == "object or false":
        assert {"const": False} in node["anyOf"]
    elif kind == "object":
        assert node["type"] == "object"
    else:
        assert kind in ("string", "boolean")


@pytest.mark.parametrize("path", list(table()))
def test_types_ranges_and_defaults_are_those_of_the_program(path):
    rows = table()[path]
    node = schema_keys()[path]
    forms = [node] if len(rows) == 1 else [resolve(form) for form in node["anyOf"]]
    assert len(forms) == len(rows)
    for form, (kind, span, _) in zip(forms, rows):
        check_form(form, kind, span)
    value = re.fullmatch(r"`?(\"[^\"]*\"|\[.*\]|true|false|[0-9.]+)`?", rows[0][2])
    assert node.get("default") == (json.loads(value.group(1)) if value else None)


def test_what_other_systems_call_it_leads_to_keys_that_exist():
    page = (ROOT / "docs" / "coming-from.md").read_text()
    rows = [row.split(" | ") for row in page.splitlines() if row.startswith("| ")]
    named = {key for cells in rows for key in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", cells[1])}
    assert len(named) > 40
    assert named - {path.removeprefix(RESOURCE) for path in table()} == set()
