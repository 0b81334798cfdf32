"""Association of sets of words."""

import functools
import json
import math
import operator
import warnings
from abc import ABCMeta
from typing import Annotated, Any, Literal

import click
import numpy as np
import torch

from ... import association as domain
from ...association import Query, WordEmbeddingModel
from ...association.embeddings.formats.fasttext import is_fasttext
from ...association.extend import BaseMetric
from ...association.queries.run_queries import corrected, planned, scored
from ...association.resampling.null_distribution import Method
from ...core.results.table import Table
from ..inputs.documents import json_file
from ..inputs.text import existing
from ..names import ASSOCIATION, CORRECTIONS
from ..naming import Logged, naming
from ..option_types import Arguments, BadInput, Device, Option, Probability, Replicates, Rope, SecondModel, refuse
from ..output import find_device, publish
from ..score_tables import comparison_json, comparison_table, table_of_rows
from .pairs import prefer

LEVEL = 0.05  # below it a p-value survives
Rows = dict[str, dict[str, Any]]  # query -> score, further values of the metric, and the reason of a missing score
METRICS: dict[str, type[BaseMetric]] = {
    name.lower(): kind
    for name, kind in vars(domain).items()
    if isinstance(kind, ABCMeta) and issubclass(kind, BaseMetric) and kind is not BaseMetric
}
TESTED = {name for name, kind in METRICS.items() if kind.has_p_value()}
EXTRA_VALUES = {  # further numbers per query of a metric: column -> key of its result
    "weat": {"effect size": "effect_size"},
    "mleat": {"first target": "effect_size_x", "second target": "effect_size_y"},
}
WEAT_TESTS = (  # the ten tests of Caliskan, Bryson & Narayanan 2017, doi:10.1126/science.aal4230
    ("flowers", "insects", "pleasant_5", "unpleasant_5a"),
    ("instruments", "weapons", "pleasant_5", "unpleasant_5a"),
    ("european_american_names_5", "african_american_names_5", "pleasant_5", "unpleasant_5b"),
    ("european_american_names_7", "african_american_names_7", "pleasant_5", "unpleasant_5b"),
    ("european_american_names_7", "african_american_names_7", "pleasant_9", "unpleasant_9"),
    ("male_names", "female_names", "career", "family"),
    ("math", "arts", "male_terms", "female_terms"),
    ("science", "arts_2", "male_terms_2", "female_terms_2"),
    ("mental_disease", "physical_disease", "temporary", "permanent"),
    ("young_people_names", "old_people_names", "pleasant_9", "unpleasant_9"),
)


