"""Options of every command equal the stored ones, so that scripts continue to work.

After an intended change, `python tests/record.py` rewrites `command_options.json`.
"""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from tensormetrics.__main__ import COMMANDS, main

STORED = Path(__file__).with_name("command_options.json")


def describe(parameter: click.Parameter) -> dict[str, Any]:
    """Return the properties that a script can depend on: names, default, accepted values and multiplicity."""
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
        "shown default": shown if isinstance(shown, str) else None,  # it is part of signatures of scores
        "metavar": parameter.metavar,
        "required": parameter.required,
        "nargs": parameter.nargs,
        "multiple": parameter.multiple,
        "is_flag": is_flag,
    }
    row = json.loads(json.dumps(row, default=lambda unset: None))
    return {name: value for name, value in row.items() if value or (value == 0 and value is not False)}


def current_options(name: str) -> list[dict[str, Any]]:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    # Arguments come first in a usage line, wherever they are declared.
    parameters = sorted(command.params, key=lambda parameter: isinstance(parameter, click.Option))
    return [describe(parameter) for parameter in parameters]


@pytest.mark.parametrize("name", COMMANDS)
def test_options_of_command_equal_the_stored_ones(name):
    assert current_options(name) == json.loads(STORED.read_text())[name], "if it is meant, run python tests/record.py"


@pytest.mark.parametrize("name", COMMANDS)
def test_options_of_command_have_help(name):
    command = main.get_command(click.Context(main), name)
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []
