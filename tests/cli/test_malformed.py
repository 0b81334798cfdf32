"""Malformed files and refused options of every command: status 2, and one line that names the file or option."""

import io
import itertools
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from running import run


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def pt(stored):
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse invariant checks")  # of torch 2.11
        torch.save(stored, file)
    return file.getvalue()


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)
LEVELS = np.zeros((3, 2), int)
OBJECT = npy(np.array([{}]))
CUT = npy(ROWS)[:-4]
VECTORS = "8 2\nhe 1 2\nhim 2 1\nshe 3 1\nher 1 3\nwork 2 2\nwage 4 1\nhome 1 1\ncare 2 5\n"
BINARY = b"1 2\nhe " + np.float32([1, 2]).tobytes()
QUERY = '[{"target_sets": [["he", "him"], ["she", "her"]], "attribute_sets": [["work", "wage"], ["home", "care"]]}]'
SCHEMA = """
from dataclasses import dataclass
from typing import Literal

@dataclass
class Mention:
    left: int
    label: Literal["PER", "LOC"]

@dataclass
class Doc:
    mentions: list[Mention]
"""
DOCUMENT = '{"mentions": [{"left": 1, "label": "PER"}]}\n'
RUN = "q1 Q0 a 1 3 t\nq1 Q0 b 2 2 t\nq2 Q0 a 1 1 t\n"
QRELS = "q1 0 b 1\nq2 0 a 1\nq3 0 a 1\n"
CONLL = "#begin document (x); part 000\na (0\nb 0)\n#end document\n"
AMR = "(w / want-01 :ARG0 (b / boy))\n"
GOOD = {
    "x.npy": npy(ROWS),
    "y.txt": "0\n0\n1\n",
    "g.txt": "0 1 2\n1 0 1\n",
    "m.csv": "cat,dog\n9,1\n2,8\n",
    "v.txt": VECTORS,
    "q.json": QUERY,
    "schema.py": SCHEMA,
    "r.jsonl": DOCUMENT * 2,
    "r.bio": "a B-PER\nb I-PER\nc O\n\nd B-LOC\n",
    "r.conll": CONLL,
    "r.amr": f"# ::id 1 ::date x\n# ::snt Boys.\n{AMR}",
    "run.txt": RUN,
    "qrels.txt": QRELS,
    "refs.jsonl": '{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n{"a": 3, "b": "z"}\n\n',
    "preds.jsonl": '{"a": 1, "b": "x"}\n\nIt is {"a": 3, "b": "Z"}\n',
    "log.jsonl": '{"id": 3, "out": "{}"}\n{"id": 1, "out": {"a": 1}}\n',
    "asked.jsonl": '{"id": 1, "out": {"a": 1}}\n{"id": 2, "out": {}}\n',
    "gold.jsonl": '{"id": 1, "c": "m", "a": 1}\n{"id": 2, "c": "m", "a": 2}\n{"id": 3, "c": "n", "a": 3}\n',
    **{f"{name}.csv": "id,right,topic\n" + "".join(f"q{i},1,law\n" for i in range(60)) for name in "abc"},
    "d.csv": "id,right\nq1,1\n",
    "e.csv": "score\n5\n2\n",
    "battles.csv": "question_id,model_a,model_b,winner\n1,gpt,opus,tie\n1,gpt,llama,model_a\n2,opus,llama,tie\n",
}
NO_TAG = "wanted 'O', or a prefix of B, I, M, E, L, S, U, a dash and a label"


GAINS = "a query, a reference and a gain, or TREC's `query 0 document gain`"
QUERIES = "--queries q.json"
SCHEMA_OPTION = "r.jsonl --schema schema.py:Doc"

