"""Exit status of commands: 0 answered, 1 the output failed, 2 bad input, 3 nothing could be scored, 130 Ctrl-C."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from running import run

from tensormetrics._cli.output import stdout_aside

NOTHING = "tensormetrics: nothing could be scored: every value is NaN\n"
SCHEMA = """
from dataclasses import dataclass
from tensormetrics.structured import metametric

@metametric(policy="conventional", zero_division=float("nan"), normalizer="f1")
@dataclass
class Doc:
    words: list[str]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("schema").mkdir()
    np.save("x.npy", np.arange(8, dtype=np.float32).reshape(4, 2))
    for name, text in {
        "y.txt": "0\n0\n1\n1\n",
        "own.txt": "0\n1\n2\n3\n",
        "never.csv": "9,0\n2,0\n",
        "m.csv": "9,1\n2,8\n",
        "v.txt": "2 2\nhe 1 2\nhim 2 1\n",
        "q.json": '[{"target_sets": [["he", "a"], ["him", "b"]], "attribute_sets": [["c"], ["d"]]}]',
        "schema/types.py": SCHEMA,
        "d.jsonl": '{"words": []}\n',
    }.items():
        Path(name).write_text(text)


@pytest.mark.parametrize(
    "arguments",
    [
        "retrieval x.npy own.txt --metric precision_at_1",
        "posterior never.csv --metric mcc --prior 0",
        "association v.txt --queries q.json",
        "structured d.jsonl d.jsonl --schema schema/types.py:Doc",
    ],
)
def test_only_nan_scores_exit_with_status_3(folder, arguments):
    result = run(*arguments.split(), "--json", "out.json")
    assert result.exit_code == 3 and result.stdout and result.stderr.endswith(NOTHING), result.output
    assert json.loads(Path("out.json").read_text())["command"] == arguments.split()[0]


def test_one_finite_score_exits_with_status_0(folder):
    result = run("posterior", "never.csv", "--metric", "mcc", "--metric", "acc", "--prior", "0")
    assert result.exit_code == 0 and NOTHING not in result.stderr


def test_failing_output_exits_with_status_1(folder):
    result = run("posterior", "m.csv", "--json", "/dev/full")
    assert result.exit_code == 1
    assert result.stderr == "tensormetrics: /dev/full: cannot be written: No space left on device\n"


@pytest.mark.full  # imports torch in a process
def test_json_to_dev_stdout_follows_the_table(folder):
    command = [sys.executable, "-m", "tensormetrics", "posterior", "m.csv", "--metric", "acc", "--json", "/dev/stdout"]
    with open("out", "w") as out:
        subprocess.run(command, stdout=out, check=True)
    table, _, report = Path("out").read_text().partition("{")
    assert table.split()[:2] == ["acc", "m"] and json.loads("{" + report)["command"] == "posterior"


def test_stdout_aside_redirects_prints_to_stderr(capfd):
    print("a")
    with stdout_aside():
        print("b", flush=True)
        subprocess.run(["echo", "c"], check=True)
    print("d")
    assert capfd.readouterr() == ("a\nd\n", "b\nc\n")


def test_keops_messages_are_printed_to_stderr(folder, monkeypatch):
    from tensormetrics._cli.commands import retrieval

    def chatty(self, *args, **kwargs):
        print("[KeOps] Generating code...")
        return torch_knn(*args, **kwargs)

    torch_knn = retrieval.AccuracyCalculator().knn_func
    kind = type("Chatty", (), {"__init__": lambda self, distance: None, "__call__": chatty})
    monkeypatch.setitem(retrieval.KNN, "keops", kind)
    result = run("retrieval", "x.npy", "y.txt", "--knn", "keops", "--metric", "r_precision", "--k", "1", "--json", "-")
    assert result.exit_code == 0 and json.loads(result.stdout)["options"]["k"] == "1" and "Generating" in result.stderr


INTERRUPTED_IMPORT = """
import sys, os, signal, time
class Finder:
    def find_spec(self, name, *rest):
        if name == "{name}":
            os.kill(os.getpid(), signal.SIGINT)
            try:
                time.sleep(5)
            except BaseException:
                raise ImportError("another error, as numpy's")
sys.meta_path.insert(0, Finder())
sys.argv = ["tensormetrics", "posterior", "m.csv"]
from tensormetrics.__main__ import main
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
main()
"""


@pytest.mark.parametrize(
    "name",
    [
        "tensormetrics._cli.options",
        *(
            pytest.param(name, marks=pytest.mark.full)
            for name in ("click", "tensormetrics._cli.commands.posterior", "torch")
        ),
    ],
)
def test_ctrl_c_while_importing_prints_one_line_with_status_130(name):
    code = INTERRUPTED_IMPORT.replace("{name}", name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tensormetrics: interrupted\n")
