"""docs/evidence/ambiguity.md: how good generated ambiguous images are, and what classifiers make of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import getitem
from typing import Any

from scipy.stats import spearmanr

from claims import Claim, cells, find, record, rows, says

PAGE = "docs/evidence/ambiguity.md"
TABLE1 = "ambiguity/ambiguity-table1.json"
MEASURES = ("top-1", "top-2", "top-pair", "entropy")
PAPER = {
    "mnist": "| paper, nominal + ambiguous, mean of four networks | .53 | .98 | .95 | 1.22 | -.44 points |",
    "fashion_mnist": "| paper, nominal + ambiguous, mean of four networks | .51 | .94 | .87 | 1.33 | +.06 points |",
}
KINDS = {"blends": "blended", "cuts": "side by side", "real": "as they are"}
PAIRED = {"all": "any two classes", "confused": "natural neighbours"}
ROW = " | {:.3f} | {:.3f} | {:.3f} | {:.2f} | {:.4f} "


# Records of the flow, what is in them, and the record of the set that they are about.
VERSIONS = {
    "photos": ("the set of photographs", "photos"),
    "photos_training": ("networks that are asked about it or learn from it", "photos"),
    "photos_judges": ("its judges, one by one", "photos"),
    "photos_mixtures": ("its judges, on known mixtures", "photos"),
    "photos_before": ("an earlier set of photographs", "photos_before"),
    "photos_training_before": ("networks that learnt from that", "photos_before"),
    "photos_guidance": ("two short drawings of photographs", "photos_before"),
    "photos_settings": ("four short drawings of photographs", "photos_settings"),
    "clothes": ("the set of clothes", "clothes"),
    "clothes_judges": ("its judges, one by one", "clothes"),
    "clothes_training": ("networks that learn from it", "clothes"),
    "clothes_ranks": ("30 models by it and by other sets", "clothes"),
    "clothes_narrow": ("clothes made without a GPU, by the version before", "clothes_narrow"),
    "clothes_small": ("clothes made without a GPU", "clothes_small"),
    "mixtures": ("their judges, on known mixtures", "clothes_small"),
    "cats_dogs": ("the set of cats and dogs", "cats_dogs"),
}


def claims() -> Iterator[Claim]:
    """All of them."""
    yield versions()
    yield from photographs()
    yield from clothes()
    yield from clothes_on_a_processor()
    yield from mixtures(record("ambiguity/photos_mixtures.json"), "photographs", 300)
    yield from mixtures(record("ambiguity/mixtures.json"), "clothes", 200)
    yield from apart(*(record(f"ambiguity/{name}.json") for name in ("photos_mixtures", "mixtures")))
    yield from cats_and_dogs()
    yield from autoencoders()
    yield from pairs()
    for name in ("mnist", "fashion_mnist"):
        yield from table(name)
    yield realistic()
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


def _drawing(name: str) -> Any:
    """What a record has of a drawing: some have it below what was measured of its images."""
    kept = record(f"ambiguity/{name}.json")
    return kept.get("generation", kept)


def _version(name: str, what: str, made: str) -> tuple:
    """A line of the table: the record's own settings, or those of the set that it is about."""
    own, about = _drawing(name), _drawing(made)
    calibrated = "known shares" if "scale_of_shares" in about.get("card", {}) else "real images"
    judges = "fitted" if "pool" in {**own, **about, **about.get("card", {})} else "alike"
    guidance = own["settings"].get("guidance", about["settings"].get("guidance"))
    tried = [int(one) if one == int(one) else one for one in (guidance if isinstance(guidance, list) else [guidance])]
    line = f"| `{name}.json` | {what} | {own['commit'][:7]} | {calibrated} | {judges} | "
    return line + " and ".join(["{:g}"] * len(tried)) + " |", *tried


def versions() -> Claim:
    """Which version a record is of, and how it made the labels of its set."""
    digits = _drawing("digits_sure")["commit"][:7]
    return rows(
        *(_version(name, *about) for name, about in VERSIONS.items()),
        (f"| `digits_sure.json` | networks that are asked about AmbiGuess' digits | {digits} | | | |",),
    )


