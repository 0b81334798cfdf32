"""What holds for every command: help, interruption, a reader that goes away."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from tensormetrics.__main__ import COMMANDS, main
from tensormetrics._cli import posterior


def test_help_lists_every_command_without_torch():
    code = "import sys, tensormetrics.__main__ as m\ntry: m.main(['--help'])\nfinally: print(sys.modules.keys())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(f"\n  {name} " in found for name in COMMANDS) and "'click'" in found and "'torch'" not in found


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_names_its_options(command):
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0 and f"Usage: tensormetrics {command}" in result.output
    assert ("--device NAME" in result.output) == (command != "info")
    assert ("--json FILE" in result.output) == (command not in ("demo", "info"))


def test_ctrl_c_is_one_line_and_status_130(tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(posterior, "_read_matrix", interrupted)
    result = CliRunner().invoke(main, ["posterior", "m.csv", "--json", str(tmp_path / "o.json")])
    assert (result.exit_code, result.stdout, result.stderr.strip()) == (130, "", "tensormetrics: interrupted")
    assert not list(tmp_path.iterdir())


def test_a_reader_that_goes_away_is_no_error():
    command = f'"{sys.executable}" -m tensormetrics --help | true'
    assert subprocess.run(command, shell=True, capture_output=True).stderr == b""


def test_no_command_is_the_help_and_status_2():
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 2 and "Commands:" in result.stderr
