"""References in files that are read in blocks: the numbers of all rows in memory, also after a stop."""

import numpy as np
import pytest
import torch

from tensormetrics.retrieval import AccuracyCalculator, EmbeddingSource, TorchKNN, open_embeddings
from tensormetrics.retrieval.sources import state as states
from tensormetrics.retrieval.sources.arrow import read_column

N, Q, D = 1500, 60, 6
DEEP, SHALLOW = ("mean_average_precision", "r_precision", "median_rank"), ("precision_at_1", "mean_reciprocal_rank")
BUDGET = 100_000  # of which a block takes an eighth: a file has several


def close(x, y):
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


WRITERS = {}


def writes(function):
    WRITERS[function.__name__] = function
    return function


@writes
def npy(folder, rows):
    np.save(folder / "x.npy", rows)
    return folder / "x.npy"


@writes
def columns_first(folder, rows):
    np.save(folder / "x.npy", np.asfortranarray(rows))
    return folder / "x.npy"


@writes
def several(folder, rows):
    for number, part in enumerate(np.array_split(rows, [5, 5, 70])):
        np.save(folder / f"x-{number}.npy", part)
    return folder / "x-*.npy"


@writes
def safetensors(folder, rows):
    torch_file = pytest.importorskip("safetensors.torch")
    torch_file.save_file({"x": torch.from_numpy(rows), "y": torch.zeros(2)}, folder / "x.safetensors")
    return f"{folder}/x.safetensors:x"


def table(rows, fixed):
    pa = pytest.importorskip("pyarrow")
    flat, ends = pa.array(rows.ravel()), np.arange(0, rows.size + 1, rows.shape[1])
    lists = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1]) if fixed else pa.ListArray.from_arrays(ends, flat)
    numbers = np.arange(len(rows))
    return pa.table({"x": lists, "label": numbers, "word": [f"w{n % 7}" for n in numbers]})


@writes
def parquet(folder, rows):
    columns, parquet = table(rows, fixed=True), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(columns.slice(0, 60), folder / "x-1.parquet", row_group_size=13)
    parquet.write_table(columns.slice(60), folder / "x-2.parquet")
    return folder / "x-*.parquet"


@writes
def parquet_of_lists_at_an_address(folder, rows):
    columns, parquet = table(rows, fixed=False), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(columns, folder / "x.parquet", row_group_size=50)
    return f"file://{folder}/x*.parquet:x"


@writes
def arrow(folder, rows):
    columns, feather = table(rows, fixed=True), pytest.importorskip("pyarrow.feather")
    feather.write_feather(columns, folder / "x.arrow", compression="uncompressed", chunksize=30)
    return f"{folder}/x.arrow:x"


