"""docs/evidence/supervisors.intro.txt: what was measured of supervisors, in words."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from statistics import mean

from claims import Claim, cells, find, record, rows, says
from claims._tables import close, compared
from claims.reproduction_details import error_of_mean, lost, processor_seconds

PAGE = "docs/evidence/supervisors.intro.txt"
TABLE2 = "ambiguity/ambiguity-table2.json"
KINDS = ("ambiguous", "adversarial", "corrupted", "invalid")
NETWORKS = ("simple_cnn", "densenet_se", "resnet50")
SOFTMAX = ("max_softmax", "pcs", "entropy", "deep_gini")
DATA = ("mnist", "fashion_mnist")


def claims() -> Iterator[Claim]:
    """All of them."""
    yield from one_network()
    yield from four_networks()
    yield from photographs()
    yield from sampling()
    yield from speed()


def auroc(data: str, name: str, kind: str) -> float:
    """The mean over runs of SimpleCNN."""
    return record(f"supervisors/{data}.json")["table"][name][kind]["mean"]


def published(name: str, column: str) -> float:
    """Of Table 2."""
    return next(line.paper.value for line in compared("ambiguity-table2") if (line.row, line.column) == (name, column))


def one_network() -> Iterator[Claim]:
    """SimpleCNN beside the paper's means."""
    ambiguous = [mean(auroc(data, name, "ambiguous") for name in SOFTMAX) for data in DATA]
    yield says("the softmax family is at {:.2f} (MNIST) and {:.2f} (Fashion-MNIST) on ambiguous images", *ambiguous)
    fields = "{:.2f} and {:.2f} against {:.2f} and {:.2f}"
    yield says(
        f"* `dsa` and `mdsa` on ambiguous images: {fields} on MNIST, {fields} on Fashion-MNIST.",
        *chain(
            *(
                (
                    *(auroc(data, name, "ambiguous") for name in ("dsa", "mdsa")),
                    *(published(name, f"{data}: ambiguous") for name in ("dsa", "mdsa")),
                )
                for data in DATA
            )
        ),
    )
    kept = cells(TABLE2)
    yield says(
        "is our check of realism, without which they have {:.2f} and {:.2f}.",
        *(kept[f"{name}, simple_cnn", "fashion_mnist: ambiguous"]["value"] for name in ("dsa", "mdsa")),
    )
    invalid = [auroc("fashion_mnist", name, "invalid") for name in SOFTMAX]
    spreads = [record("supervisors/fashion_mnist.json")["table"][name]["invalid"]["std"] for name in SOFTMAX]
    yield says(
        "* the softmax scores on invalid images of Fashion-MNIST ({:.2f} against {:.2f}): one network against "
        "the mean of four, and the cell that differs most between runs (standard deviation {:.2f}). On MNIST "
        "the same network is far above the mean ({:.2f} against {:.2f}).",
        mean(invalid),
        published("max_softmax", "fashion_mnist: invalid"),
        mean(spreads),
        mean(auroc("mnist", name, "invalid") for name in SOFTMAX),
        published("max_softmax", "mnist: invalid"),
    )
    names = ("mc_dropout_mi", "autoencoder")
    pairs = [(auroc("fashion_mnist", name, "ambiguous"), published(name, "fashion_mnist: ambiguous")) for name in names]
    yield says(
        "* `mc_dropout_mi` and `autoencoder` on ambiguous images of Fashion-MNIST ({:.2f} against {:.2f}, "
        "{:.2f} against {:.2f}): our check of realism, which these images passed. On images without it, as "
        "published, they have {:.2f} and {:.2f}.",
        *chain(*pairs),
        kept["mc_dropout_mi, simple_cnn", "fashion_mnist: ambiguous"]["value"],
        kept["autoencoder, simple_cnn", "fashion_mnist: ambiguous"]["value"],
    )


