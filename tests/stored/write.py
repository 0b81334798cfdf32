"""Write the files of this folder, which `test_stored_files.py` reads: run at 337b1eb; they must not be written anew.

They stand for files that users have on their disks: those of a later version would prove nothing about 337b1eb. The
program refuses to replace them, and stays to show how they were made.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import distributed as dist

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

from stored.objects import (  # noqa: E402
    CALCULATIONS,
    DISTANCES,
    FAISS_FILE,
    KNN_FILES,
    OBJECTS,
    ROWS,
    ROWS_FILE,
    STUDY_FILES,
    Calculation,
    CountedRows,
    calculator_rows,
    make_study,
    neighbors,
    numbers_by_path,
    open_embeddings_file,
    persistent_state_dict,
    references,
    study_numbers,
)

from tensormetrics.retrieval import FaissKNN, TorchKNN  # noqa: E402


def write_state_dicts() -> dict[str, Any]:
    """Write the states of all objects and return their values."""
    states, values = {}, {}
    for name, stored in {**ROWS, **OBJECTS}.items():
        module = stored.make()
        stored.feed(module, torch.Generator().manual_seed(0))
        values[name] = numbers_by_path(stored.value(module))
        states[name] = persistent_state_dict(module)
    torch.save(states, FOLDER / "state_dicts.pt")
    return values


def write_studies() -> dict[str, Any]:
    study = make_study()
    for name in STUDY_FILES:
        study.save(FOLDER / name)
    return study_numbers(study)


def write_references() -> dict[str, Any]:
    """Write the references of searches and return what searches in them give."""
    values: dict[str, Any] = {}
    for name, dtype in KNN_FILES.items():
        for distance in DISTANCES:
            knn = TorchKNN(distance)
            knn.train(references(dtype))
            knn.save(FOLDER / name)
            values[f"{name} by {distance}"] = neighbors(knn)
    faiss = FaissKNN(reset_after=False)
    faiss.train(references())
    faiss.save(FOLDER / FAISS_FILE)
    values[FAISS_FILE] = neighbors(faiss)
    return values


@contextmanager
def interrupted_after(writes: int | None) -> Iterator[None]:
    """Interrupt what writes a state once more than `writes` times."""
    save, left = torch.save, [writes]

    def save_or_stop(*arguments: Any) -> None:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] = None if left[0] is None else left[0] - 1
        save(*arguments)

    with mock.patch.object(torch, "save", save_or_stop):
        try:
            yield
        except KeyboardInterrupt:
            assert left == [0]
        else:
            assert writes is None


def write_state(name: str, calculation: Calculation) -> dict[str, Any]:
    """Write the state of an interrupted calculation and return the accuracies when it is resumed."""
    options: dict[str, Any] = {"checkpoint": FOLDER / name, "checkpoint_seconds": 0}
    if calculation.grouped:
        options["group"] = dist.group.WORLD
    with tempfile.TemporaryDirectory() as folder:

        def source() -> Any:
            return open_embeddings_file(Path(folder)) if calculation.from_file else CountedRows(calculator_rows())

        with interrupted_after(calculation.writes):
            calculation.accuracies(source(), **options)
        for path in FOLDER.glob(f"{name}*"):
            shutil.copy(path, folder)
        accuracies = calculation.accuracies(source(), **options | {"checkpoint": Path(folder) / name})
        assert accuracies == calculation.accuracies(source()), name
    return accuracies


def write_states() -> dict[str, Any]:
    np.save(FOLDER / ROWS_FILE, calculator_rows().numpy())
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return {name: write_state(name, calculation) for name, calculation in CALCULATIONS.items()}
    finally:
        dist.destroy_process_group()


def main() -> None:
    file = FOLDER / "values.json"
    if file.exists():
        sys.exit(f"{file} exists; the files of 337b1eb must not be written anew")
    values = {
        "state_dicts": write_state_dicts(),
        "studies": write_studies(),
        "references": write_references(),
        "states": write_states(),
    }
    file.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
