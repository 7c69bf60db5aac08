# SPDX-License-Identifier: MIT
"""A reload changes what the operator changed, and nothing else; a file that is not good changes nothing, and that is seen."""
import copy
import json
import os
import signal
import subprocess

import pytest
from harness import RESCD, RESCTL, metric, steady, until

CONFIG = {"resources": {
    "payments": {"breaker": {"consecutive": 3, "cooldown": "10s"}, "bulkhead": {"limit": 10},
                 "retry": {"budget": {"capacity": 10, "ratio": 0.5, "per_second": 0}}},
    "ledger": {"breaker": {"failure_rate": 0.5, "min_calls": 100}},
}}


def changed(path, value, config=CONFIG):
    fresh = copy.deepcopy(config)
    *keys, last = path.split(".")
    place = fresh["resources"]
    for key in keys:
        place = place[key]
    place[last] = value
    return fresh


@pytest.fixture
def rescd(host):
    """payments: open since 7 of 10 s, two permits held, 3.5 tokens."""
    rescd = host(CONFIG)
    rescd.one = rescd.worker()
    rescd.kept = rescd.one.hold("payments", 2)
    for _ in range(7):
        rescd.one.ask("retry", "payments", "fail", 0)
    rescd.one.call("payments", "ok")
    rescd.one.loop("ledger", 50, 0.3)
    rescd.one.fail("payments", 3)
    rescd.advance("7s")
    seen = rescd.show("payments")
    assert (seen["state"], seen["due_left_ms"], seen["retry"]["tokens"], seen["permits"]["in_use"]) == ("open", 3000, 3.5, 2)
    return rescd


def test_H6_the_same_file_again_moves_nothing(rescd):
    before = [steady(r) for r in rescd.snapshot()["resources"]]
    assert rescd.load(CONFIG)["changed"] == []
    assert [steady(r) for r in rescd.snapshot()["resources"]] == before


def test_H6_a_change_of_another_resource_moves_nothing_here(rescd):
    before = steady(rescd.show("payments"))
    assert rescd.load(changed("ledger.breaker.failure_rate", 0.7))["changed"] == ["ledger"]
    assert steady(rescd.show("payments")) == before
    assert rescd.show("ledger")["policy"]["breaker"]["failure_rate"] == 0.7


@pytest.mark.parametrize("path, values", [("payments.rate", [{"per_second": 5}, {"per_second": 8, "burst": 2}]),
                                          ("payments.retry.budget.capacity", [20, 30])])
def test_H6_what_the_segment_remembers_of_an_earlier_setting_is_no_change(rescd, path, values):
    for value in values:
        assert rescd.load(changed(path, value))["changed"] == ["payments"]
        assert rescd.load(changed(path, value))["changed"] == []


@pytest.mark.parametrize("cooldown", ["30s", "5s"])
def test_H6_another_cooldown_counts_from_the_next_opening(rescd, cooldown):
    """The due time was drawn at the opening; a reload does not move it."""
    assert rescd.load(changed("payments.breaker.cooldown", cooldown))["changed"] == ["payments"]
    seen = rescd.show("payments")
    assert (seen["state"], seen["due_left_ms"]) == ("open", 3000)
    rescd.advance("3s")
    rescd.one.call("payments", "fail")
    assert rescd.show("payments")["due_left_ms"] == int(cooldown[:-1]) * 1000


def test_H6_a_probe_that_is_out_stays_out(rescd):
    rescd.advance("3s")
    probe = rescd.one.enter("payments")
    assert probe["probe"]
    rescd.load(changed("payments.breaker.cooldown", "30s"))
    seen = rescd.show("payments")
    assert (seen["state"], seen["probes"]["out"], seen["permits"]["in_use"]) == ("half_open", 1, 3)
    assert rescd.worker().enter("payments")["answer"] == "half_open"
    assert rescd.one.leave(probe)["answer"] == "ok"
    assert rescd.show("payments")["state"] == "closed"


