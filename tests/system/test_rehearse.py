# SPDX-License-Identifier: MIT
"""resctl rehearse as people and scripts use it: its command line, exit codes, what it prints where, and its document.

What plays needs real time: a release build. A build with the test clock reads scenarios only, and says so.
"""
import json
import os
import pty
import re
import signal
import subprocess

import jsonschema
import pytest
from harness import RESCTL, TOP, VARIANT, until

pytestmark = pytest.mark.smoke
plays = pytest.mark.plays

SCENARIO = {
    "title": "A dependency that hangs", "duration": "1500ms", "workers": 2, "views": ["own", "shared"],
    "configuration": {"resources": {"prices": {"breaker": {"consecutive": 3, "cooldown": "200ms"}, "timeout": {"attempt": "50ms"}}}},
    "dependencies": {"prices": {"latency": "2ms", "faults": [{"kind": "hang", "from": "400ms", "to": "900ms"}]}},
    "load": {"users": {"resource": "prices", "rate": 40, "to": "1300ms", "fallback": "stale"}},
    "expect": [{"figure": "opened", "of": "prices", "view": "shared", "is": "at least", "value": 1, "published": 7},
               {"figure": "failed", "of": "users", "is": "equal", "value": 0}],
    "compare": [{"figure": "failing_calls", "of": "prices", "better": "less", "why": "calls that fail"}],
}


def rehearse(*args, **kw):
    return subprocess.run([RESCTL, "rehearse", *map(str, args)], stdin=subprocess.DEVNULL, stdout=kw.pop("stdout", subprocess.PIPE),
                          stderr=subprocess.PIPE, timeout=60, check=False, encoding="utf-8", **kw)


@pytest.fixture
def scenario(tmp_path):
    """scenario(key=value...) is the path of a file with these changes."""
    def write(name="scenario.json", **changes):
        path = tmp_path / name
        path.write_text(json.dumps({**SCENARIO, **changes}), encoding="utf-8")
        return path

    return write


# ---- without playing

def test_help_teaches():
    top = subprocess.run([RESCTL, "--help"], stdout=subprocess.PIPE, timeout=60, check=True, encoding="utf-8")
    assert "\n  rehearse SCENARIO " in top.stdout
    told = rehearse("--help")
    assert told.returncode == 0 and "Examples:" in told.stdout and "Exit codes:" in told.stdout
    assert all(option in told.stdout for option in ("--config", "--workers", "--views", "--variant", "--short", "--report", "--check"))
    assert max(map(len, told.stdout.splitlines())) <= 80
    usage = rehearse("--no-such-option")
    assert usage.stderr.startswith("resctl rehearse: ")


