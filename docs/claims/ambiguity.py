"""docs/ambiguity.md: how ambiguous AmbiGuess' images are, and how many pairs of classes have any."""

from __future__ import annotations

from collections.abc import Iterator

from claims import Claim, cells, find, record, says

PAGE = "docs/ambiguity.md"
TABLE1 = "ambiguity/ambiguity-table1.json"
MEASURES = ("top-1", "top-2", "top-pair", "entropy")
PAPER = {
    "mnist": "| paper, nominal + ambiguous, mean of four networks | .53 | .98 | .95 | 1.22 | -.44 points |",
    "fashion_mnist": "| paper, nominal + ambiguous, mean of four networks | .51 | .94 | .87 | 1.33 | +.06 points |",
}
ROW = " | {:.3f} | {:.3f} | {:.3f} | {:.2f} | {:.4f} "


def claims() -> Iterator[Claim]:
    """All of them."""
    yield from photographs()
    yield from autoencoders()
    yield from pairs()
    for name in ("mnist", "fashion_mnist"):
        yield from table(name)
    digits = record("ambiguity/mnist.json")
    lost = digits["realism"]["nominal_accuracy_lost_points"]
    yield says(
        "the soft labels, which cost SimpleCNN {:.2f} points instead of {:.2f} on MNIST",
        lost["mixed, soft labels"],
        lost["mixed"],
    )
    seconds = [
        kept["autoencoders"]["seconds"] + kept["realism"]["drawing_seconds"]
        for kept in (digits, record("ambiguity/fashion_mnist.json"))
    ]
    yield says(
        "Training the 900 autoencoders and drawing 30,000 images took {:.0f} seconds for MNIST and {:.0f} for",
        *seconds,
    )


def photographs() -> Iterator[Claim]:
    """The flow on CIFAR-10, and what 22 classifiers say of its images."""
    kept = record("ambiguity/photos.json")
    made, judge = kept["generation"], kept["generation"]["judge"]
    yield says("{:,} steps of 512 images took {:.0f} seconds", made["training"]["steps"], made["training"]["seconds"])
    yield says(
        "gets {:.3f} of 1,000 others right, with a log loss of {:.3f} nats and a calibration error of {:.3f}",
        judge["accuracy"],
        judge["log_loss"],
        judge["calibration_error"],
    )
    right = [
        judge["pairs"][pair]["accuracy"] for pair in ("cat-dog", "automobile-truck", "airplane-ship", "deer-horse")
    ]
    yield says(
        "right in {:.3f} of the cases for cat and dog (where it hesitates, with a share between .3 and .7, on {:.3f} "
        "of the images), {:.3f} for automobile and truck, {:.3f} for airplane and ship and {:.3f} for deer and horse",
        right[0],
        judge["pairs"]["cat-dog"]["hesitates"],
        *right[1:],
    )
    drawn = made["composition"]
    yield says(
        "Of {:,} compositions (means of velocities, guidance 2), drawn and judged in {:.0f} seconds, {:,} lie between",
        drawn["candidates"],
        drawn["seconds"],
        drawn["accepted"],
        provided=min(drawn["accepted_by_pair"].values()) > 0,
    )
    models = {row["model"]: row for row in kept["models"]}
    names = {
        "VGG": "vgg",
        "ResNet-20": "resnet20",
        "ConvMixer": "convmixer",
        "DenseNet-22": "densenet22",
        "ResNet-20 without augmentation": "resnet20_raw",
        "ResNet-20 with label smoothing": "resnet20_smooth",
        "ResNet-20 with mixup": "resnet20_mixup",
    }
    for label, name in names.items():
        row = models[name]
        sure = (row[kind]["sure"][0] for kind in ("ambiguous", "ambiguous_scaled", "blends", "clear"))
        yield says(f"| {label} | {{:.3f}} | {{:.2f}} | {{:.2f}} | {{:.2f}} | {{:.2f}} |", row["accuracy"], *sure)
    ranks = kept["ranks"]
    yield says(
        "(Spearman {:.2f}, 95 % interval {:.2f} to {:.2f}; among nine ResNets {:.2f}, {:.2f} to {:.2f})",
        *(ranks[kind][part] for kind in ("all", "resnet") for part in ("spearman", "low", "high")),
        provided=ranks["all"]["models"] == len(models) == 22,
    )
    second = made["second_judge"]["on_accepted"]
    yield says("finds {:.2f} bits of ambiguity in the accepted images", second["entropy"])
    yield says("its shares correlate by {:.2f} with the soft labels", second["rank"])


