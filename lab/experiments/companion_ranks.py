"""Do companion sets rank models alike, and does that hang on one family of models?

    python companion_ranks.py results/hubris/mnist.json

From the rows of a record of companion_sets.py: Spearman's correlation of the models' mean divergence between any
two sets, over the families of companion_sets.py, and its range when any one of these is left out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from companion_sets import FAMILIES, correlations, say


def main():
    """Print one line for every pair of sets, those with rejection left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    record = json.loads(parser.parse_args().record.read_text("utf-8"))
    rows = [row for row in record["hubris"]["rows"] if row["family"] in FAMILIES and "accepted" not in row["set"]]
    without = [correlations([row for row in rows if row["family"] != family]) for family in FAMILIES]
    for pair, value in correlations(rows).items():
        some = [one[pair] for one in without]
        say(f"{pair:62} {value:+.2f}   without a family {min(some):+.2f} to {max(some):+.2f}")


if __name__ == "__main__":
    main()