def four_networks() -> Iterator[Claim]:
    """What the means over networks hide."""
    kept = cells(TABLE2)

    def value(name: str, network: str, kind: str, data: str = "mnist") -> float:
        return kept[f"{name}, {network}", f"{data}: {kind}"]["value"]

    trusted = [line for line in compared("ambiguity-table2") if not line.paper.unreliable]
    yield says("the means over networks are within .05 of the paper's in {} of {} trusted cells.", *close(trusted))

    def line(title: str, name: str, networks: tuple[str, ...]) -> tuple:
        cell = " " + ", ".join(["{:.2f}"] * len(networks)) + " |"
        return (f"| {title} |" + 4 * cell, *(value(name, network, kind) for kind in KINDS for network in networks))

    everybody = (*NETWORKS, "fully_connected")
    yield rows(
        line("`max_softmax`: SimpleCNN, DenseNet, ResNet50", "max_softmax", NETWORKS),
        line("`max_softmax`: FullyConnected (linear)", "max_softmax", ("fully_connected",)),
        line("`dsa`: SimpleCNN, DenseNet, ResNet50, FullyConnected", "dsa", everybody),
        line("`mdsa`: the same", "mdsa", everybody),
    )
    digits, clothes = (
        [value(name, network, kind, data) for name in ("dsa", "mdsa") for network in networks for kind in KINDS[1:]]
        for data, networks in (("mnist", everybody), ("fashion_mnist", ("simple_cnn", "resnet50", "fully_connected")))
    )
    yield says(
        "with every network that was measured: {:.2f} or more here with all four, {:.2f} or more on "
        "Fashion-MNIST with three (DenseNet was not measured there).",
        min(digits),
        min(clothes),
        provided=("dsa, densenet_se", "fashion_mnist: invalid") not in kept,
    )


def photographs() -> Iterator[Claim]:
    """What supervisors see on CIFAR-10."""
    models = [record("supervisors/photos.json")["models"][name] for name in ("resnet20", "vgg")]
    tables = [{name: row["auroc"] for name, row in model["table"].items()} for model in models]

    def both(name: str, column: str) -> list[float]:
        return [table[name][column] for table in tables]

    def best(column: str) -> list[str]:
        return [max(table, key=lambda name: table[name][column]) for table in tables]

    yield says("of which the models answer {} and {} wrongly;", *(model["mistakes"] for model in models))
    yield says(
        "The softmax sees the models' own mistakes ({:.2f} and {:.2f}) better than everything newer.",
        *both("max_softmax", "mistakes"),
        provided=set(best("mistakes")) <= set(SOFTMAX),
    )
    yield says(
        "`normalised_mahalanobis` has {:.2f} on invalid images with the ResNet and {:.2f} with the VGG, "
        "`knn` {:.2f} and {:.2f}.",
        *both("normalised_mahalanobis", "invalid"),
        *both("knn", "invalid"),
    )
    yield says(
        "looked at (`dissector`, {:.2f} and {:.2f}).",
        *both("dissector", "adversarial"),
        provided=set(best("adversarial")) == {"dissector"},
    )
    four = [one["single"] for name, one in record("photos/panel.json")["models"].items() if "mnist" not in name]
    yield says(
        "no score of these tells mistakes better than {:.2f} here, and of the next table none better than {:.2f}.",
        max(row["corrupted.mistakes"] for table in tables for row in table.values()),
        max(row["corrupted.mistakes"] for table in four for row in table.values()),
    )
    yield says(
        "both fall behind the plain energy in every column, `ash` below chance on mistakes.",
        provided=max(both("ash", "mistakes")) < 0.5
        and all(
            table[name][column] < table["energy"][column]
            for table in tables
            for name in ("ash", "scale")
            for column in table[name]
        ),
    )


def sampling() -> Iterator[Claim]:
    """What a part of the training traces costs."""

    def cost(sampler: str, share: str, key: str) -> float:
        return mean(lost(sampler, share, key))

    smart = ("unsurprising_first", "epsilon_free")
    models = record("surprise/models.json")
    kept = models["auroc"]
    yield says(
        "There are {} models, as in the paper, and {} of them for sampling.",
        models["settings"]["models"],
        kept["dsa, uniform 0.33"]["models"],
        provided={one["models"] for name, one in kept.items() if "bandwidth" in name} == {100},
    )
    yield says(
        "chosen uniformly, costs DSA {:.4f} on FGSM and {:.4f} on corrupted images, less than .01 as the paper says; "
        "a tenth costs {:.3f} and {:.3f}.",
        *(cost("uniform", share, key) for share in ("0.33", "0.10") for key in ("fgsm", "mnist_c")),
        provided=max(cost("uniform", "0.33", key) for key in ("fgsm", "mnist_c")) < 0.01,
    )
    shares = ("0.05", "0.10", "0.20", "0.33", "0.50", "0.70")
    yield says(
        "are at most {:.4f} with uniform sampling,",
        max(error_of_mean(lost("uniform", share, key)) for share in shares for key in ("fgsm", "mnist_c")),
    )
    yield says(
        "on FGSM a tenth costs less than a fifth ({:.3f}).",
        cost("uniform", "0.20", "fgsm"),
        provided=cost("uniform", "0.10", "fgsm") < cost("uniform", "0.20", "fgsm"),
    )
    yield says(
        "(at a third {:.3f} and {:.3f} on FGSM, {:.3f} and {:.3f} on corrupted images). Neighbour-free sampling of a "
        "half costs no more on FGSM, and of 70 % less ({:.3f} against {:.3f}).",
        *(cost(sampler, "0.33", key) for key in ("fgsm", "mnist_c") for sampler in smart),
        *(cost(sampler, "0.70", "fgsm") for sampler in ("epsilon_free", "uniform")),
        provided=cost("epsilon_free", "0.50", "fgsm") <= cost("uniform", "0.50", "fgsm")
        and cost("epsilon_free", "0.70", "fgsm") < cost("uniform", "0.70", "fgsm"),
    )

    def gained(bandwidth: str, key: str) -> float:
        pairs = zip(kept[f"lsa, bandwidth {bandwidth}"][key], kept["lsa"][key], strict=True)
        return mean(mine - scott for mine, scott in pairs)

    yield says(
        ".01 and .1 lose {:.3f} and {:.3f} on FGSM and gain {:.3f} and {:.3f} on corrupted images, 1.0 gains "
        "{:.3f} and loses {:.3f}, 10 loses both;",
        *(-gained(one, "fgsm") for one in ("0.01", "0.1")),
        *(gained(one, "mnist_c") for one in ("0.01", "0.1")),
        gained("1.0", "fgsm"),
        -gained("1.0", "mnist_c"),
        provided=gained("10.0", "fgsm") < 0 and gained("10.0", "mnist_c") < 0,
    )


def speed() -> Iterator[Claim]:
    """`bench surprise`, and the size of ImageNet."""
    measured = record("bench/surprise.json")["rows"]

    def row(work: str) -> dict:
        return find(measured, work=work, dimension=10)

    yield says(
        "DSA takes {:.1f} times the floor ({:.1f} times that of the same-class search with "
        '`other_distances="fit"`); LSA takes {:.1f} times the floor.',
        *(row(work)["floor_ratio"] for work in ("dsa", "dsa precomputed", "lsa")),
    )
    yield says(
        "DSA takes less than a five-hundredth at all three widths (of a full run at 128 neurons, timed apart, a "
        "249th); LSA and MDSA, milliseconds in all at 10 neurons, take an eighth and a half there.",
        provided=all(one["peer_ratio"] > 500 for one in measured if one["work"] == "dsa")
        and f"{row('lsa')['peer_ratio']:.0f} {row('mdsa')['peer_ratio']:.0f}" == "8 2",
    )
    times = processor_seconds()["DSA"]
    yield says(
        "with all objects of the process frozen DSA at 10 neurons takes dnn-tip {:.0f} times our processor time",
        times["dnn-tip"] / times["ours"],
        provided=record("surprise/times.json")["settings"]["dimension"] == 10,
    )
    scale = record("surprise/scale.json")
    yield says(
        "DSA of {:,} queries against {:,} traces of {:,} numbers in {:,} classes took {:.1f} seconds from "
        "arrays in memory to scores ({:.1f} to fit, {:.1f} to score, with the other-class distances of all "
        "{:,} traces that were hit), and {:.1f} GiB of GPU memory",
        *(scale[key] for key in ("queries", "traces", "dimension", "classes")),
        scale["fit_seconds"] + scale["score_seconds"],
        *(scale[key] for key in ("fit_seconds", "score_seconds", "traces_hit", "gpu_peak_gib")),
    )