def autoencoders() -> Iterator[Claim]:
    """How many were accepted."""
    digits, clothes = (record(f"ambiguity/{name}.json") for name in ("mnist", "fashion_mnist"))
    fewest = min(pair["accepted"] for pair in digits["realism"]["card_test"]["pairs"])
    none = {"-".join(pair["pair"]) for pair in clothes["realism"]["card_test"]["pairs"] if not pair["accepted"]}
    yield says(
        "{} of the {} autoencoders of MNIST are accepted, at least {} of 20 for every pair, and {} of the {} of "
        "Fashion-MNIST, but none for T-shirt and shirt, pullover and coat, pullover and shirt, coat and shirt:",
        *(digits["autoencoders"][key] for key in ("accepted", "trained")),
        fewest,
        *(clothes["autoencoders"][key] for key in ("accepted", "trained")),
        provided=none == {"T-shirt/top-Shirt", "Pullover-Coat", "Pullover-Shirt", "Coat-Shirt"},
    )
    shares = [
        100 * one[kind][card]["final_filter_share"]
        for one in (digits, clothes)
        for kind in ("realism", "as_published")
        for card in ("card_test", "card_training")
    ]
    yield says(
        "Of the points drawn for MNIST and Fashion-MNIST {:.0f} to {:.0f} % survive the final filter",
        min(shares),
        max(shares),
    )

    bench = record("bench/ambiguess_h200.json")
    alone, fleet = bench["rows"]
    yield says(
        "on an H200, for {} digits of `mnist5k` and {} epochs, {:.0f} seconds alone and {:.0f} for eight at once",
        bench["images"],
        bench["epochs"],
        alone["seconds"],
        fleet["seconds"],
        provided=fleet["autoencoders"] == 8,
    )


def pairs() -> Iterator[Claim]:
    """Which of them the check of realism drops."""
    digits, clothes = (
        record(f"ambiguity/{name}.json")["realism"]["card_test"]["pairs"] for name in ("mnist", "fashion_mnist")
    )
    made = [pair for pair in clothes if pair["accepted"]]
    yield says(
        "Of the {} pairs of digits the check drops {}, among them 1-7, of which {:.0f} % of the images pass",
        len(digits),
        sum(not pair["images"] for pair in digits),
        100 * find(digits, pair=["1", "7"])["realism_share"],
        provided=not find(digits, pair=["1", "7"])["images"],
    )
    yield says(
        "On Fashion-MNIST it drops {} of the {} pairs that have images",
        sum(not pair["images"] for pair in made),
        len(made),
    )


def table(name: str) -> Iterator[Claim]:
    """Table 1: means of four networks, and SimpleCNN."""
    kept = cells(TABLE1)

    def four(kind: str, training: str, images: str, column: str) -> float:
        return kept[f"{name}, {kind}, mean of four: {training}, {images}", column]["value"]

    text, values = PAPER[name], []
    for kind, title in (
        ("ambiguess", "ours as published (no check of realism)"),
        ("ambiguess, realistic", "ours with the check of realism"),
    ):
        nominal = four(kind, "mixed", "nominal", "top-1")
        text += f" | {title}, mean of four networks" + ROW + "({:+.2f} points) |"
        values += [four(kind, "mixed", "ambiguous", column) for column in MEASURES]
        values += [nominal, 100 * (nominal - four(kind, "clean", "nominal", "top-1"))]
    yield says(text, *values)
    yield from simple_cnn(name)


def simple_cnn(name: str) -> Iterator[Claim]:
    """Five models."""
    own = record(f"ambiguity/{name}.json")

    def line(kind: str, training: str) -> list[float]:
        mean = own[kind]["mean"][training]
        return [mean[key] for key in ("top_1", "top_2", "top_pair", "entropy_bits", "nominal_accuracy")]

    lost = {kind: own[kind]["nominal_accuracy_lost_points"] for kind in ("as_published", "realism")}
    text = "| SimpleCNN: ours as published, nominal + ambiguous" + ROW + "({:+.2f} points) | "
    text += "| SimpleCNN: ours with the check of realism, nominal + ambiguous" + ROW + "({:+.2f} points) | "
    values = [*line("as_published", "mixed"), -lost["as_published"]["mixed"]]
    values += [*line("realism", "mixed"), -lost["realism"]["mixed"]]
    if "mixed, soft labels" in own["realism"]["mean"]:
        text += "| the same, trained on the soft labels" + ROW + "({:+.2f} points) | "
        values += [*line("realism", "mixed, soft labels"), -lost["realism"]["mixed, soft labels"]]
    text += "| SimpleCNN: ours with the check of realism, nominal only" + ROW + "|"
    yield says(text, *values, *line("realism", "clean"))
