"""The model of cost that `scaling_cost.py` fits: seconds of a core for an image, and what many of them cost.

Beside the terms of a core stand those of a GPU, from `gpu_throughput.py`, and the bytes that go over a network, from
`scaling_network.py`. How much a network carries is an assumption, so tables show several.
"""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path

from scaling import between_markers, number, plain

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "evidence" / "scaling.md"
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
    "busy": (0.6, "share of a core or GPU that is used in the busiest minute"),
    "gpu_hour": (3.00, "price of a GPU for an hour"),
    "gigabits": (10, "that the network of a machine carries in a second"),
    "thousand_requests": (0.0004, "price of a thousand requests to an object store"),
}
TOGETHER = 256  # images that a GPU looks at at once
SLOWER_FASTER = (0.1, 1, 2.5)  # networks, against the assumed one


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


def beside(name):
    """Another record in the same folder."""
    return json.loads((ROOT / "results" / "scaling" / f"{name}.json").read_text("utf-8"))


def gpu_terms(gpu):
    """Seconds of a GPU: for a thousand million operations of the model, for all scores, for a megabyte moved to it.

    The record has one model and one set of scores, so each term is a difference of two of its rows, not a fit.
    """
    bare, scored, moved = (1 / gpu["rows"][name]["images a second"] for name in ("bare", "scored", "from memory"))
    return {
        "gflop": bare / PHOTOGRAPHS["gflop"],
        "scores": scored - bare,
        "megabyte": (moved - scored) / _megabytes(gpu["settings"]["side"]),
    }


def gpu_seconds(gpu, supervisors, training, gflop=PHOTOGRAPHS["gflop"], side=None):
    """Seconds of a GPU for one image.

    The scores count as those of the record (`max_softmax`, `vim`, `knn` among its traces), also where they are fewer:
    what each takes alone has not been measured. With more traces than there were they grow in proportion.
    """
    each = gpu_terms(gpu)
    more = max(1, training / gpu["settings"]["traces"]) if "knn" in supervisors else 1
    return (
        each["gflop"] * gflop + each["scores"] * more + each["megabyte"] * _megabytes(side or gpu["settings"]["side"])
    )


def feeding_seconds(record, supervisors, training):
    """Seconds of a core for one image whose model and scores run on a GPU: reading, HTTP, the decision, the record."""
    parts = by_part(record["parts"], PHOTOGRAPHS | {"training": training, "batch": TOGETHER}, supervisors)
    return parts["decode"] + parts["decision"] + request_seconds(record)


def _megabytes(side):
    return 3 * side**2 / 1e6


