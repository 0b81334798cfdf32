"""Preferences of language models between the sentences of pairs."""

import math
from pathlib import Path
from typing import Any

from ...association import PairPreference, read_sentence_pairs, read_sentence_triples, score_pairs
from ..inputs.text import existing
from ..option_types import BadInput
from ..output import find_device, publish
from ..score_tables import table_of_rows


def prefer(
    pairs: str,
    model: str | None,
    protocol: str | None,
    correction: str | None,
    replicates: int,
    confidence: float,
    device: str | None,
    outputs: dict[str, Any],
) -> int:
    """Score the pairs of a file by the language model of a folder; return the exit status."""
    if model is None:
        raise BadInput("--pairs: wanted --model DIRECTORY, too")
    is_triples = existing(pairs).suffix == ".json"
    read: Any = read_sentence_triples(pairs) if is_triples else read_sentence_pairs(pairs)
    if protocol is not None and is_triples != (protocol == "stereoset"):
        raise BadInput(f"--protocol: got {protocol} for {pairs}, wanted a .json file for stereoset alone")
    protocol = "stereoset" if is_triples else protocol
    network, tokenizer = _load(model)
    scores = score_pairs(network.to(find_device(device)), tokenizer, read)
    metric = PairPreference(protocol, categories=sorted(set(read.categories)))
    metric.update(*scores, categories=read.categories, **({"terms": read.terms} if is_triples else {}))
    values = {name: float(value) for name, value in metric.compute().items()}
    draws: dict[str, Any] = {"confidence": confidence, "replicates": replicates or 1000}
    estimates: Any = metric.interval(**draws) if replicates else None
    tests = metric.sign_test(correction=correction or "max-t", **draws)
    corrected = {name: test.p_corrected for name, test in tests.items()}
    rows = {
        name: {
            "score": value,
            **({"low": float(estimates[name].low), "high": float(estimates[name].high)} if estimates else {}),
            "p": float(tests[name].p_value) if name in tests else math.nan,
            "corrected p": math.nan if (p := corrected.get(name)) is None else float(p),
        }
        for name, value in values.items()
    }
    answer = {"files": {"pairs": pairs, "model": model}, "protocol": protocol, "metrics": {"pairpreference": rows}}
    table = table_of_rows(rows, confidence, "pairpreference")
    return publish([table], answer, table.select("score"), **outputs)


def _load(folder: str) -> tuple[Any, Any]:
    """Load the model and the tokenizer of a folder, by the class that its configuration names."""
    if not (Path(folder) / "config.json").is_file():
        raise BadInput(f"--model: got {folder}, wanted a folder with config.json, as save_pretrained writes it")
    try:
        import transformers
    except ImportError as error:
        raise BadInput("--model: transformers is not installed; write pip install transformers") from error
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        kind = getattr(transformers, (config.architectures or ["AutoModel"])[0], transformers.AutoModel)
        model = kind.from_pretrained(folder, local_files_only=True).eval()
        return model, transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except OSError as error:
        raise BadInput(f"--model: {folder}: {str(error).splitlines()[0]}") from error
