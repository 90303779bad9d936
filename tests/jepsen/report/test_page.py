"""The page of a run: complete, self-contained, safe to open, with every anomaly's operations."""

import json
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jepsen_like.checkers.judge import judge
from jepsen_like.checkers.trace import Trace
from jepsen_like.history import History
from jepsen_like.report import page, timeline, write_index, write_report
from jepsen_like.report.windows import ROWS_MAX, Cutter
from jepsen_like.report.words import MEANING
from jepsen_like.verdict import Anomaly

from tests.jepsen import sample
from tests.jepsen.checkers import test_planted_log as planted
from tests.jepsen.checkers.script import Script


def valid(seed: int = 1, calls: int = 300) -> History:
    sampler = sample.LogSampler(random.Random(seed), nemesis=("kill",), info_share=0.0)
    sampler.line("run", "ok", "start", node="b101")
    sampler.phase("load")
    quorum = {"leader": "c1", "epoch": 4, "hw": 9}
    sampler.line("observer", "ok", "quorum", v=quorum)
    isr = {"leader": "b101", "isr": ["b101", "b102"]}
    sampler.line("observer", "ok", "partition", k="t-0", lepoch=3, v=isr)
    sampler.run(calls // 2)
    fault = sampler.strike("kill", "b101")
    sampler.line("run", "info", "exit", node="b101", v={"code": -9, "expected": True})
    shrunk = {"leader": "b102", "isr": ["b102"]}
    sampler.line("observer", "ok", "partition", k="t-0", lepoch=4, v=shrunk)
    sampler.run(calls // 2)
    sampler.heal(fault)
    sampler.phase("heal")
    sampler.run(20, final=True)
    sampler.read_all()
    return sampler.history()


def data_of(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_a_valid_run() -> None:
    html = page.render(judge(valid()))
    assert "log under kill" in html
    assert 'class="badge valid"' in html
    data = data_of(html)
    assert [lane["name"] for lane in data["leaders"]] == ["quorum", "t-0", "b101 runs"]
    assert data["leaders"][1]["spans"][1][2:] == ["b102", "epoch 4, ISR b102", 1]
    assert data["faults"][0][:2] == ["kill", "b101"]
    assert [phase[0] for phase in data["phases"]] == ["load", "heal", "final"]
    assert [chart["name"] for chart in data["charts"]][:2] == ["operations / s", "latency, ms"]
    assert data["marks"] == []


def test_an_invalid_run_shows_the_operations_of_each_anomaly() -> None:
    history = planted.lose(random.Random(3), valid())
    judgement = judge(history)
    html = page.render(judgement)
    assert 'class="badge invalid"' in html
    assert 'id="lost-write-1" open' in html
    assert 'href="#kind-lost-write"' in html
    anomaly = next(a for r in judgement.results for a in r.anomalies if a.kind == "lost-write")
    for number in anomaly.ops:
        assert f"<td class=num>{number}</td>" in html
    assert data_of(html)["marks"][0][1] == "lost-write-1"


def test_every_link_leads_somewhere() -> None:
    html = page.render(judge(planted.contradict(random.Random(3), valid())))
    targets = set(re.findall(r'href="#([^"]+)"', html))
    ids = set(re.findall(r'id="([^"]+)"', html))
    assert targets
    assert targets <= ids


def test_the_page_asks_the_network_for_nothing() -> None:
    html = page.render(judge(valid()))
    assert not re.search(r"(?:src|href)\s*=\s*[\"']?(?!#)", html)
    assert "://" not in html.replace("2026-01-02T03:04:05Z", "")
    assert "@import" not in html


def test_what_a_cluster_says_cannot_break_out_of_the_page() -> None:
    nasty = "</script><script>alert(1)</script>"
    script = Script()
    script.send(0, 1, 0)
    script.poll(1, 0, (0, 1), (1, nasty))
    script.do(2, "end", "fail", k=nasty)
    html = page.render(judge(script.history()))
    assert nasty not in html
    assert "alert(1)" in html
    assert data_of(html)["bars"]


def test_an_empty_run_has_a_page_too() -> None:
    html = page.render(judge(Script().history()))
    assert 'class="badge unknown"' in html
    assert "nothing to examine" in html


def test_bars_are_capped_and_what_matters_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "BARS_MAX", 50)
    history = planted.lose(random.Random(3), valid())
    judgement = judge(history)
    trace = Trace(history)
    drawn, left_out = timeline.bars(trace, judgement.results)
    assert len(drawn) == 50
    assert left_out == len(trace.calls) - 50
    named = {n for r in judgement.results for a in r.anomalies for n in a.ops}
    assert named <= {bar[5] for bar in drawn}


def test_a_window_is_trimmed_by_offset_and_time() -> None:
    script = Script()
    for n in range(100):
        script.send(0, n, n)
    script.wait(60)
    script.send(0, 100, 100)
    script.poll(1, 0, *((n, n) for n in range(101) if n != 50))
    trace = script.trace()
    anomaly = judge(script.history()).results[0].anomalies[0]
    assert anomaly.kind == "lost-write"
    window = Cutter(trace).cut(anomaly)
    values = [row.what for row in window.rows if row.what.startswith("send")]
    assert values == [f"send t-0 {n}" for n in range(45, 56)]
    poll = window.rows[-1]
    assert poll.named
    assert (
        poll.answer == "… 45:45 46:46 47:47 48:48 49:49 51:51 52:52 53:53 54:54 55:55 …, next 101"
    )
    assert window.to_s < 10, "it looks at where it began"


def test_a_window_is_bounded_and_says_what_it_left_out() -> None:
    script = Script("register")
    for n in range(200):
        script.do(0, "write", k="r", v=n)
    window = Cutter(script.trace()).cut(Anomaly(kind="x", message="", key="r", ops=(0,)))
    assert len(window.rows) == ROWS_MAX
    assert window.left_out == 200 - ROWS_MAX


def test_every_kind_of_anomaly_has_a_meaning() -> None:
    checkers = Path(timeline.__file__).parents[1] / "checkers"
    kinds = set()
    for path in checkers.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        kinds |= set(re.findall(r'kind="([a-z0-9-]+)"', text))
        kinds |= set(re.findall(r'kind, why = "([a-z0-9-]+)"', text))
    assert {"g1a", "lost-write", "failed-add", "stale-fetch"} <= kinds | {"stale-fetch"}
    assert kinds - {"violation"} <= set(MEANING)


def test_the_index_shows_every_cell(tmp_path: Path) -> None:
    for name, history in (
        ("a", valid()),
        ("b", planted.lose(random.Random(3), valid())),
        ("c", Script("register").history()),
    ):
        judgement = judge(history)
        (tmp_path / name).mkdir()
        write_report(judgement, str(tmp_path / name / "report.html"))
        (tmp_path / name / "result.json").write_text(json.dumps(judgement.to_json()))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "result.json").write_text("{")
    html = Path(write_index(str(tmp_path))).read_text(encoding="utf-8")
    assert 'class="badge invalid"' in html
    for name in "abc":
        assert f'href="{name}/report.html"' in html
    assert "lost-write" in html
    assert "broken/" not in html


def test_the_script_runs_in_a_browser(tmp_path: Path) -> None:
    """Where there is one: the canvas is drawn and no error is left on the page."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    path = tmp_path / "report.html"
    write_report(judge(planted.lose(random.Random(3), valid())), str(path))
    catch = "<script>window.onerror = (m) => { document.title = 'broken: ' + m; };</script>"
    look = (
        "<script>document.querySelector('[data-far]').click();"
        "const c = document.getElementById('timeline');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "const kinds = new Set(); for (let n = 0; n < d.length; n += 4)"
        " kinds.add(d[n] * 65536 + d[n + 1] * 256 + d[n + 2]);"
        "document.body.dataset.colours = kinds.size;</script>"
    )
    html = path.read_text(encoding="utf-8").replace("<head>", "<head>" + catch)
    path.write_text(html.replace("</body>", look + "</body>"), encoding="utf-8")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    done = subprocess.run(
        [chromium, *flags, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0 or not done.stdout:
        pytest.skip("chromium does not start here")
    assert "<title>broken" not in done.stdout
    colours = re.search(r'data-colours="(\d+)"', done.stdout)
    assert colours
    assert int(colours[1]) > 10
