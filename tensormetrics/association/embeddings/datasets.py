"""Published word sets and vectors for association tests and debiasing.

Only the sets of `load_weat` are part of the package. The others are read from a local folder, `path=`, with the same
file names, or downloaded from the authors' repositories; a network error is a ConnectionError.
"""

import csv
import hashlib
import json
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any

from ...core.arguments import checks
from ...core.text.files import parsing, read_bytes, text_of
from .lookup import log
from .model import WordEmbeddingModel

WordSets = dict[str, list]
Folder = str | PathLike | None

MAX_BYTES = 2**24
HOST = "https://raw.githubusercontent.com/"
WEFE = "dccuchile/wefe/master/wefe/datasets/data/"
W2V_NAME = "weat_w2v____old.txt"
W2V_SHA256 = "4dab4d3a604b2f021d57c99957919ab4d021ce699d28aad1d8168e54c754927f"


def load_weat() -> WordSets:
    """Load the 31 word sets of the WEAT experiments by name; the file `weat_word_sets.json` names their papers.

    Caliskan, Bryson & Narayanan 2017, doi:10.1126/science.aal4230.

    >>> load_weat()["career"]
    ['executive', 'management', 'professional', 'corporation', 'salary', 'office', 'business', 'career']
    """
    text = resources.files(__package__).joinpath("weat_word_sets.json").read_text("utf-8")
    return json.loads(text)["word_sets"]


def load_weat_w2v(path: Folder = None, *, n_retries: int = 3, timeout: float = 30) -> WordEmbeddingModel:
    """Load WEFE's word2vec vectors (300 dimensions) of 347 words of `load_weat`; `path` is a local copy of the file.

    A downloaded file is verified by its SHA-256; `n_retries` and `timeout` as in `load_bingliu`. WEFE has the MIT
    license.

    >>> from pathlib import Path
    >>> _ = Path("words.txt").write_text("rose 0.5 0.1")
    >>> load_weat_w2v("words.txt")  # without a path the file is downloaded
    <WordEmbeddingModel named 'weat_w2v' with 1 word embeddings of 2 dims>
    """
    if path is not None:
        return WordEmbeddingModel.from_word2vec(path, binary=False, name="weat_w2v")
    content = read_file(WEFE, W2V_NAME, None, n_retries, timeout, W2V_SHA256)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / W2V_NAME
        file.write_bytes(content)
        return WordEmbeddingModel.from_word2vec(file, binary=False, name="weat_w2v")


def load_bingliu(path: Folder = None, *, n_retries: int = 3, timeout: float = 30) -> WordSets:
    """Load opinion words: positive_words (2006), negative_words (4783). Hu & Liu 2004, doi:10.1145/1014052.1014073.

    `path` is a folder with copies of the files. Without it they are downloaded, with `timeout` seconds for each and up
    to `n_retries` repetitions while the server is busy; ConnectionError if that fails.

    >>> from pathlib import Path
    >>> _ = Path("positive-words.txt").write_text("good"), Path("negative-words.txt").write_text("bad")
    >>> load_bingliu(".")  # without a path the files are downloaded
    {'positive_words': ['good'], 'negative_words': ['bad']}
    """

    def words(name: str) -> list[str]:
        data = read_file(WEFE, name, path, n_retries, timeout)
        try:
            text = text_of(data, name)
        except ValueError:  # as published
            if b"\0" in data:
                raise
            text = data.decode("latin-1")
        return [line for line in _lines(text) if not line.startswith(";")]

    return {"positive_words": words("positive-words.txt"), "negative_words": words("negative-words.txt")}


