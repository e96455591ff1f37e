"""docs/evidence/scaling.md: what is not between the markers of lab/experiments/scaling.py."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt, log

from claims import Claim, find, record, rows, says

PAGE = "docs/evidence/scaling.md"


def claims() -> Iterator[Claim]:
    """All of them."""
    yield from audit()
    yield from files()
    yield from cost()
    yield from surprise()
    yield from on_a_gpu()
    yield from models()
    networks = record("oracles/mnist.json")["networks"].values()
    learnt, judged, checked = (
        [network["seconds"][key] for network in networks]
        for key in ("icos_fit", "icos_judge_20000", "selfchecker_judge_39500")
    )
    yield says(
        "ICOS learns in {:.0f} to {:.0f} s and judges 20,000 images in {:.1f} to {:.1f} s. SelfChecker judges "
        "39,500 in {:.0f} to {:.0f} s",
        *(end for values in (learnt, judged, checked) for end in (min(values), max(values))),
    )


def audit() -> Iterator[Claim]:
    """An audit of many images, and passes on two processes."""
    kept = record("bench/scale.json")
    found, sections = kept["audit"], kept["audit"]["sections"]
    yield says(
        "an audit of {:,} images of 32 x 32 pixels at full size, with a tiny network, three supervisors, corrupted "
        "images and the report, takes {:.0f} s, {:.2f} ms an image, and {:.0f} MiB of memory",
        kept["images"],
        found["seconds"],
        found["milliseconds"],
        found["mebibytes"],
    )
    yield says("accuracy without labels take {:.0f} s", sections["label_free"])
    near = record("scaling/knn_recall.json")
    recall = [find(near["rows"], probes=probes)["recall"] for probes in (4, 16)]
    found = (
        "on {:,} synthetic traces of {} neurons it finds {:.2f} of the neighbours in 4 cells of {}, and {:.3f} in 16"
    )
    sizes = near["settings"]["traces"], near["settings"]["width"]
    yield says(found, *sizes, recall[0], isqrt(sizes[0]), recall[1])
    yield from passes(kept)


def passes(kept: dict) -> Iterator[Claim]:
    """What Dask workers make of passes over images, and of a lost one."""
    lines = []
    titles = {"observing": "a small network, arrays", "photographs": "ONNX, JPEG files of 224 pixels from a folder"}
    for key, title in titles.items():
        plain, one, two = (find(kept[key], engine=engine) for engine in ("local", "dask:1", "dask:2"))
        numbers = (plain["images"], plain["seconds"], 100 * (one["seconds"] / plain["seconds"] - 1))
        text = f"| {title} | {{:,}} | {{:.1f}} | {{:.0f}} % | {{:.2f}} | {{:.1f}} and {{:.1f}} |"
        lines.append((text, *numbers, one["seconds"] / two["seconds"], one["core_seconds"], two["core_seconds"]))
    yield rows(*lines)
    one, two = (find(kept["observing"], engine=engine) for engine in ("dask:1", "dask:2"))
    yield says(
        "two workers take {:.1f} s longer than half of what one takes",
        two["seconds"] - one["seconds"] / 2,
        provided=abs(two["core_seconds"] / one["core_seconds"] - 1) < 0.05 and one["seconds"] < 1.8 * two["seconds"],
    )
    lost = kept["lost"]
    yield says(
        "audit of {:,} images: all of {} numbers of its `audit.json` stayed the same",
        lost["images"],
        lost["numbers"],
        provided=lost["same"] and not lost["different"],
    )


def files() -> Iterator[Claim]:
    """A folder of many files."""
    kept = record("scaling/files.json")
    most = max(kept["rows"], key=lambda row: row["files"])
    yield says(
        "`load` of {:,} PNG files in {:,} class folders takes {:.1f} s of a core and {:.0f} MiB of memory at most, of "
        "which {:.0f} MiB stay",
        most["files"],
        kept["settings"]["classes"],
        most["core_seconds"],
        most["peak_mebibytes"],
        most["kept_mebibytes"],
        provided=most["images"] == most["files"],
    )


def cost() -> Iterator[Claim]:
    """How good the fits of transactions are."""
    kept = record("scaling/cost.json")["records"]
    yield says(
        "The fit of PostgreSQL's transactions is wrong by up to {:.0f} %, that of SQLite's by {:.0f} %;",
        *(100 * kept[name]["largest_error"] for name in ("postgresql", "sqlite")),
    )


def surprise() -> Iterator[Claim]:
    """DSA on two cores and on a GPU."""
    large = record("surprise/scale.json")
    yield says("scores {:,.0f} images a second on one H200", large["queries"] / large["score_seconds"])
    kept = record("bench/surprise.json")
    dsa = {row["dimension"]: row for row in kept["rows"] if row["work"] == "dsa"}
    floors = [row["floor_ratio"] for row in dsa.values()]
    memory = [row["peak_mib"] for row in dsa.values()]
    yield says(
        "takes {:.2f} s in 10 dimensions, {:.2f} s in 128 and {:.1f} s in 1,600 (DSA), between {:.1f} and "
        "{:.1f} times a bare matrix product",
        *(dsa[dimension]["seconds"] for dimension in (10, 128, 1600)),
        min(floors),
        max(floors),
    )
    ends = {
        varied: [row for row in kept["growth"] if row["varied"] == varied]
        for varied in ("traces", "queries", "dimension")
    }

    def exponent(first: dict, last: dict, varied: str) -> float:
        return log(last["seconds"] / first["seconds"]) / log(last[varied] / first[varied])

    def line(title: str, varied: str, first: dict, last: dict, spec: str) -> tuple:
        numbers = (first[varied], last[varied], first["seconds"], last["seconds"], exponent(first, last, varied))
        return f"| {title} | {{:,}} | {{:,}} | {{:{spec}}} → {{:.2f}} | {{:.2f}} |", *numbers

    wide = ends["dimension"]
    yield rows(
        line("training traces", "traces", ends["traces"][0], ends["traces"][-1], ".2f"),
        line("images", "queries", ends["queries"][0], ends["queries"][-1], ".2f"),
        line("dimensions", "dimension", wide[1], wide[-1], ".3f"),
    )
    yield says("(from 10 dimensions to 1,600 it is {:.2f}:", exponent(wide[0], wide[-1], "dimension"))
    yield says("Memory grew by {:.0f} to {:.0f} MiB.", min(memory), max(memory))
    scale = record("surprise/scale.json")
    yield says(
        "one H200: {:,} traces of {:,} dimensions in {:,} classes, the size of ImageNet. Fit {:.1f} s, {:,} "
        "images scored in {:.1f} s, {:.1f} GiB of GPU memory.",
        *(scale[key] for key in ("traces", "dimension", "classes", "fit_seconds", "queries", "score_seconds")),
        scale["gpu_peak_gib"],
    )


def on_a_gpu() -> Iterator[Claim]:
    """A model with its scores on a GPU."""
    kept = record("scaling/gpu.json")
    found, traces = kept["rows"], kept["settings"]["traces"]
    rate = {name: row["images a second"] for name, row in found.items()}
    yield says(
        "passes {:,.0f} images a second alone, and {:,.0f} with `max_softmax`, `knn` among {:,} traces and `vim` "
        "behind it",
        rate["bare"],
        rate["scored"],
        traces,
    )
    shares = [found[name]["share of bare"] for name in ("scored", "from memory")]
    yield says("{:.2f} of the bare rate, {:.2f} where images come as bytes from main memory", *shares)
    yield says("look for neighbours on 16 cores, give {:.0f}:", rate["observe, score"])


def models() -> Iterator[Claim]:
    """Fleets and single networks."""
    kept = record("bench/fleet_h200.json")

    def seconds(mode: str, replay: bool) -> list[float]:
        return [find(run, mode=mode, replay=replay)["seconds"] for run in kept["runs"]]

    def ends(values: list[float]) -> tuple[float, float]:
        return min(values), max(values)

    def faster(replay: bool) -> list[float]:
        pairs = zip(seconds("loop", replay), seconds("stacked", replay), strict=True)
        return [loop / stacked for loop, stacked in pairs]

    networks, fleets = record("oracles/mnist.json")["networks"], record("surprise/models.json")
    yield rows(
        (
            "| {} SimpleCNNs, {:,} images, one epoch, one after another | H200 | {:.2f} to {:.2f} | "
            "`bench/fleet_h200.json`, three runs |",
            kept["members"],
            kept["images"],
            *ends(seconds("loop", True)),
        ),
        ("| the same, stacked | H200 | {:.2f} to {:.2f} | |", *ends(seconds("stacked", True))),
        (
            "| the same without replay (`replay=False`), one after another | H200 | {:.2f} to {:.2f} | |",
            *ends(seconds("loop", False)),
        ),
        ("| the same without replay, stacked | H200 | {:.2f} to {:.2f} | |", *ends(seconds("stacked", False))),
        (
            "| {} networks of the study on surprise, 54,000 images, {} epochs, stacked, and DSA and LSA of each | "
            "H200, nine more such stacks and other jobs on it | {:.0f} to {:.0f} | `surprise/models.json` |",
            fleets["settings"]["together"],
            fleets["settings"]["epochs"],
            *ends([took for task, took in fleets["task_seconds"].items() if task.startswith("surprise-table1")]),
        ),
        (
            "| {} two-class autoencoders for MNIST | H200 | {:.0f} | `ambiguity/mnist.json` |",
            record("ambiguity/mnist.json")["autoencoders"]["trained"],
            record("ambiguity/mnist.json")["autoencoders"]["seconds"],
        ),
        (
            "| network A, B, C of the study on oracles, {:,} images, 4 epochs | 2 cores | {:.0f}, {:.0f}, {:.0f} | "
            "`oracles/mnist.json` |",
            record("oracles/mnist.json")["settings"]["training"],
            *(networks[f"icos_{letter}"]["seconds"]["training"] for letter in "abc"),
        ),
    )
    yield says(
        "A stack trains these {} networks {:.1f} to {:.1f} times as fast as one after another, and {:.1f} to "
        "{:.1f} times where neither replays recorded steps",
        kept["members"],
        *ends(faster(True)),
        *ends(faster(False)),
    )
