"""Rows of all file readers: a valid file, the errors that may be raised, and a reference implementation."""

import codecs
import csv
import io
import json
import re
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fasttext_files import fasttext_file

from tensormetrics import association, posterior, retrieval, uncertainty
from tensormetrics._cli.inputs.arrays import read_tensor
from tensormetrics._cli.inputs.documents import read_documents
from tensormetrics._cli.inputs.labels import read_labels
from tensormetrics._cli.option_types import BadInput
from tensormetrics.association.embeddings.formats.arrays import word_list
from tensormetrics.posterior.sampling.errors import ConfigError, ConfMatIOError
from tensormetrics.retrieval.sources.arrow import read_column
from tensormetrics.retrieval.sources.state import State
from tensormetrics.structured.suites.amr import read_amr_file
from tensormetrics.structured.suites.conll import read_coref_file
from tensormetrics.structured.suites.entities.tag_files import read_tag_file

ROWS = np.arange(24, dtype=np.float32).reshape(6, 4) / 8
VOCABULARY = ["he", "him", "she", "her", "café", "work"]
Content = bytes


@dataclass(frozen=True)
class Reader:
    """File reader with a valid file and its expected errors.

    `read` returns values that can be compared. `reference_read` returns the same for the content of every file that
    `read` accepts; None if there is no reference implementation. Files with `is_streamable` are read sequentially, so
    they may be pipes or compressed by gzip. The row covers the calls of `core.text.files` in `modules`.
    """

    suffix: str
    content: Callable[[], Content]
    read: Callable[[Path], Any]
    modules: tuple[str, ...]
    errors: tuple[type[Exception], ...] = (ValueError,)
    reference_read: Callable[[Content], Any] | None = None
    is_streamable: bool = True
    needs: str | None = None  # a package
    error_names: tuple[str, ...] = ()  # names of the file in error messages, apart from its path


def saved(write: Callable[[Path], Any], suffix: str) -> Callable[[], Content]:
    """Return a function that returns the content of the file that `write` writes."""

    def content() -> Content:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"file{suffix}"
            write(path)
            return path.read_bytes()

    return content


def text(*lines: str) -> Callable[[], Content]:
    return lambda: "".join(f"{line}\n" for line in lines).encode()


def comparable_values(values: Any) -> list[Any]:
    """Convert an array to a list of its shape and the text of its entries, where NaN equals NaN."""
    array = torch.as_tensor(np.array(values) if isinstance(values, np.ndarray) else values).detach().cpu()
    array = array.double().numpy() if array.is_floating_point() else array.numpy()
    return [array.shape, *map(repr, array.ravel().tolist())]


# Word vectors and word sets.


def vectors(model: association.WordEmbeddingModel) -> dict[str, list[Any]]:
    return {token: comparable_values(model[token]) for token in model.vocab}


def glove_lines() -> Content:
    return b"".join(
        f"{token} {' '.join(map(str, row))}\n".encode() for token, row in zip(VOCABULARY, ROWS, strict=True)
    )


def parse_glove(content: Content) -> dict[str, list[Any]] | None:
    rows: dict[str, list[Any]] = {}
    lines = [line for line in content.decode("utf-8-sig").split("\n") if line.strip()]
    size = len(lines[0].split()) - 1
    for line in lines:
        token, *values = line.rsplit(None, size)
        with np.errstate(over="ignore"):
            rows.setdefault(token, comparable_values(np.array([float(x) for x in values]).astype(np.float32)))
    return rows


def binary_vectors() -> Content:
    rows = (token.encode() + b" " + row.tobytes() + b"\n" for token, row in zip(VOCABULARY, ROWS, strict=True))
    return b"6 4\n" + b"".join(rows)


def decoded(content: Content) -> str:
    is_utf16 = content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return content.decode("utf-16" if is_utf16 else "utf-8-sig")


def lines_of(text: str) -> list[str]:
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def of_fasttext(path: Path) -> list[Any]:
    model = association.WordEmbeddingModel.from_fasttext(path)
    index = model.index_query(association.Query([["he", "other"]], [["work"]]))
    return [comparable_values(association.functional.WordSet.of(part).values) for part in index.sets(model.vectors)]


def lexicon_reader(name: str, function: Callable[..., Any], others: dict[str, Content]) -> Callable[[Path], Any]:
    """Return a reader of a folder with this file and valid `others`."""

    def read(path: Path) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            for other, content in others.items():
                (Path(folder) / other).write_bytes(content)
            (Path(folder) / name).write_bytes(path.read_bytes())
            return function(path=folder)

    return read


