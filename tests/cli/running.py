"""Commands, run in the process of the test."""

import json
from typing import Any

from click.testing import CliRunner, Result

from tensormetrics.__main__ import main


def run(command: str, *options: object) -> Result:
    return CliRunner().invoke(main, [*command.split(), *map(str, options)])


def succeed(command: str, *options: object) -> Result:
    result = run(command, *options)
    assert result.exit_code == 0, result.output
    return result


def answer(command: str, *options: object) -> Any:
    """Return what a command writes as JSON."""
    return json.loads(succeed(command, *options, "--format", "json").stdout)