def photographs() -> Iterator[Claim]:
    """The flow on CIFAR-10."""
    kept = record("ambiguity/photos.json")
    made, card = kept["generation"], kept["generation"]["card"]
    judge, schedule = made["training"]["judge"], made["training"]["origin"]["schedule"]
    yield says(
        "{:,} steps of {} images, of {:,.0f} photographs, took {:.0f} seconds, compiling included, beside the training "
        "of the committee, and calibrating the judge {:.0f}.",
        schedule["steps"],
        schedule["batch_size"],
        card["train"]["images"] - judge["images"],
        *(made["training"]["seconds"][key] for key in ("training", "calibration")),
    )
    yield says(
        "gets {:.3f} of the {:,.0f} photographs that were kept back right in a cross-validation, with a log loss of "
        "{:.3f} nats, and hesitates (no class has more than .7) on {:.3f} of them.",
        *(judge[key] for key in ("accuracy", "images", "log_loss", "hesitates")),
    )
    yield from composed(card, made["drawing"]["seconds"])
    yield from aims(kept)
    yield from earlier(record("ambiguity/photos_before.json"), record("ambiguity/photos_training_before.json"))
    learnt = record("ambiguity/photos_training.json")
    yield from trained_on(learnt)
    yield from sure_of(learnt, record("ambiguity/digits_sure.json"))
    yield from answered(learnt)
    for row in record("ambiguity/photos_settings.json")["tried"]:
        yield says(
            f"| {row['guidance']:g} | {'rivals' if row['contrast'] else 'no class'} | {{}} | {{}} | {{:.1f}} |\n",
            row["passed"]["between"],
            row["passed"]["settled"],
            row["images_per_second"],
            provided=row["drawn"] == 1800 and row["steps"] == 16,
        )
    for row in record("ambiguity/photos_guidance.json")["tried"]:
        yield says(
            f"| {row['guidance']:g} | rivals, calibrated shares | {{}} | {{}} | {{:.1f}} | {{:.3f}} | {{:.3f}} |",
            row["passed"]["between"],
            row["passed"]["settled"],
            row["images_per_second"],
            *(row["realism"][kind][0] for kind in ("kernel", "kernel_of_plain_samples")),
            provided=row["drawn"] == 1800 and row["steps"] == 16 and row["contrast"] == 1,
        )
    yield from worth_of_labels(kept, record("ambiguity/photos_judges.json"))


def clothes() -> Iterator[Claim]:
    """The flow on Fashion-MNIST: natural neighbours."""
    kept, judges = record("ambiguity/clothes.json"), record("ambiguity/clothes_judges.json")
    card, judge = kept["card"], kept["training"]["judge"]
    passed, pairs = card["passed"], {tuple(row["pair"]): row["images"] for row in card["pairs"]}
    yield says(
        "{:,} steps of {} images with the preset `medium`; the judge, calibrated on {:,.0f} held-out images, is right "
        "about {:.3f} of them in a cross-validation (log loss {:.3f} nats).",
        *(kept["training"]["origin"]["schedule"][key] for key in ("steps", "batch_size")),
        *(judge[key] for key in ("images", "accuracy", "log_loss")),
    )
    yield says(
        "Of {:,} compositions of the {} most confusable pairs, {:,} lie between their classes to the judge, {:,} lean "
        "to neither, {} are agreed on by the committee, {} look real and {} stay undecided after all draws: one in "
        "{:.1f}.",
        card["drawn"],
        len(pairs),
        *(passed[check] for check in ("between", "ambiguous", "agreed", "real", "settled")),
        card["drawn"] / passed["settled"],
    )
    natural = [("Pullover", "Coat"), ("Coat", "Shirt"), ("T-shirt/top", "Shirt"), ("Pullover", "Shirt")]
    ten = {
        *natural, ("T-shirt/top", "Dress"), ("Trouser", "Dress"), ("Dress", "Coat"), ("Sandal", "Sneaker"),
        ("Sandal", "Ankle boot"), ("Sneaker", "Ankle boot"),
    }  # fmt: skip
    yield says(
        "Pullover and Coat {}, Coat and Shirt {}, T-shirt and Shirt {}, Pullover and Shirt {}, of which AmbiGuess "
        "makes none by the paper's rule; Trouser and Dress have the fewest of the ten, {}.",
        *(pairs[one] for one in natural),
        pairs["Trouser", "Dress"],
        provided=min(pairs[one] for one in ten) == pairs["Trouser", "Dress"] > 0,
    )
    unselected, real = kept["unselected"], card["realism"]
    yield says(
        "over that of plain samples | at most 1.5 | {:.2f} ({:.3f} over {:.3f}, with 95 % intervals of {:.3f} to "
        "{:.3f} and {:.3f} to {:.3f}) |",
        real["ratio"],
        real["kernel"][0],
        real["kernel_of_plain_samples"][0],
        *real["kernel"][1:],
        *real["kernel_of_plain_samples"][1:],
    )
    for text, value in {
        "over 600 unselected compositions | .8 to 1.2 | {:.2f} |": unselected["followed"],
        "half of the images, 2,000 steps | .8 to 1.2 | {:.2f} |": unselected["followed_by_second"],
        "entropy of the second judge's shares, in bits | .85 | {:.2f} |": kept["by_second"]["entropy_bits"],
        "rank correlation of its shares with the labels | .7 | {:.2f} |": kept["by_second"]["spearman"],
        "with the first judge's shares | | {:.2f} |": unselected["spearman_of_judges"],
    }.items():
        yield says(text, value)
    yield says(
        "is the weaker one ({:.3f} of {:,.0f} test images)",
        *(kept["second"]["judge"][key] for key in ("accuracy", "images")),
    )
    told, bare = judges["as_they_are"], judges["without_offsets"]
    yield says("the two differ by {:.2f} nats in the mean", judges["pairs"]["Sandal-Ankle boot"]["bias"])
    yield says(
        "the second judge finds {:.2f} bits, and its ranks correlate by {:.2f} with the first one's instead of {:.2f}.",
        bare["entropy_bits_of_second"],
        bare["spearman"],
        told["spearman"],
    )
    yield says(
        "{:.2f} for Pullover and Coat, {:.2f} for Pullover and Shirt, {:.2f} for Coat and Shirt, {:.2f} for T-shirt "
        "and Shirt, but {:.2f} for Dress and Coat and {:.2f} for Sandal and Ankle boot.",
        *(
            judges["pairs"][one]["spearman"]
            for one in (
                "Pullover-Coat",
                "Pullover-Shirt",
                "Coat-Shirt",
                "T-shirt/top-Shirt",
                "Dress-Coat",
                "Sandal-Ankle boot",
            )
        ),
    )
    yield says(
        "with {} images in {:.0f} seconds, on a GPU that other work kept busy, the pairs are not full, and the second "
        "judge was weaker than the first; it finds {:.2f} bits, where .85 were hoped for, and its ranks correlate by "
        "{:.2f} with the labels",
        card["images"],
        kept["drawing"]["seconds"],
        kept["by_second"]["entropy_bits"],
        kept["by_second"]["spearman"],
    )
    yield from ranked(record("ambiguity/clothes_ranks.json"))
    yield from neighbours(record("ambiguity/clothes_natural.json"))
    yield from clothes_learnt(record("ambiguity/clothes_training.json"))