PAIRS = b'[["she", "he"], ["her", "him"]]'
DEBIASWE = {f"{name}.json": PAIRS for name in ("definitional_pairs", "equalize_pairs", "gender_specific_full")}
MULTICLASS = json.dumps(
    {
        "definite_sets": [["a", "b", "c"], ["d", "e", "f"]],
        "analogy_templates": {
            "role": {name: ["x"] for name in ("man", "woman", "black", "caucasian", "asian")},
            "attribute": {name: ["x"] for name in ("jew", "christian", "muslim")},
        },
        "eval_targets": [["a"], ["b"]],
    }
).encode()
GENDER = MULTICLASS.replace(b', "c"', b"").replace(b', "f"', b"")

# Confusion matrices, studies, rows and runs.


def parse_matrix(content: Content) -> list[Any] | None:
    rows = list(csv.reader(io.StringIO(decoded(content), newline=None), strict=True))
    return comparable_values(np.array([[float(cell) for cell in row] for row in rows if any(row)]))


def study(suffix: str) -> Callable[[], Content]:
    def write(path: Path) -> None:
        made = posterior.Study(seed=1, replicates=10_000)
        made.add_experiment("group/run", np.array([[5, 1], [2, 7]]))
        made.save(path)

    return saved(write, suffix)


def of_study(path: Path) -> Any:
    return json.dumps(posterior.Study.load(path).to_dict(), sort_keys=True, default=str)


def rows_of(path: Path) -> list[Any]:
    source = retrieval.open_embeddings(path)
    return comparable_values(source.read(0, len(source)))


def parse_npy(content: Content) -> list[Any] | None:
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    shape, is_fortran, dtype = getattr(np.lib.format, f"read_array_header_{version[0]}_0")(file)
    values = np.frombuffer(content, dtype, int(np.prod(shape)), file.tell())
    values = values.reshape(shape[::-1]).T if is_fortran else values.reshape(shape)
    return comparable_values(values.astype(values.dtype.newbyteorder("=")))


def parse_safetensors(content: Content) -> list[Any] | None:
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    ((_, tensor),) = ((name, entry) for name, entry in header.items() if name != "__metadata__")
    start, end = tensor["data_offsets"]
    kinds = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "F16": "<f2"}
    return comparable_values(
        np.frombuffer(content[8 + size :][start:end], kinds[tensor["dtype"]]).reshape(tensor["shape"])
    )


def arrow_table() -> Any:
    import pyarrow as pa

    return pa.table({"vectors": [row.tolist() for row in ROWS], "label": ["a", "b", "a", "c", "c", "a"]})


def write_parquet(path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(arrow_table(), path)


def write_arrow(path: Path) -> None:
    import pyarrow as pa

    table = arrow_table()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def write_safetensors(path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"vectors": ROWS}, path)


RUN = text("q1 Q0 dé 1 2.5 x", "q1 Q0 d2 2 1.5 x", "q2 Q0 d1 1 -0.5 x", "q2 Q0 d3 2 1e-3 x")
QRELS = text("q1 0 dé 1", "q1 0 d2 0", "q2 0 d3 2", "q2 0 d1 -1")
BEIR = text("query-id\tcorpus-id\tscore", "q1\tdé\t1", "q2\td2\t3")


def pairs_of(pairs: Any) -> dict[str, dict[str, str]]:
    return {
        query: {name.tobytes().rstrip(b"\0").decode(): repr(float(value)) for name, value in zip(
            pairs.document[pairs.query == i], pairs.value[pairs.query == i], strict=True
        )}
        for i, query in enumerate(pairs.queries)
    }  # fmt: skip


SPACES = "".join(map(chr, range(33)))  # control characters separate fields as well


def parse_pairs(content: Content) -> dict[str, dict[str, str]] | None:
    values_by_query: dict[str, dict[str, str]] = {}
    lines = [re.split("[\0- ]+", line.strip(SPACES)) for line in decoded(content).split("\n") if line.strip(SPACES)]
    columns = len(lines[0]) if lines else 0
    if columns not in (3, 6) and decoded(content).lstrip(SPACES).startswith("query-id\tcorpus-id\t"):
        table = csv.DictReader(io.StringIO(decoded(content).lstrip(SPACES), newline=None), delimiter="\t", strict=True)
        lines, columns = [[row["query-id"], row["corpus-id"], row["score"]] for row in table], 3
    has_heading = columns == 3 and lines and not lines[0][-1].lstrip("-").isdecimal()
    for fields in lines[has_heading:]:
        query, document, value = fields[0], fields[-2 if columns < 6 else 2], fields[-1 if columns < 6 else 4]
        assert len(fields) == columns and document not in values_by_query.setdefault(query, {})
        values_by_query[query][document] = repr(float(value))
    return values_by_query


