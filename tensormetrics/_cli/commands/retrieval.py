"""The command `retrieval`: label agreement of nearest neighbors and clusters of embeddings."""

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, Literal

import click
import torch
from click.core import ParameterSource
from torch import Tensor

from ...core.results.estimates import Estimate
from ...core.results.table import Table
from ...retrieval import AccuracyCalculator, FaissKNN, KeOpsKNN
from ...retrieval.calculator.metric_names import CENTROID, CLUSTERING, statistic_of
from ...retrieval.scores.embedding_metric import Role
from ...retrieval.scores.query_metric import Classes, averaged
from ..inputs.labels import Column
from ..names import DISTANCES, RETRIEVAL_OF_NEIGHBORS
from ..naming import naming
from ..option_types import (
    Arguments,
    BadInput,
    Device,
    Finite,
    Option,
    PositiveInt,
    Probability,
    Replicates,
    Rope,
    SecondModel,
    refuse,
)
from ..output import find_device, publish, status_of, stdout_aside
from ..score_tables import caption_of, comparison_json, comparison_table, score_json, score_table
from .retrieval_inputs import FILES, Files, InputsOfFiles, part_of, read_inputs

KNN = {"faiss": FaissKNN, "keops": KeOpsKNN}
OPTIONS = {
    "include": "--metric",
    "audit_report": "--audit",
    "knn_func": "--knn",
    "label_levels": "--levels",
    "cameras": "--cameras",
}