CASES = {  # command -> arguments -> content of the file `bad.*` and the expected line
    "retrieval": {
        "bad.pt y.txt": [
            ("hello", ": wanted a file of torch.save; it is damaged"),
            (pt([np.random.default_rng()]), ": wanted a file of torch.save; got Python objects, which are not "
             "unpickled"),
            (pt(torch.eye(2).to_sparse()), ": got a torch.sparse_coo tensor, wanted a dense one of real numbers"),
            (pt(torch.eye(2) * 1j), ": got a cpu torch.complex64 tensor, wanted a dense one of real numbers"),
            (pt({}), ": it holds no array"),
            (pt([1]), ": got a list, wanted an array"),
        ],
        "bad.npz y.txt": [(npz(x=ROWS, y=ROWS), ": got no name for a file of x, y; write bad.npz:x")],
        "bad.npz:z y.txt": [(npz(x=ROWS), ": got the name 'z' for a file of x; write bad.npz:x")],
        "bad.npy:x y.txt": [(npy(ROWS), ":x: a .npy file holds one array; leave out ':x'")],
        "bad.doc y.txt": [
            ("1", ": got a file of type '.doc', wanted one of .npy, .npz, .pt, .pth, .safetensors, .csv, .jsonl"),
        ],
        "x.npy y.txt --compare bad.npy": [(npy(np.eye(9)), "y.txt: got 3 labels for the 9 rows of bad.npy")],
        "x.npy y.txt --reference x.npy --reference-labels bad.csv": [
            ("a\nb\nc\n", ": wanted labels of the kind of y.txt, words or integers"),
        ],
        "x.npy --reference x.npy --gains bad.txt": [
            (f"0 1 1\n{row} 1 1\n",
             f", line 2: got the query {row!r}, wanted a row of x.npy, 0 to 2; names are given by --ids")
            for row in ("--5", "+-3", "9" * 5000, "12")
        ],
        "bad.npy y.txt": [
            (b"\x93NUMPY", ": wanted a .npy file; EOF: reading magic string, expected 8 bytes got 6"),
            (npy(np.array(["a"])), ": got an array of <U1, wanted numbers"),
            (npy(ROWS[:0]), ": got an array of shape (0, 2), wanted at least one row"),
            (npy(ROWS[:, None]), ": got an array of shape (3, 1, 2), wanted one row per item: (N, D)"),
            (npy(ROWS * [[1], [np.nan], [1]]),
             ": 1 of 3 rows hold NaN or infinity, the first is row 1; wanted finite values"),
            ("1 2\n3 4\n",
             ": wanted a .npy file; the magic string is not correct; expected b'\\x93NUMPY', got b'1 2\\n3 '"),
        ],
        "x.npy bad.npy": [
            (npy(ROWS[:, 0]), ": got torch.float32, wanted integer labels"),
            (npy(LEVELS), ": got an array of shape (3, 2), wanted one label per row: (N,); levels of labels, (N, L), "
             "are an option of retrieval"),
            (npy(np.uint64([2**63, 0, 1])),
             ": got a label above 9223372036854775807, wanted an integer of at most 64 bits")
        ],
        "bad.csv y.txt": [
            ("id,a\nx,1\n3,2\n", ", line 3: got '3', wanted a name as above"),
            ("1,2".encode("utf-16")[:-1], ": got a file marked as UTF-16 that is not whole, or is none"),
            ("1,2\n3,x\n5,6\n", ", line 2: got 'x', wanted a finite number"),
            ("# rows\n1,2\n3,4\n5,6\n", ", line 2: got 2 columns, wanted 1 as above"),
            ('"1,2\n3,4\n5,6\n', ", line 3: unexpected end of data"),
        ],
        "x.npy y.txt --cameras bad.txt": [
            ("a\n", ": got 1 labels for the 3 rows of x.npy"),
        ],
        "x.npy bad.txt": [
            ("1\nnan\n", ", line 2: got 'nan', wanted an integer of at most 64 bits or a word"),
            ("\n\n", ": got no label, wanted one per line"),
        ],
        "x.npy bad.csv": [
            ("word\na\na\nb\n", ": got 4 labels for the 3 rows of x.npy; leave out the header"),
            ("cat;3\ndog;4\n", ", line 1: got 2 columns, wanted one label"),
            ('cat\n""\ndog\n', ", line 2: got an empty cell, wanted a label"),
            (f"1\n{2**63}\n", f", line 2: got '{2**63}', wanted an integer of at most 64 bits or a word"),
        ],
        "x.npy bad.jsonl": [
            ("1\n1.5\n", ", line 2: got 1.5, wanted an integer of at most 64 bits"),
            ('"a"\n1\n', ", line 2: got 1, wanted a word"),
            ("null\n", ", line 1: got null, wanted an integer of at most 64 bits or a word"),
        ],
        "x.npy y.txt --reference bad.npy --reference-labels y.txt": [
            (npy(np.ones((3, 3))), ": got shape (3, 3), wanted (N, 2)")
        ],
        "x.npy y.txt --reference x.npy --reference-labels bad.txt": [
            ("7\n8\n9\n", "y.txt: none of its labels is one of bad.txt")
        ],
        "x.npy --gains bad.csv": [
            ("0,1\n", f", line 1: got 2 columns, wanted {GAINS}"),
            ("0,1,2\n0,0,2,1\n", ", line 2: got 4 columns, wanted 3 as above"),
            ("query;row;gain\n0;7;1\n",
             ", line 2: got the reference '7', wanted a row of x.npy, 0 to 2; names are given by --ids"),
            ("q1,2,1\nq2,2,1\n",
             ", line 1: got the query 'q1', wanted a row of x.npy, 0 to 2; names are given by --ids"),
            ("0,1,2\n0,2,nan\n", ", line 2: got the gain 'nan', wanted a finite number"),
            ("0,1,1O\n0,2,1\n", ", line 1: got the gain '1O', wanted a finite number"),
            ("0,1,2\n1,0,1\n0,1,0\n", ", line 3: got '1' for '0' again, wanted each pair once"),
            ("query,row,gain\n", ": got no gain, wanted lines of a query, a reference and a gain"),
        ],
        "x.npy --reference x.npy --gains g.txt --reference-ids bad.txt": [
            ("a\na\nb\n", ": got the id 'a' more than once, wanted a different one per row"),
            ("a\nb\nc\n", "g.txt, line 1: got the reference '1', wanted an id in bad.txt"),
            ("a\n", ": got 1 labels for the 3 rows of x.npy"),
        ],
        "bad.jsonl y.txt": [
            ("[1, NaN]\n", ", line 1: wanted JSON; got NaN, wanted a finite number"),
            (f"[1{400 * '0'}]\n", ", line 1: int too large to convert to float"),
            ("[1, 2]\n[1]\n", ", line 2: got 1 numbers, wanted 2 as above"),
            ('{"x": 1}\n', ', line 1: wanted a list of numbers, got {"x": 1}'),
            ("[1, 2]\n[3, 4\n[5, 6]\n", ", line 2: wanted JSON; Expecting ',' delimiter at character 6")
        ],
    },
    "trec": {
        "bad.txt qrels.txt": [
            ("q1 Q0 a 1 3\n", ", line 1: got 5 fields, wanted 6: query - document - score -"),
            ("q9 Q0 a 1 1 t\n", "bad.txt and qrels.txt: no query is in both; their names begin with 'q9', 'q1', 'q2'"),
            (RUN.encode("utf-16-le"),
             ": got bytes of 0, wanted text in UTF-8; write iconv -f utf-16le -t utf-8 bad.txt > NEW"),
        ],
    },
    "posterior": {
        "bad.csv": [
            ("cat,dog\n9,nan\n2,8\n", ", line 2: got 'nan', wanted a count"),
        ],
        "bad.csv --prior 0": [
            ("9,1\n0,0\n",
             ": row 1 is empty, so nothing is known of that class; leave the class out, or give a positive ..."),
        ],
        "bad.npy": [
            (npy(np.ones((2, 2, 2))), ": got shape (2, 2, 2), wanted (C, C) with C >= 2"),
        ],
        "--paired bad.csv": [
            ("truth,mlp\ncat,cat\n", ": got the one label 'cat', wanted at least two"),
            ("truth,mlp,mlp\ncat,dog,cat\n", ": got models called mlp, mlp, wanted distinct names"),
        ],
        "m.csv bad.csv": [("cat,cow\n9,1\n2,8\n", ": its classes are cat, cow, but those before are cat, dog")],
    },
    "association": {
        f"bad.txt {QUERIES}": [
            (f"2 {10**9}\nhe 1 2\n", ", line 1: got 1000000000 dimensions, wanted at most 1048576"),
            ("2 2\nunknown 1 2\nwords 2 1\n", ": none of the words of the queries is in it"),
        ],
        f"bad.bin {QUERIES}": [(BINARY[:-3], ", row 1: got 8 bytes and the end, wanted a word, a space and 8 bytes")],
        f"bad.npy {QUERIES}": [
            (OBJECT, ", line 1: wanted 6 numbers after the word (got b\"'fortran_order':\")")
        ],
        "v.txt --queries bad.json": [
            (QUERY[:-2], ": wanted JSON; Expecting ',' delimiter at character 105"),
            ('[{"target_sets": [["he"]]}]', ", query 0: missing 1 required positional argument: 'attribute_sets'"),
            ('{"target_sets": [["he"]]}',
             'bad.json: wanted a list of at least one query, got {"target_sets": [["he"]]}'),
        ],
    },
    "structured": {
        f"bad.jsonl {SCHEMA_OPTION}": [
            ("[1]\n" + DOCUMENT, ", line 1: got an array, wanted an object"),
            (DOCUMENT.replace("1", "NaN") + DOCUMENT,
             ", line 1: mentions[0].left: got nan, wanted int; write null for a missing value"),
            (DOCUMENT + DOCUMENT.replace('"left": 1, ', ""), ", line 2: mentions[0].left: got no such key, wanted int"),
            (DOCUMENT.replace("PER", "ORG") + DOCUMENT,
             ", line 1: mentions[0].label: got 'ORG', wanted one of 'PER', 'LOC'"),
            (DOCUMENT + '{"mentions": ]}\n', ", line 2: this is no JSON: Expecting value at 13"),
        ],
        "r.jsonl r.jsonl --schema bad.py:Doc": [
            ("raise SystemExit(3)", "--schema: bad.py:Doc cannot be imported: SystemExit: 3"),
            ("1 / 0\n", "--schema: bad.py:Doc cannot be imported: ZeroDivisionError: division by zero"),
            ("class Doc:\n    pass\n",
             "--schema: got bad.py:Doc, which is <class '_schema_bad.Doc'>, wanted a dataclass, a NamedTuple, a "
             "TypedDict or a class of attrs, msgspec or pydantic"),
        ],
    },
    "ner": {
        "bad.bio r.bio": [
            ("\n-DOCSTART- O\n\n", ": there is no sentence in it"),
            ("a B-PER\nb I-PER\n\nd B-LOC\n", ", line 1: got 2 tokens, but r.bio, line 1 has 3"),
            ("a B-PER\nb Q-PER\nc O\n\nd B-LOC\n", f", line 2: got tag 'Q-PER', {NO_TAG}"),
        ],
    },
    "coref": {
        "bad.conll r.conll": [
            ("# no document\n", ": there is no document in it"),
        ],
    },
    "amr": {
        "bad.amr r.amr": [
            ("# ::id 1\n\n", ": there is no graph in it"),
            ("# ::snt He.\n" + AMR, ", line 1: got 'He.', but r.amr, line 2 has 'Boys.'"),
        ],
    },
    "ratings": {
        "bad.csv": [
            (f"model_a,model_b,winner\n{text}", message)
            for text, message in (
                ("opus,gpt,nobody\n", ", line 2: got 'nobody' for an outcome, wanted model_a, model_b, tie..."),
                ("a,b,a\nc,d,c\n", ": got no battle between a, b and c, d..."),
                ("a,a,tie\n", "a, b: battle 0: got a model against itself..."),
                ("", ": got no battles..."),
            )
        ],
        "bad.csv --option prior_sd=null": [
            ("model_a,model_b,winner\na,b,a\n",
             ": a never lost, so that the likelihood has no maximum; write prior_sd=3..."),
        ],
    },
}  # fmt: skip