def clothes_on_a_processor() -> Iterator[Claim]:
    """The present version on few clothes, with a small network, and the one before shares were calibrated."""
    kept, narrow = record("ambiguity/clothes_small.json"), record("ambiguity/clothes_narrow.json")
    card, unselected = kept["card"], kept["unselected"]
    pairs = {tuple(row["pair"]): row for row in card["pairs"]}
    full = [row for row in pairs.values() if row["images"] >= kept["settings"]["count"] / len(pairs)]
    hardest = pairs["Pullover", "Bag"]
    yield says(
        "{:,} steps of training took {:.0f} seconds, calibrating the judge {:.0f}, and drawing {} images of the {} "
        "most confusable pairs {:.0f}.",
        kept["settings"]["train_steps"],
        *(kept["training"]["seconds"][part] for part in ("training", "calibration")),
        card["images"],
        len(pairs),
        card["seconds"],
    )
    yield says(
        "One composition in {:.1f} is accepted, of Coat and Shirt {} of {}, of Pullover and Bag one in {:.0f}.",
        card["drawn"] / card["passed"]["settled"],
        pairs["Coat", "Shirt"]["settled"],
        pairs["Coat", "Shirt"]["drawn"],
        hardest["drawn"] / hardest["settled"],
        provided=len(full) == len(pairs) == 15
        and hardest["settled"] * max(row["drawn"] / row["settled"] for row in pairs.values()) == hardest["drawn"],
    )
    real = card["realism"]
    yield says(
        "at most 1.5 | {:.2f} (intervals overlap: {:.3f} to {:.3f} and {:.3f} to {:.3f}) |",
        real["ratio"],
        *real["kernel"][1:],
        *real["kernel_of_plain_samples"][1:],
    )
    aims = {
        "over the candidates of the drawing | .8 to 1.2 | {:.2f} | {:.2f} |": ("card", "dial", "followed"),
        "with a dial that the first judge taught alone | .8 to 1.2 | {:.2f} | {:.2f} |": ("unselected", "followed"),
        "seed and half of the images | .8 to 1.2 | {:.2f} | {:.2f} |": ("unselected", "followed_by_second"),
        "entropy of this second judge's shares, in bits | .85 | {:.2f} | {:.2f} |": ("by_second", "entropy_bits"),
        "their rank correlation with the labels | .7 | {:.2f} | {:.2f} |": ("by_second", "spearman"),
        "judge, asked again with other noise | | {:.2f} | {:.2f} |": ("asked_again", "spearman"),
    }
    for text, path in aims.items():
        yield says(text, *(reduce(getitem, path, one) for one in (kept, narrow)))
    yield says(
        "rank correlation of these two judges over unselected compositions | | {:.2f} | |",
        unselected["spearman_of_judges"],
    )
    yield says(
        "about equally accurate ({:.3f} and {:.3f} of the images",
        *(kept[name]["judge"]["accuracy"] for name in ("training", "second")),
    )


def mixtures(kept: Any, subject: str, images: int) -> Iterator[Claim]:
    """What judges make of images with known shares."""
    for kind in KINDS:
        for which in PAIRED:
            found = kept["kinds"][f"{kind}, {which}"]
            values = [
                found[who][key]
                for who in ("judge", "committee", "label")
                for key in ("cost_as_of_real_images", "cost", "scale")
            ]
            label = f"{subject} {KINDS[kind]}, {PAIRED[which]}"
            yield says(f"| {label} |" + " {:.2f} | {:.2f} | {:.2f} |" * 3, *values, provided=found["images"] == images)