def retrieval(
    embeddings: str,
    labels: str | None = None,
    *,
    reference: str | None = None,
    reference_labels: str | None = None,
    gains: str | None = None,
    metrics: Annotated[tuple[str, ...], Option(name="--metric")] = ("AMI", "NMI", *RETRIEVAL_OF_NEIGHBORS),
    k: str | None = None,
    knn: Literal["torch", "faiss", "keops"] = "torch",
    distance: Annotated[str, Option(type=click.Choice(DISTANCES))] = "l2",
    option: Arguments = (),
    levels: bool = False,
    cameras: str | None = None,
    reference_cameras: str | None = None,
    ids: str | None = None,
    reference_ids: str | None = None,
    groups: str | None = None,
    per_class: bool = False,
    index: str | None = None,
    audit: PositiveInt | None = None,
    checkpoint: Annotated[str, Option(type=click.Path(dir_okay=False))] | None = None,
    checkpoint_seconds: Annotated[float, Option(type=Finite(0))] = 120,
    compare_reference: str | None = None,
    compare: SecondModel | None = None,
    rope: Rope | None = None,
    replicates: Replicates = 1000,
    confidence: Probability = 0.95,
    device: Device | None = None,
    **outputs: Any,
) -> int:
    """Score EMBEDDINGS (N rows) by their LABELS (N): do nearest neighbors and clusters share labels?

    Files: .npy, .npz, .pt, .safetensors, .csv and .jsonl, with pyarrow also .parquet, .arrow and .feather; `file:name`
    selects one of several arrays or columns. A pattern, 'embeddings-*.parquet:column', concatenates the matching files.
    Labels, cameras, ids and groups are integers, or words in a .txt, .csv or .jsonl file, one per line, or a column.

    --gains FILE has a query, a reference and a gain above 0 per line (.csv and .tsv separated by , ; or tabs, else by
    spaces; with or without a heading), or `query 0 document gain`. Queries and references are named by --ids and
    --reference-ids, or are row indices. LABELS are then optional and only define the classes of queries.

    These are read in blocks and may be larger than memory: a .npy file; references in several files or in tables; and
    with --checkpoint all references. An interrupted run continues from its checkpoint.

    Under torchrun each rank holds a part of the rows, and the result is that of a single process. With --checkpoint
    FILE each rank reads a part of the references in blocks and writes FILE.rank0, FILE.rank1, ...

    \b
    tensormetrics retrieval embeddings.npy labels.txt --plot scores.png
    tensormetrics retrieval large.npy labels.txt --metric precision_at_1 --compare small.npy --rope 0.01
    tensormetrics retrieval queries.npy --reference docs.npy --gains qrels.tsv --ids q.txt --reference-ids d.txt
    tensormetrics retrieval queries.npz:x queries.npz:y --reference base.npy --reference-labels base.csv
    tensormetrics retrieval q.npy q.txt --reference 'base-*.npy' --reference-labels base.txt --k 10 --checkpoint a.pt

    Args:
        reference (FILE): Embeddings to search in; default EMBEDDINGS.
        reference_labels (FILE): Labels of the references.
        gains (FILE): Relevance instead of equal labels: query, reference and gain per line, or TREC's judgements.
        metrics (NAME): Metric; may be repeated; the names are listed below.
            [default: AMI, NMI and five of neighbors, or with --gains these five and ndcg]
        k (N): Neighbors per query, or max_bin_count: the size of the largest class. [default: all]
        knn: Library of the search.
        distance: Distance of the search.
        option: Another argument of `AccuracyCalculator`: ties=pessimistic (or optimistic) ranks references at equal
            distance by relevance, avg_of_avgs=true averages the means of classes; may be repeated.
        levels: LABELS has several columns, (N, L), which are scored separately.
        cameras (FILE): Camera of each row: relevant references of the query's camera are ignored.
        reference_cameras (FILE): Cameras of the references.
        ids (FILE): Id of each row, by which --gains names queries; later rows with the same id are dropped.
        reference_ids (FILE): Ids of the references for --gains.
        groups (FILE): Group of each row; bootstrap replicates reweight its queries together. [default: the labels]
        per_class: Also print a table with a row for each class.
        index (FACTORY): Index of faiss, such as IVF4096,Flat; default Flat, which is exact.
        audit: Also print the recall of the index and the exact scores, estimated from N queries.
        checkpoint (FILE): File of partial counts from which a run continues.
        checkpoint_seconds (N): Seconds between two writes of the checkpoint.
        compare_reference (FILE): With --compare and --reference: references of the second model.
        compare: EMBEDDINGS of a second model: also its scores and the paired differences.
        replicates: Intervals from N reweightings of the queries or groups; 0: none.
    """
    options = {name: value for name, value in locals().items() if name != "outputs"}
    context = click.get_current_context()
    if gains and context.get_parameter_source("metrics") is ParameterSource.DEFAULT:
        # Clusterings cannot use gains.
        options["metrics"] = context.params["metrics"] = (*RETRIEVAL_OF_NEIGHBORS, "ndcg")
    files = {name: options[option] for name, option in FILES.items()}
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    _check(options, ranks)
    torch_device = find_device(options["device"])
    inputs = read_inputs(files, options["levels"], bool(options["checkpoint"]))
    with naming(**files, **OPTIONS), _compiler_output_aside(options):
        calculator = _calculator(options, inputs, torch_device)
        checkpoint = {"checkpoint": options["checkpoint"], "checkpoint_seconds": options["checkpoint_seconds"]}
        if ranks > 1:
            values = _on_ranks(calculator, inputs, torch_device, checkpoint)
            if int(os.environ["RANK"]):  # rank 0 alone prints; all exit with the same status
                return status_of(values.values())
        else:
            values = _in_one_process(calculator, inputs, torch_device, checkpoint)
        assert calculator.last is not None  # the scores that were just computed
        has_means = options["replicates"] and any(statistic_of(name) == "mean" for name in calculator.last.scores)
        draws = {"confidence": options["confidence"], "replicates": options["replicates"]}
        estimates = dict(calculator.interval(**draws)) if has_means else {}
        by_class = _by_class(calculator, inputs.query.labels[0]) if options["per_class"] else {}
        audited = calculator.audit_report(confidence=options["confidence"]) if options["audit"] else {}
    scores = score_table(values, estimates, options["confidence"], "metric")
    tables, used = [scores], dict(files)
    if options["compare"]:
        used |= {name: options[name] for name in ("compare", "compare_reference")}
    report: dict[str, Any] = {
        "files": {name: file for name, file in used.items() if file},
        "queries": len(inputs.query.rows),
        "metrics": score_json(scores),
        "per_class": by_class,
    }
    if options["compare"]:
        other = _second_model(files, torch_device, options)
        pair, compared = {"": (calculator, other)}, (options["embeddings"], options["compare"])
        tables.append(comparison_table(pair, compared, "metric", rope=options["rope"], **draws))
        report["comparison"] = comparison_json(tables[-1])
    if audited:
        tables += _tables_of(audited, values, caption_of(options["confidence"]))
        recall = [{"k": k, **dict(zip(Estimate.tensors, map(float, row), strict=True))} for k, row in
                  enumerate(zip(*audited["recall"], strict=True), 1)]  # fmt: skip
        report["audit"] = {"queries": options["audit"], "recall": recall, "exact": score_json(tables[-2], "exact")}
    if by_class:
        names = [*next(iter(by_class.values()))]
        tables.append(Table([*by_class], names, [*by_class.values()], index="class"))
    return publish(tables, report, scores, **outputs)


