"""The demo command, which newcomers run first, from end to end."""

import json

import pytest

from tensormetrics.__main__ import main
from tensormetrics._cli import demo


def exit_status(*arguments):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    return stop.value.code


@pytest.mark.full
def test_demo_reports_metrics_of_held_out_digits(tmp_path, capsys):
    assert exit_status("demo", "--output", str(tmp_path), "--device", "cpu") == 0
    report = json.loads((tmp_path / "report.json").read_text())
    last = report["epochs"][-1]
    assert len(report["epochs"]) == 12 and not report["interrupted"]
    for name in demo.SCORES:
        assert 0.9 < last[name]["low"] < last[name]["value"] < last[name]["high"], name
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "{value:.3f} [{low:.3f}, {high:.3f}]\n".format(**last["precision_at_1"]) in printed
    assert printed.endswith(f"wrote {tmp_path / 'report.json'} and {tmp_path / 'report.png'}\n")


@pytest.mark.full
def test_demo_interrupted_keeps_measured_epochs(tmp_path, monkeypatch, capsys):
    measure = demo.Validation.__call__
    calls = []

    def measure_once(self, *arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return measure(self, *arguments)

    monkeypatch.setattr(demo.Validation, "__call__", measure_once)
    assert exit_status("demo", "--epochs", "3", "--output", str(tmp_path), "--device", "cpu") == 130
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["interrupted"] and [row["epoch"] for row in report["epochs"]] == [1]
    assert (tmp_path / "report.png").exists()
    assert "interrupted: 1 of 3 epochs were measured" in capsys.readouterr().out
