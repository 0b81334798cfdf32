"""`tensormetrics structured`, `coref`, `ner`, `amr`: how good are these predicted structures?"""

from collections.abc import Callable
from typing import Any

import click

from .names import CONSTRAINTS, TAGS
from .options import answer, common_options, intervals


def comparison(command: Callable) -> Callable:
    added = intervals("reweightings of the documents (sentences, graphs)", compared="PREDICTED")
    command = added(common_options(command))
    return click.argument("predicted")(click.argument("reference")(command))


@click.command()
@click.option(
    "--schema",
    required=True,
    metavar="MODULE:CLASS",
    help="What a line is: a dataclass, a NamedTuple, a TypedDict or a class of attrs, msgspec or pydantic. The module "
    "may be a path to a .py file; it is run.",
)
@click.option(
    "--constraint",
    type=click.Choice(CONSTRAINTS),
    default="<->",
    show_default=True,
    help="How items of lists are matched, for a class without @metametric: one to one, or "
    "with items of the reference (->), of the prediction (<-) or of both (~) matched again and again.",
)
@click.option(
    "--invalid",
    type=click.Choice(["error", "empty"]),
    default="error",
    show_default=True,
    help="What lines of PREDICTED are that are null, no JSON, or of another form: an error, or documents without "
    "items, which are counted.",
)
@comparison
def structured(**options: Any) -> int:
    """Compare PREDICTED and REFERENCE, .jsonl files of one document per line, by a metric derived from a class.

    \b
    tensormetrics structured predicted.jsonl reference.jsonl --schema my_schema.py:Document
    tensormetrics structured answers.jsonl reference.jsonl --schema my_schema.py:Document --invalid empty
    """
    return answer("structured.structured", **options)


@click.command()
@click.option(
    "--singletons",
    type=click.Choice(["keep", "drop"]),
    default="keep",
    show_default=True,
    help="Clusters of one mention.",
)
@comparison
def coref(**options: Any) -> int:
    """Coreference of PREDICTED and REFERENCE, files in the format of CoNLL-2011/2012: the last column holds brackets
    such as (0, 0) and (0)|(1, documents stand between "#begin document" and "#end document".

    \b
    tensormetrics coref predicted.conll reference.conll --replicates 1000
    """
    return answer("structured.coref", **options)


@click.command()
@click.option(
    "--mode",
    type=click.Choice(TAGS),
    default="lenient",
    show_default=True,
    help="What tags that do not fit mean: lenient as conlleval, the others leave them out.",
)
@click.option("--suffix", is_flag=True, help="Tags are PER-B and PER-I, the label first.")
@comparison
def ner(**options: Any) -> int:
    """Named entities in PREDICTED and REFERENCE: a token per line, its tag (B-PER, I-PER, O, ...) in the last column, a
    blank line between sentences.

    \b
    tensormetrics ner predicted.bio reference.bio --mode iob2
    tensormetrics ner large.bio reference.bio --compare small.bio
    """
    return answer("structured.ner", **options)


@click.command()
@comparison
def amr(**options: Any) -> int:
    """Smatch of PREDICTED and REFERENCE, files of AMR graphs in PENMAN notation with a blank line between them.

    \b
    tensormetrics amr predicted.amr reference.amr --replicates 1000
    """
    return answer("structured.amr", **options)
