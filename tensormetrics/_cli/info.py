"""`tensormetrics info`."""

import click

from .._info import report


@click.command()
def info() -> None:
    """What is installed, which native code is loaded, which extras are there, and what to do where one is missing."""
    click.echo(report())