def apart(photographs: Any, clothes: Any) -> Iterator[Claim]:
    """How far classes lie apart, the scales of shares, and the weights of judges."""
    values = [
        [*(kept["judge"]["separation"][share] for share in ("0", "1", "0.5"))]
        + [kept[who]["scale_of_shares"] for who in ("judge", "committee")]
        for kept in (photographs, clothes)
    ]
    yield says(
        "The photographs' classes lie {:.1f} to {:.1f} nats apart, half of them more than {:.1f}, and the scale is "
        "{:.2f} for the judge and {:.2f} for the committee; those of clothes lie {:.1f} to {:.1f} nats apart, half of "
        "them more than {:.1f}, with {:.2f} and {:.2f}. In the label of photographs the judge counts for {:.2f} and "
        "the committee for {:.2f}. For clothes weights of {:.2f} and {:.2f} were fitted by a version that was not "
        "committed yet; the labels of the set itself have the mean. By what the label of other cuts and real images "
        "costs, fitted weights are no better on photographs than equal ones: both cost {:.3f}.",
        *values[0],
        *values[1],
        *(kept["pool"][who] for kept in (photographs, clothes) for who in ("judge", "committee")),
        photographs["pool"]["cost"],
        provided=abs(photographs["pool"]["cost"] - photographs["pool"]["cost_alike"]) < 5e-4,
    )
    gains = [
        [
            one["label"]["cost_as_of_real_images"] / one["label"]["cost"]
            for kind, one in kept["kinds"].items()
            if kind[:4] != "real"
        ]
        for kept in (photographs, clothes)
    ]
    yield says(
        "divides what the label of mixtures costs by {:.0f} to {:.0f} (of photographs) and by {:.0f} to {:.0f} (of "
        "clothes);",
        *(function(one) for one in gains for function in (min, max)),
    )
    scales = {
        real: [
            one["label"]["scale"]
            for kept in (photographs, clothes)
            for kind, one in kept["kinds"].items()
            if kind.startswith("real") is real
        ]
        for real in (True, False)
    }
    yield says(
        "on mixtures alone the logits of the label would be multiplied by {:.2f} to {:.2f}, on real images by {:.1f} "
        "to {:.1f}.",
        *(function(scales[real]) for real in (False, True) for function in (min, max)),
    )


def ranked(kept: Any) -> Iterator[Claim]:
    """How the generators' sets rank models of clothes."""
    sets, models = kept["sets"], kept["models"]
    yield says(
        "were asked about four sets: {} images of the flow, {:,} of AmbiGuess, {:,} blends, and {} of a small AmbiGAN",
        *(sets[name]["images"] for name in ("flow", "ambiguess", "blends", "ambigan")),
        provided=len(models) == 30 and kept["training_images"] == 16000 and len({row["family"] for row in models}) == 6,
    )
    names = {"flow": "flow", "ambiguess": "AmbiGuess", "blends": "blends", "ambigan": "AmbiGAN"}
    for pair in kept["ranks"]:
        first, second = (names[one] for one in pair.split(" / "))
        both = [kept[part][pair]["all"] for part in ("ranks", "ranks_scaled")]
        yield says(
            f"| {first}, {second} | {{:.2f}} ({{:.2f}} to {{:.2f}}) | {{:.2f}} ({{:.2f}} to {{:.2f}}) |",
            *(one[key] for one in both for key in ("spearman", "low", "high")),
        )
    plain = [row for row in models if row["model"] == row["family"]]
    yield says(
        "are sure (more than 95 %) of {:.3f} of AmbiGuess' images, {:.3f} of the blends, {:.3f} of the flow's and "
        "{:.3f} of AmbiGAN's",
        *(
            sum(row[name]["sure"][0] for row in plain) / len(plain)
            for name in ("ambiguess", "blends", "flow", "ambigan")
        ),
        provided=len(plain) == 6,
    )
    scaled = {pair: found["all"] for pair, found in kept["ranks_scaled"].items()}
    order = sorted(scaled, key=lambda pair: scaled[pair]["spearman"])
    yield says(
        "Blends then agree best with AmbiGAN and with AmbiGuess, and the flow agrees least with AmbiGuess, but all of "
        "these differences are smaller than the intervals.",
        provided=order[0] == "flow / ambiguess"
        and set(order[-2:]) == {"blends / ambigan", "ambiguess / blends"}
        and max(one["low"] for one in scaled.values()) < min(one["high"] for one in scaled.values()),
    )


def neighbours(kept: Any) -> Iterator[Claim]:
    """Autoencoders of clothes by the paper's rule and by what is achievable."""
    rows = {tuple(row["pair"]): row for row in kept["pairs"]}
    none = [("Pullover", "Coat"), ("Pullover", "Shirt"), ("Coat", "Shirt")]
    yield says(
        "Of {} autoencoders of the {} most confusable pairs of Fashion-MNIST (four a pair, {} epochs) {} are accepted "
        'by the paper\'s rule and {} by `acceptance="achievable"`',
        sum(len(row["autoencoders"]) for row in rows.values()),
        len(rows),
        kept["settings"]["epochs"],
        *(sum(row[key] for row in rows.values()) for key in ("accepted_by_the_paper", "accepted")),
    )
    more = {tuple(row["pair"]): row for row in record("ambiguity/clothes_natural_more.json")["pairs"]}
    yield says(
        "one for pullover and shirt is accepted; of the others even the clear images do not reach the clusters, or "
        "their classes do not lie apart.",
        provided={pair: row["accepted"] for pair, row in more.items()}
        == {("Pullover", "Coat"): 0, ("Pullover", "Shirt"): 1, ("Coat", "Shirt"): 0}
        and {len(row["autoencoders"]) for row in more.values()} == {6},
    )
    own = rows["T-shirt/top", "Shirt"]
    yield says(
        "T-shirt and shirt have {} instead of none",
        own["accepted"],
        provided=own["accepted_by_the_paper"] == 0 == sum(rows[one]["accepted"] for one in none),
    )


def clothes_learnt(kept: Any) -> Iterator[Claim]:
    """What networks make of ambiguous clothes."""
    networks = kept["networks"]
    for name, network in (("ResNet-20", "resnet20"), ("VGG", "vgg"), ("ConvMixer", "convmixer")):
        both = [networks[network][kind] for kind in ("nominal", "mixed")]
        yield says(
            f"| {name}, one run | {{:.3f}} | {{:.3f}} | {{:.2f}} | {{:.2f}} | {{:.2f}} | {{:.2f}} |\n",
            *(one[key] for key in ("accuracy", "top_pair", "entropy_bits") for one in both),
        )
    bits = [one["mixed"]["entropy_bits"] for one in networks.values()]
    yield says("359 ambiguous images end with {:.2f} to {:.2f} bits", min(bits), max(bits))
    mass = [one["nominal"]["pair_mass"] for one in networks.values()]
    alike = round(max(mass), 2) == round(min(mass), 2)
    yield says("and give it {:.2f} of the probability. The", min(mass), provided=alike)
    mixed = next(row for row in kept["trainings"] if row["kind"] == "mixed")
    lost = [100 * one["accuracy_lost"] for one in networks.values()]
    yield says(
        "The {} ambiguous images cost {:.2f} to {:.2f} points of nominal accuracy, in one run.",
        mixed["learnt"] - 60000,
        min(lost),
        max(lost),
    )


def cats_and_dogs() -> Iterator[Claim]:
    """The flow at 64 pixels, and what a classifier says of its images."""
    kept = record("ambiguity/cats_dogs.json")
    made = kept["generation"]
    card, judge = made["card"], made["training"]["judge"]
    yield says(
        "{:,} steps of {} images on {:,} photographs",
        made["training"]["origin"]["schedule"]["steps"],
        made["training"]["origin"]["schedule"]["batch_size"],
        card["train"]["images"] - int(judge["images"]),
    )
    yield says(
        "The judge gets {:.3f} of {:.0f} held-out photographs right, with a log loss of {:.3f} nats, and hesitates "
        "(no class has more than .7) on {:.3f} of them.",
        *(judge[key] for key in ("accuracy", "images", "log_loss", "hesitates")),
    )
    yield says(
        "Of {:,} compositions {} passed every check, of which {} make the set.",
        card["drawn"],
        card["passed"]["settled"],
        card["images"],
    )
    yield says(
        "the judge finds {:.2f} bits in them; its shares correlate by {:.2f} with the labels",
        made["asked_again"]["entropy_bits"],
        made["asked_again"]["spearman"],
    )
    yield says("The logit of the share grows by {:.2f} for one of the dial.", card["dial"]["followed"])
    yield says(
        "the kernel distance is {:.3f} instead of {:.3f}.",
        kept["realism"]["kernel"][0],
        kept["realism"]["kernel_of_plain_samples"][0],
    )
    (model,) = kept["models"]
    yield says(
        "A ResNet-20 with an accuracy of {:.3f} on 1,000 test images is sure (more than 95 %) of {:.2f} of them, after "
        "temperature scaling of {:.2f}, and of {:.2f} of real test photographs.",
        model["accuracy"],
        *(model[kind]["sure"][0] for kind in ("ambiguous", "ambiguous_scaled", "clear")),
    )


def composed(card: Any, whole: float) -> Iterator[Claim]:
    """How many candidates came through which check; a drawing took `whole` seconds."""
    passed, pairs = card["passed"], {"-".join(row["pair"]): row for row in card["pairs"]}
    yield says(
        "Of {:,} compositions of all {} pairs, {:,} of them near misses that were composed anew, {:,} were not lost to "
        "a third class; {:,} of these lean to neither class, the judges agree on {:,}, of which {:,} look as real as "
        "plain samples, and {:,} stay undecided after 40 draws of noise: one in {:.1f}, in {:.0f} seconds",
        card["drawn"],
        len(pairs),
        card["again"],
        *(passed[check] for check in ("between", "ambiguous", "agreed", "real", "settled")),
        card["drawn"] / passed["settled"],
        card["seconds"],
    )
    one_in = {name: row["drawn"] / row["settled"] for name, row in pairs.items()}
    yield says(
        "All {} pairs are full, with {} images each. Of automobile and ship one composition in {:.1f} is accepted, of "
        "cat and dog one in {:.1f}, of frog and horse, the hardest, one in {:.0f}.",
        len(pairs),
        min(row["images"] for row in pairs.values()),
        *(one_in[name] for name in ("automobile-ship", "cat-dog", "frog-horse")),
        provided=len({row["images"] for row in pairs.values()}) == 1 and one_in["frog-horse"] == max(one_in.values()),
    )
    yield says(
        "pairs with 200 images | 40 of 45 | {} |",
        sum(row["images"] >= 200 for row in pairs.values()),
        provided=len(pairs) == 45,
    )
    yield says(
        "of all rounds of the drawing | 60 seconds | {:.0f} seconds, with what comes before and after them {:.0f} |",
        1000 * card["seconds"] / card["images"],
        1000 * whole / card["images"],
    )