@pytest.mark.parametrize("args, said", [
    ([], "which scenario?"), (["a.json", "b.json"], "'b.json'"), (["a.json", "--workers", "0"], "--workers 0"),
    (["a.json", "--workers", "257"], "1 to 256"), (["a.json", "--workers", "2x"], "2x"), (["a.json", "--views", "all"], "--views all"),
    (["a.json", "--check", "--report", "x.html"], "--report"), (["--list-figures", "a.json"], "'a.json'"), (["--no-such"], "no-such"),
    (["--instance", "x", "a.json"], "--instance x")], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_exit_2_for_a_mistake_in_the_command_line(args, said):
    done = rehearse(*args)
    assert done.returncode == 2 and done.stdout == "" and said in done.stderr, done


def test_figures_are_listed_in_words_and_in_JSON():
    listed = json.loads(rehearse("--list-figures", "--json").stdout)
    text = rehearse("--list-figures").stdout.splitlines()
    assert [line.split()[0] for line in text[1:]] == [figure["name"] for figure in listed]
    assert {figure["of"] for figure in listed} == {"load", "resource", "dependency"}


def test_a_scenario_is_checked_without_playing(scenario):
    good = rehearse("--check", scenario())
    assert good.returncode == 0 and good.stderr == "" and "2 takes, 3.0s of playing" in good.stdout
    both = {"views": ["shared"], "compare": [], "variants": {"a": {"change": {}}, "b": {"change": {}}}}
    assert "2 variants, 2 takes, 3.0s of playing" in rehearse("--check", scenario(**both)).stdout
    told = json.loads(rehearse("--check", "--json", scenario()).stdout)
    assert told["ok"] and told["errors"] == 0 and told["problems"] == []


def test_all_that_is_wrong_with_a_scenario_is_told_with_its_place(scenario):
    path = scenario(duration="soon", workers=0)
    bad = rehearse("--check", path)
    assert bad.returncode == 2 and bad.stderr == ""
    assert re.search(r"^%s:\d+:\d+: duration: " % re.escape(str(path)), bad.stdout, re.M)
    assert re.search(r"^%s:\d+:\d+: workers: " % re.escape(str(path)), bad.stdout, re.M)
    assert "%s: 2 errors" % path in bad.stdout
    played = rehearse(path)
    assert played.returncode == 2 and played.stdout == "" and "duration: " in played.stderr
    told = json.loads(rehearse("--check", "--json", path).stdout)
    assert not told["ok"] and sorted(p["path"] for p in told["problems"]) == ["duration", "workers"]


def test_json_may_be_asked_for_before_the_command(scenario):
    done = subprocess.run([RESCTL, "--json", "rehearse", "--check", str(scenario())], stdout=subprocess.PIPE, timeout=60, check=True)
    assert json.loads(done.stdout)["ok"]


def test_no_file_and_no_scenario(tmp_path):
    missing = rehearse(tmp_path / "none.json")
    assert missing.returncode == 2 and "none.json" in missing.stderr and "No such file" in missing.stderr
    assert rehearse(tmp_path).returncode == 2


def test_an_answer_that_cannot_be_written_is_told(scenario):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = rehearse("--check", scenario(), stdout=full)
    assert done.returncode == 3 and "could not be written" in done.stderr


@pytest.mark.skipif(VARIANT not in ("test", "asan", "tsan"), reason="a build with the test clock")
def test_a_build_with_the_test_clock_says_that_it_cannot_play(scenario):
    done = rehearse(scenario())
    assert done.returncode == 3 and done.stdout == "" and "test clock" in done.stderr


# ---- playing

@plays
def test_what_was_expected_is_so(scenario):
    done = rehearse(scenario())
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == SCENARIO["title"]
    assert any(line.startswith("own views: 2 workers") for line in lines) and any(line.startswith("shared view: 2 workers") for line in lines)
    # A pipe gets every column, and what hangs is told in its row.
    heads = [line for line in lines if line.lstrip().startswith("TIME ")]
    assert len(heads) == 2 and all("PER REQUEST" in head for head in heads) and "BREAKERS" in heads[0]
    assert sum("hangs; refused: " in line for line in lines) >= 2
    assert re.search(r"^ok +7 +\d+ +at least 1 +prices: ", done.stdout, re.M)
    assert "What the shared view changed" in done.stdout and lines[-1] == "Both expectations hold."
    assert "\033" not in done.stdout


@plays
def test_exit_1_names_what_is_not_so(scenario):
    wrong = {"figure": "served", "of": "users", "is": "at least", "value": 1000, "why": "there are not that many"}
    done = rehearse(scenario(expect=[wrong]), "--views", "shared")
    assert done.returncode == 1 and "NOT SO" in done.stdout and "own views" not in done.stdout
    assert re.search(r"^not so: users: .*: expected at least 1,000, and it was \d+ on the shared view: there are not that many$", done.stdout,
                     re.M)
    assert done.stdout.splitlines()[-1] == "What was expected does not hold."


@plays
def test_options_take_the_place_of_the_scenarios_own(scenario, tmp_path):
    config = tmp_path / "resc.json"
    config.write_text('{"resources": {"prices": {"timeout": {"attempt": "20ms"}}}}')
    path = scenario(expect=[], compare=[], variants={"a": {"change": {}}, "b": {"change": {"load": {"users": {"rate": 20}}}}})
    done = rehearse(path, "--config", config, "--workers", 3, "--views", "shared", "--variant", "b", "--json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    told = json.loads(done.stdout)
    assert [(take["variant"], take["view"]) for take in told["takes"]] == [("b", "shared")]
    assert [(variant["name"], variant["workers"]) for variant in told["scenario"]["variants"]] == [("b", 3)]
    # No breaker in that configuration.
    assert "refused" not in rehearse(path, "--config", config, "--variant", "a", "--views", "own").stdout.split("What happened")[0]


@plays
def test_the_document_is_as_its_schema_says(scenario):
    with open(os.path.join(TOP, "docs", "rehearsal.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    done = rehearse(scenario(), "--json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    jsonschema.Draft202012Validator(schema).validate(json.loads(done.stdout))


def on_terminal(stream, *args, **env):
    """What the terminal shows that is the stdout or the stderr of a rehearsal; and what came out of a pipe for stdout."""
    master, slave = pty.openpty()
    streams = {"stdout": subprocess.PIPE, stream: slave}
    with subprocess.Popen([RESCTL, "rehearse", *map(str, args)], stdin=subprocess.DEVNULL, **streams,
                          env={**os.environ, "TERM": "xterm", "COLUMNS": "80", **env}) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                shown += os.read(master, 65536)
            except OSError:
                break
        os.close(master)
        answer = process.stdout.read() if process.stdout else b""
    assert process.returncode == 0
    return shown.decode(), answer


@plays
def test_on_a_terminal_colour_is_for_who_wants_it(scenario):
    path = scenario(duration="1400ms", expect=[], compare=[])
    assert "\033[" in on_terminal("stdout", path, "--views", "shared", NO_COLOR="")[0]
    plain = on_terminal("stdout", path, "--views", "shared", NO_COLOR="1")[0]
    assert "\033" not in plain and max(len(line.rstrip()) for line in plain.splitlines()) <= 80


@plays
def test_who_waits_at_a_terminal_for_a_document_sees_it_being_played(scenario):
    shown, answer = on_terminal("stderr", scenario(expect=[], compare=[]), "--json", "--views", "shared")
    assert "OFFERED" in shown and "What happened" not in shown
    assert json.loads(answer)["good"]


@plays
def test_what_cannot_be_judged_is_told(scenario):
    relative = {"figure": "failing_calls", "of": "prices", "view": "shared", "is": "at most", "value": 1,
                "relative_to": {"figure": "failing_calls", "of": "prices", "view": "own"}}
    done = rehearse(scenario(expect=[*SCENARIO["expect"], relative]), "--views", "shared")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "Both expectations hold. 1 more could not be judged without what was left out."


@plays
def test_a_report_that_cannot_be_written_is_told_before_anything_is_played(scenario, tmp_path):
    done = rehearse(scenario(), "--report", tmp_path / "none" / "report.html")
    assert done.returncode == 2 and done.stdout == "" and "--report" in done.stderr and "none/report.html" in done.stderr


@plays
def test_a_signal_ends_it_and_what_was_played_is_shown(scenario, tmp_path):
    path, report = scenario(duration="20s", views=["shared"], compare=[]), tmp_path / "report.html"
    with subprocess.Popen([RESCTL, "rehearse", str(path), "--report", str(report)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        until(lambda: b"TIME " in process.stdout.readline(), what="it plays")
        process.send_signal(signal.SIGINT)
        shown, told = (text.decode() for text in process.communicate(timeout=20))
    assert process.returncode == 128 + signal.SIGINT
    assert told == "resctl rehearse: ended by a signal: Interrupt; no report is written\n" and not report.exists()
    assert "\nWhat happened until it was stopped\nVIEW " in shown and re.search(r"\nshared, [0-9.]+m?s of 20s +\d", shown)
    assert shown.endswith("\nNot complete: 0 of 1 takes went to the end. Nothing was judged.\n") and "What was expected" not in shown


@plays
def test_a_signal_leaves_no_half_of_a_document(scenario):
    path = scenario(duration="20s", views=["shared"], compare=[])
    with subprocess.Popen([RESCTL, "rehearse", str(path), "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        until(lambda: any("resc.rehearse-%d-" % process.pid in name for name in os.listdir("/dev/shm")), what="it plays")
        process.send_signal(signal.SIGTERM)
        shown, told = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM and shown == b"" and b"Terminated" in told