def test_H6_another_window_keeps_the_state(rescd):
    rescd.load(changed("payments.breaker.window", "1m"))
    seen = rescd.show("payments")
    assert (seen["state"], seen["due_left_ms"], seen["permits"]["in_use"]) == ("open", 3000, 2)
    before = rescd.show("ledger")["counters"]
    rescd.load(changed("ledger.breaker.window", "1m"))
    assert rescd.show("ledger")["counters"] == before and rescd.show("ledger")["state"] == "closed"


def test_H6_a_resource_that_was_removed_and_comes_back_owes_nothing_and_is_owed_its_permits(rescd):
    without = {"resources": {"ledger": CONFIG["resources"]["ledger"]}}
    assert rescd.load(without)["removed"] == ["payments"]
    told = rescd.one.enter("payments")
    assert told["r"] == -2  # ENOENT: never unguarded in silence
    assert [r["name"] for r in rescd.snapshot()["resources"]] == ["ledger"]
    assert rescd.one.leave(rescd.kept[0])["answer"] == "stale"  # the breaker has opened since; the permit is given back
    assert rescd.load(CONFIG)["added"] == ["payments"]
    seen = rescd.show("payments")
    assert (seen["state"], seen["permits"]["in_use"]) == ("closed", 1)
    assert rescd.one.enter("payments")["r"] == 0
    assert rescd.one.leave(rescd.kept[1])["r"] in (0, 128)
    assert rescd.show("payments")["permits"]["in_use"] == 1


def test_workers_keep_their_handles_and_never_see_an_error(host):
    rescd = host(CONFIG)
    crew = rescd.crew(3)
    for i, worker in enumerate(crew):
        worker.busy("ledger", 0.01, i + 1)
    for i in range(20):
        rescd.load(changed("ledger.breaker.min_calls", 1000 + i))
    told = [worker.idle() for worker in crew]
    assert [(t["errors"], t["leave_errors"], t["refused"]) for t in told] == [(0, 0, 0)] * 3
    assert rescd.show("ledger")["counters"]["enters"] == sum(t["enters"] for t in told)


# ---- how files get replaced ----

NEW = changed("payments.bulkhead.limit", 17)


def rename_over(rescd):
    rescd.write_config(NEW)


def in_place(rescd):
    with open(rescd.config_path, "r+", encoding="utf-8") as file:
        file.truncate()
        json.dump(NEW, file)


def delete_and_create(rescd):
    os.unlink(rescd.config_path)
    with open(rescd.config_path, "w", encoding="utf-8") as file:
        json.dump(NEW, file)