def fetch_eds(
    occupations_year: int = 2015,
    top_n_race_occupations: int = 10,
    *,
    path: Folder = None,
    n_retries: int = 3,
    timeout: float = 30,
) -> WordSets:
    """Fetch adjectives, names and words of groups, and occupations of one census year.

    male_occupations have no fewer men than women; occupations_white, _black, _asian and _hispanic are the
    `top_n_race_occupations` with the highest percentage of that group. ValueError for a year without data. `path`,
    `n_retries` and `timeout` as in `load_bingliu`. Garg et al. 2018, doi:10.1073/pnas.1720347115; the repository of the
    authors states no license.

    >>> "male_occupations" in fetch_eds(1940)  # doctest: +SKIP
    True
    """
    top = checks.check_int("top_n_race_occupations", top_n_race_occupations, 1)

    def text(name: str) -> str:
        folder = "nikhgarg/EmbeddingDynamicStereotypes/master/data/"
        return text_of(read_file(folder, name, path, n_retries, timeout), name)

    def words(name: str) -> list[str]:
        return _lines(text(f"{name}.txt"))

    def occupations(by: str) -> list[dict[str, str]]:
        name = f"occupation_percentages_{by}_occ1950.csv"
        with parsing(name, "a copy of the published file"):
            rows = list(csv.DictReader(text(name).splitlines()))
            years = {int(row["Census year"]) for row in rows}
        if occupations_year not in years:
            raise ValueError(
                f"occupations_year: got {occupations_year!r}, wanted one of {', '.join(map(str, sorted(years)))}"
            )
        return [row for row in rows if int(row["Census year"]) == occupations_year]

    kinds = {"adjectives": "appearance otherization sensitive", "words": "christianity islam terrorism"}
    kinds["names"] = "asian black chinese hispanic russian white"
    names = [f"{kind}_{group}" for kind in ("adjectives", "names", "words") for group in kinds[kind].split()]
    sets = {name: words(name) for name in names}
    by_gender, by_race = occupations("gender"), occupations("race")
    with parsing("occupation_percentages", "copies of the published files"):
        by_gender = [row for row in by_gender if row["Male"] and row["Female"]]
        for group, is_male in (("male", True), ("female", False)):
            occupations_of_group = [
                row["Occupation"] for row in by_gender if (float(row["Male"]) >= float(row["Female"])) == is_male
            ]
            sets[f"{group}_occupations"] = occupations_of_group
        for group in ("white", "black", "asian", "hispanic"):
            rows_of_group = [row for row in by_race if row[group]]
            highest = sorted(rows_of_group, key=lambda row: float(row[group]), reverse=True)  # noqa: B023
            sets[f"occupations_{group}"] = [row["Occupation"] for row in highest[:top]]
    sets |= {"male_terms": words("male_pairs"), "female_terms": words("female_pairs")}
    return sets | {"adjectives_intelligence": words("adjectives_intelligencegeneral")}


def fetch_debiaswe(*, path: Folder = None, n_retries: int = 3, timeout: float = 30) -> WordSets:
    """Fetch gender words: terms, definitional pairs (female word first), equalize pairs, specific words, professions.

    `path`, `n_retries` and `timeout` as in `load_bingliu`. Bolukbasi et al. 2016, arXiv:1607.06520; MIT license.

    >>> from pathlib import Path
    >>> for name in ("definitional_pairs", "equalize_pairs", "gender_specific_full", "professions"):
    ...     _ = Path(f"{name}.json").write_text('[["she", "he"]]')
    >>> fetch_debiaswe(path=".")["female_terms"]  # without a path the files are downloaded
    ['she']
    """
    definitional, equalize, specific, professions = (
        _json(f"{name}.json", read_file("tolga-b/debiaswe/master/data/", f"{name}.json", path, n_retries, timeout))
        for name in ("definitional_pairs", "equalize_pairs", "gender_specific_full", "professions")
    )
    with parsing("definitional_pairs.json and professions.json", "copies of the published files"):
        return {
            "male_terms": [second for _, second in definitional],
            "female_terms": [first for first, _ in definitional],
            "definitional_pairs": definitional,
            "equalize_pairs": equalize,
            "gender_specific": specific,
            "professions": [word for word, *_ in professions],
        }


def fetch_debias_multiclass(*, path: Folder = None, n_retries: int = 3, timeout: float = 30) -> WordSets:
    """Fetch words of gender, ethnicity and religion, separately, and the definitional sets for debiasing.

    `path`, `n_retries` and `timeout` as in `load_bingliu`. Manzini et al. 2019, doi:10.18653/v1/N19-1062; the
    repository of the authors states no license.

    >>> "islam_terms" in fetch_debias_multiclass()  # doctest: +SKIP
    True
    """
    folder = "TManzini/DebiasMulticlassWordEmbedding/master/Debiasing/data/vocab/"
    gender, ethnicity, religion = (
        _json(
            f"{name}_attributes_optm.json", read_file(folder, f"{name}_attributes_optm.json", path, n_retries, timeout)
        )
        for name in ("gender", "race", "religion")
    )
    with parsing("*_attributes_optm.json", "copies of the published files"):
        return _multiclass_sets(gender, ethnicity, religion)


