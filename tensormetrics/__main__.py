"""The command line, `tensormetrics` or `python -m tensormetrics`."""

from ._cli.interruption import INTERRUPTED, leaving_at_once

with leaving_at_once():
    import os
    import sys
    import warnings
    from importlib import import_module
    from typing import Any, NoReturn

    from ._version import __version__

    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait spinning are many times slower, if busy
    try:
        import click
    except ImportError as error:
        if sys.argv[1:] == ["info"]:  # reports missing packages without needing them
            raise SystemExit(print(import_module("tensormetrics._cli.machine.info").report())) from None
        if sys.argv[1:] == ["info", "--gpu"]:
            torch, report = import_module("torch"), import_module("tensormetrics._cli.machine.gpu_report")
            raise SystemExit(report.run(torch.device("cuda"))) from None
        raise SystemExit(f"tensormetrics: {error}; install it with: pip install 'tensormetrics[cli]'") from error

COMMANDS = {  # name -> file in _cli/commands, and its description
    "retrieval": ("retrieval", "Do nearest neighbors among embeddings share labels? Do clusters?"),
    "trec": ("trec", "How good are ranked documents, by trec_eval's measures? Files of TREC and BEIR."),
    "association": ("association", "How biased are word vectors between sets of words?"),
    "posterior": ("posterior", "How sure are the scores of a confusion matrix?"),
    "json": ("fields", "Which fields of a language model's JSON answers are wrong? Which model is better?"),
    "structured": ("structured", "How good are predicted structures, read as dataclasses?"),
    "coref": ("structured", "How good is coreference, in CoNLL-2012 files?"),
    "ner": ("structured", "How good are named entities, in BIO files?"),
    "amr": ("structured", "How good are AMR graphs, in PENMAN notation? (Smatch)"),
    "scores": ("score_files", "How sure are scores of items, in logs and tables? Which model is better?"),
    "ratings": ("ratings", "Which model is better, by battles that people or judges decided? Who is tied?"),
    "info": ("installation", "What is installed, what native code is loaded; does everything run on this GPU?"),
    "demo": ("demo", "Train on handwritten digits and watch every metric."),
}


class Commands(click.Group):
    """Commands in separate files, imported when they are named; an error is one line on stderr."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        with leaving_at_once():
            command: click.Command = import_module("tensormetrics._cli.options").command_of(name, COMMANDS[name][0])
            return command

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            perhaps = import_module("tensormetrics.core.arguments.checks").perhaps
            message = f"{error.message.removesuffix('.')}{perhaps(args[0], COMMANDS)}."
            raise click.UsageError(message, context) from None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, answers) for name, (_, answers) in COMMANDS.items()])

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("default", category=UserWarning)
            try:
                status = super().main(*args, **{**kwargs, "standalone_mode": False}) or 0
            except click.Abort:
                status, lines = INTERRUPTED, ["interrupted"]
            except click.exceptions.NoArgsIsHelpError as error:
                error.show()
                status, lines = error.exit_code, []
            except click.ClickException as error:
                status, lines = error.exit_code, [_line(error)]
            except OSError as error:  # of stdout
                status, lines = 1, [str(error)]
            else:
                lines = [str(warning.message) for warning in caught]
        for line in dict.fromkeys(lines):
            click.echo(f"tensormetrics: {' '.join(line.split())}", err=True)
        sys.exit(status)


def _line(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)  # of an error in the use of options
    return error.format_message() + (f" See: {context.command_path} --help" if context else "")


EPILOG = """\b
Status: 0 answered, 1 the output failed, 2 bad input, 3 nothing could be scored (every value is NaN),
4 a --require is not met, 130 Ctrl-C.
Completion of commands, options and choices: put one of these into the file that your shell reads at its start.
  bash  eval "$(_TENSORMETRICS_COMPLETE=bash_source tensormetrics)"
  zsh   eval "$(_TENSORMETRICS_COMPLETE=zsh_source tensormetrics)"
  fish  _TENSORMETRICS_COMPLETE=fish_source tensormetrics | source"""


@click.group(
    "tensormetrics",
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, package_name="tensormetrics")
def main() -> None:
    """Compute evaluation metrics from files, as a table; `tensormetrics COMMAND --help` lists the options."""


if __name__ == "__main__":
    main(prog_name="tensormetrics")