def of_index(kind: Callable[[], Any]) -> Callable[[Path], list[Any]]:
    def read(path: Path) -> list[Any]:
        knn = kind()
        knn.load(path)
        return comparable_values(knn(torch.ones(1, 4), 2)[0])

    return read


def write_index(path: Path) -> None:
    torch.save({"embeddings": torch.from_numpy(ROWS)}, path)


def write_faiss(path: Path) -> None:
    knn = retrieval.FaissKNN()
    knn.train(torch.from_numpy(ROWS))
    knn.save(path)


STATE = {"rows": "6 rows", "k": "2"}


def write_state(path: Path) -> None:
    State(path, STATE).keep(lambda: {"place": 3, "sums": torch.ones(2)}, now=True)


def of_state(path: Path) -> Any:
    state = State(path, STATE).load()
    return sorted((name, comparable_values(value)) for name, value in state.items())


# Scores of items, tables of results, and inputs of the command line.

SCORES = text("id,score,topic", "q1,1,law", "q2,0,law", "q3,0.5,thé")
SAMPLES = [{"doc_id": i, "metrics": ["acc"], "acc": i % 2, "doc": {"subject": "law"}} for i in range(4)]
HARNESS = text(*map(json.dumps, SAMPLES))
LOG = {"samples": [{"id": f"s{i}", "epoch": 1, "scores": {"m": {"value": "CI"[i % 2]}}} for i in range(4)]}


def of_scores(path: Path) -> Any:
    scores = uncertainty.read_scores(path, groups=None)
    return comparable_values(scores.scores), None if scores.ids is None else [str(name) for name in scores.ids]


def parse_scores(content: Content) -> Any:
    rows = list(csv.DictReader(io.StringIO(decoded(content), newline=None), strict=True))
    values = [float(row["score"]) if row["score"].strip() else float("nan") for row in rows]
    names = [(row.get("id") or row.get("sample_id") or "").strip() for row in rows]
    return comparable_values(np.array(values)), names if any(names) else None


def write_scores(path: Path) -> None:
    import pandas

    pandas.DataFrame({"id": ["a", "b"], "score": [0.5, 1.0]}).to_parquet(path)


def write_table(path: Path) -> None:
    uncertainty.Table(["a", "b"], {"score": True}, [{"score": 0.5}, {"score": 1.5}]).to_json(path)


def of_table(path: Path) -> str:
    return uncertainty.Table.from_json(path).to_json()


def write_npz(path: Path) -> None:
    np.savez(path, vectors=ROWS, words=np.array(VOCABULARY))


def write_packed(path: Path) -> None:
    np.savez_compressed(path, vectors=ROWS)


def write_npy(path: Path) -> None:
    np.save(path, ROWS)


def write_tensor(path: Path) -> None:
    torch.save(torch.from_numpy(ROWS), path)


def tensor_of(path: Path) -> list[Any]:
    return comparable_values(read_tensor(str(path)))


def column_of(path: Path) -> Any:
    column = read_labels(str(path))
    return [str(value) for value in column.values()] if column.names else column.codes.tolist()


LABELS = "stereotype", "anti-stereotype", "unrelated"
SENTENCES = [{"id": f"s{i}", "sentence": f"She is {i}.", "gold_label": label} for i, label in enumerate(LABELS)]
TRIPLE = {"context": "Zoé is BLANK.", "target": "she", "bias_type": "gender", "sentences": SENTENCES}
PAIR_FILES = "association.language_models.pair_files"


def parse_sentences(content: Content) -> Any:
    table = [*csv.DictReader(io.StringIO(decoded(content), newline=None), strict=True)]
    return [[row[name].strip() for row in table] for name in ("sent_more", "sent_less", "bias_type")]


FORMATS = "association.embeddings.formats."
ARRAYS, INPUTS = f"{FORMATS}arrays", "_cli.inputs."
SETS = "association.embeddings.datasets"
MODEL = association.WordEmbeddingModel
LOAD_W2V = MODEL.from_word2vec
NEEDS = {".safetensors": "safetensors", ".parquet": "pyarrow", ".arrow": "pyarrow"}
REFERENCES = {".npy": parse_npy, ".safetensors": parse_safetensors}
BAD_INPUT = BadInput, ValueError
SUITES, CONLL = "structured.suites.", text("#begin document (a)", "Zoé (0)", "#end document")
SCORE_FILES = ("uncertainty.item_scores.records",)


