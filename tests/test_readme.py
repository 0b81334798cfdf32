"""What the README prints works as printed."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.partition("\n")[0])
def test_python_blocks_run(block, capsys):
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "Estimate(median=" in printed or "'p_value': " in printed


def test_two_commands_are_one_line_each():
    lines = re.findall(r"^```sh\n(.*?)\n```", README, re.MULTILINE | re.DOTALL)
    assert [line.rpartition(" && ")[2] for line in lines] == ["python -m tensormetrics demo", "pytest"]
    assert not any("\n" in line for line in lines)
