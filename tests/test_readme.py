"""What the README prints works as printed."""

import re
import warnings
from pathlib import Path

import pytest

from tensormetrics.posterior import temporary_registrations

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```\n```text\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


TRAINERS = re.compile(r"^(?:import|from) (pytorch_lightning|transformers|pytorch_metric_learning)\b", re.MULTILINE)


@pytest.mark.parametrize(("block", "output"), BLOCKS, ids=range(len(BLOCKS)))
def test_python_blocks_print_what_stands_below_them(block, output, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where trainers leave their files
    with warnings.catch_warnings(), temporary_registrations():
        for package in TRAINERS.findall(block):
            warnings.simplefilter("ignore")  # theirs
            pytest.importorskip(package)
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out == output


def test_every_python_block_has_an_output():
    assert len(BLOCKS) == README.count("```python")


def test_two_commands_are_one_line_each():
    lines = re.findall(r"^```sh\n(python3 .*?)\n```", README, re.MULTILINE | re.DOTALL)
    assert [line.rpartition(" && ")[2] for line in lines] == ["python -m tensormetrics demo", "pytest"]
    assert not any("\n" in line for line in lines)
