"""References in files that are read in blocks: scores match those in memory, also after an interruption."""

import re

import numpy as np
import pytest
import torch

from tensormetrics.retrieval import AccuracyCalculator, TorchKNN, open_embeddings
from tensormetrics.retrieval.extend import EmbeddingSource
from tensormetrics.retrieval.sources import state as states
from tensormetrics.retrieval.sources.arrow import read_column

N, Q, D = 1500, 60, 6
DEEP, SHALLOW = ("mean_average_precision", "r_precision", "median_rank"), ("precision_at_1", "mean_reciprocal_rank")
BUDGET = 100_000  # a block uses an eighth of it, so a file has several blocks


def within_1(x, y):
    return (x - y).abs() <= 1


def gain(x, y):
    return (2 - (x - y).abs()).clamp(min=0)


def data(dtype=np.float16):
    random = np.random.RandomState(0)
    return (random.standard_normal((N, D)) * 3).astype(dtype), random.randint(0, 40, N)


@pytest.fixture
def files(tmp_path):
    rows, labels = data()
    np.save(tmp_path / "part-1.npy", rows[:700])
    np.save(tmp_path / "part-2.npy", np.asfortranarray(rows[700:]))
    return str(tmp_path / "part-*.npy"), rows, labels


def npy(folder, rows):
    np.save(folder / "x.npy", rows)
    return folder / "x.npy"


def columns_first(folder, rows):
    np.save(folder / "x.npy", np.asfortranarray(rows))
    return folder / "x.npy"


def several_files(folder, rows):
    for i, part in enumerate(np.array_split(rows, [5, 5, 70])):
        np.save(folder / f"x-{i}.npy", part)
    return folder / "x-*.npy"


def safetensors(folder, rows):
    torch_file = pytest.importorskip("safetensors.torch")
    torch_file.save_file({"x": torch.from_numpy(rows), "y": torch.zeros(2)}, folder / "x.safetensors")
    return f"{folder}/x.safetensors:x"


def table(rows, fixed):
    pa = pytest.importorskip("pyarrow")
    flat, ends = pa.array(rows.ravel()), np.arange(0, rows.size + 1, rows.shape[1])
    lists = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1]) if fixed else pa.ListArray.from_arrays(ends, flat)
    row_numbers = np.arange(len(rows))
    return pa.table({"x": lists, "label": row_numbers, "word": [f"w{n % 7}" for n in row_numbers]})


def parquet(folder, rows):
    columns, parquet = table(rows, fixed=True), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(columns.slice(0, 60), folder / "x-1.parquet", row_group_size=13)
    parquet.write_table(columns.slice(60), folder / "x-2.parquet")
    return folder / "x-*.parquet"


def parquet_of_lists_at_an_address(folder, rows):
    columns, parquet = table(rows, fixed=False), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(columns, folder / "x.parquet", row_group_size=50)
    return f"file://{folder}/x*.parquet:x"


def arrow(folder, rows):
    columns, feather = table(rows, fixed=True), pytest.importorskip("pyarrow.feather")
    feather.write_feather(columns, folder / "x.arrow", compression="uncompressed", chunksize=30)
    return f"{folder}/x.arrow:x"


