"""`tensormetrics info`."""

from importlib import import_module

import click

from .interruption import leaving_at_once


@click.command()
def info() -> None:
    """What is installed, which native code is loaded, which extras are there, and what to do where one is missing."""
    with leaving_at_once():
        report = import_module("tensormetrics._info").report
    click.echo(report())