def association(
    vectors: Annotated[tuple[str, ...], Option(metavar="[VECTORS]...")] = (),
    *,
    queries: str | None = None,
    pairs: str | None = None,
    model: str | None = None,
    protocol: Literal["crows-pairs", "stereoset"] | None = None,
    metrics: Annotated[tuple[str, ...], Option(name="--metric", type=click.Choice(ASSOCIATION))] = ("weat",),
    p_value: Literal["exact", "approximate", "auto"] | None = None,
    correction: Annotated[str, Option(type=click.Choice(CORRECTIONS))] | None = None,
    member: str | None = None,
    words: str | None = None,
    option: Arguments = (),
    compare: SecondModel | None = None,
    rope: Rope | None = None,
    replicates: Replicates = 1000,
    confidence: Probability = 0.95,
    device: Device | None = None,
    **outputs: Any,
) -> int:
    """Measure the association of sets of words in VECTORS.

    VECTORS is a word2vec file, text or binary, or one without a header, as GloVe's, also in .gz or .zip; fastText's
    .bin; .npz; .safetensors. Only the words of the queries are kept in memory. Several files are columns of one table.

    \b
    tensormetrics association vectors.txt --p-value auto --correction max-t
    tensormetrics association glove.6B.zip --member glove.6B.100d.txt
    tensormetrics association fair.vec biased.vec
    tensormetrics association vectors.bin.gz --queries mine.json --metric weat --metric rnd --json scores.json

    \b
    Or, instead of VECTORS, the preferences of a language model between the sentences of pairs:
    tensormetrics association --pairs crows_pairs.csv --model bert --protocol crows-pairs

    Args:
        queries (FILE): A .json list of {"target_sets": [["he", ...], ["she", ...]], "attribute_sets": [[...], [...]],
            "target_sets_names": ["male", "female"], "attribute_sets_names": [...]}.
            [default: the ten published WEAT tests]
        pairs (FILE): Pairs of sentences in the format of CrowS-Pairs: a .csv file with the columns sent_more, sent_less
            and bias_type; or of StereoSet: a .json file, whose sentences with a blank are scored.
        model (DIRECTORY): For --pairs: a masked or causal language model, as transformers' save_pretrained writes it.
        protocol: For --pairs: the published score in percent. [default: stereoset of .json files; of others the share
            of pairs, of which a tie counts half]
        metrics: May be repeated; a query with more sets than a metric accepts is split.
        p_value: Also p-values of permutation tests: exact (all permutations; at most 50 words in two sets), approximate
            (10,000 random ones), or auto: exact if that is fast. [default: none]
        correction: Also p-values corrected for the number of queries, and whether they stay below 0.05: max-t
            (permutations drawn for all queries together) and holm control the probability of a false discovery, bh the
            false discovery rate. [default: none]
        member (NAME): File of a .zip with several files, such as glove.6B.100d.txt.
        words (FILE): Words of the rows of a .npz or .safetensors file, one per line, or .json; .npz may contain them.
        option: Another argument of the metrics: preprocessors=[{}, {"lowercase": true}], to look words up in lower case
            too, or lost_vocabulary_threshold=0.5, the largest share of unknown words; may be repeated.
        compare: VECTORS of a second model: also its scores and the paired differences.
        replicates: Intervals from N bootstrap samples of the words of each set, with --compare of the queries; 0: none.
    """
    if pairs is not None:
        others = {"VECTORS": vectors or None, "--queries": queries, "--compare": compare, "--p-value": p_value}
        refuse({f"--pairs: got {name} too, wanted one of them": value is not None for name, value in others.items()})
        return prefer(pairs, model, protocol, correction, replicates, confidence, device, outputs)
    by_draws, untested = correction == "max-t", min({*metrics} - TESTED, default="")
    types = "approximate or auto" if by_draws else "exact, approximate or auto"
    got = f"got {correction} with --p-value {p_value or 'left out'}"
    refuse(
        {
            "VECTORS: got nothing, wanted a file; or --pairs FILE --model DIRECTORY": not vectors,
            "--compare: got it with several VECTORS, wanted one": compare is not None and len(vectors) > 1,
            "VECTORS: got a file twice, wanted distinct files": len({*vectors}) < len(vectors),
            "--model: is for --pairs; write both": model is not None,
            "--protocol: is for --pairs; write both": protocol is not None,
            f"--p-value: {untested} has none for a query; leave out --metric {untested}": p_value and untested,
            f"--correction: {got}, wanted {types}": correction and (not p_value or (by_draws and p_value == "exact")),
        }
    )
    query_list = _read_queries(queries) if queries else _weat_queries()
    second = () if compare is None else (compare,)
    models = {x: _read_vectors(x, query_list, member, words).to(find_device(device)) for x in (*vectors, *second)}
    by_metric: dict[str, Any] = {}
    picture: dict[str, dict[str, Any]] = {}  # query -> score and p-value of each metric
    common: dict[str, tuple[Any, Any]] = {}
    losses: dict[str, dict[str, None]] = {file: {} for file in models}  # reasons of missing scores
    tables = []
    for metric in dict.fromkeys(metrics):
        kind = METRICS[metric]
        with naming(method=f"--p-value of {metric}"):
            warnings.simplefilter("ignore", Logged)  # the reasons list the lost words
            resampled = {**option, "replicates": replicates, "confidence": confidence}
            rows_of = {x: _scores(kind, query_list, models[x], p_value, correction, **resampled) for x in vectors}
            others = {x: _scores(kind, query_list, models[x], None, None, **option) for x in second}
        by_metric[metric] = rows_of[vectors[0]] if len(rows_of) == 1 else rows_of
        for file, rows in (*rows_of.items(), *others.items()):
            reasons = "; ".join(row["reason"] for row in rows.values() if row["reason"])
            losses[file] |= dict.fromkeys(reasons.split("; ") if reasons else [])
        for other in others.values():
            common[metric] = _common_scores(metric, rows_of[vectors[0]], other)
        is_one = len(rows_of) == 1
        parts = [table_of_rows(rows, confidence, metric, None if is_one else x) for x, rows in rows_of.items()]
        table = functools.reduce(operator.or_, parts)
        tables.append(table)
        tested = [name for name in table.columns if name.startswith("p")][-1:]  # "p", or else the corrected one
        shown = {"score": metric, **{name: f"{name} of {metric}" for name in tested}}
        shown = shown if is_one else {file: f"{metric} of {file}" for file in rows_of}
        for name in table.rows:
            picture.setdefault(name, {}).update({heading: table[name, key] for key, heading in shown.items()})
    for file, reasons in losses.items():
        more = f"; {len(reasons) - 5} more, see --json" if len(reasons) > 5 else ""
        if reasons:
            warnings.warn(f"{file}: queries without a score: {'; '.join([*reasons][:5])}{more}", stacklevel=1)
    answer: dict[str, Any] = {"files": {"vectors": vectors, "queries": queries}, "metrics": by_metric}
    if compare:
        answer["files"]["compare"] = compare
        statement: dict[str, Any] = {"confidence": confidence, "replicates": replicates, "rope": rope}
        heading = "mean over queries"
        tables.append(comparison_table(common, (vectors[0], compare), heading, has_direction=False, **statement))
        answer["comparison"] = comparison_json(tables[-1])
    columns = dict.fromkeys(heading for cells in picture.values() for heading in cells)
    return publish(tables, answer, Table([*picture], [*columns], [*picture.values()]), **outputs)