def _check(options: dict[str, Any], ranks: int) -> None:
    """Raise BadInput for options that need a missing option or exclude each other."""
    _depth(options["k"])
    names = "labels", "gains", "levels", "reference", "reference_labels", "per_class", "compare", "checkpoint"
    labels, gains, levels, reference, reference_labels, per_class, compare, checkpoint = map(options.get, names)
    labeled = next((name for name in options["metrics"] if name in CLUSTERING or name == CENTROID), None)
    inexact = next((name for name in ("index", "audit") if options[name]), None)
    needs_cameras, needs_reference = options["cameras"] and reference, compare and reference
    lacks_partner = not gains and bool(reference) != bool(reference_labels)
    relevant, where = "which say what is relevant; leave one out", "give {0} where there are both {1} and only there"
    cameras, both = where.format("them", "--cameras and --reference,"), where.format("it", "--compare and --reference,")
    refuse(
        {
            "--per-class: not on several ranks; run it without torchrun": per_class and ranks > 1,
            "--per-class: not together with --levels; leave one out": per_class and levels,
            "--per-class: not without LABELS; give them, too": per_class and not labels,
            "--checkpoint: wanted a --reference, which is read in blocks; leave it out": checkpoint and not reference,
            "--compare: not together with --checkpoint; leave one out": compare and checkpoint,
            "--compare: not on several ranks; run it without torchrun": compare and ranks > 1,
            f"--compare-reference: {both}": bool(options["compare_reference"]) != bool(needs_reference),
            f"--{inexact}: wanted --knn faiss, whose search may not be exact": inexact and options["knn"] != "faiss",
            f"--gains: {labeled} uses labels alone; leave out --metric {labeled}": labeled and gains,
            "LABELS: got no file, wanted one, or --gains FILE": not (labels or gains),
            f"--levels: not together with --gains, {relevant}": gains and levels,
            f"--reference-labels: not together with --gains, {relevant}": gains and reference_labels,
            "--reference and --reference-labels: give both or neither": lacks_partner,
            "--reference-ids: wanted --reference and --gains, which name its rows; leave them out": (
                options["reference_ids"] and not (gains and reference)
            ),
            f"--reference-cameras: {cameras}": bool(options["reference_cameras"]) != bool(needs_cameras),
        }
    )


def _compiler_output_aside(options: dict[str, Any]) -> AbstractContextManager[None]:
    return stdout_aside() if options["knn"] == "keops" else nullcontext()  # keops prints what it compiles


def _calculator(options: dict[str, Any], inputs: InputsOfFiles, device: torch.device) -> AccuracyCalculator:
    searcher: dict[str, Any] = {"distance": options["distance"]}
    if options["knn"] != "torch":
        factory: dict[str, Any] = {"index_init_fn": options["index"]} if options["index"] else {}
        knn = KNN[options["knn"]](distance=options["distance"], **factory)
        searcher = {"knn_func": knn, "audit": options["audit"]}
    return AccuracyCalculator(
        options["metrics"],
        k=_depth(options["k"]),
        device=device,
        gains=inputs.gains,
        label_levels=options["levels"],
        progress=sys.stderr.isatty(),
        **searcher,
        **options["option"],
    )


