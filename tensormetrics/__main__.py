"""The command line, `tensormetrics` or `python -m tensormetrics`."""

import os
import sys
from importlib import import_module

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait spinning are many times slower on busy cores

try:
    import click
except ImportError as error:
    raise SystemExit(f"tensormetrics: {error}; install it with: pip install 'tensormetrics[cli]'") from error

COMMANDS = {  # name -> file
    "association": "association",
    "demo": "demo",
    "posterior": "posterior",
    "retrieval": "retrieval",
    **dict.fromkeys(("structured", "coref", "ner", "amr"), "structured"),
}


class Commands(click.Group):
    """Commands in files of their own, imported when they are named."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return getattr(import_module(f"tensormetrics._cli.{COMMANDS[name]}"), name) if name in COMMANDS else None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="tensormetrics")
def main() -> None:
    """Evaluation metrics from files: neighbours, biases, matchings and credible intervals."""


if __name__ == "__main__":
    sys.exit(main(prog_name="tensormetrics"))