@pytest.mark.parametrize("dtype", ["float16", "int8", "float64"])
@pytest.mark.parametrize(
    "write", [npy, columns_first, several_files, safetensors, parquet, parquet_of_lists_at_an_address, arrow]
)
def test_row_source_reads_the_rows_of_the_file(write, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr("tensormetrics.retrieval.sources.arrow.BYTES", 200)  # several batches per row group
    expected = data(dtype)[0][:200]
    path = write(tmp_path, expected)
    source, expected = open_embeddings(path), torch.from_numpy(expected)
    assert source.shape == (200, D) and source.dtype == expected.dtype and len(source) == 200
    for start, stop in ((0, 200), (3, 4), (199, 200), (2, 80), (59, 61), (61, 100), (120, 120), (119, 140)):
        assert torch.equal(source.read(start, stop), expected[start:stop])
    assert torch.equal(torch.cat([block for _, block in source.blocks(33, 7)]), expected[7:])
    indices = torch.tensor([0, 1, 40, 60, 199])
    assert torch.equal(source.take(indices), expected[indices])
    assert source.fingerprint() == open_embeddings(path).fingerprint()
    assert repr(source) == f"{type(source).__name__}(shape=(200, {D}), dtype={source.dtype})"


def write_malformed(folder):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    save_file = pytest.importorskip("safetensors.torch").save_file
    for name, shape in {"line": (3,), "two": (3, 2), "four": (3, 4), "short": (3, 2)}.items():
        np.save(folder / f"{name}.npy", np.zeros(shape))
    with open(folder / "short.npy", "r+b") as file:
        file.truncate(file.seek(0, 2) - 8)
    np.save(folder / "objects.npy", np.array([["a", 1]], dtype=object))
    (folder / "damaged.parquet").write_bytes(b"hello")
    (folder / "empty.arrow").write_bytes(b"")
    save_file({}, folder / "none.safetensors")
    save_file({"x": torch.tensor(1.0)}, folder / "number.safetensors")
    lists = {"ragged": [[1.0, 2.0], [3.0]], "gaps": [[1.0, None], [2.0, 3.0]], "none": [None, [1.0, 2.0]]}
    parquet.write_table(pa.table({**lists, "word": ["a", "b"], "number": [1.5, 2.0]}), folder / "x.parquet")
    parquet.write_table(pa.table({"label": pa.array([1, 2**63 + 1], pa.uint64())}), folder / "large.parquet")
    coded = pa.table({"x": [[1.0]], "word": pa.array(["a"]).dictionary_encode()})
    parquet.write_table(coded, folder / "coded.parquet")


MALFORMED = {  # addresses in a folder, and what follows them in the message
    "line.npy": "got an array of shape (3,), wanted one row per item: (N, D)",
    "no-*.npy": "no file has such a name",
    "no.npy": "there is no such file",
    "two.npy:x": "a .npy file holds one array; leave out ':x'",
    "y.txt": "got a file of type '.txt', wanted one of .npy, .safetensors, .parquet, .arrow, .feather",
    "two.npy four.npy": "got rows of 4 torch.float64 after rows of 2 torch.float64",
    "short.npy": "wanted a .npy file; ",
    "objects.npy": "wanted a .npy file; ",
    "none.safetensors": "it holds nothing",
    "number.safetensors": "got an array of shape (), wanted one row per item",
    "x.parquet": "got no name for a file of ragged, gaps, none, word, number; write",
    "x.parquet:ragged": "got lists of other lengths in the rows from 0 on, wanted 2 numbers in each",
    "x.parquet:gaps": "got nothing in some of the rows from 0 on",
    "x.parquet:none": "got nothing in some of the rows from 0 on",
    "x.parquet:word": "got a column of string, wanted a list of D numbers in each row",
    "coded.parquet:word": "got a column of dictionary",
}
MALFORMED_COLUMNS = {
    "damaged.parquet": "wanted a Parquet or Arrow file; ",
    "empty.arrow": "wanted a Parquet or Arrow file; ",
    "no.parquet": ".*No such file",
    "x.parquet:number": "got a column of double, wanted integers or words",
    "large.parquet:label": ".*9223372036854775809",
}


def test_malformed_files_raise_errors_with_their_name(tmp_path):
    write_malformed(tmp_path)
    for addresses, message in MALFORMED.items():
        paths = [f"{tmp_path}/{address}" for address in addresses.split()]
        with pytest.raises(ValueError, match=f"^{re.escape(f'{paths[-1]}: {message}')}"):
            open_embeddings(*paths).read(0, 2)
    for address, message in MALFORMED_COLUMNS.items():
        path, _, name = address.partition(":")
        with pytest.raises(ValueError, match=f"{address}: {message}"):
            read_column(f"{tmp_path}/{path}", name or None)
    for address, message in (
        ("file:///no/such/folder/x*.parquet", ""),
        ("none://x/y.parquet", "wanted a Parquet or Arrow file; "),
        (f"file://{tmp_path}/x.npy", "got an address, wanted a file of this machine, or one of .parquet, .arrow, .f"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(f'{address}: {message}')}"):
            open_embeddings(address)
    with pytest.raises(ValueError, match="addresses: got none"):
        open_embeddings()


def test_state_of_other_default_budget_is_rejected(tmp_path, monkeypatch):
    """The budget determines how queries are split into parts, and the state stores results per part."""
    rows, labels = map(torch.from_numpy, data())
    inputs, state = (rows[:Q], labels[:Q], InterruptedSource(rows, 100), labels), {"checkpoint": tmp_path / "state.pt"}
    scores = AccuracyCalculator(DEEP).get_accuracy(*inputs, **state)
    assert AccuracyCalculator(DEEP, memory_budget=2**28).get_accuracy(*inputs, **state) == scores
    monkeypatch.setattr(
        "tensormetrics.retrieval.calculator.streaming.budget", lambda requested, device: requested or 2**30
    )
    with pytest.raises(ValueError, match=f"was written with memory_budget = {2**28}, got {2**30}; delete it"):
        AccuracyCalculator(DEEP).get_accuracy(*inputs, **state)


def test_dictionary_columns_are_labels_not_rows(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    text_labels, integer_labels = (pa.array(values).dictionary_encode() for values in (["b", "a", "b"], [7, 7, 5]))
    x = pa.array([[1.0, 2.0]] * 3)
    parquet.write_table(pa.table({"x": x, "word": text_labels}), tmp_path / "x.parquet")
    parquet.write_table(pa.table({"number": integer_labels}), tmp_path / "number.parquet")
    file = f"{tmp_path}/x.parquet"
    assert open_embeddings(file).shape == (3, 2)
    for name in (None, "word"):
        codes, names = read_column(file, name)
        assert [names[n] for n in codes] == ["b", "a", "b"]
    assert read_column(f"{tmp_path}/number.parquet", None)[0].tolist() == [7, 7, 5]


def test_parquet_files_without_rows_change_nothing(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    kind = pa.list_(pa.float32())
    for i, rows in enumerate([[], [[1.0, 2.0]], [], [[3.0, 4.0]]]):
        parquet.write_table(pa.table({"x": pa.array(rows, kind)}), tmp_path / f"x-{i}.parquet")
    assert open_embeddings(tmp_path / "x-*.parquet").read(0, 2).tolist() == [[1, 2], [3, 4]]
    assert open_embeddings(tmp_path / "x-0.parquet", tmp_path / "x-2.parquet").shape == (0, 0)


TRIPLE_IDS = torch.arange(Q * 11)  # of relevant pairs, more for the first queries
GAIN_TRIPLES = ((TRIPLE_IDS**2 // (11**2 * Q)) % Q, (TRIPLE_IDS * 137) % N, (TRIPLE_IDS % 4).double())
OPTIONS = [
    {},
    {"distance": "cosine"},
    {"label_comparison_fn": within_1},
    {"gains": gain},
    {"gains": GAIN_TRIPLES},
    {"gains": GAIN_TRIPLES, "k": 7},
    {"ties": "pessimistic"},
    {"k": 7},
    {"k": "max_bin_count"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
@pytest.mark.parametrize("budget", [None, BUDGET])
def test_scores_in_blocks_match_in_memory(files, options, budget):
    pattern, rows, labels = files
    names = SHALLOW if options.get("k") == 7 else DEEP
    row_ids = np.arange(N)
    for call in ({"ref_includes_query": True}, {"query_cameras": row_ids[:Q] % 3, "reference_cameras": row_ids % 3}):
        inputs = rows[:Q], labels[:Q]
        streamed, in_memory = (
            AccuracyCalculator(names, memory_budget=budget, **options),
            AccuracyCalculator(names, **options),
        )
        scores_in_blocks = streamed.get_accuracy(*inputs, open_embeddings(pattern), labels, **call)
        assert scores_in_blocks == in_memory.get_accuracy(*inputs, rows, labels, **call)
        for name, scores in in_memory.last.scores.items():
            assert torch.equal(streamed.last.scores[name].nan_to_num(nan=-1), scores.nan_to_num(nan=-1))


class InterruptedSource(EmbeddingSource):
    """Row source that raises InterruptedError after the given number of blocks."""

    def __init__(self, rows, blocks):
        super().__init__(tuple(rows.shape), rows.dtype)
        self.rows, self.left, self.seen = rows, blocks, []

    def read(self, start, stop):
        if stop > start + 100:  # a block, not a read for the fingerprint or the positives
            if not self.left:
                raise InterruptedError
            self.left -= 1
            self.seen.append(start)
        return self.rows[start:stop]


@pytest.mark.parametrize(
    "names, k, blocks, min_starts", [(DEEP, None, 6, 3), (("ndcg_at_5", "hit_rate_at_1"), 10, 1, 2)]
)
def test_interrupted_run_resumes_from_state(names, k, blocks, min_starts, tmp_path):
    rows, labels = map(torch.from_numpy, data())
    options = {"k": k, "memory_budget": BUDGET}
    expected = AccuracyCalculator(names, **options).get_accuracy(rows[:Q], labels[:Q], rows, labels)
    state, values, starts = {"checkpoint": tmp_path / "state.pt", "checkpoint_seconds": 0}, None, 0
    starts_of_blocks = []
    while values is None and starts < 50:
        source = InterruptedSource(rows, blocks)
        try:
            values = AccuracyCalculator(names, **options).get_accuracy(rows[:Q], labels[:Q], source, labels, **state)
        except InterruptedError:
            starts += 1
        starts_of_blocks.append(source.seen)
    assert values == expected and starts >= min_starts
    assert len({tuple(seen) for seen in starts_of_blocks}) == len(
        starts_of_blocks
    )  # no run reads the same blocks as another
    source = InterruptedSource(rows, 0)
    again = AccuracyCalculator(names, **options).get_accuracy(rows[:Q], labels[:Q], source, labels, **state)
    assert again == expected and not source.seen


def test_interrupted_state_write_keeps_previous_state(tmp_path, monkeypatch):
    rows, labels = map(torch.from_numpy, data())
    calculator = AccuracyCalculator(DEEP, memory_budget=BUDGET)
    inputs, state = (rows[:Q], labels[:Q]), {"checkpoint": tmp_path / "state.pt", "checkpoint_seconds": 0}
    expected, save, written = calculator.get_accuracy(*inputs, rows, labels), torch.save, []

    def failing_save(payload, file):
        if written and written[-1]:
            file.write(b"half of it")
            raise KeyboardInterrupt
        written.append(payload["found"].get("counted"))
        save(payload, file)

    monkeypatch.setattr(states.torch, "save", failing_save)
    with pytest.raises(KeyboardInterrupt):
        calculator.get_accuracy(*inputs, InterruptedSource(rows, 100), labels, **state)
    monkeypatch.undo()
    source = InterruptedSource(rows, 100)
    assert calculator.get_accuracy(*inputs, source, labels, **state) == expected
    assert source.seen[0] == written[-1]


def test_state_of_other_computation_is_rejected(tmp_path, files):
    pattern, rows, labels = files
    state = {"checkpoint": tmp_path / "state.pt"}

    def scored(names=DEEP, query=rows[:Q], reference_labels=labels, source=None, **options):
        calculator = AccuracyCalculator(names, **options)
        return calculator.get_accuracy(
            query, labels[: len(query)], source or open_embeddings(pattern), reference_labels, **state
        )

    assert scored() == scored()
    other = labels.copy()
    other[-1] += 1
    for difference, call in (
        ("distance", {"distance": "ip"}),
        ("metrics", {"names": DEEP[:2]}),
        ("k", {"k": 3}),
        ("query", {"query": rows[:Q] + 1}),
        ("reference_labels", {"reference_labels": other}),
        ("memory_budget", {"memory_budget": BUDGET}),
        ("gains", {"gains": GAIN_TRIPLES}),
        ("reference", {"source": InterruptedSource(torch.from_numpy(rows), 100)}),
    ):
        with pytest.raises(
            ValueError, match=rf"^checkpoint: {tmp_path}/state.pt was written with .*; delete it to start"
        ) as error:
            scored(**call)
        assert f" {difference} = " in str(error.value) or difference == "metrics", error.value
    np.save(pattern.replace("*", "1"), rows[:700])  # same content, newer file
    with pytest.raises(ValueError, match="was written with reference = part-1.npy of"):
        scored()
    state["checkpoint"] = tmp_path / "none" / "state.pt"
    source = InterruptedSource(torch.from_numpy(rows), 0)  # the error is raised before a block is read
    with pytest.raises(ValueError, match=r"^checkpoint: .*none/state.pt cannot be written: there is no folder .*none"):
        scored(source=source)
    state["checkpoint"] = tmp_path / "state.pt"
    (tmp_path / "state.pt").write_bytes(b"something else")
    with pytest.raises(ValueError, match="state.pt is no checkpoint of such a computation; name another file"):
        scored()


def test_options_that_need_all_rows_are_rejected(files):
    pattern, rows, labels = files
    inputs = rows[:Q], labels[:Q], open_embeddings(pattern), labels
    for options, message in (
        ({"include": ("nearest_centroid_accuracy",)}, "nearest_centroid_accuracy cannot be scored in blocks; write "),
        ({"include": SHALLOW, "knn_func": TorchKNN(exact=False)}, "knn_func: got a search of all references at once"),
        ({"include": SHALLOW, "label_levels": True}, "label_levels: got True with references in blocks"),
        ({"include": SHALLOW, "gains": torch.zeros(Q, N)}, "gains: got a number for each pair with references in blo"),
        ({"include": SHALLOW, "ignore": torch.zeros(Q, N, dtype=torch.bool)}, "ignore: got a mask or a function with"),
    ):
        with pytest.raises(ValueError, match=message):
            AccuracyCalculator(**options).get_accuracy(*inputs)
    with pytest.raises(ValueError, match="checkpoint: got one without references in blocks"):
        AccuracyCalculator(SHALLOW).get_accuracy(rows, labels, checkpoint="x.pt")
    with_nan = torch.from_numpy(rows).float()
    with_nan[1000, 2] = torch.nan
    with pytest.raises(ValueError, match="reference: 1 of .* rows hold NaN or infinity, the first is row"):
        AccuracyCalculator(SHALLOW, memory_budget=BUDGET).get_accuracy(
            *inputs[:2], InterruptedSource(with_nan, 999), labels
        )