def filled(page, record, gpu, network):
    """The page with the tables of the records between their markers."""
    defaults = {name: default for name, (default, _) in PRICES.items()}
    tables = {
        "terms": terms_table(record),
        "checked": checks_table(record),
        "bill": bill_table(record, defaults),
        "gpu-terms": gpu_terms_table(gpu),
        "gpu-bill": gpu_bill_table(record, gpu, defaults),
        "network": network_table(record, gpu, network, defaults),
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


def gpu_terms_table(gpu):
    """What a GPU takes, by its terms."""
    each = gpu_terms(gpu)
    side, traces = gpu["settings"]["side"], gpu["settings"]["traces"]
    rows = {
        "the model": (f"{number(1e6 * each['gflop'])} a gflop", each["gflop"] * PHOTOGRAPHS["gflop"]),
        f"`max_softmax`, `vim`, `knn` among {traces:,}": (f"{number(1e6 * each['scores'])} an image", each["scores"]),
        "pixels to the GPU, scores back": (
            f"{number(1e6 * each['megabyte'])} a megabyte",
            each["megabyte"] * _megabytes(side),
        ),
    }
    lines = ["| part | microseconds of a GPU | of a photograph, ms |", "|---|---|---:|"]
    return "\n".join([*lines, *(f"| {name} | {said} | {number(1e3 * took)} |" for name, (said, took) in rows.items())])


def gpu_bill_table(record, gpu, price):
    """GPUs, the cores that feed them, and money."""
    head = ["scores", "ms of a GPU", "images a second and GPU", "GPUs, peak", "ms of a core", "machines, peak"]
    head += ["money, GPUs", "money, machines", "a million images"]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    slow = 1 / gpu["rows"]["observe, score"]["images a second"]
    for name, training, took in (
        ("on the GPU, `knn` among 50,000", 50_000, None),
        ("on the GPU, `knn` among 1,281,167", 1_281_167, None),
        ("`knn` among 50,000 on 16 cores beside it, `observe` and `score`", 50_000, slow),
    ):
        each = took or gpu_seconds(gpu, ALL, training)
        fed = feeding_seconds(record, ALL, training)
        spent = gpu_month(each, fed, price)
        cells = [
            number(1e3 * each),
            number(1 / each),
            f"{spent['gpus']:,}",
            number(1e3 * fed),
            f"{spent['machines']:,}",
        ]
        cells += [number(spent["gpu_money"]), number(spent["machine_money"])]
        each_million = (spent["gpu_money"] + spent["machine_money"]) / price["images"] * 1e6
        lines.append(f"| {' | '.join([name, *cells, number(each_million)])} |")
    gathered = TOGETHER / (price["images"] / SECONDS_A_MONTH)
    waits = f"{number(gathered)} s on the mean and {number(gathered / price['peak'])} s in the busiest minute"
    return "\n".join([*lines, "", f"A batch of {TOGETHER} comes together in {waits}."])


def gpu_month(each, fed, price):
    """GPUs and machines at the peak of a month, and their money.

    Args:
        each: seconds of a GPU for one image.
        fed: seconds of a core for one image.
        price: see `PRICES`.
    """
    peak = price["images"] / SECONDS_A_MONTH * price["peak"]
    gpus, machines = ceil(peak * each / price["busy"]), ceil(peak * fed / price["busy"] / price["cores"])
    return {
        "gpus": gpus,
        "machines": machines,
        "gpu_money": gpus * 720 * price["gpu_hour"],
        "machine_money": machines * price["cores"] * 720 * price["core_hour"],
    }


def network_bytes(record, network):
    """Bytes of an image, by what is sent."""
    store, workers = network["store"], network["workers"]
    return {
        "its name, listed by an object store": store["listed"],
        "its JPEG file, from an object store": store["read"] + store["asked"],
        "to a worker, by name": workers["by name"],
        "to a worker, as 224 x 224 pixels": workers["as pixels"],
        "from a worker, 1,000 probabilities": workers["probabilities"],
        "from a worker, a trace of 2,048": workers["trace"],
        "its record in PostgreSQL, as stored": record["records"]["postgresql"]["bytes"],
    }


def images_a_second(bytes_each, gigabits):
    """That a network carries."""
    return gigabits * 1e9 / 8 / bytes_each


def network_table(record, gpu, network, price):
    """What goes over a network, and how many images one carries."""
    peak = price["images"] / SECONDS_A_MONTH * price["peak"]
    rate = 1 / gpu_seconds(gpu, ALL, 50_000)
    carried = [price["gigabits"] * factor for factor in SLOWER_FASTER]
    head = ["an image sends", "bytes", "Gbit/s at the peak", "Gbit/s that one GPU asks for"]
    head += [f"images a second at {number(one)} Gbit/s" for one in carried]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for name, each in network_bytes(record, network).items():
        cells = [number(each), number(peak * each * 8 / 1e9), number(rate * each * 8 / 1e9)]
        cells += [number(images_a_second(each, one)) for one in carried]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    asked = price["images"] / 1000 * price["thousand_requests"]
    said = f"Asked for one by one, the files are {number(price['images'] / 1e6)} million requests to the object store"
    assumed = f"at an assumed {price['thousand_requests']:g} for a thousand".replace(" 0.", " .")
    return "\n".join([*lines, "", f"{said}: {number(asked)} of money a month, {assumed}."])


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
    carried = price["gigabits"]
    said = f"{number(wire)} | {number(carried)} | {_verdict(carried, wire)}"
    lines.append(f"| gigabits a second of JPEG files | {said} |")
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
