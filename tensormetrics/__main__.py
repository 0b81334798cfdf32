"""The command line: `python -m tensormetrics demo`."""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait spinning are many times slower on busy cores
import torch  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tensormetrics", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="train on handwritten digits and watch every metric, epoch by epoch")
    demo.add_argument("--out", type=Path, metavar="DIR", help="write report.json and report.png there")
    demo.add_argument("--epochs", type=int, default=12, metavar="N")
    demo.add_argument("--seed", type=int, default=0, metavar="N")
    demo.add_argument("--device", help="such as cpu or cuda:1; the GPU when there is one")
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        demo.error(f"--epochs: got {options.epochs}, wanted at least 1")
    try:
        device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch raises AssertionError where it was built without CUDA
        demo.error(f"--device: got {options.device!r}, which cannot be used here: {error}")
    try:
        from . import _demo

        return _demo.run(device, epochs=options.epochs, seed=options.seed, out=options.out)
    except ImportError as error:
        demo.error(f"{error}; install it with: pip install 'tensormetrics[demo]'")


if __name__ == "__main__":
    sys.exit(main())