def _multiclass_sets(gender: Any, ethnicity: Any, religion: Any) -> WordSets:
    roles, biased = gender["analogy_templates"]["role"], ethnicity["analogy_templates"]["role"]
    attributes = religion["analogy_templates"]["attribute"]

    def columns(of: dict, *names: str) -> WordSets:
        return {
            name: sorted(set(words)) for name, words in zip(names, zip(*of["definite_sets"], strict=True), strict=True)
        }

    males, females = (list(words) for words in zip(*gender["definite_sets"], strict=True))
    sets = {"male_terms": males, "female_terms": females, "male_roles": roles["man"], "female_roles": roles["woman"]}
    sets |= columns(ethnicity, "black_terms", "white_terms", "asian_terms")
    keys = {"black": "black", "white": "caucasian", "asian": "asian"}
    sets |= {f"{group}_biased_words": biased[key] for group, key in keys.items()}
    sets |= columns(religion, "judaism_terms", "christianity_terms", "islam_terms")
    sets |= {"greed": attributes["jew"], "conservative": attributes["christian"], "terrorism": attributes["muslim"]}
    kinds = {"gender": (gender, roles), "ethnicity": (ethnicity, biased), "religion": (religion, attributes)}
    sets |= {f"{kind}_definitional_sets": source["definite_sets"] for kind, (source, _) in kinds.items()}
    sets |= {f"{kind}_analogy_templates": templates for kind, (_, templates) in kinds.items()}
    return sets | {f"{kind}_eval_target": source["eval_targets"] for kind, (source, _) in kinds.items()}


def fetch_gn_glove(*, path: Folder = None, n_retries: int = 3, timeout: float = 30) -> WordSets:
    """Fetch male_terms and female_terms, 222 each. Zhao et al. 2018, doi:10.18653/v1/D18-1521; Apache license 2.0.

    `path`, `n_retries` and `timeout` as in `load_bingliu`.

    >>> from pathlib import Path
    >>> _ = Path("male_word_file.txt").write_text("he"), Path("female_word_file.txt").write_text("she")
    >>> fetch_gn_glove(path=".")  # without a path the files are downloaded
    {'male_terms': ['he'], 'female_terms': ['she']}
    """

    def words(group: str) -> list[str]:
        content = read_file("uclanlp/gn_glove/master/wordlist/", f"{group}_word_file.txt", path, n_retries, timeout)
        return _lines(text_of(content, f"{group}_word_file.txt"))

    return {"male_terms": words("male"), "female_terms": words("female")}


def _json(name: str, content: bytes) -> Any:
    with parsing(name, "JSON"):
        return json.loads(text_of(content, name))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_file(
    folder: str, name: str, path: str | PathLike | None, n_retries: int, timeout: float, sha256: str | None = None
) -> bytes:
    """Read a file from the local folder `path`, or download it from `folder` of the host and verify its hash."""
    if path is not None:
        return bytes(read_bytes(Path(path) / name))
    n_retries = checks.check_int("n_retries", n_retries, 0)
    url = f"{HOST}{folder}{name}"
    try:
        content = _retry_request(_get, url, timeout=timeout, n_retries=n_retries)
    except Exception as error:
        raise ConnectionError(f"{url}: {error}; download the files and give their folder as path=") from error
    if sha256 and (got := hashlib.sha256(content).hexdigest()) != sha256:
        raise ValueError(f"{url}: got a file with the SHA-256 {got}, wanted {sha256}; give a local copy as path=")
    return content


def _get(url: str, timeout: float) -> bytes:
    """Download a file of at most MAX_BYTES within about `timeout` seconds."""
    end, content = time.monotonic() + timeout, bytearray()
    with urllib.request.urlopen(url, timeout=timeout) as response:
        while chunk := response.read1(2**16):
            content += chunk
            if len(content) > MAX_BYTES:
                raise ValueError(f"got more than {MAX_BYTES} bytes, which is none of the published files")
            if time.monotonic() > end:
                raise TimeoutError(f"got {len(content)} bytes in {timeout:g} s")
    if (length := response.headers.get("Content-Length")) is not None and int(length) != len(content):
        raise ConnectionError(f"got {len(content)} of {length} bytes")
    return bytes(content)


def _retry_request(func: Callable, *args: Any, n_retries: int = 3, **kwargs: Any) -> Any:
    """Call a function, and again after 1, 2, 4, ... seconds if the network or the server was busy.

    Other responses of the server raise at once; after other errors the call is repeated after 1 second.
    """
    for attempt in range(n_retries + 1):
        try:
            return func(*args, **kwargs)
        except Exception as error:
            answered = isinstance(error, urllib.error.URLError)  # also HTTPError
            busy = getattr(error, "code", None) in (429, 503)
            if attempt == n_retries or (answered and not busy):
                raise
            wait = 2**attempt if isinstance(error, OSError) else 1
            log.warning("%s; trying again in %d s (%d of %d)", error, wait, attempt + 1, n_retries)
            time.sleep(wait)