@pytest.mark.parametrize("dtype", ["float16", "int8", "float64"])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_source_has_the_rows_of_the_file(kind, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr("tensormetrics.retrieval.sources.arrow.BYTES", 200)  # several batches to a group
    wanted = data(dtype)[0][:200]
    source = open_embeddings(WRITERS[kind](tmp_path, wanted))
    wanted = torch.from_numpy(wanted)
    assert source.shape == (200, D) and source.dtype == wanted.dtype and len(source) == 200
    for start, stop in ((0, 200), (3, 4), (199, 200), (2, 80), (59, 61), (61, 100), (120, 120), (119, 140)):
        assert torch.equal(source.read(start, stop), wanted[start:stop])
    assert torch.equal(torch.cat([block for _, block in source.blocks(33, 7)]), wanted[7:])
    some = torch.tensor([0, 1, 40, 60, 199])
    assert torch.equal(source.take(some), wanted[some])
    assert (
        source.fingerprint() == open_embeddings(WRITERS[kind](tmp_path, wanted.numpy())).fingerprint() or kind != "none"
    )


def test_what_is_wrong_with_a_file_is_said(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    np.save(tmp_path / "y.npy", np.zeros((3, 2)))
    np.save(tmp_path / "z.npy", np.zeros((3, 4)))
    for addresses, said in (
        (["x.npy"], "x.npy: got an array of shape (3,), wanted one row per item: (N, D)"),
        (["none-*.npy"], "none-*.npy: no file has such a name"),
        (["none.npy"], "none.npy: there is no such file"),
        (["y.npy:x"], "y.npy:x: a .npy file holds one array; leave out ':x'"),
        (["y.txt"], "y.txt: got a file of type '.txt', wanted one of .npy, .safetensors, .parquet, .arrow, .feather"),
    ):
        with pytest.raises(ValueError) as error:
            open_embeddings(*(tmp_path / address for address in addresses))
        assert str(error.value) == f"{tmp_path}/{said}"
    with pytest.raises(ValueError, match=r"z.npy: got rows of 4 torch.float64 after rows of 2 torch.float64"):
        open_embeddings(tmp_path / "y.npy", tmp_path / "z.npy")
    with pytest.raises(ValueError, match="addresses: got none"):
        open_embeddings()
    shorter = open_embeddings(tmp_path / "y.npy")
    with open(tmp_path / "y.npy", "r+b") as file:
        file.truncate(file.seek(0, 2) - 8)
    with pytest.raises(ValueError, match=r"y.npy: it ends within row 2"):
        shorter.read(0, 3)


def test_the_default_budget_of_another_device_is_another(tmp_path, monkeypatch):
    """Queries are cut into parts by it, and what is known of the parts stands in the state."""
    rows, labels = map(torch.from_numpy, data())
    sides, state = (rows[:Q], labels[:Q], Stopped(rows, 100), labels), {"state": tmp_path / "state.pt"}
    found = AccuracyCalculator(DEEP).get_accuracy(*sides, **state)
    assert AccuracyCalculator(DEEP, memory_budget=2**28).get_accuracy(*sides, **state) == found
    monkeypatch.setattr("tensormetrics.retrieval.calculator.streaming.budget", lambda asked, device: asked or 2**30)
    with pytest.raises(ValueError, match=f"was written with memory_budget = {2**28}, got {2**30}; delete it"):
        AccuracyCalculator(DEEP).get_accuracy(*sides, **state)


def test_odd_columns_are_named(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    lists = {"ragged": [[1.0, 2.0], [3.0]], "gaps": [[1.0, None], [2.0, 3.0]], "none": [None, [1.0, 2.0]]}
    columns = pa.table({**lists, "word": ["a", "b"], "number": [1.5, 2.0]})
    parquet.write_table(columns, tmp_path / "x.parquet")
    file = f"{tmp_path}/x.parquet"
    for column, said in (
        ("ragged", ": got lists of other lengths in the rows from 0 on, wanted 2 numbers in each"),
        ("gaps", ": got nothing in some of the rows from 0 on"),
        ("none", ": got nothing in some of the rows from 0 on"),
        ("word", ": got a column of string, wanted a list of D numbers in each row"),
    ):
        with pytest.raises(ValueError) as error:
            open_embeddings(f"{file}:{column}").read(0, 2)
        assert str(error.value) == f"{file}:{column}{said}"
    with pytest.raises(ValueError, match="got no name for a file of ragged, gaps, none, word, number; write"):
        open_embeddings(file)
    assert read_column(file, "word")[1] == ["a", "b"]
    with pytest.raises(ValueError, match="number: got a column of double, wanted integers or words"):
        read_column(file, "number")


def test_damaged_files_are_named(tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("safetensors")
    np.save(tmp_path / "objects.npy", np.array([["a", 1]], dtype=object))
    for name, held in {"x": b"hello", "empty": b""}.items():
        for kind in (".npy", ".safetensors", ".parquet", ".arrow"):
            (tmp_path / f"{name}{kind}").write_bytes(held)
    for file in sorted(tmp_path.iterdir()):
        with pytest.raises(ValueError, match=rf"^{file}: wanted a .* file; "):
            open_embeddings(file)
        if file.suffix in (".parquet", ".arrow"):
            with pytest.raises(ValueError, match=rf"^{file}: wanted a Parquet or Arrow file; "):
                read_column(str(file), None)
    with pytest.raises(ValueError, match=r"none.parquet: .*No such file"):
        read_column(f"{tmp_path}/none.parquet", None)
    for address, said in (
        ("file:///no/such/folder/x*.parquet", ""),
        ("none://x/y.parquet", "wanted a Parquet or Arrow file; "),
        (f"file://{tmp_path}/x.npy", "got an address, wanted a file of this machine, or one of .parquet, .arrow, .f"),
    ):
        with pytest.raises(ValueError) as error:
            open_embeddings(address)
        assert str(error.value).startswith(f"{address}: {said}")


def test_tensors_that_are_no_rows_are_named(tmp_path):
    save_file = pytest.importorskip("safetensors.torch").save_file
    save_file({}, tmp_path / "none.safetensors")
    save_file({"x": torch.tensor(1.0)}, tmp_path / "number.safetensors")
    for name, said in (("none", "it holds nothing"), ("number", "got an array of shape (), wanted one row per item")):
        with pytest.raises(ValueError) as error:
            open_embeddings(tmp_path / f"{name}.safetensors")
        assert str(error.value).startswith(f"{tmp_path}/{name}.safetensors: {said}")


def test_categories_are_labels_and_no_rows(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    words, numbers = (pa.array(values).dictionary_encode() for values in (["b", "a", "b"], [7, 7, 5]))
    x = pa.array([[1.0, 2.0]] * 3)
    parquet.write_table(pa.table({"x": x, "word": words}), tmp_path / "x.parquet")
    parquet.write_table(pa.table({"number": numbers}), tmp_path / "number.parquet")
    file = f"{tmp_path}/x.parquet"
    assert open_embeddings(file).shape == (3, 2)
    for name in (None, "word"):
        found, names = read_column(file, name)
        assert [names[n] for n in found] == ["b", "a", "b"]
    assert read_column(f"{tmp_path}/number.parquet", None)[0].tolist() == [7, 7, 5]
    with pytest.raises(ValueError, match="x.parquet:word: got a column of dictionary.*, wanted a list of D numbers"):
        open_embeddings(f"{file}:word")
    parquet.write_table(pa.table({"label": pa.array([1, 2**63 + 1], pa.uint64())}), tmp_path / "large.parquet")
    with pytest.raises(ValueError, match="large.parquet:label: .*9223372036854775809"):
        read_column(f"{tmp_path}/large.parquet", None)


def test_files_without_rows_change_nothing(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    kind = pa.list_(pa.float32())
    for number, rows in enumerate([[], [[1.0, 2.0]], [], [[3.0, 4.0]]]):
        parquet.write_table(pa.table({"x": pa.array(rows, kind)}), tmp_path / f"x-{number}.parquet")
    assert open_embeddings(tmp_path / "x-*.parquet").read(0, 2).tolist() == [[1, 2], [3, 4]]
    assert open_embeddings(tmp_path / "x-0.parquet", tmp_path / "x-2.parquet").shape == (0, 0)


NUMBERS = torch.arange(Q * 11)  # of queries and references that fit together, more for the first queries
SOME = ((NUMBERS**2 // (11**2 * Q)) % Q, (NUMBERS * 137) % N, (NUMBERS % 4).double())
OPTIONS = [
    {},
    {"distance": "cosine"},
    {"label_comparison_fn": close},
    {"gains": gain},
    {"gains": SOME},
    {"gains": SOME, "k": 7},
    {"ties": "pessimistic"},
    {"k": 7},
    {"k": "max_bin_count"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
@pytest.mark.parametrize("budget", [None, BUDGET])
def test_scores_are_those_of_all_rows(files, options, budget):
    pattern, rows, labels = files
    names = SHALLOW if options.get("k") == 7 else DEEP
    numbers = np.arange(N)
    for call in ({"ref_includes_query": True}, {"query_cameras": numbers[:Q] % 3, "reference_cameras": numbers % 3}):
        sides = rows[:Q], labels[:Q]
        streamed, whole = (
            AccuracyCalculator(names, memory_budget=budget, **options),
            AccuracyCalculator(names, **options),
        )
        found = streamed.get_accuracy(*sides, open_embeddings(pattern), labels, **call)
        assert found == whole.get_accuracy(*sides, rows, labels, **call)
        for name, scores in whole.last.scores.items():
            assert torch.equal(streamed.last.scores[name].nan_to_num(nan=-1), scores.nan_to_num(nan=-1))


class Stopped(EmbeddingSource):
    """Rows that break off after so many blocks."""

    def __init__(self, rows, blocks):
        super().__init__(tuple(rows.shape), rows.dtype)
        self.rows, self.left, self.seen = rows, blocks, []

    def read(self, start, stop):
        if stop > start + 100:  # a block, not what the fingerprint and positives take
            if not self.left:
                raise InterruptedError
            self.left -= 1
            self.seen.append(start)
        return self.rows[start:stop]


@pytest.mark.parametrize("names, k, blocks, least", [(DEEP, None, 6, 3), (("ndcg_at_5", "hit_rate_at_1"), 10, 1, 2)])
def test_a_run_goes_on_where_it_was(names, k, blocks, least, tmp_path):
    rows, labels = map(torch.from_numpy, data())
    options = {"k": k, "memory_budget": BUDGET}
    wanted = AccuracyCalculator(names, **options).get_accuracy(rows[:Q], labels[:Q], rows, labels)
    state, values, starts = {"state": tmp_path / "state.pt", "checkpoint_seconds": 0}, None, 0
    read = []
    while values is None and starts < 50:
        source = Stopped(rows, blocks)
        try:
            values = AccuracyCalculator(names, **options).get_accuracy(rows[:Q], labels[:Q], source, labels, **state)
        except InterruptedError:
            starts += 1
        read.append(source.seen)
    assert values == wanted and starts >= least
    assert len({tuple(seen) for seen in read}) == len(read)  # none reads the same again
    source = Stopped(rows, 0)
    again = AccuracyCalculator(names, **options).get_accuracy(rows[:Q], labels[:Q], source, labels, **state)
    assert again == wanted and not source.seen


def test_what_was_written_before_serves_where_a_write_breaks_off(tmp_path, monkeypatch):
    rows, labels = map(torch.from_numpy, data())
    calculator = AccuracyCalculator(DEEP, memory_budget=BUDGET)
    sides, state = (rows[:Q], labels[:Q]), {"state": tmp_path / "state.pt", "checkpoint_seconds": 0}
    wanted, save, written = calculator.get_accuracy(*sides, rows, labels), torch.save, []

    def broken(found, file):
        if written and written[-1]:
            file.write(b"half of it")
            raise KeyboardInterrupt
        written.append(found["found"].get("counted"))
        save(found, file)

    monkeypatch.setattr(states.torch, "save", broken)
    with pytest.raises(KeyboardInterrupt):
        calculator.get_accuracy(*sides, Stopped(rows, 100), labels, **state)
    monkeypatch.undo()
    source = Stopped(rows, 100)
    assert calculator.get_accuracy(*sides, source, labels, **state) == wanted
    assert source.seen[0] == written[-1]


def test_another_computation_is_refused(tmp_path, files):
    pattern, rows, labels = files
    state = {"state": tmp_path / "state.pt"}

    def scored(names=DEEP, query=rows[:Q], of=labels, source=None, **options):
        calculator = AccuracyCalculator(names, **options)
        return calculator.get_accuracy(query, labels[: len(query)], source or open_embeddings(pattern), of, **state)

    assert scored() == scored()
    other = labels.copy()
    other[-1] += 1
    for difference, call in (
        ("distance", {"distance": "ip"}),
        ("metrics", {"names": DEEP[:2]}),
        ("k", {"k": 3}),
        ("query", {"query": rows[:Q] + 1}),
        ("reference_labels", {"of": other}),
        ("memory_budget", {"memory_budget": BUDGET}),
        ("gains", {"gains": SOME}),
        ("reference", {"source": Stopped(torch.from_numpy(rows), 100)}),
    ):
        with pytest.raises(
            ValueError, match=rf"^state: {tmp_path}/state.pt was written with .*; delete it to start"
        ) as error:
            scored(**call)
        assert f" {difference} = " in str(error.value) or difference == "metrics", error.value
    np.save(pattern.replace("*", "1"), rows[:700])  # equal, but written again
    with pytest.raises(ValueError, match="was written with reference = part-1.npy of"):
        scored()
    state["state"] = tmp_path / "none" / "state.pt"
    source = Stopped(torch.from_numpy(rows), 0)  # found out before a block is read
    with pytest.raises(ValueError, match=r"^state: .*none/state.pt cannot be written: there is no folder .*none"):
        scored(source=source)
    state["state"] = tmp_path / "state.pt"
    (tmp_path / "state.pt").write_bytes(b"something else")
    with pytest.raises(ValueError, match="state.pt holds no state of such a computation; name another file"):
        scored()


def test_what_wants_all_rows_is_refused(files):
    pattern, rows, labels = files
    sides = rows[:Q], labels[:Q], open_embeddings(pattern), labels
    for options, said in (
        ({"include": ("nearest_centroid_accuracy",)}, "nearest_centroid_accuracy cannot be scored in blocks; write "),
        ({"include": SHALLOW, "knn_func": TorchKNN(exact=False)}, "knn_func: got a search of all references at once"),
        ({"include": SHALLOW, "label_levels": True}, "label_levels: got True with references in blocks"),
        ({"include": SHALLOW, "gains": torch.zeros(Q, N)}, "gains: got a number for each pair with references in blo"),
        ({"include": SHALLOW, "ignore": torch.zeros(Q, N, dtype=torch.bool)}, "ignore: got a mask or a function with"),
    ):
        with pytest.raises(ValueError, match=said):
            AccuracyCalculator(**options).get_accuracy(*sides)
    with pytest.raises(ValueError, match="state: got one without references in blocks"):
        AccuracyCalculator(SHALLOW).get_accuracy(rows, labels, state="x.pt")
    spoilt = torch.from_numpy(rows).float()
    spoilt[1000, 2] = torch.nan
    with pytest.raises(ValueError, match="reference: 1 of .* rows hold NaN or infinity, the first is row"):
        AccuracyCalculator(SHALLOW, memory_budget=BUDGET).get_accuracy(*sides[:2], Stopped(spoilt, 999), labels)


def test_clusters_of_the_queries_need_no_references(files):
    pattern, rows, labels = files
    wanted = AccuracyCalculator().get_accuracy(rows[:Q], labels[:Q], rows, labels)
    assert AccuracyCalculator().get_accuracy(rows[:Q], labels[:Q], open_embeddings(pattern), labels) == wanted
