# SPDX-License-Identifier: MIT
"""What resctl rehearse --json says, against docs/rehearsal.schema.json: a rehearsal that was made by hand, with everything there can be."""

import json
import os
import re
import subprocess

import jsonschema
import pytest
from harness import TOP, VARIANT

with open(os.path.join(TOP, "docs", "rehearsal.schema.json"), encoding="utf-8") as file:
    SCHEMA = json.load(file)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def problems(document):
    return [f"{e.json_path}: {e.message}" for e in VALIDATOR.iter_errors(document)]


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    path = tmp_path_factory.mktemp("rehearsal")
    program = os.path.join("build", VARIANT, "tests", "unit", "test_result_json")
    subprocess.run(["make", "-s", f"VARIANT={VARIANT}", program], cwd=TOP, check=True)
    subprocess.run([os.path.join(TOP, program)], env={**os.environ, "REHEARSAL_JSON": str(path)}, check=True)
    return [json.loads((path / name).read_text()) for name in ("whole.json", "stopped.json")]


@pytest.fixture(scope="module")
def document(documents):
    return documents[0]


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_rehearsal_is_as_the_schema_says(documents):
    assert [problems(document) for document in documents] == [[], []]


def test_the_schema_knows_each_figure_and_no_other(document):
    figures = list(document["figures"])
    assert SCHEMA["$defs"]["figure"]["enum"] == figures
    assert list(SCHEMA["properties"]["figures"]["properties"]) == figures
    units = {"count": "count", "share": "share", "ms": "measure", "ratio": "measure"}
    for name, figure in document["figures"].items():
        of = SCHEMA["$defs"][figure["of"]]["properties"]
        if name in of:
            assert of[name] == {"$ref": "#/$defs/" + units[figure["unit"]]}, name


def test_every_object_of_the_schema_is_closed():
    """A key that is not in the schema is noticed, and so is one that is missing."""

    def walk(node, where):
        if isinstance(node, list):
            for i, item in enumerate(node):
                walk(item, f"{where}[{i}]")
        if not isinstance(node, dict):
            return
        if node.get("type") == "object" and "properties" in node:
            assert node["additionalProperties"] is False and node["required"] == list(node["properties"]), where
        for key, item in node.items():
            walk(item, f"{where}.{key}")

    walk(SCHEMA, "$")


def test_a_damaged_document_is_noticed(document):
    text = json.dumps(document)
    assert problems(json.loads(text.replace('"view": "shared"', '"view": "both"')))
    assert problems(json.loads(re.sub(r'"offered": \d+', '"offered": -1', text)))
    assert problems({key: value for key, value in document.items() if key != "game_day"})
