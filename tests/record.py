"""Write what is derived from public names and rows, where tests only compare.

    python tests/record.py [DOMAIN.NAME ...]

writes the list of names in tensormetrics/README.md, the device use of rows that have none yet and of the named ones
(`all`: of all) and the options of the commands.
"""

import json
import sys
from pathlib import Path

from cases import FUNCTIONS, METRICS, PLACES
from cli.test_command_options import STORED, current_options
from device_budget import FILE, TORCH, counts

from tensormetrics.__main__ import COMMANDS

PAGE = Path(__file__).parents[1] / "tensormetrics" / "README.md"


def list_of_names() -> str:
    """Return the rows of the page: the names of each front page, `functional` and `extend`."""
    return "".join(f"| `{place.__name__}` | {', '.join(f'`{name}`' for name in place.__all__)} |\n" for place in PLACES)


def record_names() -> None:
    before, head, rest = PAGE.read_text().partition("|---|---|\n")
    PAGE.write_text(before + head + list_of_names() + "\n" + rest.partition("\n\n")[2])


def record_device_use(names: list[str]) -> None:
    cases = METRICS | FUNCTIONS
    table = {} if names == ["all"] else json.loads(FILE.read_text())["rows"]
    wanted = cases.keys() - table.keys() | {*names} - {"all"}
    table |= {name: counts(cases[name]) for name in wanted}
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(cases))
    FILE.write_text(f'{{"torch": "{TORCH}", "rows": {{\n{rows}\n}}}}\n')


def record_options() -> None:
    lines = {name: ",\n".join(f"  {json.dumps(option)}" for option in current_options(name)) for name in COMMANDS}
    tables = (f" {json.dumps(name)}: [\n{options}\n ]" for name, options in lines.items())
    STORED.write_text("{\n" + ",\n".join(tables) + "\n}\n")


if __name__ == "__main__":
    record_names()
    record_device_use(sys.argv[1:])
    record_options()