def _common_scores(metric: str, rows: Rows, other: Rows) -> tuple[dict[str, float], dict[str, float]]:
    """Return each model's scores of the queries that both models score."""
    common = [name for name in rows if not math.isnan(rows[name]["score"] + other[name]["score"])]
    if not common:
        raise BadInput(f"--compare: {metric} has no query with a score by both models")
    return {name: rows[name]["score"] for name in common}, {name: other[name]["score"] for name in common}


def _weat_queries() -> list[Query]:
    sets = domain.load_weat()
    return [
        Query([sets[name] for name in names[:2]], [sets[name] for name in names[2:]], names[:2], names[2:])
        for names in WEAT_TESTS
    ]


def _read_queries(file: str) -> list[Query]:
    rows = json_file(file)
    if not isinstance(rows, list) or not rows:
        raise BadInput(f"{file}: wanted a list of at least one query, got {json.dumps(rows)[:60]}")
    queries = []
    for index, row in enumerate(rows):
        try:
            queries.append(Query(**row))
        except (TypeError, ValueError) as error:
            raise BadInput(f"{file}, query {index}: {str(error).removeprefix('Query.__init__() ')}") from error
    return queries


def _read_vectors(file: str, queries: list[Query], member: str | None, words: str | None) -> WordEmbeddingModel:
    """Read the vectors of the words of the queries only, also in lower case."""
    kind, listed = existing(file).suffix, existing(words) if words else None
    has_list = kind in (".npz", ".safetensors")
    refuse(
        {
            f"--words: got {words} for {file}, wanted a .npz or .safetensors file": words and not has_list,
            f"--member: got {member} for {file}, which is no .zip": member and kind != ".zip",
            f"{file}: this has no words; give them by --words": kind == ".safetensors" and not words,
        }
    )
    sets = (s for query in queries for sets in (query.target_sets, query.attribute_sets) for s in sets)
    vocabulary = {form for s in sets for word in s for form in (word, word.lower())}
    try:
        if has_list:
            open_list = WordEmbeddingModel.from_npz if kind == ".npz" else WordEmbeddingModel.from_safetensors
            model = open_list(file, listed)
        elif is_fasttext(file):
            model = WordEmbeddingModel.from_fasttext(file)
        else:
            model = WordEmbeddingModel.from_word2vec(file, only=vocabulary, member=member)
        arrays = model.arrays(sorted(word for word in vocabulary if word in model))
    except (ValueError, OSError) as error:
        reason = str(error).partition("; write ")[0]  # hints about Python arguments that the command sets itself
        raise ValueError(reason if file in reason or str(words) in reason else f"{file}: {reason}") from error
    if not arrays:
        raise BadInput(f"{file}: none of the words of the queries is in it")
    if bad := [word for word, vector in arrays.items() if not np.isfinite(vector).all()]:
        raise BadInput(f"{file}: the vector of {bad[0]!r} holds NaN or infinity")
    return WordEmbeddingModel.from_numpy(np.stack(list(arrays.values())), list(arrays), model.name)


def _scores(
    kind: type[BaseMetric],
    queries: list[Query],
    model: WordEmbeddingModel,
    test: Method | None,
    correction: str | None,
    **options: Any,
) -> Rows:
    """Score the queries by one metric in one model."""
    metric, plan = planned(kind(**options), queries, [model], True)
    numbers, reasons = scored(metric, plan, [model])
    keys = {"score": "value", **({"low": "low", "high": "high"} if metric.has_intervals else {})}
    keys |= EXTRA_VALUES.get(kind.__name__.lower(), {})
    missing = torch.full((1, len(plan.names)), math.nan)
    columns = {column: numbers.get(key, missing) for column, key in keys.items()}
    if test:
        tested = kind(**options, p_value=True, method=test)
        numbers, why = scored(tested, plan, [model])
        columns["p"], reasons = numbers.get("p_value", missing), why | reasons
        if correction:
            columns[f"p ({correction})"], why = corrected(tested, plan, [model], correction)
            reasons = why | reasons
    values = {column: numbers[0].tolist() for column, numbers in columns.items()}
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    if correction:
        rows = [{**row, "survives": "yes" if row[f"p ({correction})"] < LEVEL else "no"} for row in rows]
    return {
        name: {**row, "reason": reasons.get((model.name, name))} for name, row in zip(plan.names, rows, strict=True)
    }
