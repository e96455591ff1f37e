"""The model of cost that `scaling_cost.py` fits: seconds of a core for an image, and what many of them cost."""

from __future__ import annotations

from math import ceil
from pathlib import Path

from scaling import between_markers, number, plain

PAGE = Path(__file__).resolve().parents[2] / "docs" / "evidence" / "scaling.md"
SECONDS_A_MONTH = 30 * 24 * 3600
OUTPUT = ("max_softmax", "entropy", "energy")
MATRIX = (*OUTPUT, "vim", "relative_mahalanobis")
ALL = (*MATRIX, "knn")
SETS = {  # name: supervisors, training images that they keep
    "`max_softmax`, `entropy`, `energy`": (OUTPUT, 50_000),
    "and `vim`, `relative_mahalanobis`": (MATRIX, 50_000),
    "and `knn` among 50,000": (ALL, 50_000),
    "and `knn` among 1,281,167": (ALL, 1_281_167),
}
PHOTOGRAPHS = {
    "batch": 1,
    "megapixels": 0.1875,
    "gflop": 7.71,
    "layers": 178,
    "dimensions": 2048,
    "classes": 1000,
}
NAMES = {
    "decode": "reading a JPEG file",
    "forward": "the model",
    "decision": "panel, p-value, verdict",
}
PRICES = {
    "images": (1e9, "images a month"),
    "core_hour": (0.04, "price of a core for an hour"),
    "gigabyte_month": (0.10, "price of a gigabyte of the database's disk for a month"),
    "cores": (16, "cores of a machine"),
    "peak": (3.0, "the busiest minute against the mean"),
    "busy": (0.6, "share of a core that is used in the busiest minute"),
}


def add_prices(parser):
    """An option for each price."""
    for name, (default, help) in PRICES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=default, help=f"{help} ({default:g})")


def prices(arguments):
    """What the options say."""
    return {name: getattr(arguments, name) for name in PRICES}


def terms(part, sizes, supervisors):
    """How often each term of a part counts for one image."""
    known = {
        "batch": 1 / sizes["batch"],
        "image": 1,
        "megapixel": sizes["megapixels"],
        "gflop": sizes["gflop"],
        "layer": sizes["layers"],
        "supervisor": len(supervisors),
        "class": sizes["classes"],
        "dimension^2": sizes["dimensions"] ** 2,
        "dimension x class": sizes["dimensions"] * sizes["classes"],
        "training image": sizes["training"],
        "training image x dimension": sizes["training"] * sizes["dimensions"],
    }
    known |= {f"{name} a batch": value / sizes["batch"] for name, value in known.items()}
    return {name: known[name] for name in part["seconds"]}


def by_part(parts, sizes, supervisors):
    """Seconds of a core for one image, part by part."""
    return {
        name: sum(
            count * parts[name]["seconds"][term] for term, count in terms(parts[name], sizes, supervisors).items()
        )
        for name in ("decode", "forward", *supervisors, "decision")
    }


def core_seconds(parts, sizes, supervisors):
    """Seconds of a core for one image."""
    return sum(by_part(parts, sizes, supervisors).values())


def request_seconds(record):
    """What a request takes beside the parts, by the small job; 0 where that has not been measured."""
    if "small" not in record:
        return 0.0
    small = record["small"]
    return small["core_seconds"] - core_seconds(record["parts"], small["sizes"], ALL)


def filled(page, record):
    """The page with the tables of the record between their markers."""
    defaults = {name: default for name, (default, _) in PRICES.items()}
    tables = {
        "terms": terms_table(record),
        "checked": checks_table(record),
        "bill": bill_table(record, defaults),
        "limits": limits_table(record, defaults),
    }
    return between_markers(page, {name: table + "\n" for name, table in tables.items()})


def terms_table(record):
    """What each part costs, by its terms."""
    lines = ["| part | microseconds of a core | largest error | of a photograph, ms |", "|---|---|---:|---:|"]
    sizes = PHOTOGRAPHS | {"training": 50_000}
    photograph = by_part(record["parts"], sizes, ALL)
    for name, part in record["parts"].items():
        said = " + ".join(_term(term, seconds) for term, seconds in part["seconds"].items() if seconds)
        error = f"{100 * part['largest_error']:.0f} %"
        lines.append(f"| {NAMES.get(name, f'`{name}`')} | {said} | {error} | {number(1e3 * photograph[name])} |")
    request = request_seconds(record)
    if request:
        lines.append(f"| HTTP, the queue, the record | {number(1e6 * request)} a request | | {number(1e3 * request)} |")
    return "\n".join(lines)