def aims(kept: Any) -> Iterator[Claim]:
    """What was wanted of photographs, and what was reached."""
    made, real = kept["generation"], kept["realism"]
    yield says("training, on one H200 | 10 minutes | {:.0f} seconds |", made["training"]["seconds"]["training"])
    yield says(
        "to training photographs, for one of plain samples | at most 1.5 | {:.2f} ({:.3f} over {:.3f}, with 95 % "
        "intervals of {:.3f} to {:.3f} and {:.3f} to {:.3f}) |",
        real["ratio"],
        real["kernel"][0],
        real["kernel_of_plain_samples"][0],
        *real["kernel"][1:],
        *real["kernel_of_plain_samples"][1:],
    )
    yield says(
        "are as strongly guided as the compositions ({:.1f}). How far either is",
        made["settings"]["guidance"],
        provided=made["card"]["settings"]["guidance"] == made["settings"]["guidance"],
    )
    yield says(
        "by the network that took part in the selection, with 500 other plain samples, the ratio is {:.2f}. {:.3f} of "
        "the images are as near to real ones",
        made["card"]["realism"]["ratio"],
        real["as_real_as_plain_samples"],
        provided=record("ambiguity/cats_dogs.json")["realism"]["as_real_as_plain_samples"] > 0.99,
    )
    near = real["nearest_training_image"]
    yield says(
        "The nearest of 20,000 training images is {:.3f} away in the median (root mean square over the pixels), that "
        "of plain samples {:.3f} and of real test photographs {:.3f}, the nearest hundredth {:.3f}, {:.3f} and {:.3f}.",
        *(near[kind][part] for part in ("median", "1%") for kind in ("ambiguous", "plain", "test")),
    )
    unselected, second, again = (made[name] for name in ("unselected", "by_second", "asked_again"))
    for text, value in {
        "over fresh candidates of the drawing | .8 to 1.2 | {:.2f} |": made["card"]["dial"]["followed"],
        "over 600 unselected compositions, whose dial the first judge taught alone | .8 to 1.2 | {:.2f} |": (
            unselected["followed"]
        ),
        "half of the photographs, 3,000 steps | .8 to 1.2 | {:.2f} |": unselected["followed_by_second"],
        "entropy of the second judge's shares of photographs, in bits | .85 | {:.2f} |": second["entropy_bits"],
        "rank correlation of these shares with the labels | .7 | {:.2f} |": second["spearman"],
        "when it is asked again with other noise | | {:.2f} |": again["spearman"],
        "of both judges over unselected compositions | | {:.2f} |\n|": unselected["spearman_of_judges"],
    }.items():
        yield says(text, value)
    card = made["card"]
    yield says(
        "unselected compositions, which are led away from no class and have passed no check, follow what is asked of "
        "them by {:.2f} for one before the dial has learnt it, and near misses that are composed anew by {:.2f}, where "
        "fresh candidates follow by {:.2f} in the range of labels.",
        unselected["dial_slope"],
        card["dial_again"]["slope"],
        card["dial"]["slope"],
    )


def earlier(kept: Any, learnt: Any) -> Iterator[Claim]:
    """What a run of an earlier version had reached."""
    made, networks = kept["generation"], learnt["networks"].values()
    tops = [one["mixed"]["top_pair"] for one in networks]
    yield says(
        "had ended with {} full pairs, a rank correlation of {:.2f}, a dial of {:.2f} by the second judge and the pair "
        "on top of {:.2f} to {:.2f}; it drew for {:.0f} seconds beside trainings, its second judge learnt for {:,} "
        "steps, both judges counted alike, and the networks learnt from {:,} images for {} epochs.",
        sum(row["images"] >= 200 for row in made["card"]["pairs"]),
        made["by_second"]["spearman"],
        made["unselected"]["followed_by_second"],
        min(tops),
        max(tops),
        made["card"]["seconds"],
        made["second"]["origin"]["schedule"]["steps"],
        next(row["learnt"] for row in learnt["trainings"] if row["kind"] == "mixed") - 50_000,
        learnt["settings"]["epochs"],
    )


def worth_of_labels(kept: Any, judges: Any) -> Iterator[Claim]:
    """What a second judge has to say of labels."""
    made = kept["generation"]
    judge, second = made["second"]["judge"], made["by_second"]
    yield says(
        "it gets {:.3f} of a thousand test images right (log loss {:.3f}).",
        judge["accuracy"],
        judge["log_loss"],
        provided=judge["images"] == 1000,
    )
    yield says(
        "its answers have {:.2f} bits in the mean then, as shares {:.2f}.",
        second["entropy_bits_as_of_real_images"],
        second["entropy_bits"],
    )
    yield says(
        "agrees better with the first one (rank correlation {:.2f}) than with the committee ({:.2f}), whose logits "
        "scatter more (standard deviation {:.2f} instead of {:.2f};",
        judges["judge"]["spearman"],
        judges["committee"]["spearman"],
        judges["committee"]["std"],
        judges["judge"]["std"],
    )
    pool, steps = made["card"]["pool"], [made[who]["origin"]["schedule"]["steps"] for who in ("training", "second")]
    yield says(
        "The second judge has seen half of the photographs for three quarters as long",
        provided=4 * steps[1] == 3 * steps[0],
    )
    yield says(
        "In the label the first judge counts for {:.2f} and the committee for {:.2f}.", pool["judge"], pool["committee"]
    )
    weighed = {row["weight"]: row["spearman"] for row in judges["weighed"]}
    yield says(
        "With equal weights the labels of the same images would correlate by {:.2f} with the second judge's shares "
        "instead of {:.2f}, with a quarter for the committee by {:.2f}: the committee costs agreement",
        weighed[0.5],
        judges["label"]["spearman"],
        weighed[0.75],
    )
    names = [name for name, _ in sorted(judges["pairs"].items(), key=lambda one: one[1]["label"])]
    yield says(
        "By pair, where there are 20 images or more, the labels agree by {:.2f} (bird and cat) to {:.2f} (cat and "
        "ship).",
        *(judges["pairs"][names[place]]["label"] for place in (0, -1)),
        provided=(names[0], names[-1]) == ("2-3", "3-8"),
    )
    yield says(
        "The rank correlation with the labels is {:.3f}, with a 95 % interval of {:.2f} to {:.2f} over {:,} images.",
        judges["label"]["spearman"],
        *judges["label"]["interval"],
        judges["images"],
    )


