"""Twelve or more malformed files for every command: each gives status 2 and one line with the file and location."""

import io
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tensormetrics.__main__ import COMMANDS, main


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)
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
    "r.amr": "(w / want-01 :ARG0 (b / boy))\n",
    "run.txt": RUN,
    "qrels.txt": QRELS,
}
NO_TAG = "wanted 'O', or a prefix of B, I, E, L, S, U, a dash and a label"


def cp1252_message(location, byte, letter):
    got = f"{location}: got the byte {byte}, wanted text in UTF-8; in cp1252, as Windows writes it, this is {letter!r}"
    return f"{got}: write iconv -f cp1252 -t utf-8 {location.partition(',')[0]} > NEW"


GAINS = "a query, a reference and a gain, or TREC's `query 0 document gain`"
COMMA = "columns are separated by ',', not ';'"
QUERIES = "--queries q.json"
SCHEMA_OPTION = "r.jsonl --schema schema.py:Doc"
GZIPPED = "bad.txt.gz: wanted a whole gzip file; Not a gzipped file (b'8 ')"
CASES = {  # command -> arguments -> content of the file `bad.*` and the expected line
    "retrieval": {
        "bad.npy y.txt": [
            (b"", "bad.npy: the file is empty"),
            (npy(ROWS[:, None]), "bad.npy: got an array of shape (3, 1, 2), wanted one row per item: (N, D)"),
            (
                npy(ROWS * [[1], [np.nan], [1]]),
                "bad.npy: 1 of 3 rows hold NaN or infinity, the first is row 1; wanted finite values",
            ),
            (CUT, "bad.npy: wanted a .npy file; mmap length is greater than file size"),
            (OBJECT, "bad.npy: wanted a .npy file; got Python objects, which are not unpickled"),
            (
                "1 2\n3 4\n",
                "bad.npy: wanted a .npy file; the magic string is not correct; expected b'\\x93NUMPY', got b'1 2\\n3 '",
            ),
        ],
        "bad.pt y.txt": [("hello", "bad.pt: wanted a file of torch.save; it is damaged")],
        "x.npy bad.npy": [
            (
                npy(np.uint64([2**63, 0, 1])),
                "bad.npy: got a label above 9223372036854775807, wanted an integer of at most 64 bits",
            )
        ],
        "bad.csv y.txt": [
            ("1,2\n3\n5,6\n", "bad.csv, line 2: got 1 columns, wanted 2 as above"),
            ("1,2\n3,x\n5,6\n", "bad.csv, line 2: got 'x', wanted a finite number"),
            (
                "1;2\n3;4\n5;6\n",
                f"bad.csv, line 2: got '3;4', wanted a finite number; {COMMA}",
            ),
            ("# rows\n1,2\n3,4\n5,6\n", "bad.csv, line 2: got 2 columns, wanted 1 as above"),
            ('"1,2\n3,4\n5,6\n', "bad.csv, line 3: unexpected end of data"),
            (b"1,2\n3,caf\xe9\n", cp1252_message("bad.csv, line 2", "0xe9", "é")),
        ],
        "x.npy y.txt --cameras bad.txt": [
            ("a\n", "bad.txt: got 1 labels for the 3 rows of x.npy"),
            ("", "bad.txt: the file is empty"),
            ("1\n2\n0.5\n", "bad.txt, line 3: got '0.5', wanted an integer of at most 64 bits or a word"),
        ],
        "x.npy bad.csv --levels": [("a,b\nc\nd,e\n", "bad.csv, line 2: got 1 columns, wanted 2 as above")],
        "x.npy bad.txt": [
            ("0\n1\n", "bad.txt: got 2 labels for the 3 rows of x.npy"),
            ("0\n1.5\n1\n", "bad.txt, line 2: got '1.5', wanted an integer of at most 64 bits or a word"),
        ],
        "x.npy y.txt --reference bad.npy --reference-labels y.txt": [
            (npy(np.ones((3, 3))), "bad.npy: got shape (3, 3), wanted (N, 2)")
        ],
        "x.npy y.txt --reference x.npy --reference-labels bad.txt": [
            ("7\n8\n9\n", "y.txt: none of its labels is one of bad.txt")
        ],
        "x.npy --gains bad.csv": [
            ("", "bad.csv: the file is empty"),
            ("0,1\n", f"bad.csv, line 1: got 2 columns, wanted {GAINS}"),
            ("0,1,2\n0,2\n", f"bad.csv, line 2: got 2 columns, wanted {GAINS}"),
            ("0,1,2\n0,0,2,1\n", "bad.csv, line 2: got 4 columns, wanted 3 as above"),
            (
                "query;row;gain\n0;7;1\n",
                "bad.csv, line 2: got the reference '7', wanted a row of x.npy, 0 to 2; names are given by --ids",
            ),
            (
                "q1,2,1\nq2,2,1\n",
                "bad.csv, line 1: got the query 'q1', wanted a row of x.npy, 0 to 2; names are given by --ids",
            ),
            ("0,1,2\n0,2,nan\n", "bad.csv, line 2: got the gain 'nan', wanted a finite number"),
            ("0,1,1O\n0,2,1\n", "bad.csv, line 1: got the gain '1O', wanted a finite number"),
            ("0,1,2\n0,2,x\n", "bad.csv, line 2: got the gain 'x', wanted a finite number"),
            ("0,1,2\n1,0,1\n0,1,0\n", "bad.csv, line 3: got '1' for '0' again, wanted each pair once"),
            ("query,row,gain\n", "bad.csv: got no gain, wanted lines of a query, a reference and a gain"),
            (b"0,1,2\n\xe9,1,2\n", cp1252_message("bad.csv, line 2", "0xe9", "é")),
            ('0,"1,2\n', "bad.csv, line 1: unexpected end of data"),
        ],
        "x.npy --reference x.npy --gains g.txt --reference-ids bad.txt": [
            ("a\na\nb\n", "bad.txt: got the id 'a' more than once, wanted a different one per row"),
            ("a\nb\nc\n", "g.txt, line 1: got the reference '1', wanted an id in bad.txt"),
            ("a\n", "bad.txt: got 1 labels for the 3 rows of x.npy"),
        ],
        "bad.jsonl y.txt": [
            ("[1, 2]\n[3, 4\n[5, 6]\n", "bad.jsonl, line 2: this is no JSON: Expecting ',' delimiter at character 6")
        ],
    },
    "trec": {
        "bad.txt qrels.txt": [
            ("", "bad.txt: the file is empty"),
            ("q1 Q0 a 1 3\n", "bad.txt, line 1: got 5 fields, wanted 6: query - document - score -"),
            ("q1 Q0 a 1 x t\n", "bad.txt, line 1: got the score 'x', wanted a number"),
            ("q1 Q0 a 1 nan t\n", "bad.txt, line 1: got the score 'nan', wanted a number"),
            (RUN + RUN, "bad.txt: got the document 'a' twice for the query 'q1'"),
            (
                "q9 Q0 a 1 1 t\n",
                "bad.txt and qrels.txt: no query is in both; their names begin with 'q9', 'q1', 'q2'",
            ),
            (b"q1 Q0 \xff 1 3 t\n" * 2, cp1252_message("bad.txt, line 1", "0xff", "ÿ")),
            (
                RUN.encode("utf-16-le"),
                "bad.txt: got bytes of 0, wanted text in UTF-8; write iconv -f utf-16le -t utf-8 bad.txt > NEW",
            ),
            (b"\x93NUMPY" + bytes(100), "bad.txt, line 1: got the byte 0x93, wanted text in UTF-8"),
        ],
        "run.txt bad.txt": [
            ("", "bad.txt: the file is empty"),
            ("q1 0 a\nq1 0 b 1\n", "bad.txt, line 2: got 4 fields, wanted 3: query document gain"),
            ("q1 0 b 0.5\n", "bad.txt: got the gain '0.5' for 'b', wanted an integer"),
            ("q1 0 b one\n", "bad.txt, line 1: got the gain 'one', wanted a number"),
            (QRELS + "q1 0 b 0\n", "bad.txt: got the document 'b' twice for the query 'q1'"),
            (b"\xff\xfe" + b"q", "bad.txt: got a file marked as UTF-16 that is not whole, or is none"),
        ],
    },
    "posterior": {
        "bad.csv": [
            ("", "bad.csv: the file is empty"),
            ("cat,dog\n9,nan\n2,8\n", "bad.csv, line 2: got 'nan', wanted a count"),
            ("9,1\n2\n", "bad.csv, line 2: got 1 columns, wanted 2 as above"),
            (
                "9,1,0\n2,8,1\n",
                "bad.csv: got 2 rows of 3 columns, wanted a square, with at most one row and one column of names",
            ),
            (
                ",cat,dog\ncat,9,1\ncow,2,8\n",
                "bad.csv: rows are called ['cat', 'cow'], columns ['cat', 'dog'], wanted the same names",
            ),
            ("cat,cat\n9,1\n2,8\n", "bad.csv: got classes called ['cat', 'cat'], wanted distinct names"),
            ("9,1\n2,1e300\n", "bad.csv: got 1e+300 in row 1, wanted rows that add up to at most 1e+37"),
            ("9,-1\n2,8\n", "bad.csv: got -1.0 at [0, 1], wanted finite counts >= 0"),
        ],
        "bad.csv --prior 0": [
            (
                "9,1\n0,0\n",
                "bad.csv: row 1 is empty, so nothing is known of that class; leave the class out, or give a positive "
                "--prior",
            ),
        ],
        "bad.npy": [
            (npy(np.ones((2, 2, 2))), "bad.npy: got shape (2, 2, 2), wanted (C, C) with C >= 2"),
            (CUT, "bad.npy: wanted a .npy file; mmap length is greater than file size"),
            (OBJECT, "bad.npy: wanted a .npy file; got Python objects, which are not unpickled"),
        ],
        "--paired bad.csv": [
            ("truth,mlp\ncat,dog\ncat\n", "bad.csv, line 3: got 1 columns, wanted 2 as above"),
            ("truth,mlp,mlp\ncat,dog,cat\n", "bad.csv: got models called mlp, mlp, wanted distinct names"),
        ],
        "bad.jsonl": [
            ("[9, 1]\n[2, 8\n", "bad.jsonl, line 2: this is no JSON: Expecting ',' delimiter at character 6")
        ],
        "m.csv bad.csv": [("cat,cow\n9,1\n2,8\n", "bad.csv: its classes are cat, cow, but those before are cat, dog")],
    },
    "association": {
        f"bad.txt {QUERIES}": [
            ("", "bad.txt: the file is empty"),
            (VECTORS.replace("8 2", "8 3"), "bad.txt, line 2: got 3 fields, wanted a word and 3 numbers"),
            (VECTORS.replace("her 1", "her nan"), "bad.txt: the vector of 'her' holds NaN or infinity"),
            (VECTORS.replace("her 1 3", "her 1"), "bad.txt, line 5: got 2 fields, wanted a word and 2 numbers"),
            (VECTORS.replace("8 2", "9 2"), "bad.txt: got 8 rows, wanted 9"),
            (
                VECTORS.replace("her 1", "her x"),
                "bad.txt, line 5: wanted 2 numbers after the word (could not convert string to float: b'x')",
            ),
            ("words and\nhe 1 2\n", "bad.txt, line 1: got 'words and', wanted the numbers of words and dimensions"),
            (f"2 {10**9}\nhe 1 2\n", "bad.txt, line 1: got 1000000000 dimensions, wanted at most 1048576"),
            ("2 2\nunknown 1 2\nwords 2 1\n", "bad.txt: none of the words of the queries is in it"),
        ],
        f"bad.bin {QUERIES}": [
            (BINARY[:-3], "bad.bin, row 1: got 8 bytes and the end, wanted a word, a space and 8 bytes")
        ],
        f"bad.npy {QUERIES}": [
            (
                OBJECT,
                "bad.npy, line 1: got the word b\"\\x93NUMPY\\x01\\x00v\\x00{'descr':\", wanted utf-8 "
                "('utf-8' codec can't decode byte 0x93 in position 0: invalid start byte)",
            )
        ],
        "v.txt --queries bad.json": [
            (QUERY[:-2], "bad.json: this is no JSON: Expecting ',' delimiter: line 1 column 105 (char 104)"),
            (
                '[{"target_sets": [["he"]]}]',
                "bad.json, query 0: missing 1 required positional argument: 'attribute_sets'",
            ),
            (
                '{"target_sets": [["he"]]}',
                'bad.json: wanted a list of at least one query, got {"target_sets": [["he"]]}',
            ),
        ],
        f"bad.txt.gz {QUERIES}": [(VECTORS, GZIPPED)],
    },
    "structured": {
        f"bad.jsonl {SCHEMA_OPTION}": [
            ("", "bad.jsonl: the file is empty"),
            ("[1]\n" + DOCUMENT, "bad.jsonl, line 1: got an array, wanted an object"),
            (
                DOCUMENT.replace("1", "NaN") + DOCUMENT,
                "bad.jsonl, line 1: this is no JSON: NaN is no JSON",
            ),
            (
                DOCUMENT + DOCUMENT.replace('"left": 1, ', ""),
                "bad.jsonl, line 2: mentions[0].left: got no such key, wanted int",
            ),
            ((DOCUMENT * 2)[:-20], "bad.jsonl, line 2: this is no JSON: truncated"),
            (OBJECT, "bad.jsonl, line 1: this is no JSON: the bytes are not UTF-8"),
            (DOCUMENT, "bad.jsonl: number of documents is 1, but that of r.jsonl is 2"),
            (
                DOCUMENT.replace("1", "1.5") + DOCUMENT,
                "bad.jsonl, line 1: mentions[0].left: got 1.5, wanted int",
            ),
            (
                DOCUMENT.replace("PER", "ORG") + DOCUMENT,
                "bad.jsonl, line 1: mentions[0].label: got 'ORG', wanted one of 'PER', 'LOC'",
            ),
            (DOCUMENT + '{"mentions": ]}\n', "bad.jsonl, line 2: this is no JSON: Expecting value at 13"),
        ],
        "r.jsonl r.jsonl --schema bad.py:Doc": [
            ("1 / 0\n", "--schema: bad.py:Doc cannot be imported: ZeroDivisionError: division by zero"),
            (
                "class Doc:\n    pass\n",
                "--schema: got bad.py:Doc, which is <class '_schema_bad.Doc'>, wanted a dataclass, a NamedTuple, a "
                "TypedDict or a class of attrs, msgspec or pydantic",
            ),
        ],
    },
    "ner": {
        "bad.bio r.bio": [
            ("", "bad.bio: the file is empty"),
            ("\n-DOCSTART- O\n\n", "bad.bio: there is no sentence in it"),
            ("a B-PER\nb nan\nc O\n\nd B-LOC\n", f"bad.bio, line 2: got tag 'nan', {NO_TAG}"),
            ("a B-PER\nb\nc O\n\nd B-LOC\n", f"bad.bio, line 2: got tag 'b', {NO_TAG}"),
            ("a B-PER\nb I-PER\n", "bad.bio: number of sentences is 1, but that of r.bio is 2"),
            (OBJECT, "bad.bio, line 1: got the byte 0x93, wanted text in UTF-8"),
            ("a B-PER\nb I-PER\n\nd B-LOC\n", "bad.bio: sentence 1 has 2 tokens, but in r.bio it has 3"),
            ("a B-PER\nb Q-PER\nc O\n\nd B-LOC\n", f"bad.bio, line 2: got tag 'Q-PER', {NO_TAG}"),
            ('{"a": "B-PER"}\n', f"bad.bio, line 1: got tag '\"B-PER\"}}', {NO_TAG}"),
        ],
        "bad.bio r.bio --mode iob2": [
            ("a B-PER\nb B-\nc O\n\nd B-LOC\n", f"bad.bio, line 2: got tag 'B-', {NO_TAG}"),
            (b"a B-PER\nb \xff\nc O\n", cp1252_message("bad.bio, line 2", "0xff", "ÿ")),
        ],
        "r.bio bad.bio": [
            ("a B-PER\nb I-PER\nc O\nd B-LOC\n", "r.bio: number of sentences is 2, but that of bad.bio is 1")
        ],
    },
    "coref": {
        "bad.conll r.conll": [
            ("", "bad.conll: the file is empty"),
            ("# no document\n", "bad.conll: there is no document in it"),
            ("a (0)\n", "bad.conll, line 1: got 'a (0)' outside of a document, wanted #begin document"),
            (CONLL.replace("0)", "-"), "bad.conll, line 2: bracket (0 is never closed"),
            (CONLL.replace("(0", "-"), "bad.conll, line 3: bracket 0) was never opened"),
            (OBJECT, "bad.conll, line 1: got the byte 0x93, wanted text in UTF-8"),
            (CONLL * 2, "bad.conll: number of documents is 2, but that of r.conll is 1"),
            (
                CONLL.replace("#end document\n", ""),
                "bad.conll, line 1: the document '(x); part 000' has no end, wanted #end document",
            ),
            (
                CONLL.replace("(x)", "(y)"),
                "bad.conll: document 1 is '(y); part 000', but in r.conll it is '(x); part 000'",
            ),
            (CONLL.replace("a (0", "a (0)|(1)"), "bad.conll, line 3: bracket 0) was never opened"),
            (
                CONLL.replace("#end", "#begin"),
                "bad.conll, line 1: the document '(x); part 000' has no end, wanted #end document",
            ),
        ],
        "r.conll bad.conll": [
            (
                CONLL.replace("a (0\nb 0)", "a (0)|(1)"),
                "bad.conll: document '(x); part 000': mention (0, 0) is in two clusters; of predictions, "
                "repeated_mentions='first' or 'largest' chooses one of them",
            )
        ],
    },
    "amr": {
        "bad.amr r.amr": [
            ("", "bad.amr: the file is empty"),
            ("# ::id 1\n\n", "bad.amr: there is no graph in it"),
            ("want\n", "bad.amr, line 1: 'want\\n' holds 0 graphs in PENMAN notation, wanted one"),
            (
                "(w / want-01 :ARG0 (b / boy)\n",
                "bad.amr, line 1: '(w / want-01 :ARG0 (b / boy)\\n' is no graph in PENMAN notation: Unexpected end of "
                "input",
            ),
            (
                "(w / want-01 :ARG0 (w / boy))\n",
                "bad.amr, line 1: '(w / want-01 :ARG0 (w / boy))\\n' defines the variable w twice; wanted other names, "
                "or the name alone",
            ),
            (
                "(w / want-01))\n",
                "bad.amr, line 1: '(w / want-01))\\n' is no graph in PENMAN notation: there is more text "
                "after the graph",
            ),
            ("(w /\n", "bad.amr, line 1: '(w /\\n' is no graph in PENMAN notation: Unexpected end of input"),
            (OBJECT, "bad.amr, line 1: got the byte 0x93, wanted text in UTF-8"),
            ("(w / want-01)\n\n(b / boy)\n", "bad.amr: number of graphs is 2, but that of r.amr is 1"),
            (
                "(w / want-01)\n(b / boy)\n",
                "bad.amr, line 1: '(w / want-01)\\n(b / boy)\\n' holds 2 graphs in PENMAN notation, wanted one",
            ),
            (
                '(w / want-01 :name "x)\n',
                "bad.amr, line 1: '(w / want-01 :name \"x)\\n' is no graph in PENMAN notation: Expected: "
                "SYMBOL, STRING, LPAREN",
            ),
        ],
        "r.amr bad.amr": [
            (
                "# ::id 1\n(w want-01)\n",
                "bad.amr, line 2: '(w want-01)\\n' is no graph in PENMAN notation: Expected: ROLE",
            )
        ],
    },
}