def _term(name, seconds):
    micro = 1e6 * seconds
    if "x" in name.split() or "^" in name:  # of millions of them
        return f"{number(1e6 * micro)} a million {name.replace('^2', '²').replace(' x ', ' × ')}"
    return f"{number(micro)} {'an' if name[0] in 'aeiou' else 'a'} {name}"


def checks_table(record):
    """Predicted beside measured."""
    lines = ["| run | workers | | predicted | measured | measured / predicted |", "|---|---:|---|---:|---:|---:|"]
    for row in [*record["archives"], *record.get("services", [])]:
        each = core_seconds(record["parts"], row["sizes"], ALL)
        each += request_seconds(record) if row["job"] == "service" else 0
        pairs = {"ms of a core": (1e3 * each, 1e3 * row["core_seconds"])}
        if "images_a_second" in row:
            pairs["images a second"] = (row["workers"] / each, row["images_a_second"])
        for what, (predicted, found) in pairs.items():
            said = f"{number(predicted)} | {number(found)} | {plain(found / predicted)}"
            lines.append(f"| {row['job']} | {row['workers']} | {what} | {said} |")
    return "\n".join(lines)


def bill_table(record, price):
    """Machines, memory and money for each set of supervisors."""
    head = ["supervisors", "ms of a core", "images a second and core", "cores, mean", "machines, peak", "GB a machine"]
    head += ["money, machines", "money, records", "a million images"]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    mean = price["images"] / SECONDS_A_MONTH
    stored = price["images"] * record["records"]["postgresql"]["bytes"] / 1e9 * price["gigabyte_month"]
    for name, (supervisors, training) in SETS.items():
        sizes = PHOTOGRAPHS | {"training": training}
        each = core_seconds(record["parts"], sizes, supervisors) + request_seconds(record)
        machines = ceil(mean * price["peak"] * each / price["busy"] / price["cores"])
        spent = machines * price["cores"] * 720 * price["core_hour"]
        cells = [name, number(1e3 * each), number(1 / each), number(mean * each), f"{machines:,}"]
        cells += [number(price["cores"] * memory(record, supervisors, training)), number(spent), number(stored)]
        lines.append(f"| {' | '.join([*cells, number((spent + stored) / price['images'] * 1e6)])} |")
    return "\n".join(lines)


def memory(record, supervisors, training):
    """Gigabytes that a worker holds: what was measured, and the training traces of `knn`."""
    kept = training * PHOTOGRAPHS["dimensions"] * 4 if "knn" in supervisors else 0
    return record.get("worker_mebibytes", 0) * 2**20 / 1e9 + kept / 1e9


def limits_table(record, price):
    """What is needed at the peak, and what one of each gives."""
    peak = price["images"] / SECONDS_A_MONTH * price["peak"]
    lines = ["| | needed | one gives | |", "|---|---:|---:|---|"]
    for name, label in (("postgresql", "PostgreSQL"), ("sqlite", "an SQLite file")):
        cost = record["records"][name]["seconds"]
        for batch in (1, 64):
            gives = batch / (cost["transaction"] + batch * cost["image"])
            said = f"records a second in {label}, {batch} a transaction"
            lines.append(f"| {said} | {number(peak)} | {number(gives)} | {_verdict(gives, peak)} |")
    bytes_each = _photograph_bytes(record)
    wire = peak * bytes_each * 8 / 1e9
    lines.append(f"| gigabits a second of JPEG files | {number(wire)} | 10 | {_verdict(10, wire)} |")
    disk = price["images"] * record["records"]["postgresql"]["bytes"] / 1e12
    lines.append(f"| terabytes of records a month | {number(disk)} | | never deleted by the service |")
    return "\n".join(lines)


def _photograph_bytes(record):
    """Bytes of a JPEG file of that many pixels, by those that were decoded."""
    rows = record["parts"]["decode"]["rows"]
    share = [row["bytes"] / row["terms"]["megapixel"] for row in rows[-2:]]
    return sum(share) / len(share) * PHOTOGRAPHS["megapixels"]


def _verdict(gives, needed):
    return "enough" if gives > 2 * needed else "short" if gives < needed else "just enough"