def stored(
    suffix: str,
    write: Callable[[Path], Any],
    read: Callable[[Path], Any],
    module: str,
    errors: tuple[type[Exception], ...] = (ValueError,),
) -> Reader:
    """Return the row of a file that is not read sequentially."""
    options: dict[str, Any] = {"reference_read": REFERENCES.get(suffix), "needs": NEEDS.get(suffix)}
    return Reader(suffix, saved(write, suffix), read, (module,), errors, is_streamable=False, **options)


def tags_of(path: Path) -> list[Any]:
    return [[*sentence[:3]] for sentence in read_tag_file(path)]


def of_pairs(suffix: str, content: Callable[[], Content], kind: Any) -> Reader:
    modules = "retrieval.runs.pairs", "core.text.text_columns"
    return Reader(suffix, content, lambda path: pairs_of(kind.read(path)), modules, reference_read=parse_pairs)


READERS = {
    "word2vec, text": Reader(
        ".txt", glove_lines, lambda path: vectors(LOAD_W2V(path)), (f"{FORMATS}word2vec",), reference_read=parse_glove
    ),
    "word2vec, binary": Reader(
        ".bin", binary_vectors, lambda path: vectors(LOAD_W2V(path, binary=True)), (f"{FORMATS}word2vec",)
    ),
    "fastText": Reader(
        ".bin",
        lambda: fasttext_file(VOCABULARY, np.concatenate([ROWS, ROWS]), 6),
        of_fasttext,
        (f"{FORMATS}fasttext",),
        is_streamable=False,
    ),
    "npz of words": stored(".npz", write_npz, lambda path: vectors(MODEL.from_npz(path)), ARRAYS),
    "safetensors of words": stored(
        ".safetensors",
        write_safetensors,
        lambda path: comparable_values(MODEL.from_safetensors(path, VOCABULARY).vectors),
        ARRAYS,
    ),
    "list of words": Reader(
        ".txt", text(*VOCABULARY), word_list, (ARRAYS,), reference_read=lambda content: lines_of(decoded(content))
    ),
    "JSON of words": Reader(
        ".json",
        lambda: json.dumps(VOCABULARY).encode(),
        lambda path: [*word_list(path)],
        (ARRAYS,),
        reference_read=lambda content: json.loads(decoded(content)),
    ),
    "opinion words": Reader(
        ".txt",
        text(";;; a comment", "good", "naïve"),
        lexicon_reader("positive-words.txt", association.load_bingliu, {"negative-words.txt": b"bad"}),
        (SETS,),
        error_names=("positive-words.txt",),
        is_streamable=False,
    ),
    "GN-GloVe": Reader(
        ".txt",
        text("he", "him"),
        lexicon_reader("male_word_file.txt", association.fetch_gn_glove, {"female_word_file.txt": b"she"}),
        (SETS,),
        error_names=("male_word_file.txt",),
        is_streamable=False,
    ),
    "Debiaswe": Reader(
        ".json",
        lambda: PAIRS,
        lexicon_reader("professions.json", association.fetch_debiaswe, DEBIASWE),
        (SETS,),
        error_names=("professions.json",),
        is_streamable=False,
    ),
    "multiclass": Reader(
        ".json",
        lambda: MULTICLASS,
        lexicon_reader(
            "race_attributes_optm.json",
            association.fetch_debias_multiclass,
            {"gender_attributes_optm.json": GENDER, "religion_attributes_optm.json": MULTICLASS},
        ),
        (SETS,),
        error_names=("attributes_optm.json",),
        is_streamable=False,
    ),
    "confusion matrix": Reader(
        ".csv",
        text("5,1,0", "2,7,1", "0,3,9"),
        lambda path: comparable_values(posterior.load_csv(path)),
        ("posterior.sampling.matrix_files",),
        (ConfMatIOError,),
        parse_matrix,
    ),
    **{
        f"study, {suffix}": Reader(
            suffix, study(suffix), of_study, ("posterior.study.config",), (ConfigError,), needs=package
        )
        for suffix, package in ((".json", None), (".toml", "tomli_w"), (".yaml", "yaml"))
    },
    "rows, npy": stored(".npy", write_npy, rows_of, "retrieval.sources.files"),
    "rows, safetensors": stored(".safetensors", write_safetensors, rows_of, "retrieval.sources.files"),
    "rows, Parquet": stored(".parquet", write_parquet, rows_of, "retrieval.sources.arrow"),
    "rows, Arrow": stored(".arrow", write_arrow, rows_of, "retrieval.sources.arrow"),
    "column, Parquet": stored(
        ".parquet",
        write_parquet,
        lambda path: [[*map(str, part)] for part in read_column(str(path), "label") if part is not None],
        "retrieval.sources.arrow",
    ),
    "AMR": Reader(".amr", text("(c / thé)"), lambda path: repr(read_amr_file(path)), (f"{SUITES}amr",), needs="penman"),
    "coreference": Reader(".conll", CONLL, lambda path: repr(read_coref_file(path)), (f"{SUITES}conll",)),
    "tags": Reader(
        ".conll", text("EU B-ORG", "", "Péter B-PER", "Black I-PER"), tags_of, ("structured.suites.entities.tag_files",)
    ),
    "run": of_pairs(".txt", RUN, retrieval.Run),
    "qrels": of_pairs(".txt", QRELS, retrieval.Qrels),
    "qrels of BEIR": of_pairs(".tsv", BEIR, retrieval.Qrels),
    "index of TorchKNN": stored(".pt", write_index, of_index(retrieval.TorchKNN), "retrieval.search.knn"),
    "index of faiss": Reader(
        ".faiss",
        saved(write_faiss, ".faiss"),
        of_index(retrieval.FaissKNN),
        ("retrieval.search.backends.faiss_knn",),
        needs="faiss",
    ),
    "state of an evaluation": stored(".pt", write_state, of_state, "retrieval.sources.state"),
    "scores, CSV": Reader(".csv", SCORES, of_scores, SCORE_FILES, reference_read=parse_scores),
    "scores, lm-evaluation-harness": Reader(".jsonl", HARNESS, of_scores, SCORE_FILES),
    "scores, inspect_ai": Reader(".json", text(json.dumps(LOG)), of_scores, SCORE_FILES),
    "scores, Parquet": Reader(
        ".parquet",
        saved(write_scores, ".parquet"),
        of_scores,
        SCORE_FILES,
        needs="pyarrow",
    ),
    "table of results": Reader(".json", saved(write_table, ".json"), of_table, ("core.results.table_formats",)),
    "command line, npy": stored(".npy", write_npy, tensor_of, f"{INPUTS}arrays", BAD_INPUT),
    "command line, npz": stored(".npz", write_packed, tensor_of, f"{INPUTS}arrays", BAD_INPUT),
    "command line, pt": stored(".pt", write_tensor, tensor_of, f"{INPUTS}arrays", BAD_INPUT),
    "command line, safetensors": stored(".safetensors", write_safetensors, tensor_of, f"{INPUTS}arrays", BAD_INPUT),
    "command line, csv": Reader(
        ".csv", text("1,2", "3,4.5"), tensor_of, (f"{INPUTS}text", f"{INPUTS}arrays"), BAD_INPUT
    ),
    "command line, jsonl": Reader(
        ".jsonl", text("[1, 2]", "[3, 4.5]"), tensor_of, (f"{INPUTS}text", f"{INPUTS}arrays"), BAD_INPUT
    ),
    "command line, labels": Reader(
        ".txt", text("café", "dog", "café"), column_of, (f"{INPUTS}text", f"{INPUTS}labels"), BAD_INPUT
    ),
    "command line, labels in csv": Reader(
        ".csv", text("label", "3", "4"), column_of, (f"{INPUTS}text", f"{INPUTS}labels"), BAD_INPUT
    ),
    "command line, documents": Reader(
        ".jsonl",
        text('{"a": "é"}', '{"a": [2]}'),
        lambda path: read_documents(str(path)).values,
        (f"{INPUTS}documents", f"{INPUTS}text"),
        BAD_INPUT,
    ),
    "pairs of sentences": Reader(
        ".csv",
        text("id,sent_more,sent_less,bias_type", '0,"Zoé, too",He,gender', "1,old,young,age"),
        lambda path: [*association.read_sentence_pairs(path)],
        (PAIR_FILES,),
        reference_read=parse_sentences,
    ),
    "triples of sentences": Reader(
        ".json",
        text(json.dumps({"data": {"intrasentence": [TRIPLE]}})),
        lambda path: [*association.read_sentence_triples(path)],
        (PAIR_FILES,),
    ),
}
