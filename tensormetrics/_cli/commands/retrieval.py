"""The command `retrieval`: label agreement of nearest neighbors and clusters of embeddings."""

import os
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
from ..inputs import BadInput, Column, naming
from ..names import DISTANCES, RETRIEVAL_OF_NEIGHBORS
from ..option_types import Arguments, Device, Finite, Option, PositiveInt, Probability, Replicates, Rope, SecondModel
from ..output import find_device, on_a_terminal, publish, status_of, stdout_aside
from ..score_tables import Comparisons, Scores, caption_of
from .retrieval_inputs import FILES, RetrievalInputs, part_of, read_inputs

KNN = {"faiss": FaissKNN, "keops": KeOpsKNN}
FLAG_OF_ARGUMENT = {
    "include": "--metric",
    "k": "--k",
    "distance": "--distance",
    "cameras": "--cameras",
    "audit_report": "--audit",
    "knn_func": "--knn",
    "label_levels": "--levels",
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
    replicates: Replicates = 0,
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
    tensormetrics retrieval embeddings.npy labels.txt --replicates 1000 --plot scores.png
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
        replicates: Bootstrap replicates of the intervals; 0 gives none, and with --compare 1000.
    """
    options = {name: value for name, value in locals().items() if name != "outputs"}
    context = click.get_current_context()
    if gains and context.get_parameter_source("metrics") is ParameterSource.DEFAULT:
        options["metrics"] = context.params["metrics"] = (
            *RETRIEVAL_OF_NEIGHBORS,
            "ndcg",
        )  # clusterings cannot use gains
    files = {name: options[option] for name, option in FILES.items()}
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    _check(options, ranks)
    torch_device = find_device(options["device"])
    inputs = read_inputs(files, options["levels"], bool(options["checkpoint"]))
    with naming(**files, **FLAG_OF_ARGUMENT), _compiler_output_aside(options):
        calculator = _calculator(options, inputs, torch_device)
        checkpoint = {"checkpoint": options["checkpoint"], "checkpoint_seconds": options["checkpoint_seconds"]}
        if ranks > 1:
            values = _on_ranks(calculator, inputs, torch_device, checkpoint)
            if int(os.environ["RANK"]):  # rank 0 alone prints; all exit with the same status
                return status_of(values.values())
        else:
            values = _in_one_process(calculator, inputs, torch_device, checkpoint)
        scores = _scores(calculator, values, options)
        by_class = _by_class(calculator, inputs.query.labels[0]) if options["per_class"] else {}
        audited = calculator.audit_report(confidence=options["confidence"]) if options["audit"] else {}
    tables = [scores.table("metric")]
    used = dict(files)
    if options["compare"]:
        used |= {name: options[name] for name in ("compare", "compare_reference")}
    report: dict[str, Any] = {
        "files": {name: file for name, file in used.items() if file},
        "queries": len(inputs.query.rows),
        "metrics": scores.answer(),
        "per_class": by_class,
    }
    if options["compare"]:
        comparisons = _comparisons(calculator, files, torch_device, options)
        tables.append(comparisons.table("metric"))
        report["comparison"] = comparisons.answer()
    if audited:
        tables += _tables_of(audited, scores)
        report["audit"] = _audit_report(audited, options["audit"])
    names = [*next(iter(by_class.values()), ())]
    if by_class:
        tables.append(Table([*by_class], names, [*by_class.values()], index="class"))
    class_values = {name: [row[name] for row in by_class.values()] for name in names}
    return publish(
        tables,
        report,
        lambda size: scores.draw(size, class_values),
        values.values(),
        **outputs,
    )


def _check(options: dict[str, Any], ranks: int) -> None:
    """Raise BadInput for options that need a missing option or exclude each other."""
    _depth(options["k"])
    if options["per_class"] and (options["levels"] or ranks > 1 or not options["labels"]):
        if ranks > 1:
            raise BadInput("--per-class: not on several ranks; run it without torchrun")
        if options["levels"]:
            raise BadInput("--per-class: not together with --levels; leave one out")
        raise BadInput("--per-class: not without LABELS; give them, too")
    if options["checkpoint"] and not options["reference"]:
        raise BadInput("--checkpoint: wanted a --reference, which is read in blocks; leave it out")
    _check_comparison(options, ranks)
    if (options["index"] or options["audit"]) and options["knn"] != "faiss":
        option = "index" if options["index"] else "audit"
        raise BadInput(f"--{option}: wanted --knn faiss, whose search may not be exact")
    label_metrics = [name for name in options["metrics"] if name in CLUSTERING or name == CENTROID]
    if label_metrics and options["gains"]:
        raise BadInput(f"--gains: {label_metrics[0]} uses labels alone; leave out --metric {label_metrics[0]}")


def _check_comparison(options: dict[str, Any], ranks: int) -> None:
    if options["compare"] and options["checkpoint"]:
        raise BadInput("--compare: not together with --checkpoint; leave one out")
    if options["compare"] and ranks > 1:
        raise BadInput("--compare: not on several ranks; run it without torchrun")
    if bool(options["compare_reference"]) != bool(options["compare"] and options["reference"]):
        raise BadInput("--compare-reference: give it where there are both --compare and --reference, and only there")


def _compiler_output_aside(options: dict[str, Any]) -> AbstractContextManager[None]:
    return stdout_aside() if options["knn"] == "keops" else nullcontext()  # keops prints what it compiles


def _calculator(options: dict[str, Any], inputs: RetrievalInputs, device: torch.device) -> AccuracyCalculator:
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
        progress=on_a_terminal(),
        **searcher,
        **options["option"],
    )


def _scores(calculator: AccuracyCalculator, values: dict[str, float], options: dict[str, Any]) -> Scores:
    assert calculator.last is not None  # the scores that were just computed
    confidence, estimates = options["confidence"], {}
    if options["replicates"] and any(statistic_of(name) == "mean" for name in calculator.last.scores):
        estimates = dict(calculator.interval(confidence=confidence, replicates=options["replicates"]))
    return Scores(values, estimates, confidence)


def _comparisons(
    calculator: AccuracyCalculator, files: dict[str, str | None], device: torch.device, options: dict[str, Any]
) -> Comparisons:
    """Score the embeddings of the second model in the same way and compare both."""
    first, second = options["embeddings"], options["compare"]
    other_files = files | {"query": second, "reference": options["compare_reference"]}
    inputs = read_inputs(other_files, options["levels"], False)
    with naming(**other_files, **FLAG_OF_ARGUMENT), _compiler_output_aside(options):
        other = _calculator(options | {"audit": None}, inputs, device)
        _in_one_process(other, inputs, device, {})
    common = {name: options[name] for name in ("confidence", "replicates", "rope")}
    return Comparisons.of({"": (calculator, other)}, (first, second), **common)


def _tables_of(exact: dict[str, Estimate], scores: Scores) -> list[Table]:
    """Return a table of approximate and exact scores, and one of the recall of the index."""
    names, caption = [name for name in exact if name != "recall"], caption_of(scores.confidence)
    rows = [[scores.values[name], exact[name]] for name in names]
    recall = exact["recall"]
    length = len(recall.value)
    depths = [k for k in range(1, length + 1) if k in (1, 2, 5, 10, 20, 50, 100, 200, 500, length)]
    return [
        Table(names, ["by the index", "exact"], rows, caption=caption, index="metric"),
        Table([str(k) for k in depths], ["recall of the index"], [[recall[k - 1]] for k in depths], None, caption, "k"),
    ]


def _audit_report(exact: dict[str, Estimate], audit: int) -> dict[str, Any]:
    def to_lists(estimate: Estimate) -> dict[str, Any]:
        return {name: getattr(estimate, name).tolist() for name in Estimate.tensors}

    by_k = zip(*(tensor.tolist() for tensor in exact["recall"]), strict=True)
    recall = [{"k": k, **dict(zip(Estimate.tensors, values, strict=True))} for k, values in enumerate(by_k, 1)]
    scores = {name: to_lists(estimate) for name, estimate in exact.items() if name != "recall"}
    return {"queries": audit, "recall": recall, "exact": scores}


def _depth(k: str | None) -> int | Literal["max_bin_count"] | None:
    if k is None:
        return None
    if k == "max_bin_count":
        return "max_bin_count"
    if k.isdecimal() and int(k):
        return int(k)
    raise BadInput(f"--k: got {k!r}, wanted an integer >= 1 or max_bin_count; leave it out for all neighbors")


def _in_one_process(
    calculator: AccuracyCalculator, inputs: RetrievalInputs, device: torch.device, checkpoint: dict[str, Any]
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
    calculator: AccuracyCalculator, inputs: RetrievalInputs, device: torch.device, checkpoint: dict[str, Any]
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
    rows: dict[str, dict[str, float]] = {
        str(labels.names[n] if labels.names else n): {} for n in classes.labels.tolist()
    }
    for metric, score in scores.items():
        for row, value in zip(rows.values(), averaged(score, classes, "class", statistic_of(metric)), strict=True):
            row[metric] = float(value)
    return rows
