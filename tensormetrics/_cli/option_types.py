"""Types of the options of commands: an annotation says which values click accepts. Nothing here imports torch."""

import json
import math
import os
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import click

from .interruption import leaving_at_once

__all__ = ["Annotated", "Any", "Literal", "Path"]  # also used in annotations of commands

STDOUT = Path("-")
FIGURES = (".png", ".svg", ".pdf")


class BadInput(click.ClickException):
    """Error in the input: ends the command with status 2 and one line."""

    exit_code = 2


class OutputFailed(click.ClickException):
    """Error in writing the output: ends the command with status 1 and one line."""


def refuse(faults: Mapping[str, Any]) -> None:
    """Raise BadInput with the first message whose fault is there."""
    for message, is_there in faults.items():
        if is_there:
            raise BadInput(message)


class Option:
    """Arguments of click.Option in an annotation; `name` if it differs from the parameter's name."""

    def __init__(self, **attributes: Any):
        self.attributes = attributes


class Finite(click.FloatRange):
    """Finite number in a range; click.FloatRange accepts "nan" as well."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        finite = super().convert(value, param, ctx)
        if not math.isfinite(finite):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return finite


class Size(click.ParamType):
    """Width and height of a figure in inches."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)", value)
        if not match or not all(1 <= float(length) <= 100 for length in match.groups()):
            self.fail(f"{value!r} is no width and height of 1 to 100 inches, such as 6x4.", param, ctx)
        return float(match[1]), float(match[2])


def split_assignment(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=") if option == "--require" else text.partition("=")
    if not equals:
        raise BadInput(f"{option}: got {text!r}, wanted NAME=VALUE")
    return name, value


def decoded(text: str) -> Any:
    """Return the value of JSON, or else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def assigned(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Return the arguments that NAME=VALUE gives."""
    return {name: decoded(value) for name, value in (split_assignment("--option", text) for text in texts)}


def more_than_one(context: click.Context, option: click.Parameter, count: int) -> int:
    if count == 1:
        raise click.BadParameter("1 is not 0, or at least 2.", context, option)
    return count


def writable(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Raise if a file cannot be written, before the computation instead of after it."""
    if path is None or path == STDOUT:
        return path
    if path.is_dir():
        raise BadInput(f"{path}: cannot be written: this is a folder")
    if not path.parent.is_dir():
        raise BadInput(f"{path}: cannot be written: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInput(f"{path}: cannot be written: permission denied")
    return path


def figure_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    if path is None:
        return None
    if path.suffix not in FIGURES:
        raise BadInput(f"{path}: got a file of type {path.suffix!r}, wanted one of {', '.join(FIGURES)}")
    try:
        with leaving_at_once():
            import_module("tensormetrics.core.results.plots").figure_class()
    except ImportError as error:
        raise BadInput(f"--plot: {error}") from error
    return writable(context, option, path)


PositiveInt = Annotated[int, Option(type=click.IntRange(1), metavar="N")]
IntFromTwo = Annotated[int, Option(type=click.IntRange(2), metavar="N")]
Inches = Annotated[tuple[float, float], Option(type=Size(), metavar="WIDTHxHEIGHT")]
OutputFile = Annotated[Path, Option(callback=writable, metavar="FILE")]
FigureFile = Annotated[Path, Option(callback=figure_file, metavar="FILE")]
Probability = Annotated[
    float,
    Option(type=Finite(0, 1, min_open=True, max_open=True), metavar="SHARE", help="Probability of the intervals."),
]
Power = Annotated[float, Option(type=Finite(0, 1, min_open=True, max_open=True), metavar="SHARE")]
Device = Annotated[str, Option(metavar="NAME", help="Device, such as cpu or cuda:1; default the GPU if there is one.")]
# Arguments of the class or function that a command calls, beside its own options.
Arguments = Annotated[Any, Option(name="--option", type=str, multiple=True, metavar="NAME=VALUE", callback=assigned)]
# Options of commands that compare two models.
SecondModel = Annotated[str, Option(metavar="FILE")]
Rope = Annotated[
    float,
    Option(
        type=Finite(0),
        metavar="X",
        show_default="none",
        help="With --compare: differences up to X are negligible; print their probability.",
    ),
]
Replicates = Annotated[int, Option(type=click.IntRange(0), metavar="N", callback=more_than_one)]
