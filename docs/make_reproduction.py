"""Write docs/evidence/reproduction.md, its details and plots: ours beside the papers', from the records in results/."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from secondguess.errors import UserError
from secondguess_lab.studies import get, names
from secondguess_lab.studies.comparison import Line, compare
from secondguess_lab.studies.coverage import Coverage, coverage_of, covered
from secondguess_lab.studies.records import recorded

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
PAGE = ROOT / "docs" / "evidence" / "reproduction.md"
DETAILS = PAGE.with_name("reproduction_details.md")
IMAGES = ROOT / "docs" / "images"
PANELS = {
    "True ambiguity": ("ambiguity-table1", "ambiguity-table2"),
    "Surprise adequacy": ("surprise-table1",),
    "Oracles": ("oracles-table6", "oracles-table7", "oracles-table8"),
}
SEARCHES = {
    "random": "#9a9a9a",
    "low_confidence": "#c9a227",
    "adversarial_distance": "#c0392b",
    "facility": "#2e86c1",
    "adaptive": "#1e8449",
}
MIXTURES = {  # of the many combinations those that the text speaks of
    "validation accuracy": ("mixtures-accuracy", "validation_accuracy, (probabilities)"),
    "average confidence": ("mixtures-accuracy", "average_confidence, (probabilities)"),
    "agreement of classifiers": ("mixtures-accuracy", "ensemble_agreement, (other classifiers)"),
    "calibrated, maximum softmax": ("mixtures-accuracy", "calibrated, max_softmax"),
    "thresholded, Dissector": ("mixtures-accuracy", "thresholded, dissector"),
    "thresholded, DSA": ("mixtures-accuracy", "thresholded, dsa"),
    "thresholded, panel": ("mixtures-accuracy", "thresholded, panel"),
    "calibrated, panel": ("mixtures-accuracy", "calibrated, panel"),
    "thresholded, panel, rehearsed": ("mixtures-rehearsed", "thresholded, panel"),
    "thresholded, DSA, rehearsed": ("mixtures-rehearsed", "thresholded, dsa"),
}
TROUBLES = ("nominal", "ambiguous", "corrupted", "adversarial", "invalid")
SAMPLERS = {
    "uniform": "#2e86c1",
    "stratified": "#1e8449",
    "unsurprising_first": "#c9a227",
    "epsilon_free": "#c0392b",
}


def page(path: Path = PAGE) -> str:
    """The text of a page with a line for every study in place of each marker."""
    text = path.with_suffix(".intro.txt").read_text(encoding="utf-8")
    text = re.sub(r"<!-- studies (\S+) -->\n", lambda found: "".join(summary(found[1])), text)
    text = text.replace("<!-- coverage -->\n", counted())
    return text.replace("<!-- mixtures -->\n", "".join(mixtures()))


def lines_of(name: str) -> list[Line]:
    """All cells of a study, ours and the paper's."""
    study = get(name)
    return compare(recorded(study, RESULTS).table, study.published)


def summary(prefix: str) -> Iterable[str]:
    """One row for every study whose name begins so."""
    yield "| study | published cells | ours beside them | of these to be trusted | median difference | largest |\n"
    yield "|---|---|---|---|---|---|\n"
    for study in map(get, names()):
        if study.name.startswith(prefix):
            one = coverage_of(study, RESULTS)
            yield (
                f"| `{one.study}` | {one.published} | {one.beside} | {one.trusted} | "
                + " | ".join(_sizes(one))
                + " |\n"
            )


def counted() -> str:
    """What `secondguess study coverage` counts, in a sentence."""
    all_of = covered([coverage_of(study, RESULTS) for study in map(get, names())])
    return (
        "Of {published} published cells the data at hand allow {allowed}, and {beside} stand beside ours,\n"
        "{at_scale} of them measured at the paper's scale. {compared} can be trusted and are no bounds or times;\n"
        "{near} of these are within .05 (`secondguess study coverage`).\n"
    ).format(**all_of)


def mixtures() -> Iterable[str]:
    """Errors of some combinations of estimator and detector, by kind of trouble, with their price."""
    yield f"| | {' | '.join(TROUBLES)} | mean | ms an image |\n"
    yield "|---|" + "---|" * (len(TROUBLES) + 2) + "\n"
    for title, (study, row) in MIXTURES.items():
        cells = recorded(get(study), RESULTS).table.cells
        errors = [f"{cells[row, column].value:.3f}".removeprefix("0") for column in (*TROUBLES, "overall")]
        price = f"{cells[row, 'ms an image'].value:.1f}".removeprefix("0")
        yield f"| {title} | {' | '.join(errors)} | {price} |\n"


