"""Options of every command stay as they are: a script that names them goes on working.

`python tests/cli/test_command_options.py` writes `command_options.json` anew, after a change that is meant."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from tensormetrics.__main__ import COMMANDS, main

STORED = Path(__file__).with_name("command_options.json")


def described(parameter: click.Parameter) -> dict[str, Any]:
    """Return what a script can depend on: names, default, values taken, and how often."""
    kind: Any = parameter.type
    is_flag = isinstance(parameter, click.Option) and parameter.is_flag
    values = {
        name: getattr(kind, name) for name in ("choices", "min", "max", "min_open", "max_open") if hasattr(kind, name)
    }
    shown = getattr(parameter, "show_default", None)
    default = parameter.get_default(click.Context(click.Command("none")), call=False)
    row = {
        "names": parameter.opts,
        "parameter": parameter.name,
        "type": type(kind).__name__,
        "values": values,
        "default": default,
        "shown default": shown if isinstance(shown, str) else None,  # it stands in signatures of scores
        "metavar": parameter.metavar,
        "required": parameter.required,
        "nargs": parameter.nargs,
        "multiple": parameter.multiple,
        "is_flag": is_flag,
    }
    row = json.loads(json.dumps(row, default=lambda unset: None))
    return {name: value for name, value in row.items() if value or (value == 0 and value is not False)}


def found(name: str) -> list[dict[str, Any]]:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    # Arguments come first in a usage line, wherever they are declared.
    parameters = sorted(command.params, key=lambda parameter: isinstance(parameter, click.Option))
    return [described(parameter) for parameter in parameters]


@pytest.mark.parametrize("name", COMMANDS)
def test_options_of_a_command_equal_the_stored_ones(name):
    assert found(name) == json.loads(STORED.read_text())[name], (
        "if it is meant, run python tests/cli/test_command_options.py"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help(name):
    command = main.get_command(click.Context(main), name)
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []


if __name__ == "__main__":
    lines = {name: ",\n".join(f"  {json.dumps(option)}" for option in found(name)) for name in COMMANDS}
    tables = (f" {json.dumps(name)}: [\n{options}\n ]" for name, options in lines.items())
    STORED.write_text("{\n" + ",\n".join(tables) + "\n}\n")