def same_size_same_second(rescd):
    stamp = os.stat(rescd.config_path)
    text = open(rescd.config_path, encoding="utf-8").read()
    with open(rescd.config_path, "w", encoding="utf-8") as file:
        file.write(text.replace('"limit": 10', '"limit": 17'))
    os.utime(rescd.config_path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def symlink_swap(rescd):
    """As a mounted ConfigMap is updated: file -> ..data/file, ..data -> a directory that is swapped by rename."""
    for name, config in (("old", CONFIG), ("new", NEW)):
        os.mkdir(os.path.join(rescd.dir, name))
        with open(os.path.join(rescd.dir, name, "resc.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
    os.unlink(rescd.config_path)
    os.symlink("old", os.path.join(rescd.dir, "..data"))
    os.symlink("..data/resc.json", rescd.config_path)
    assert rescd.reload()["changed"] == []
    os.symlink("new", os.path.join(rescd.dir, "..data_tmp"))
    os.rename(os.path.join(rescd.dir, "..data_tmp"), os.path.join(rescd.dir, "..data"))


@pytest.mark.parametrize("replace", [rename_over, in_place, delete_and_create, same_size_same_second, symlink_swap], ids=lambda f: f.__name__)
def test_H7_an_explicit_reload_reads_what_is_there_now(host, replace):
    rescd = host(CONFIG)
    replace(rescd)
    assert rescd.reload()["changed"] == ["payments"]
    assert rescd.show("payments")["permits"]["limit"] == 17


def truncated(path):
    text = open(path, encoding="utf-8").read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(text[:len(text) // 2])


def missing(path):
    os.unlink(path)


def empty(path):
    os.truncate(path, 0)


def fifo(path):
    os.unlink(path)
    os.mkfifo(path)


def directory(path):
    os.unlink(path)
    os.mkdir(path)


def device(path):
    os.unlink(path)
    os.symlink("/dev/zero", path)


def dangling(path):
    os.unlink(path)
    os.symlink("nowhere", path)


def loop(path):
    os.unlink(path)
    os.symlink(os.path.basename(path), path)


def nuls(path):
    with open(path, "wb") as file:
        file.write(b"\0" * 4096)


def huge(path):
    with open(path, "wb") as file:
        file.write(b"{" + b" " * (64 << 20) + b"}")


def deep(path):
    with open(path, "wb") as file:
        file.write(b'{"resources":' * 5000)


def contradiction(path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(changed("payments.timeout", {"attempt": "2s", "total": "1s"}), file)


def doubled_key(path):
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"resources": {"payments": {}}, "resources": {}}')


BAD = [truncated, missing, empty, fifo, directory, device, dangling, loop, nuls, huge, deep, contradiction, doubled_key]


@pytest.mark.parametrize("spoil", BAD, ids=lambda f: f.__name__)
def test_H7_a_bad_file_keeps_the_old_configuration_and_shows_until_a_good_one_loads(host, spoil):
    rescd = host(CONFIG)
    worker = rescd.worker()
    worker.fail("payments", 2)
    before = [steady(r) for r in rescd.snapshot()["resources"]]
    spoil(rescd.config_path)
    done = rescd.ctl("reload", "--json", code=1)
    told = json.loads(done.stdout)
    assert not told["ok"] and told["problems"] and all(p["text"] for p in told["problems"])
    assert [steady(r) for r in rescd.snapshot()["resources"]] == before
    shown = rescd.snapshot()["daemon"]["reload"]
    assert (shown["last_failed"], shown["failed"], shown["done"]) == (True, 1, 1)
    assert rescd.config_path in shown["problems"] and told["problems"][0]["text"][:60] in shown["problems"]
    assert "last reload failed" in rescd.ctl("list").stdout
    assert rescd.ctl("check", rescd.config_path, code=1).stdout
    page = rescd.scrape()
    assert metric(page, "resc_config_reload_success") == 0 and metric(page, "resc_config_reloads_failed_total") == 1
    assert [e["kind"] for e in rescd.events() if e["kind"].startswith("reload")] == ["reload", "reload_failed"]
    if os.path.isdir(rescd.config_path) and not os.path.islink(rescd.config_path):
        os.rmdir(rescd.config_path)
    rescd.load(CONFIG)
    assert not rescd.snapshot()["daemon"]["reload"]["last_failed"]
    assert "last reload failed" not in rescd.ctl("list").stdout
    assert metric(rescd.scrape(), "resc_config_reload_success") == 1
    assert worker.call("payments", "fail")["r"] == 0 and rescd.show("payments")["state"] == "open"


def test_reload_errors_come_back_to_the_caller_with_path_line_and_column(host):
    rescd = host(CONFIG)
    rescd.write_config('{\n  "resources": {\n    "payments": { "bulkhead": { "limt": 5 }, "breaker": { "cooldown": "5 seconds" } }\n  }\n}\n')
    told = rescd.reload(code=1)
    assert [(p["path"], p["line"]) for p in told["problems"]] == [("resources.payments.bulkhead.limt", 3),
                                                                  ("resources.payments.breaker.cooldown", 3)] or \
        {p["path"] for p in told["problems"]} >= {"resources.payments.bulkhead.limt", "resources.payments.breaker.cooldown"}
    assert all(p["column"] > 0 for p in told["problems"])
    words = rescd.ctl("reload", code=1)
    assert "resources.payments.bulkhead.limt" in words.stderr and "line 3" in words.stderr


def test_a_reload_is_done_as_a_whole(host):
    """More workers than the table holds, another limit, another address of the metrics: all of it in one reload."""
    rescd = host(CONFIG)
    worker = rescd.worker()
    assert rescd.load({**changed("payments.bulkhead.limit", 3), "workers": 2048})["replaced"]
    assert rescd.snapshot()["segment"]["dims"]["workers"] == 2048
    assert rescd.show("payments")["permits"]["limit"] == 3
    assert worker.call("payments")["r"] == 0


def test_what_cannot_change_while_it_runs_is_refused_as_a_whole(tmp_path):
    """Without options that say it otherwise, the file names the instance."""
    name = "resc-test-%d-file" % os.getpid()
    path, socket_path = str(tmp_path / "resc.json"), str(tmp_path / "control.sock")
    config = {**CONFIG, "instance": name, "control": socket_path}

    def write(config):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)

    def ctl(*args):
        return subprocess.run([RESCTL, "-i", name, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False)

    write(config)
    process = subprocess.Popen([RESCD, "--config", path], stderr=subprocess.DEVNULL)
    try:
        until(lambda: os.path.exists(socket_path) and ctl("reload").returncode == 0, what="rescd serves")
        for key, value in (("instance", name + "-2"), ("control", socket_path + "2")):
            write({**changed("payments.bulkhead.limit", 3), "instance": name, "control": socket_path, key: value})
            done = ctl("reload", "--json")
            problems = json.loads(done.stdout)["problems"]
            assert done.returncode == 1 and problems[0]["path"] == key and "restart" in problems[0]["text"]
            assert json.loads(ctl("show", "payments", "--json").stdout)[0]["permits"]["limit"] == 10
    finally:
        process.kill()
        process.wait()
        os.unlink("/dev/shm/resc." + name)


def test_a_restart_follows_the_file_and_a_bad_file_is_refused(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    worker.fail("payments", 3)
    rescd.kill()
    rescd.write_config("{")
    assert "cannot start" in rescd.fails_to_start()
    assert worker.enter("payments")["answer"] == "open"
    rescd.write_config(changed("payments.bulkhead.limit", 5))
    rescd.start()
    seen = rescd.show("payments")
    assert (seen["state"], seen["permits"]["limit"]) == ("open", 5)


@pytest.mark.parametrize("point", ["policy.half", "policy.filled", "limit.set", "publish.state"])
def test_a_daemon_that_dies_in_the_middle_of_a_reload_is_no_harm(host, point):
    rescd = host(CONFIG)
    worker = rescd.worker()
    kept = worker.hold("payments", 2)
    rescd.kill()
    rescd.start(env={"RESC_FAILPOINT": point + "=kill"})
    fresh = changed("payments.bulkhead.limit", 3)
    fresh["resources"]["late"] = {"bulkhead": {"limit": 1}}
    rescd.write_config(fresh)
    rescd.ctl("reload", code=3)
    assert rescd.died() == -9
    told = worker.loop("payments", 1000)
    assert told["errors"] == told["leave_errors"] == 0 and told["admitted"] == 1000
    assert rescd.show("payments")["permits"]["limit"] in (3, 10)
    rescd.start()
    assert rescd.show("payments")["permits"]["limit"] == 3
    assert worker.enter("late")["r"] == 0
    one = worker.enter("payments")
    assert one["r"] == 0 and worker.enter("payments")["answer"] == "full"
    assert [worker.leave(t)["r"] for t in kept] == [0, 0]


def test_a_stopped_rescd_does_not_look_like_a_resctl_that_hangs(host):
    rescd = host({"resources": {"payments": {}}})
    rescd.process.send_signal(signal.SIGSTOP)
    with subprocess.Popen([RESCTL, "--instance", rescd.instance, "reload"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        assert b"waiting up to 10 s" in process.stderr.readline()
        assert process.poll() is None
        rescd.process.send_signal(signal.SIGCONT)
        assert process.wait(10) == 0 and b"reloaded" in process.stdout.read()


def test_a_slow_rescd_is_waited_for_where_nobody_can_be_told(host):
    rescd = host({"resources": {"payments": {}}}, env={"RESC_FAILPOINT": "control.answering=sleep:1200"})
    with open("/dev/full", "wb") as full:
        done = subprocess.run([RESCTL, "--instance", rescd.instance, "reload"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=full, check=False)
    assert done.returncode == 0 and b"reloaded" in done.stdout, done