def sure_of(photographs: Any, digits: Any) -> Iterator[Claim]:
    """How sure networks of three families are of ambiguous photographs and of AmbiGuess' digits."""
    for label, name in {"ResNet-20": "resnet20", "VGG": "vgg", "ConvMixer": "convmixer"}.items():
        values = []
        for kept in (photographs, digits):
            (row,) = (one for one in kept["trainings"] if (one["network"], one["kind"]) == (name, "nominal"))
            values += [row[kind]["sure"] for kind in ("ambiguous", "ambiguous_scaled", "blends", "clear")]
        yield says(f"| ordinary {label} |" + " {:.2f} |" * 8, *values)
    networks = {"resnet20", "vgg", "convmixer"}
    surest = [
        max(
            row["ambiguous"]["sure"]
            for row in kept["trainings"]
            if row["kind"] == "nominal" and row["network"] in networks
        )
        for kept in (photographs, digits)
    ]
    yield says(
        "The surest of these three answers {:.2f} of its ambiguous photographs, and {:.2f} of its ambiguous digits, "
        "with more than 95 % confidence.",
        *surest,
    )
    masses = [one["nominal"]["pair_mass"] for one in photographs["networks"].values()]
    yield says("they give the pair of the photographs {:.2f} of their probability.", sum(masses) / len(masses))
    (asked,) = {row["asked"] for row in digits["trainings"] if row["kind"] == "nominal"}
    yield says("The digits are {:,} of 2,000 images of AmbiGuess", asked)


def answered(kept: Any) -> Iterator[Claim]:
    """What classifiers say that were trained on nominal images."""
    models = {(row["network"], row["kind"]): row for row in kept["trainings"] if row["kind"] != "mixed"}
    families = {
        "VGG": "vgg",
        "ResNet-20": "resnet20",
        "wide ResNet-20": "resnet20_wide",
        "ConvMixer": "convmixer",
        "DenseNet-22": "densenet22",
        "ResNet-8": "resnet8",
    }
    kinds = {"": "nominal", " without augmentation": "raw", " with label smoothing": "smooth", " with mixup": "mixup"}
    named = dict.fromkeys(families, "nominal") | {"VGG without augmentation": "raw"}
    named |= {f"ResNet-20{words}": kind for words, kind in kinds.items()}
    for label, kind in named.items():
        row = models[families[label.removesuffix(next(w for w, k in kinds.items() if k == kind))], kind]
        sure = (row[asked]["sure"] for asked in ("ambiguous", "ambiguous_scaled", "blends", "clear"))
        yield says(f"\n| {label} | {{:.3f}} | {{:.2f}} | {{:.2f}} | {{:.2f}} | {{:.2f}} |", row["accuracy"], *sure)
    yield says("was shown to {} more classifiers", len(models) - 3, provided=kept["models"] == len(models))
    ranks, scaled = kept["ranks"]["sure"], kept["ranks"]["sure_scaled"]
    clear, before = _agreement_with_test_images(models), record("ambiguity/photos_training_before.json")
    yield says(
        "The ranking of the {} models by this share agrees with that on blends (Spearman {:.2f}, 95 % interval {:.2f} "
        "to {:.2f}; among nine ResNets {:.2f}) and with that on test images ({:.2f}), and after scaling less so "
        "({:.2f}, {:.2f} to {:.2f}; {:.2f}):",
        len(models),
        *(ranks["all"][part] for part in ("spearman", "low", "high")),
        ranks["resnet"]["spearman"],
        clear[""],
        *(scaled["all"][part] for part in ("spearman", "low", "high")),
        clear["_scaled"],
        provided=ranks["all"]["models"] == len(models) and ranks["resnet"]["models"] == 9,
    )
    yield says(
        "The {} models of the earlier run agreed by {:.2f} and, after scaling, by {:.2f} ({:.2f} to {:.2f}).",
        before["models"],
        before["ranks"]["sure"]["all"]["spearman"],
        *(before["ranks"]["sure_scaled"]["all"][part] for part in ("spearman", "low", "high")),
    )
    yield from humble(models)


