"""What commands share before they work: options, and how they fail. Nothing here imports torch: help is quick."""

import math
import os
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from .interruption import leaving_at_once

STDOUT = Path("-")
FIGURES = (".png", ".svg", ".pdf")
REPLICATES = 1000  # of a comparison
FORMATS = ("table", "csv", "markdown", "latex", "json")


class BadInput(click.ClickException):
    """Ends the command with status 2 and one line."""

    exit_code = 2


class OutputFailed(click.ClickException):
    """Ends the command with status 1 and one line."""


class Finite(click.FloatRange):
    """A number in a range, which "nan" would be in as well; and no infinite one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class Size(click.ParamType):
    """Of a picture: width and height in inches."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)", value)
        if not found or not all(1 <= float(side) <= 100 for side in found.groups()):
            self.fail(f"{value!r} is no width and height of 1 to 100 inches, such as 6x4.", param, ctx)
        return float(found[1]), float(found[2])


def answer(place: str, /, **options: Any) -> int:
    """What `commands/FILE.py` makes of the options; `FILE.function` names one of several."""
    if lonely := [name for name in ("title", "size") if options.get(name) and not options["plot"]]:
        raise BadInput(f"--{lonely[0]}: is for --plot; write both")
    if options.get("compare"):
        if not options["replicates"]:
            options["replicates"] = click.get_current_context().params["replicates"] = REPLICATES
    elif "compare" in options and options.get("rope") is not None:
        raise BadInput("--rope: is for --compare; write both")
    file, _, function = place.partition(".")
    with leaving_at_once():
        work = import_module(f"tensormetrics._cli.commands.{file}")
    return getattr(work, function or "answer")(**options)


def common_options(command: Callable) -> Callable:
    for option in (
        click.option("--size", type=Size(), metavar="WIDTHxHEIGHT",
                     help="Of the picture in inches, such as 6x4; default as its labels want it."),
        click.option("--title", metavar="TEXT", help="Above the picture."),
        click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", callback=_figure_file,
                     help="Draw the scores into a .png, .svg or .pdf file."),
        click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", callback=_writable,
                     help="Also write all that was computed, with options and versions; - is --format json."),
        click.option("--format", "text_format", type=click.Choice(FORMATS), default="table", show_default=True,
                     help="Of what is printed. Its last line, in JSON the signature, says how that was computed; csv "
                     "has all digits, and no such line."),
        click.option("--device", metavar="NAME", help="Such as cpu or cuda:1; default the GPU where there is one."),
    ):  # fmt: skip
        command = option(command)
    return command


def intervals(of: str, *, compared: str) -> Callable[[Callable], Callable]:
    """Add the options of intervals, from replicates `of` something, and of the comparison with a second model, which is
    one argument of the command, `compared`, in another file."""

    def added(command: Callable) -> Callable:
        for option in (
            click.option("--confidence", type=Finite(0, 1, min_open=True, max_open=True), metavar="SHARE",
                         default=0.95, show_default=True, help="Of the intervals."),
            click.option("--replicates", type=click.IntRange(0), default=0, show_default=True, metavar="N",
                         callback=_more_than_one, help=f"Intervals from N {of}; 0: none, with --compare {REPLICATES}."),
            click.option("--rope", type=Finite(0), metavar="X", show_default="none",
                         help="With --compare: differences up to X do not matter; how probable are such?"),
            click.option("--compare", metavar="FILE", help=f"The {compared} of a second model: also its scores, and "
                         "the differences from them, item by item."),
        ):  # fmt: skip
            command = option(command)
        return command

    return added


def _more_than_one(context: click.Context, option: click.Parameter, number: int) -> int:
    if number == 1:
        raise click.BadParameter("1 is not 0, or at least 2.", context, option)
    return number


def _writable(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Found out before the work, not after it."""
    if path is None or path == STDOUT:
        return path
    if path.is_dir():
        raise BadInput(f"{path}: cannot be written: this is a folder")
    if not path.parent.is_dir():
        raise BadInput(f"{path}: cannot be written: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInput(f"{path}: cannot be written: permission denied")
    return path


def _figure_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    if path is None:
        return None
    if path.suffix not in FIGURES:
        raise BadInput(f"{path}: got a file of type {path.suffix!r}, wanted one of {', '.join(FIGURES)}")
    try:
        with leaving_at_once():
            import_module("tensormetrics._plots").figure_class()
    except ImportError as error:
        raise BadInput(f"--plot: {error}") from error
    return _writable(context, option, path)