def _sizes(one: Coverage) -> tuple[str, str]:
    """The median of the absolute differences, and the largest with its place."""
    if one.largest is None:
        return "", ""
    far = one.largest
    return f"{one.median:.3f}", f"{far.difference:+.3f} ({far.row}: {far.column})"


def draw_cells(path: Path) -> None:
    """Every cell that both have: ours over the paper's, hollow where the published number cannot be trusted."""
    figure, axes = _canvas(10, 3.6, ncols=len(PANELS))
    for axis, (title, studies) in zip(axes, PANELS.items(), strict=True):
        cells = [line for name in studies for line in lines_of(name) if line.ours and line.paper]
        cells = [line for line in cells if line.column != "entropy"]  # which is no share
        for doubtful, style in ((False, {"alpha": 0.7}), (True, {"facecolors": "none", "edgecolors": "#c0392b"})):
            some = [line for line in cells if bool(line.paper.unreliable) == doubtful]
            label = "not to be trusted" if doubtful else "published"
            axis.scatter(
                [one.paper.value for one in some], [one.ours.value for one in some], s=16, label=label, **style
            )
        axis.plot([0, 1], [0, 1], color="#9a9a9a", linewidth=0.8, zorder=0)
        axis.set(title=title, xlabel="paper", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    axes[0].set_ylabel("ours")
    axes[0].legend(frameon=False, fontsize=8)
    _save(figure, path)


def draw_sampling(path: Path) -> None:
    """Figure 3 of the surprise paper: what a part of the training traces costs DSA."""
    table = recorded(get("surprise-figure3"), RESULTS).table
    figure, axes = _canvas(9, 3.4, ncols=2)
    for axis, (key, title) in zip(axes, (("adversarial", "FGSM"), ("corrupted", "MNIST-C")), strict=True):
        for sampler, colour in SAMPLERS.items():
            rows = [row for row in table.rows if row.startswith(f"DSA, {sampler} ")]
            rows.sort(key=lambda row: float(row.rsplit(" ", 1)[1]))
            cells = [table.cells[row, f"{key} lost"] for row in rows]
            shares = [float(row.rsplit(" ", 1)[1]) for row in rows]
            axis.errorbar(
                shares, [-cell.value for cell in cells], [cell.spread or 0 for cell in cells], color=colour,
                marker="o", markersize=3, linewidth=1.2, elinewidth=0.6, label=sampler.replace("_", " "),
            )  # fmt: skip
        axis.axhline(0, color="#9a9a9a", linewidth=0.8)
        axis.set(title=f"DSA, {title}", xlabel="share of the training traces", ylabel="change of AUROC")
    axes[1].legend(frameon=False, fontsize=8)
    _save(figure, path)


def draw_shares(path: Path) -> None:
    """Figure 2 of the surprise paper: seconds by the share of the training traces, and what the paper tells of them."""
    table, published = recorded(get("surprise-figure2"), RESULTS).table, get("surprise-figure2").published
    figure, axes = _canvas(9, 3.2, ncols=2)
    for axis, name in zip(axes, ("DSA", "LSA"), strict=True):
        for cells, colour, label in ((table.cells, "#2e86c1", "ours"), (published.cells, "#1b1b1b", "paper")):
            points = sorted((float(share), cell.value) for (row, share), cell in cells.items() if row == name)
            if points:
                full = dict(points)[1.0]
                values = [value / full for _, value in points]
                axis.plot([share for share, _ in points], values, color=colour, marker="o", markersize=3, label=label)
        axis.plot([0, 1], [0, 1], color="#9a9a9a", linewidth=0.8, linestyle="--", label="in proportion")
        axis.set(title=name, xlabel="share of the training traces", ylabel="seconds over those of all", ylim=(0, 1.05))
        axis.legend(frameon=False, fontsize=8)
    _save(figure, path)


def draw_tests(path: Path) -> None:
    """Figure 1 of the true-ambiguity paper: the test images with the highest entropies, none picked by hand."""
    record = json.loads((RESULTS / "ambiguity" / "tests.json").read_text(encoding="utf-8"))
    figure, axes = _canvas(9, 2.9, nrows=2, ncols=len(record["shown"]) // 2)
    for axis, one in zip(axes.flat, record["shown"], strict=True):
        axis.imshow(np.frombuffer(bytes.fromhex(one["pixels"]), np.uint8).reshape(28, 28), cmap="gray_r")
        said = " or ".join(map(str, one["classes"]))
        axis.set_title(f"{said}\nlabel {one['label']}", fontsize=8)
        axis.set_axis_off()
    _save(figure, path)


def draw_search(path: Path) -> None:
    """Lift over the pool by the number of queries, for the pool with a blind spot and the one without."""
    record = json.loads((RESULTS / "search" / "cats_dogs.json").read_text(encoding="utf-8"))
    studies = {row["critical"]: row["study"] for row in record["rows"] if "curves" in row["study"]}
    figure, axes = _canvas(9, 3.4, ncols=len(studies))
    for axis, (critical, study) in zip(axes, studies.items(), strict=True):
        for method, colour in SEARCHES.items():
            values = study["curves"][method]["matched_lift"]["pooled"]
            axis.plot(range(1, len(values) + 1), values, color=colour, linewidth=1.4, label=study["titles"][method])
        axis.set(title=f"predicted {critical}, SDR of the pool {study['pool_sdr']:.2f}", xlabel="queries", xlim=(5, 50))
        axis.set_ylim(0, 3)
    axes[0].set_ylabel("errors over those expected at this confidence")
    axes[-1].legend(frameon=False, fontsize=8)
    _save(figure, path)


def draw_networks(path: Path) -> None:
    """What adversarial distance finds among predicted cats: in 28 networks, and by two attacks on the same images."""
    record = json.loads((RESULTS / "search" / "networks.json").read_text(encoding="utf-8"))
    figure, axes = _canvas(9, 3.4, ncols=2)

    def found(distances: str, key: str) -> list[float]:
        rows = (row for row in record["rows"] if row["distances"] == distances)
        return [row["methods"]["adversarial_distance"][key]["pooled"] for row in rows]

    some = [row for row in record["rows"] if row["distances"] == "gradient"]
    shares = [100 * row["share"] for row in some]
    pool, mine = [row["pool_sdr"] for row in some], found("gradient", "sdr@20")
    axes[0].axhline(record["published"]["sdr@20"], color="#1b1b1b", linewidth=1, linestyle="--")
    axes[0].text(0, record["published"]["sdr@20"] - 0.08, "paper: about 4", fontsize=8, va="top")
    axes[0].scatter(
        [share - 0.4 for share in shares], pool, s=14, color=SEARCHES["random"], label="whole pool (random search)"
    )
    axes[0].scatter(
        [share + 0.4 for share in shares],
        mine,
        s=14,
        color=SEARCHES["adversarial_distance"],
        label="adversarial distance, by gradients",
    )
    axes[0].set(title="28 networks, predicted cat", xlabel="darkest cats left out, in %", ylim=(-0.1, 4.3))
    axes[0].set_ylabel("SDR after 20 queries")
    axes[0].legend(frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(1, 0.9))

    attack = record["settings"]["attacks"][1]
    pairs = zip(
        found(attack, "matched_lift@20"), found(f"gradient, images of {attack}", "matched_lift@20"), strict=True
    )
    for pair in pairs:
        axes[1].plot(
            [0, 1], pair, color=SEARCHES["adversarial_distance"], alpha=0.6, linewidth=1, marker="o", markersize=3
        )
    axes[1].axhline(1, color="#9a9a9a", linewidth=0.8)
    axes[1].set(title="The same 2,000 images of 14 networks", ylabel="matched lift after 20 queries", xlim=(-0.3, 1.3))
    axes[1].set_xticks([0, 1], ["decisions, 1,000 queries", "gradients"])
    _save(figure, path)


def _canvas(width: float, height: float, **layout: Any) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(**layout)
    for axis in np.ravel(axes):
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    try:
        for path in (PAGE, DETAILS):
            path.write_text(page(path), encoding="utf-8")
    except UserError as error:
        sys.exit(str(error))
    draw_cells(IMAGES / "reproduction_cells.png")
    draw_sampling(IMAGES / "reproduction_sampling.png")
    draw_shares(IMAGES / "reproduction_shares.png")
    draw_tests(IMAGES / "reproduction_tests.png")
    draw_search(IMAGES / "reproduction_search.png")
    draw_networks(IMAGES / "reproduction_networks.png")
    sys.stdout.write("docs/evidence/reproduction.md, its details and plots written\n")