def _agreement_with_test_images(models: Any) -> dict[str, float]:
    """Spearman's correlation of the models' sureness of ambiguous photographs and of test images."""
    return {
        suffix: spearmanr(
            *([row[f"{images}{suffix}"]["sure"] for row in models.values()] for images in ("ambiguous", "clear"))
        ).statistic
        for suffix in ("", "_scaled")
    }


def _ratios(models: Any, kind: str) -> list[float]:
    """How many ambiguous photographs networks of a kind are sure of after scaling, for one of ordinary networks."""
    sure = {one: row["ambiguous_scaled"]["sure"] for one, row in models.items()}
    return sorted(sure[one] / sure[one[0], "nominal"] for one in sure if one[1] == kind)


def humble(models: Any) -> Iterator[Claim]:
    """What augmentation, label smoothing and mixup make of a network's sureness."""

    def sure(network: str, kind: str) -> float:
        return models[network, kind]["ambiguous"]["sure"]

    more = [sure(one, "raw") - sure(one, "nominal") for one in ("densenet22", "resnet8")]
    raw = _ratios(models, "raw")
    yield says(
        "Without augmentation ResNet-20, VGG and ConvMixer are sure of about half, ResNet-8 and DenseNet-22 of {:.2f} "
        "to {:.2f} more than with it; after scaling all five are a little less sure than with it.",
        *more,
        provided=all(0.45 < sure(one, "raw") < 0.55 for one in ("resnet20", "vgg", "convmixer"))
        and len(raw) == 5
        and 0.75 < raw[0] < raw[-1] < 1,
    )
    smooth, mixup = _ratios(models, "smooth"), _ratios(models, "mixup")
    before = {
        (row["network"], row["kind"]): row
        for row in record("ambiguity/photos_training_before.json")["trainings"]
        if row["kind"] != "mixed"
    }
    earlier = [_ratios(before, kind) for kind in ("smooth", "mixup")]
    yield says(
        "networks with label smoothing are sure of {:.2f} to {:.2f} times as many as ordinary ones, the two with mixup "
        "of {:.2f} and {:.2f} times as many.",
        smooth[0],
        smooth[-1],
        *mixup,
        provided=len(smooth) == 5,
    )
    yield says(
        "in the earlier run all five networks with smoothing had {:.2f} to {:.2f}, all five with mixup {:.2f} to "
        "{:.2f}.",
        *(edge for one in earlier for edge in (one[0], one[-1])),
        provided=[len(one) for one in earlier] == [5, 5],
    )


def trained_on(kept: Any) -> Iterator[Claim]:
    """What networks learn from ambiguous photographs."""
    found = kept["networks"]
    for label, name in {"ResNet-20": "resnet20", "VGG": "vgg", "ConvMixer": "convmixer"}.items():
        values = [
            found[name][kind][key] for key in ("accuracy", "top_pair", "entropy_bits") for kind in ("nominal", "mixed")
        ]
        yield says(f"| {label}, 20 epochs | {{:.3f}} | {{:.3f}} | {{:.2f}} | {{:.2f}} | {{:.2f}} | {{:.2f}} |", *values)
    (learnt,) = {row["learnt"] for row in kept["trainings"] if row["kind"] == "mixed"}
    lost = [100 * one["accuracy_lost"] for one in found.values()]
    yield says(
        "{:,} ambiguous images, 100 of each pair, cost one network {:.2f} points of accuracy and give another {:.2f}:",
        learnt - 50_000,
        max(lost),
        -min(lost),
        provided=kept["settings"]["epochs"] == 20,
    )
    tops, bits, masses = (
        [one["mixed"][key] for one in found.values()] for key in ("top_pair", "entropy_bits", "pair_mass")
    )
    yield says("trained on half of them: pair on top | .80 | {:.2f} to {:.2f} |", min(tops), max(tops))
    yield says("their entropy, in bits | .85 | {:.2f} to {:.2f} |", min(bits), max(bits))
    yield says("their probability of the pair | .90 | {:.2f} to {:.2f} |", min(masses), max(masses))
    yield says("this costs them | at most .3 points | {:.2f} to {:.2f} points |", min(lost), max(lost))


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
    learnt = record("ambiguity/mnist.json")["realism"]["card_training"]["pairs"]
    made = [pair for pair in clothes if pair["accepted"]]
    yield says(
        "Of the {} pairs of digits the check drops {} from the test set ({} from the training set), among them 1-7, "
        "of which {:.0f} % of the images pass",
        len(digits),
        *(sum(not pair["images"] for pair in card) for card in (digits, learnt)),
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


def realistic() -> Claim:
    """What the check of realism does to the means of four networks."""
    kept = cells(TABLE1)

    def change(name: str, column: str) -> float:
        both = (f"{name}, {kind}, mean of four: mixed, ambiguous" for kind in ("ambiguess", "ambiguess, realistic"))
        before, after = (kept[row, column]["value"] for row in both)
        return after - before

    return says(
        "The check of realism lowers top-pair accuracy a little on MNIST and raises it much on Fashion-MNIST; entropy "
        "falls on both.",
        provided=-0.05 < change("mnist", "top-pair") < 0
        and change("fashion_mnist", "top-pair") > 0.1
        and max(change(name, "entropy") for name in ("mnist", "fashion_mnist")) < 0,
    )


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