def _second_model(files: Files, device: torch.device, options: dict[str, Any]) -> AccuracyCalculator:
    """Score the embeddings of the second model in the same way."""
    other_files = {**files, "query": options["compare"], "reference": options["compare_reference"]}
    inputs = read_inputs(other_files, options["levels"], False)
    with naming(**other_files, **OPTIONS), _compiler_output_aside(options):
        other = _calculator(options | {"audit": None}, inputs, device)
        _in_one_process(other, inputs, device, {})
    return other


def _tables_of(exact: dict[str, Estimate], values: dict[str, float], caption: str) -> list[Table]:
    """Return a table of approximate and exact scores, and one of the recall of the index."""
    names, recall = [name for name in exact if name != "recall"], exact["recall"]
    rows = [[values[name], exact[name]] for name in names]
    length = len(recall.value)
    depths = [k for k in range(1, length + 1) if k in (1, 2, 5, 10, 20, 50, 100, 200, 500, length)]
    return [
        Table(names, ["by the index", "exact"], rows, caption=caption, index="metric"),
        Table([str(k) for k in depths], ["recall of the index"], [[recall[k - 1]] for k in depths], None, caption, "k"),
    ]


def _depth(k: str | None) -> Any:
    if k is None or k == "max_bin_count":
        return k
    if not k.isdecimal() or not int(k):
        raise BadInput(f"--k: got {k!r}, wanted an integer >= 1 or max_bin_count; leave it out for all neighbors")
    return int(k)


def _in_one_process(
    calculator: AccuracyCalculator, inputs: InputsOfFiles, device: torch.device, checkpoint: dict[str, Any]
) -> dict[str, float]:
    query, references = inputs.query.to(device), inputs.reference.to(device) if inputs.reference else {}
    return calculator.get_accuracy(
        query["embeddings"],
        query["labels"],
        references.get("embeddings"),
        references.get("labels"),
        query_cameras=query.get("cameras"),
        reference_cameras=references.get("cameras"),
        groups=inputs.groups.values(),
        **checkpoint,
    )


def _on_ranks(
    calculator: AccuracyCalculator, inputs: InputsOfFiles, device: torch.device, checkpoint: dict[str, Any]
) -> dict[str, float]:
    """Score on several ranks; every rank returns the result of a single process.

    Each rank holds a part of the rows, or with a checkpoint reads a part of the references."""
    torch.distributed.init_process_group("gloo")
    try:
        if checkpoint["checkpoint"]:
            return _in_one_process(calculator, inputs, device, checkpoint | {"group": torch.distributed.group.WORLD})
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()

        def local(rows: Any) -> Any:
            return part_of(rows, slice(len(rows) * rank // ranks, len(rows) * (rank + 1) // ranks))

        def parts(inputs_of_role: dict[str, Any]) -> dict[str, Any]:
            return {name: local(rows) for name, rows in inputs_of_role.items()}

        role: Role = "query" if inputs.reference else "both"
        calculator.update(**parts(inputs.query.to(device)), role=role, groups=local(inputs.groups.values()))
        if inputs.reference:
            calculator.update(**parts(inputs.reference.to(device)), role="reference")
        return {name: float(value) for name, value in calculator.compute().items()}
    finally:
        torch.distributed.destroy_process_group()


def _by_class(calculator: AccuracyCalculator, labels: Column) -> dict[str, dict[str, float]]:
    assert calculator.last is not None  # the scores that were just computed
    scores: dict[str, Tensor] = calculator.last.scores
    codes = labels.codes.to(next(iter(scores.values())).device)
    classes = Classes(codes, torch.ones_like(codes, dtype=torch.bool))
    names = [str(labels.names[n] if labels.names else n) for n in classes.labels.tolist()]
    columns = [averaged(score, classes, "class", statistic_of(name)).tolist() for name, score in scores.items()]
    rows = (dict(zip(scores, row, strict=True)) for row in zip(*columns, strict=True))
    return dict(zip(names, rows, strict=True))