def write(name, content):
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("command", CASES)
def test_cases_of_command_are_twelve_or_more(command):
    assert sum(map(len, CASES[command].values())) >= 12 and command in COMMANDS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in GOOD.items():
        write(name, content)


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
    if command == "amr":
        pytest.importorskip("penman")
    bad = next(word for word in arguments.split() if word.startswith("bad")).partition(":")[0]
    write(bad, content)
    result = CliRunner().invoke(main, [command, *arguments.split(), "--json", "out.json", "--plot", "out.png"])
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"tensormetrics: {line}\n")
    assert not list(Path().glob("out.*"))


@pytest.mark.parametrize(
    "arguments",
    [
        "retrieval x.npy y.txt",
        "retrieval x.npy --gains g.txt",
        "trec run.txt qrels.txt",
        "posterior m.csv",
        f"association v.txt {QUERIES}",
        f"structured r.jsonl {SCHEMA_OPTION}",
        "ner r.bio r.bio",
        "coref r.conll r.conll",
        "amr r.amr r.amr",
    ],
)
def test_well_formed_files_exit_with_status_0(folder, arguments):
    if arguments.startswith("amr"):
        pytest.importorskip("penman")
    result = CliRunner().invoke(main, arguments.split())
    assert result.exit_code == 0 and result.stdout and not result.stderr, result.output
