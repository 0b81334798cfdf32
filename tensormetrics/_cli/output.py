"""Output of all commands: selection of the device, and printing, writing and drawing of results."""

import io
import json
import math
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import numpy as np
import torch

from .._version import __version__
from ..core.arguments.labels import label_of
from ..core.results.estimates import Estimate
from ..core.results.plots import CHARACTER, FONT, plot_panels, wrapped
from ..core.results.table import Table
from ..core.results.table_formats import value_of
from ..core.results.text_tables import json_value
from ..core.text.files import open_atomic
from .option_types import STDOUT, BadInput, FigureFile, Inches, Option, OutputFailed, OutputFile

Size = tuple[float, float] | None  # of a figure in inches; None: as its labels require
UNSCORED = 3  # exit status if every value is NaN
OUTPUTS = ("text_format", "json_file", "plot", "title", "figsize")  # options of the output that do not affect values
# Options that values do not depend on.
UNSIGNED = {*OUTPUTS, *"device checkpoint checkpoint_seconds html save_schema worst explain require".split()}


def find_device(name: str | None) -> torch.device:
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros((), device=device).item()
    except (RuntimeError, AssertionError) as error:  # torch raises AssertionError if it was built without CUDA
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise BadInput(f"--device: got {name!r}, which cannot be used here: {reason}") from error
    return device


@contextmanager
def stdout_aside() -> Iterator[None]:
    """Redirect stdout to stderr, also for libraries and compilers that write to the file descriptor."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


TEXTS: dict[str, Callable[[Table], str]] = {
    "table": lambda table: table.to_text(4),
    "markdown": lambda table: table.to_markdown(4),
    "latex": lambda table: table.to_latex(4),
    "csv": lambda table: table.to_csv().removesuffix("\n"),
}


def publish(
    tables: Sequence[Table],
    answer: dict[str, Any],
    picture: Table | Callable[[Size], Any],
    values: Iterable[float] = (),
    other_files: Mapping[Path, str] | None = None,
    *,
    text_format: Annotated[Literal["table", "csv", "markdown", "latex", "json"], Option(name="--format")] = "table",
    json_file: Annotated[OutputFile | None, Option(name="--json")] = None,
    plot: FigureFile | None = None,
    title: str | None = None,
    figsize: Inches | None = None,
) -> int:
    """Print, write and draw the results after everything has been computed; return the exit status.

    `picture` is a table of one column, or draws a figure, and then the status is that of `values`. `other_files` maps
    further files to their text.

    Args:
        text_format: Format of the output. JSON has a signature, the options that scores depend on; csv has all digits.
        json_file: Also write all results, with options and versions; - is --format json.
        plot: Draw the scores into a .png, .svg or .pdf file.
        title (TEXT): Title of the figure.
        figsize: Size of the figure in inches, such as 6x4; default as its labels require.
    """
    answer = {**_computed(), **answer, "tables": [json.loads(table.to_json()) for table in tables]}
    text = json.dumps(json_value(answer), indent=1, allow_nan=False)
    files = {path: content.encode() for path, content in (other_files or {}).items()}
    if json_file not in (None, STDOUT):
        files[json_file] = f"{text}\n".encode()
    if plot is not None:
        image = io.BytesIO()
        figure = drawn_scores(picture, figsize) if isinstance(picture, Table) else picture(figsize)
        if title:
            lines = wrapped(title, int(figure.get_figwidth() / CHARACTER))
            figure.suptitle(lines, fontsize=FONT + 1, parse_math=False)  # "$5 to $10" is no formula
        figure.savefig(image, format=plot.suffix[1:], dpi=150)
        files[plot] = image.getvalue()
    if text_format != "json" and json_file != STDOUT:
        text = "\n\n".join(map(TEXTS[text_format], tables))
    click.echo(text)
    for path, content in files.items():
        try:
            with open_atomic(path) as file:
                file.write(content)
        except OSError as error:
            raise OutputFailed(f"{path}: cannot be written: {error.strerror}") from error
        click.echo(f"wrote {path}", err=True)
    status = status_of(map(value_of, chain(*picture.cells)) if isinstance(picture, Table) else values)
    if status:
        warnings.warn("nothing could be scored: every value is NaN", stacklevel=1)
    return status


def drawn_scores(table: Table, size: Size) -> Any:
    """Draw a panel for each column, with intervals where there are some."""
    panels = {}
    for i, column in enumerate(table.columns):
        cells: list[Any] = [row[i] for row in table.cells]
        rows = [cell if isinstance(cell, Estimate) else (value_of(cell), math.nan, math.nan) for cell in cells]
        panels[column] = np.array([[*map(float, row)] for row in rows])
    figure, _ = plot_panels([label_of(name) for name in table.rows], panels, {})
    if size:
        figure.set_size_inches(size)
    return figure


def status_of(values: Iterable[float]) -> int:
    return UNSCORED if all(map(math.isnan, values)) else 0


def _computed() -> dict[str, Any]:
    """Return the command, its options, those that values depend on in one line, and versions."""
    context = click.get_current_context()
    options, signed = {}, [str(context.info_name)]
    for option in context.command.params:
        if option.name in OUTPUTS:
            continue
        name, value = option.opts[-1].removeprefix("--"), context.params[option.name or ""]
        options[name] = str(value) if isinstance(value, Path) else value
        if isinstance(option, click.Option) and option.name not in UNSIGNED:
            signed.append(f"{name}:{'given' if value and option.metavar == 'FILE' else json.dumps(value)}")
    versions = {"tensormetrics": __version__, "python": platform.python_version()}
    versions |= {"torch": torch.__version__, "numpy": np.__version__}
    signature = "|".join([*signed, f"version:{__version__}"])
    return {"command": context.info_name, "signature": signature, "versions": versions, "options": options}