def write(name, content):
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())


OPTIONS = {  # command -> further words -> the line; after an invalid value comes where help is
    "retrieval x.npy y.txt --reference x.npy --reference-labels y.txt": {
        "--reference-ids y.txt": "--reference-ids: wanted --reference and --gains, which name its rows; leave them out",
        "--compare x.npy": "--compare-reference: give it where there are both --compare and --reference, and only "
        "there",
        "--compare x.npy --checkpoint s.pt": "--compare: not together with --checkpoint; leave one out",
    },
    "retrieval x.npy y.txt": {
        "--levels --per-class": "--per-class: not together with --levels; leave one out",
        "--k many": "--k: got 'many', wanted an integer >= 1 or max_bin_count; leave it out for all neighbors",
        "--json no/o.json": "no/o.json: cannot be written: there is no folder no",
        "--plot o.doc": "o.doc: got a file of type '.doc', wanted one of .png, .svg, .pdf",
        "--replicates 1": "Invalid value for '--replicates': 1 is not 0, or at least 2.",
        "--knn hnsw": "Invalid value for '--knn': 'hnsw' is not one of 'torch', 'faiss', 'keops'.",
        "--device meta": "--device: got 'meta', which cannot be used here: Tensor.item() cannot be called on meta "
        "tensors",
        "--cameras y.txt --metric nearest_centroid_accuracy": "--cameras: nearest_centroid_accuracy cannot leave them "
        "out; write exclude=('nearest_centroid_accuracy',)",
        "--option ties=optimistic --knn faiss": "ties: got 'optimistic', wanted 'index' where the neighbors come...",
        "--reference-cameras y.txt": "--reference-cameras: give them where there are both --cameras and --reference, "
        "and only there",
        "--reference x.npy": "--reference and --reference-labels: give both or neither",
        "--gains g.txt --levels": "--levels: not together with --gains, which say what is relevant; leave one out",
    },
    "retrieval x.npy --gains g.txt": {
        "--metric AMI": "--gains: AMI uses labels alone; leave out --metric AMI",
        "--per-class": "--per-class: not without LABELS; give them, too",
        "--reference x.npy --reference-labels y.txt": "--reference-labels: not together with --gains, which say what "
        "is relevant; leave one out",
    },
    "retrieval x.npy": {
        "": "LABELS: got no file, wanted one, or --gains FILE",
        "none.npy": "none.npy: there is no such file",
    },
    "retreival": {"": "No such command 'retreival'; perhaps 'retrieval'. See: tensormetrics --help"},
    "trec run.txt qrels.txt": {
        "--rope 0.1": "--rope: is for --compare; write both",
        "--metric num_rel --compare run.txt": "--metric: got num_rel, wanted at least one mean...",
        "--metric ndgc": "--metric: got 'ndgc', wanted some of map...",
    },
    "posterior m.csv": {
        "m.csv": "m.csv: got a second experiment called m; rename one",
        "--metric acuracy": "metric 'acuracy': there is no metric 'acuracy'; the closest are accuracy, acc",
        "--prior -1": "--prior: got entries from -1.0 to -1.0, wanted finite ones >= 0",
        "--compare": "--compare: got one experiment, wanted at least two",
        "--replicates 999999999999999": "--replicates: got 999999999999999, wanted at most 1000000000...",
        "--title x": "--title: is for --plot; write both",
        "--confidence 2": "Invalid value for '--confidence': 2.0 is not in the range 0<x<=1.",
        **{
            f"--compare {option} {value}": f"Invalid value for '{option}': {value} is not a finite number."
            for option, value in itertools.product(("--width", "--rope"), ("nan", "inf"))
        },
        "--confidence nan": "Invalid value for '--confidence': nan is not a finite number.",
        **{
            f"--plot o.png --figsize {size}": f"Invalid value for '--figsize': '{size}' is no width and height of 1 to "
            "100 inches, such as 6x4."
            for size in ("5", "0x4", "5x4000", "ax4", "5x-4")
        },
    },
    "posterior": {
        "": "MATRIX: got no file, wanted at least one, or --paired FILE",
    },
    "association v.txt": {
        "--metric mac --p-value exact": "--p-value: mac has none for a query; leave out --metric mac",
        "--correction holm": "--correction: got holm with --p-value left out, wanted exact, approximate or auto",
        "--p-value exact --correction max-t": "--correction: got max-t with --p-value exact, wanted approximate or "
        "auto",
        "--queries q.json --metric gweat --p-value exact": "--p-value of gweat: got 'exact', wanted one of 'auto', "
        "'approximate'",
    },
    "association": {
        "": "VECTORS: got nothing, wanted a file; or --pairs FILE --model DIRECTORY...",
        "--pairs y.txt": "--pairs: wanted --model DIRECTORY, too...",
        "v.txt --model .": "--model: is for --pairs; write both",
        "v.txt --pairs y.txt --model .": "--pairs: got VECTORS too, wanted one of them",
    },
    "structured r.jsonl r.jsonl": {
        "--schema nowhere:Doc": "--schema: nowhere:Doc cannot be imported: ModuleNotFoundError: No module named "
        "'nowhere'",
        "--schema json:Doc": "--schema: json:Doc cannot be imported: AttributeError: module 'json' has no attribute "
        "'Doc'",
        "--schema Doc": "--schema: got 'Doc', wanted MODULE:CLASS",
    },
    "json preds.jsonl refs.jsonl": {
        "--field b": "--field: got 'b', wanted NAME=VALUE...",
        "--field c=exact": "--field: got 'c', wanted a path of the schema...",
        "--field b=exactly": "--field: got 'exactly', wanted one of exact, casefold, normalized, similar, near, "
        "parsed, dates, weight, ignore, ordered, match, by; perhaps 'exact'",
        "--require micro-f1=x": "--require: got 'x', wanted a number...",
        "--option on_invalid=raise": "preds.jsonl, line 2: unreadable, empty...",
        "--schema s.json": "s.json: there is no such file",
    },
    "json log.jsonl": {
        "asked.jsonl --answer out": "log.jsonl, line 1: got 'id 3', but asked.jsonl, line 1 has 'id 1'",
        "refs.jsonl --id id": "refs.jsonl, line 1: there is no key 'id', wanted one of a, b",
        "gold.jsonl --id c": "log.jsonl, line 1: there is no key 'c'...",
    },
    "json": {
        "preds.jsonl gold.jsonl --id id": "preds.jsonl, line 1: there is no key 'id'...",
        "preds.jsonl preds.jsonl": "preds.jsonl, line 2: the line is empty...",
    },
    "scores a.csv": {
        "": "--metric: got several and none chosen, wanted one of 'id', 'right', 'topic' of a.csv",
        "d.csv --metric right": "--ids: b lacks 59 of 60, 59 are missing in some model; write on_missing=...",
        "--metric right --rope 1": "--rope: is for several files...",
        "--metric right --power .8": "--power: is for several files...",
        "a.csv --metric right": "a.csv: got this file twice...",
        "b.csv c.csv --metric right --anytime": "--anytime: is for one file or two...",
    },
    "scores": {
        "e.csv --anytime": "--bounds: got none, wanted the least and the largest possible score; write bounds=(0...",
        "e.csv --bounds 0 1": "e.csv: got 5.0, wanted scores within the bounds 0.0 and 1.0",
    },
    "ratings battles.csv": {
        "--a left": "--a: got no column 'left' in battles.csv, wanted one of 'question_id', ...",
        "--option anchor": "--option: got 'anchor', wanted NAME=VALUE",
        '--option anchor=["claude",1200]': "anchor: got 'claude', wanted one of 'gpt', 'llama', 'opus'...",
        "--groups topic": "battles.csv, line 2: got no 'topic'...",
    },
    "demo": {
        "--epochs 0": "Invalid value for '--epochs': 0 is not in the range x>=1.",
        "--device abacus": "--device: got 'abacus', which cannot be used here...",
        "--output x.npy/x": "--output: x.npy/x cannot be made: Not a directory",
        f"--seed {10**23}": f"Invalid value for '--seed': {10**23} is not in the range {-(2**63)}<=x<={2**64 - 1}.",
    },
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in GOOD.items():
        write(name, content)


def check_refused(line, *words):
    for package in {"amr": "penman", "faiss": "faiss"}.keys() & {*words}:
        pytest.importorskip({"amr": "penman", "faiss": "faiss"}[package])
    result, expected = run(*words), f"tensormetrics: {line}"
    assert (result.exit_code, result.stdout) == (2, "") and len(result.stderr.splitlines()) == 1, result.output
    if line.endswith("..."):
        assert result.stderr.startswith(expected.removesuffix("..."))
    else:
        assert result.stderr == f"{expected}\n"


@pytest.mark.parametrize(
    ("command", "arguments", "content", "line"),
    [
        (command, arguments, *case)
        for command, lists in CASES.items()
        for arguments, cases in lists.items()
        for case in cases
    ],
)
def test_malformed_file_prints_one_line_with_status_2(folder, command, arguments, content, line):
    bad = next(word for word in arguments.split() if word.startswith("bad")).partition(":")[0]
    write(bad, content)
    line = f"{bad}{line}" if line[0] in ":," else line
    check_refused(line, command, *arguments.split(), "--json", "out.json", "--plot", "out.png")
    assert not list(Path().glob("out.*"))


@pytest.mark.parametrize(
    ("command", "arguments"), [(command, arguments) for command, lists in CASES.items() for arguments in lists]
)
@pytest.mark.parametrize("content", ["", OBJECT])
def test_empty_and_binary_files_are_refused_by_name(folder, command, arguments, content):
    bad = next(word for word in arguments.split() if word.startswith("bad")).partition(":")[0]
    write(bad, content)
    result = run(command, *arguments.split())
    assert result.exit_code == 2 and bad in result.stderr and len(result.stderr.splitlines()) == 1, result.output


@pytest.mark.parametrize(
    ("command", "words", "line"), [(command, *case) for command, cases in OPTIONS.items() for case in cases.items()]
)
def test_refused_options_print_one_line_with_status_2(folder, command, words, line):
    if line.startswith("Invalid value"):
        line += f" See: tensormetrics {command.split()[0]} --help"
    check_refused(line, *command.split(), *words.split())
