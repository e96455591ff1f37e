"""docs/evidence/reproduction_details.intro.txt: what of the papers' tables came out again, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from statistics import mean, median, stdev
from typing import Any

from claims import ROOT, Claim, _networks, cells, find, record, says
from claims._hubris import hubris
from claims._tables import CLOSE, close, compared, lines_of_study, published
from claims.adversarial import softmax_gaps
from claims.search import aurocs, over, pools

PAGE = "docs/evidence/reproduction_details.intro.txt"
SHARES = ("0.05", "0.10", "0.20", "0.33", "0.50", "0.70")
ORDERED = ("max_softmax", "pcs", "entropy", "deep_gini")


def both_ways(kept: Any) -> Iterator[Claim]:
    """The same networks, attacked through their logits and through the softmax."""
    networks, gaps = kept["rows"], softmax_gaps(kept)
    found = kept["differences"]
    yield says(
        "both ways on the same {:,} images",
        kept["settings"]["images"],
        provided=sorted((row["data"], row["network"]) for row in networks)
        == sorted(2 * list(product(("mnist", "fashion_mnist"), ("simple_cnn", "fully_connected")))),
    )
    yield says(
        "the four softmax scores have an AUROC that is {:.2f} to {:.2f} larger, {:.2f} in the median, with every one "
        "of the {} networks; that of LSA and MDSA is {:.2f} smaller in the median, that of DSA {:.2f} larger.",
        gaps[0],
        gaps[2],
        gaps[1],
        len(networks),
        -found["lsa"]["median"],
        found["dsa"]["median"],
        provided=gaps[0] > 0 and round(found["lsa"]["median"], 2) == round(found["mdsa"]["median"], 2),
    )
    sure = [median(row["ways"][way]["mean_confidence"] for row in networks) for way in ("softmax", "logits")]
    yield says("the mean confidence is {:.2f} instead of {:.2f}. Table 2 itself", *sure)


def claims() -> Iterator[Claim]:
    """All of them, paper by paper."""
    yield from provenance()
    yield from ambiguity_table1()
    yield from ambiguity_table2()
    yield from orders()
    yield from orders_of_digits()
    yield from orders_of_clothes()
    yield from boundaries()
    yield from boundaries_of_digits()
    yield from boundaries_of_clothes()
    yield from most_ambiguous_tests()
    yield from surprise()
    yield from oracles()
    yield from oracles_elsewhere()
    yield from oracles_on_photographs()
    yield from oracles_retrained()
    yield from oracles_several()
    yield from oracles_of_photographs()
    yield from hubris()
    yield from search()
    yield from mixtures()


def provenance() -> Iterator[Claim]:
    """What records say of how they were made."""
    names = sorted(path.relative_to(ROOT / "results").as_posix() for path in (ROOT / "results").rglob("*.json"))

    def without(*keys: str) -> list[str]:
        return [name for name in names if any(record(name).get(key) in (None, "") for key in keys)]

    yield says(
        "{} older ones lack some of these: {} the commit, {} the seconds, {} the settings, {} the command (most of "
        "these name their script), {} the hardware;",
        len(without("command", "commit", "hardware", "versions", "settings", "seconds")),
        *(len(without(key)) for key in ("commit", "seconds", "settings", "command", "hardware")),
        provided=sum("script" in record(name) for name in without("command")) > len(without("command")) / 2,
    )


def ambiguity_table1() -> Iterator[Claim]:
    """How many cells came out, and where ours differ."""
    lines = compared("ambiguity-table1")

    def some(generator: str, images: str, *, entropy: bool) -> tuple[int, int]:
        return close(
            [
                line
                for line in lines
                if f", {generator}," in line.row and line.row.endswith(images) and (line.column == "entropy") == entropy
            ]
        )

    table2 = [line for line in compared("ambiguity-table2") if not line.paper.unreliable]
    right, total = close(lines)
    yield says(
        "Of the {} cells of Table 1 {} are within .05 of the paper's, of the trusted cells of Table 2 {} of {}.",
        total,
        right,
        *close(table2),
    )
    nominal = some("ambiguess", "nominal", entropy=False)
    yield says(
        "all {} on nominal images and {} of {} on its ambiguous ones. Entropies of ambiguous images did not "
        "({} of {}), nor did the rival's images ({} of {} accuracies, {} of {} entropies).",
        nominal[1],
        *some("ambiguess", "ambiguous", entropy=False),
        *some("ambiguess", "ambiguous", entropy=True),
        *some("latent mixture", "ambiguous", entropy=False),
        *some("latent mixture", "ambiguous", entropy=True),
        provided=nominal[0] == nominal[1],
    )
    known = {(line.row, line.column): line for line in lines}

    def both(row: str, column: str) -> tuple[float, float]:
        line = known[row, column]
        return line.ours.value, line.paper.value

    four = "mnist, ambiguess, mean of four: mixed, ambiguous"
    yield says(
        "networks put both classes on top for {:.0f} % of those of MNIST, and one of them first for about "
        "half; DenseNet and ResNet50 that never saw ambiguity are sure about them (entropy {:.2f} and {:.2f} "
        "bits), wrongly.",
        100 * both(four, "top-pair")[0],
        *(both(f"mnist, ambiguess, {net}: clean, ambiguous", "entropy")[0] for net in ("densenet_se", "resnet50")),
        provided=abs(both(four, "top-1")[0] - 0.5) < CLOSE,
    )
    clothes = "fashion_mnist, ambiguess, {}: mixed, ambiguous"
    yield says(
        "(top-pair {:.2f} against {:.2f}), FullyConnected most of all ({:.2f} against {:.2f}). They are not surer "
        "(entropy {:.2f} against {:.2f} bits)",
        *both(clothes.format("mean of four"), "top-pair"),
        *both(clothes.format("fully_connected"), "top-pair"),
        *both(clothes.format("mean of four"), "entropy"),
    )
    after = [
        (line.row.split(", ")[2].split(":")[0], line.column)
        for line in lines
        if line.row.startswith("fashion_mnist, ambiguess,")
        and "clean, ambiguous" in line.row
        and line.column != "entropy"
        and abs(line.difference) > CLOSE + 1e-9
    ]
    yield says(
        "After clean training all accuracies but FullyConnected's top-1 and top-2 are within .05.",
        provided=after == [("fully_connected", "top-1"), ("fully_connected", "top-2")],
    )
    rival = "mnist, latent mixture, mean of four: mixed, ambiguous"
    own = both(four, "entropy")
    yield says(
        "(top-1 {:.2f} against {:.2f}, entropy {:.2f} against {:.2f} bits, where AmbiGuess has {:.2f} and {:.2f})",
        *both(rival, "top-1"),
        *both(rival, "entropy"),
        *own,
    )
    mixture = find(record("ambiguity/sets.json")["sets"], data="mnist", generator="latent mixture")["test"]
    yield says("Ten draws from a label of ours have {:.2f} bits on average", mixture["entropy_bits_of_ten_draws"])


def ambiguity_table2() -> Iterator[Claim]:
    """What the means over networks hide."""
    kept = cells("ambiguity/ambiguity-table2.json")

    def value(name: str, network: str, column: str) -> float:
        return kept[f"{name}, {network}", column]["value"]

    others = ("simple_cnn", "densenet_se", "resnet50")
    attacks, invalid = (
        [value("max_softmax", network, f"mnist: {kind}") for network in others] for kind in ("adversarial", "invalid")
    )
    yield says(
        "its softmax sees neither attacks ({:.2f}) nor invalid images ({:.2f}), where the other three have "
        "{:.2f} to {:.2f} and {:.2f} to {:.2f}:",
        value("max_softmax", "fully_connected", "mnist: adversarial"),
        value("max_softmax", "fully_connected", "mnist: invalid"),
        min(attacks),
        max(attacks),
        min(invalid),
        max(invalid),
    )
    yield says(
        "holds for SimpleCNN (MDSA {:.2f} and {:.2f}) and FullyConnected, not for ResNet50, where MDSA has {:.2f} and "
        "{:.2f} (and LSA only {:.2f} and {:.2f}).",
        *(
            value(name, network, f"{data}: ambiguous")
            for name, network in (("mdsa", "simple_cnn"), ("mdsa", "resnet50"), ("lsa", "resnet50"))
            for data in ("mnist", "fashion_mnist")
        ),
        provided=all(
            value("mdsa", "fully_connected", f"{data}: ambiguous") < 0.2 for data in ("mnist", "fashion_mnist")
        ),
    )
    attacked = [line.difference for line in compared("ambiguity-table2") if line.column.endswith("adversarial")]
    yield says(
        "Adversarial images are found more easily, in {} of {} cells and by {:.2f} in the median.",
        sum(value > 0 for value in attacked),
        len(attacked),
        median(attacked),
    )
    yield from both_ways(record("adversarial/softmax.json"))
    ensembles = [
        line.difference
        for line in compared("ambiguity-table2")
        if line.row.startswith("ensemble") and line.column.startswith("mnist")
    ]
    yield says("Ensembles are up to {:.2f} below the paper on MNIST", -min(ensembles))


def orders() -> Iterator[Claim]:
    """Which images come first, with ambiguous ones among them."""
    kept, about = cells("photos/orders.json"), record("photos/orders.json")["settings"]
    value = {key: cell["value"] for key, cell in kept.items()}
    mine, nominal, tested = "cifar10_resnet20", "APFD, nominal", "APFD, for testing"
    share = about["ambiguous"] / (about["images"] + about["ambiguous"])
    best = {column: value[f"{mine}, (best order)", column] for column in (nominal, tested, "APFD, for learning")}
    wrong = 2 * (1 - best[nominal]) * about["images"]  # the best order has an APFD of 1 - k/2n
    yield says(
        "On {:,} test photographs of CIFAR-10 with {:,} ambiguous ones of the flow among them (the record gives their "
        "number alone; the set that `results/ambiguity/photos.json` describes is another one, of {:,}), a ResNet-20 "
        "answers {:.0f} of the former wrongly",
        about["images"],
        about["ambiguous"],
        record("ambiguity/photos.json")["images"]["count"],
        wrong,
    )
    names = [row.split(", ")[1] for row, column in kept if column == tested and row.startswith(mine) and "(" not in row]
    first = f"{mine}, max_softmax"
    yield says(
        "APFD {:.3f} ± {:.3f}, where .5 is chance and {:.3f} the best there can be.",
        value[first, nominal],
        value[first, "± 95 %"],
        best[nominal],
        provided=value[first, nominal] == max(value[f"{mine}, {name}", nominal] for name in names),
    )
    softmax = [value[f"{mine}, {name}", tested] for name in ("max_softmax", "pcs", "entropy", "deep_gini")]
    yield says(
        "max softmax, PCS, entropy and DeepGini all have {:.2f} then (at best {:.3f}).",
        mean(softmax),
        best[tested],
        provided=len({f"{one:.2f}" for one in softmax}) == 1
        and min(softmax) >= max(value[f"{mine}, {name}", tested] for name in names if name not in ORDERED),
    )
    yield says(
        "entropy has {:.3f} (at best {:.3f}).",
        value[f"{mine}, entropy", "APFD, for learning"],
        best["APFD, for learning"],
        provided=f"{value[f'{mine}, entropy', 'APFD, for learning']:.3f}"
        == f"{max(value[f'{mine}, {name}', 'APFD, for learning'] for name in names):.3f}",
    )
    good = [name for name in names if value[f"{mine}, {name}", nominal] > 0.8]
    shares = [100 * value[f"{mine}, {name}", "ambiguous in the first tenth"] for name in good]
    yield says(
        "{:.0f} to {:.0f} % are ambiguous with every score that brings mistakes well (APFD above .8), where {:.0f} % "
        "of all images are.",
        min(shares),
        max(shares),
        100 * share,
    )
    # The best order for learning has an APFD of 1 - k/2n for k faults among all n images, `wrong` of them test images.
    faults = 2 * (1 - best["APFD, for learning"]) * (about["images"] + about["ambiguous"])
    yield says(
        "the network names an impossible class for only {:.0f} of the {:,} ambiguous images.",
        faults - wrong,
        about["ambiguous"],
    )


def orders_of_digits() -> Iterator[Claim]:
    """The same on MNIST."""
    kept, about = cells("ambiguity/ambiguity-orders.json"), record("ambiguity/ambiguity-orders.json")["settings"]
    found = {
        name: (kept[f"mnist, {name}", "APFD, nominal"]["value"], kept[f"mnist, {name}", "ambiguous in the first tenth"])
        for name in ("entropy", "mdsa")
    }
    learning = {row.partition(", ")[2]: cell["value"] for (row, column), cell in kept.items() if "learning" in column}
    yield says(
        "SimpleCNNs that learnt from {:,} images for {} epochs, {:,} test images, and ambiguous ones of AmbiGuess "
        "among them): entropy has an APFD of {:.2f} for the mistakes and {:.0f} % ambiguous images in "
        "its first tenth, MDSA {:.2f} and {:.0f} %. For learning DSA is best there, with {:.2f} (entropy "
        "{:.2f}, at best {:.2f}).",
        about["train"],
        about["epochs"],
        about["test"],
        *(part for value, first in found.values() for part in (value, 100 * first["value"])),
        *(learning[name] for name in ("dsa", "entropy", "(best order)")),
        provided=about["runs"] == 2 and learning["dsa"] == sorted(learning.values())[-2],
    )


def orders_of_clothes() -> Iterator[Claim]:
    """The same on Fashion-MNIST."""
    kept, about = cells("ambiguity/fashion-orders.json"), record("ambiguity/fashion-orders.json")["settings"]
    digits = record("ambiguity/ambiguity-orders.json")["settings"]
    value = {(row.partition(", ")[2], column): cell["value"] for (row, column), cell in kept.items()}
    first = {name: 100 * share for (name, column), share in value.items() if column == "ambiguous in the first tenth"}
    nominal, testing, learning = (
        {name: found for (name, of), found in value.items() if of == f"APFD, {column}"}
        for column in ("nominal", "for testing", "for learning")
    )
    same = ("epochs", "train", "test", "learnt", "supervisors", "architecture")
    yield says(
        "the same with five SimpleCNNs, which are right on {:.2f} of {:,} test images of Fashion-MNIST; {:.0f} % of "
        "all images are ambiguous).",
        value["", "right on nominal images"],
        about["test"],
        100 * value["", "ambiguous, of all images"],
        provided=about["runs"] == 5 and all(about[key] == digits[key] for key in same),
    )
    yield says(
        "Max softmax has an APFD of {:.2f} there (at best {:.2f}) and {:.0f} % ambiguous images in its first tenth, "
        "entropy {:.2f} and {:.0f} %, MDSA {:.2f} and {:.0f} %.",
        nominal["max_softmax"],
        nominal["(best order)"],
        first["max_softmax"],
        *(part for name in ("entropy", "mdsa") for part in (nominal[name], first[name])),
        provided=nominal["max_softmax"] == sorted(nominal.values())[-2],
    )
    softmax = [testing[name] for name in ORDERED]
    yield says(
        "For testing the four softmax scores lead again, all with {:.2f} (at best {:.2f}).",
        mean(softmax),
        testing["(best order)"],
        provided=sorted(softmax) == sorted(testing.values())[-5:-1] and len({f"{one:.2f}" for one in softmax}) == 1,
    )
    yield says(
        "For learning all are nearer to chance than to the best: DSA has {:.2f}, MDSA {:.2f}, entropy {:.2f} "
        "(at best {:.2f}).",
        *(learning[name] for name in ("dsa", "mdsa", "entropy", "(best order)")),
        provided=[learning["dsa"], learning["mdsa"]] == sorted(learning.values())[-2:-4:-1]
        and learning["dsa"] - 0.5 < learning["(best order)"] - learning["dsa"],
    )


def boundaries_of_digits() -> Iterator[Claim]:
    """The same on MNIST, and what a network learns from."""
    kept, about = cells("ambiguity/ambiguity-boundary.json"), record("ambiguity/ambiguity-boundary.json")["settings"]
    value = {column: cell["value"] for (row, column), cell in kept.items() if row == "mnist"}
    yield says(
        "for {} epochs) {:.2f} of the ambiguous images lie at the frontier and {:.2f} of the test images, of which "
        "{:.2f} are answered wrongly, against {:.3f} of the others; {:.2f} of {:.0f} boundaries run through, and the "
        "lean has a Spearman correlation of {:.2f} with the errors on clear images.",
        about["epochs"],
        *(value[f"{kind} at the frontier"] for kind in ("ambiguous", "clear", "wrong")),
        value["wrong away from it"],
        value["through"],
        value["pairs"],
        value["Spearman of lean and errors"],
    )
    yield says(
        "only that five pairs of classes have ten or more; what they say of the generation was not used.",
        provided=value["pairs"] == 5 and about["kept"]["mnist"] == "ambiguous_mnist.npz",
    )
    sorts = ("few images", "and clear, wrong, at the frontier", "and any clear", "and ambiguous")
    right = [kept[f"mnist, {sort}", "accuracy"]["value"] for sort in sorts]
    yield says(
        "has learnt from {} digits is right on {:.2f} of the test images; with {} more of that sort on {:.2f}, with "
        "200 clear ones of any sort on {:.2f}, with 200 ambiguous ones on {:.2f}",
        about["start"],
        right[0],
        about["added"],
        *right[1:],
        provided=min(right[1:3]) > right[3] > right[0] and right[1] - right[2] < 0.01 and about["added"] == 200,
    )


def boundaries_of_clothes() -> Iterator[Claim]:
    """The same on Fashion-MNIST, and which ambiguous images there were."""
    kept, about = cells("ambiguity/fashion-boundary.json"), record("ambiguity/fashion-boundary.json")["settings"]
    value = {column: cell["value"] for (row, column), cell in kept.items() if row == "fashion_mnist"}
    yield says(
        "five SimpleCNNs that learnt from {:,} images for {} epochs) {:.2f} of the ambiguous images lie there, but "
        "also {:.2f} of the test images, which count as clear and among clothes not always are; {:.2f} of these are "
        "answered wrongly, against {:.3f} of the others.",
        about["train"],
        about["epochs"],
        *(value[f"{kind} at the frontier"] for kind in ("ambiguous", "clear", "wrong")),
        value["wrong away from it"],
        provided=about["runs"] == 5,
    )
    yield says(
        "Only {:.2f} of {:.0f} boundaries run through. Of those that run beside, {:.1f} of {:.1f} foretell the errors "
        "in the mean of the networks, too few to tell from a coin; the Spearman correlation is {:.2f}.",
        value["through"],
        value["pairs"],
        value["of these as foretold"],
        value["beside, with clear errors"],
        value["Spearman of lean and errors"],
    )
    sorts = ("few images", "and clear, wrong, at the frontier", "and any clear", "and ambiguous")
    right = [kept[f"fashion_mnist, {sort}", "accuracy"] for sort in sorts]
    yield says(
        "With {} clothes it is right on {:.2f}, with {} more that it answers wrongly at the frontier on {:.2f}, with "
        "any on {:.2f}, with ambiguous ones on {:.2f} (five runs, standard deviations up to {:.2f}): any images are "
        "worth more than those at the frontier, and ambiguous ones least again, though",
        about["start"],
        right[0]["value"],
        about["added"],
        *(cell["value"] for cell in right[1:]),
        max(cell["spread"] for cell in right),
        provided=right[2]["value"] > right[1]["value"] > right[3]["value"] > right[0]["value"],
    )
    frontier, clear, ambiguous = right[1:]
    yield says(
        "though neither {:.2f} and {:.2f} nor {:.2f} and {:.2f} differ by two standard errors.",
        *(cell["value"] for pair in ((ambiguous, frontier), (frontier, clear)) for cell in pair),
        provided=all(
            high["value"] - low["value"] < 2 * ((low["spread"] ** 2 + high["spread"] ** 2) / low["n"]) ** 0.5
            for low, high in ((ambiguous, frontier), (frontier, clear))
        ),
    )
    images = {row.partition(": ")[2]: cell["value"] for (row, column), cell in kept.items() if column == "images"}
    pairs = {pair: count for pair, count in images.items() if pair}
    made = about["generation"]
    alike = ("T-shirt/top or Shirt", "Pullover or Coat", "Pullover or Shirt", "Coat or Shirt")
    yield says(
        "The {:,} ambiguous clothes were made by the studies, with {} autoencoders instead of 20 for each of the most "
        "confusable third of the pairs, trained on all 60,000 images; {} pairs have images, {:.0f} or {:.0f} each.",
        made["test"],
        made["autoencoders"],
        len(pairs),
        min(pairs.values()),
        max(pairs.values()),
        provided=made == record("ambiguity/fashion-orders.json")["settings"]["generation"]
        and made["pairs"] == "confused"
        and sum(pairs.values()) == made["test"]
        and max(pairs.values()) - min(pairs.values()) == 1,
    )
    yield says(
        "T-shirt or shirt are among them, since `acceptance` was `achievable`; pullover or coat, pullover or shirt, "
        "coat or shirt are not",
        provided=made["acceptance"] == "achievable" and pairs.keys() & set(alike) == {alike[0]},
    )


def boundaries() -> Iterator[Claim]:
    """Where decision boundaries run."""
    value = {key: cell["value"] for key, cell in cells("photos/boundary.json").items()}
    models = ("cifar10_resnet20", "cifar10_vgg")
    yield says(
        "For all {:.0f} pairs of classes with ten ambiguous photographs or more",
        value[models[0], "pairs"],
        provided=all(value[name, "through"] == 1 and value[name, "pairs"] == 37 for name in models),
    )
    near = [value[name, f"{kind} at the frontier"] for name in models for kind in ("ambiguous", "clear")]
    yield says(
        "({:.2f} and {:.3f}; VGG {:.2f} and {:.3f})",
        *near,
        provided=all(2.5 < near[i] / near[i + 1] < 4 for i in (0, 2)),
    )
    wrong = [100 * value[name, column] for name in models for column in ("wrong at the frontier", "wrong away from it")]
    yield says("{:.0f} % are answered wrongly, against {:.1f} % of the others (VGG {:.0f} % and {:.1f} %).", *wrong)
    yield says(
        "(Spearman {:.2f} and {:.2f} over the pairs)", *(value[name, "Spearman of lean and errors"] for name in models)
    )


def surprise() -> Iterator[Claim]:
    """DSA and LSA, and what sampling costs."""
    auroc = record("surprise/models.json")["auroc"]
    yield says(
        "{} re-trained models, as in the paper, for Table 1 and the bandwidths; {} of them for sampling.",
        auroc["dsa"]["models"],
        auroc["dsa, uniform 0.33"]["models"],
    )
    lines = {(line.row, line.column): line for line in compared("surprise-table1")}
    dsa, lsa = (lines[f"adversarial, {name}", "mean"] for name in ("DSA", "LSA"))
    yield says(
        "DSA on FGSM is {:.3f} ± {:.3f} where the paper has {:.3f} ± {:.3f}, LSA {:.3f} ± {:.3f} against "
        "{:.3f} ± {:.3f}; over the models LSA has a range of {:.3f} against {:.3f}.",
        *(part for line in (dsa, lsa) for cell in (line.ours, line.paper) for part in (cell.value, cell.spread)),
        lines["adversarial, LSA", "range"].ours.value,
        lines["adversarial, LSA", "range"].paper.value,
    )
    trusted = [line for line in lines.values() if not line.paper.unreliable]
    within, total = close(trusted)
    yield says(
        "All {} trusted cells of Table 1 are within {:.3f} of the paper's.",
        total,
        max(abs(line.difference) for line in trusted),
        provided=within == total,
    )
    lowest = lines["adversarial, DSA", "min"]
    yield says(
        "The minimum of DSA on FGSM is {:.3f}; the paper prints {:.3f}, which its own range contradicts.",
        lowest.ours.value,
        lowest.paper.value,
        provided=bool(lowest.paper.unreliable),
    )
    yield from sampling()
    yield from retraining()
    yield from shares()
    yield from beyond()
    corrupted = [lines[f"corrupted, {name}", "mean"].difference for name in ("DSA", "LSA")]
    yield says(
        "Both are {:.2f} better on corrupted images",
        mean(corrupted),
        provided=len({f"{value:.2f}" for value in corrupted}) == 1,
    )
    seconds = {row["work"]: row["seconds"] for row in record("bench/surprise.json")["rows"] if row["dimension"] == 10}
    yield says("takes {:.2f} s (LSA) and {:.2f} s (DSA) on two cores", seconds["lsa"], seconds["dsa"])
    yield from side_by_side()


def most_ambiguous_tests() -> Iterator[Claim]:
    """Figure 1 of the true-ambiguity paper."""
    kept = record("ambiguity/tests.json")
    some, everything = kept["second_class_has_at_least"], kept["all_images_second_class_has_at_least"]
    yield says(
        "Below are the {} with the highest entropy for two networks that are right on {:.3f} of them together, none "
        "picked",
        len(kept["shown"]),
        kept["accuracy"],
        provided=kept["settings"]["networks"] == 2,
    )
    yield says(
        "The networks give a second class a quarter or more in {} of the {}, and four tenths or more in {}; of all "
        "{:,} images these are {} and {}.",
        some["0.25"],
        kept["highest"],
        some["0.4"],
        kept["images"],
        everything["0.25"],
        everything["0.4"],
    )
    yield says(
        "in {} of the {} the label is neither of its first two classes.",
        kept["highest"] - kept["label_is_among_the_first_two"],
        kept["highest"],
    )


def processor_seconds() -> dict[str, dict[str, float]]:
    """What each tool took in one run, by kind of surprise: ours on one thread, dnn-tip, and the original."""
    rows = record("surprise/times.json")["rows"]
    found = {row["name"]: row["processor"] for row in rows if row["threads"] != 2}
    tools = ("ours", "dnn-tip", "original")
    return {kind: {tool: found[f"{kind}, {tool}"] for tool in tools} for kind in ("DSA", "LSA")}


def side_by_side() -> Iterator[Claim]:
    """Table 2: seconds of the published tools in the same run."""
    kept, seconds = record("surprise/times.json"), processor_seconds()
    settings, dsa, lsa = kept["settings"], seconds["DSA"], seconds["LSA"]
    wall = {(row["name"], row["threads"]): row["wall"] for row in kept["rows"]}
    yield says(
        "Side by side, on the {:,} traces of {} numbers of a network that had learnt for {} epochs, in processor "
        "seconds of one run on a busy machine (load average {:.1f}; `lab/experiments/surprise_times.py`): DSA of "
        "{:,} images takes {:.2f} s on one thread, dnn-tip {:.1f} s on its own threads, and a rendering of the "
        "original, image by image, {:.1f} s; LSA {:.2f}, {:.2f} and {:.1f} s. So ours is {:.0f} and {:.0f} times as "
        "fast as dnn-tip and {:.0f} and {:.0f} times as fast as the original. Of dnn-tip's DSA and of the original {} "
        "images were timed.",
        *(settings[key] for key in ("traces", "dimension", "epochs")),
        settings["load_average"][1],
        settings["queries"],
        *dsa.values(),
        *lsa.values(),
        *(one[tool] / one["ours"] for tool in ("dnn-tip", "original") for one in (dsa, lsa)),
        settings["some"],
    )
    yield says(
        "On two threads ours takes {:.2f} s (DSA) and {:.2f} s (LSA) of the clock.",
        *(wall[f"{kind}, ours", 2] for kind in ("DSA", "LSA")),
    )


def retraining() -> Iterator[Claim]:
    """RQ3: what depends on one training, and on the bandwidth."""
    found = cells("surprise/surprise-table1.json")
    value = {key: cell["value"] for key, cell in found.items()}
    deviations = [value[f"{where}, {name}", "std"] for where in ("adversarial", "corrupted") for name in ("LSA", "DSA")]
    yield says(
        "has a standard deviation of {:.4f} for LSA and {:.4f} for DSA, on corrupted images {:.4f} and {:.4f}: LSA is "
        "the less stable one, as in the paper, {:.1f} and {:.1f} times. The worst of {} trainings loses {:.3f} against "
        "the mean of LSA on FGSM, {:.3f} with DSA.",
        *deviations,
        deviations[0] / deviations[1],
        deviations[2] / deviations[3],
        found["adversarial, LSA", "mean"]["n"],
        *(value[f"adversarial, {name}", "mean"] - value[f"adversarial, {name}", "min"] for name in ("LSA", "DSA")),
    )
    band = {key: cell["value"] for key, cell in cells("surprise/surprise-figure4.json").items()}
    fixed = [str(width) for width in (0.01, 0.1, 1.0, 10.0)]
    spreads = [band[width, "std"] for width in fixed]
    yield says(
        "with Scott's rule LSA has a standard deviation of {:.4f}, with Silverman's {:.4f}, with fixed bandwidths "
        "{:.3f} to {:.3f}; a bandwidth of 1 has the largest mean ({:.3f} against {:.3f} with Scott's rule), one of 10 "
        "falls to {:.3f}.",
        *(band[rule, "std"] for rule in ("scott", "silverman")),
        min(spreads),
        max(spreads),
        *(band[rule, "mean"] for rule in ("1.0", "scott", "10.0")),
        provided=band["1.0", "mean"] == max(value for (_, column), value in band.items() if column == "mean")
        and max(band["scott", "std"], band["silverman", "std"]) < min(spreads),
    )


def shares() -> Iterator[Claim]:
    """Figure 2: seconds by share of the training traces."""
    found = {key: cell["value"] for key, cell in cells("surprise/surprise-figure2.json").items()}
    lsa, dsa = ([found[name, share] for share in ("0.10", "1.00")] for name in ("LSA", "DSA"))
    yield says(
        "takes LSA {:.2f} s of one core instead of {:.2f} s (-{:.0f} %), and DSA {:.2f} s instead of {:.2f} s",
        *lsa,
        100 * (1 - lsa[0] / lsa[1]),
        *dsa,
        provided=dsa[1] / dsa[0] > lsa[1] / lsa[0] > 1,
    )
    paper = published("surprise-figure2")
    yield says(
        "as in the paper (LSA {:.2f} s instead of {:.2f} s;", *(paper["LSA", share] for share in ("0.10", "1.00"))
    )


def beyond() -> Iterator[Claim]:
    """Other layers, MDSA, noisy labels, rare classes."""
    kept, about = cells("surprise/surprise-beyond.json"), record("surprise/surprise-beyond.json")["settings"]
    kinds, last, early = ("DSA", "LSA", "MDSA"), "penultimate", "25%"

    def of(measure: str, layer: str, labels: str = "clean") -> list[float]:
        return [kept[f"mnist, {labels}, {layer}, {kind}", measure]["value"] for kind in kinds]

    yield says(
        "{:,} training and {} test images, {} epochs, so that they are right on {:.2f} of the digits only)",
        about["train"],
        about["test"],
        about["epochs"],
        kept[f"mnist, clean, {last}, DSA", "accuracy"]["value"],
    )
    yield says(
        "corrupted digits are found with {:.2f}, {:.2f} and {:.2f} (DSA, LSA, MDSA) at the last but one layer, and "
        "with {:.2f}, {:.2f} and {:.2f} at a quarter of the depth; with the network's own mistakes it is the other way "
        "round ({:.2f}, {:.2f} and {:.2f} against {:.2f}, {:.2f} and {:.2f}).",
        *of("corrupted", last),
        *of("corrupted", early),
        *of("mistakes", last),
        *of("mistakes", early),
        provided=min(of("corrupted", early)) > max(of("corrupted", last))
        and min(of("mistakes", last)) > max(of("mistakes", early)),
    )
    attacks = of("adversarial", last)
    yield says(
        "behind LSA in attacks at the last but one ({:.2f} against {:.2f}).",
        attacks[2],
        attacks[1],
        provided=all(of("corrupted", layer)[2] > of("corrupted", layer)[0] for layer in (early, "50%")),
    )
    changes = [
        abs(noisy - clean)
        for layer in (early, "50%", last)
        for noisy, clean in zip(of("corrupted", layer, "noisy labels"), of("corrupted", layer), strict=True)
    ]
    yield says("change the detection of corrupted digits by {:.2f} at most.", max(changes))
    yield says(
        "at the last but one layer {:.2f}, {:.2f} and {:.2f} are left of {:.2f}, {:.2f} and {:.2f}.",
        *of("mistakes", last, "unbalanced classes"),
        *of("mistakes", last),
    )
    photo, clothes = (
        {key: cell["value"] for key, cell in kept.items() if key[0].startswith(f"{name}, clean")}
        for name in ("cifar10", "fashion_mnist")
    )

    def best(measure: str, where: dict[tuple[str, str], float] = photo) -> float:
        return max(value for (_, column), value in where.items() if column == measure)

    half = "fashion_mnist, clean, 50%, LSA"
    yield says(
        "On *clothes* (right on {:.2f}) LSA at half the depth leads in corruptions ({:.2f}) and attacks ({:.2f}).",
        *(clothes[half, measure] for measure in ("accuracy", "corrupted", "adversarial")),
        provided=all(clothes[half, one] == best(one, clothes) for one in ("corrupted", "adversarial")),
    )

    mine = f"cifar10, clean, {last}, DSA"
    yield says(
        "(a ResNet-20, right on {:.2f}) DSA at the last but one layer leads in corruptions ({:.2f}) and mistakes "
        "({:.2f}), and MDSA at a quarter of the depth in attacks ({:.2f}, where DSA at the last but one has {:.2f}).",
        photo[mine, "accuracy"],
        photo[mine, "corrupted"],
        photo[mine, "mistakes"],
        photo[f"cifar10, clean, {early}, MDSA", "adversarial"],
        photo[mine, "adversarial"],
        provided=photo[mine, "corrupted"] == best("corrupted")
        and photo[mine, "mistakes"] == best("mistakes")
        and photo[f"cifar10, clean, {early}, MDSA", "adversarial"] == best("adversarial"),
    )


def sampling() -> Iterator[Claim]:
    """What a part of the training traces costs DSA."""
    fgsm, corrupted = "fgsm", "mnist_c"
    third = [lost("uniform", "0.33", key) for key in (fgsm, corrupted)]
    smart = [mean(lost(sampler, "0.33", fgsm)) for sampler in ("epsilon_free", "unsurprising_first")]
    yield says(
        "A third of the training traces, chosen uniformly, costs DSA {:.4f} on FGSM (standard error over the models "
        "{:.4f}) and {:.4f} ({:.4f}) on corrupted images, chosen neighbour-free {:.4f} on FGSM; the paper says less "
        "than .01.",
        *(number for values in third for number in (mean(values), error_of_mean(values))),
        smart[0],
        provided=max(smart[0], *map(mean, third)) < 0.01,
    )
    yield says(
        "Unsurprising first costs {:.3f} at a third on FGSM, where the paper says less than .02.",
        smart[1],
        provided=smart[1] > 0.02,
    )

    def dearer(sampler: str, key: str) -> list[str]:
        """The shares at which a sampler costs more than uniform sampling, by two standard errors of the difference."""
        found = []
        for share in SHARES:
            pairs = zip(lost(sampler, share, key), lost("uniform", share, key), strict=True)
            more = [mine - uniform for mine, uniform in pairs]
            if mean(more) > 2 * error_of_mean(more):
                found.append(share)
        return found

    yield says(
        "It costs more than uniform sampling of the same size at every share up to a half, on FGSM also at 70 %.",
        provided=dearer("unsurprising_first", fgsm) == [*SHARES]
        and dearer("unsurprising_first", corrupted) == [*SHARES[:-1]],
    )
    late = [mean(lost(sampler, share, fgsm)) for share in SHARES[-2:] for sampler in ("epsilon_free", "uniform")]
    yield says(
        "Neighbour-free sampling costs more at every share on corrupted images, but on FGSM up to a third only: at a "
        "half the two cost {:.4f} and {:.4f}, at 70 % {:.4f} and {:.4f}.",
        *late,
        provided=dearer("epsilon_free", corrupted) == [*SHARES] and dearer("epsilon_free", fgsm) == [*SHARES[:-2]],
    )
    tenth, fifth = (mean(lost("uniform", share, fgsm)) for share in ("0.10", "0.20"))
    yield says(
        "on FGSM a tenth happens to cost less than a fifth ({:.4f} and {:.4f})", tenth, fifth, provided=tenth < fifth
    )


def lost(sampler: str, share: str, key: str) -> list[float]:
    """The AUROC that a part of the training traces costs DSA, in each model that has both."""
    auroc = record("surprise/models.json")["auroc"]
    pairs = zip(auroc["dsa"][key], auroc[f"dsa, {sampler} {share}"][key], strict=True)
    return [whole - part for whole, part in pairs if part is not None]


def error_of_mean(values: Sequence[float]) -> float:
    """The standard error of a mean over models."""
    return stdev(values) / len(values) ** 0.5


def oracles() -> Iterator[Claim]:
    """ICOS, cross-referencing, SelfChecker."""
    detection = record("oracles/mnist.json")["detection"]
    yield says(
        "the accuracy that it estimates is off by less than a point on all three",
        provided=all(_mean(detection[name]["icos_fine"]["mae"]) < 0.01 for name in detection),
    )
    yield says(
        "ICOS finds more wrong predictions than cross-referencing, with the finer partition more than with the "
        "coarser one;",
        provided=all(
            _mean(one["icos_fine"]["tpr"]) > _mean(one["icos_equal"]["tpr"]) > _mean(one["cross_reference"]["tpr"])
            for one in detection.values()
        ),
    )
    yield says(
        "By F1, ICOS with the finer partition leads on all three.",
        provided=all(
            _mean(one["icos_fine"]["f1"])
            >= max(_mean(one[name]["f1"]) for name in ("icos_equal", "cross_reference", "selfchecker"))
            for one in detection.values()
        ),
    )
    more = {line.row: line for line in compared("oracles-figure10") if line.column == "FPR, relative"}
    rules = [more[f"criterion {number} against 1"] for number in (2, 3)]
    yield says(
        "(false alarms {:.1f} and {:.0f} times as many, where the paper says five and almost fifteen).",
        *(line.ours.value for line in rules),
        provided=[line.paper.value for line in rules] == [5, 15],
    )
    votes = [
        line
        for table in ("oracles-table6", "oracles-table7", "oracles-table8")
        for line in compared(table)
        if line.row in "LMN" and line.column == "cross-referencing"
    ]
    yield says(
        "Cross-referencing of L, M and N comes out within {:.4f} in all nine cells.",
        max(abs(line.difference) for line in votes),
        provided=len(votes) == 9,
    )
    line = next(line for line in compared("oracles-table6") if (line.row, line.column) == ("B", "SelfChecker"))
    yield says(
        "SelfChecker on network B finds {:.2f} of the wrong predictions against {:.2f}.",
        line.ours.value,
        line.paper.value,
    )
    wide = record("oracles/wide.json")
    b, c = ([row for row in wide["rows"] if row["network"] == name] for name in ("icos_b", "icos_c"))
    yield says(
        "in another training of B, with {:,} images to judge (`lab/experiments/oracles_wide.py`), SelfChecker finds "
        "{:.2f} without that layer and {:.2f} with it, reduced to {} principal components. What the layer does is "
        "spare false alarms ({:.3f} and {:.3f} of the right predictions; F1 {:.2f} and {:.2f}). C, which loses its "
        "widest layer too, has {:.2f} and {:.2f}. Why B differs is open; one training and another differ by {:.2f} "
        "already.",
        wide["settings"]["operation"],
        *(row["tpr"] for row in b),
        wide["settings"]["components"],
        *(row[rate] for rate in ("fpr", "f1") for row in b),
        *(row["tpr"] for row in c),
        abs(line.ours.value - b[0]["tpr"]),
        provided=[row["wide"] for row in (*b, *c)] == [False, True] * 2,
    )


def oracles_elsewhere() -> Iterator[Claim]:
    """Conclusions about oracles that differ from the paper's."""
    import numpy as np
    from scipy.stats import rankdata

    from secondguess_lab.statistics.friedman import friedman

    kept = record("oracles/mnist.json")
    names = ("icos_fine", "icos_equal", "selfchecker", "cross_reference")

    def offsets(network: str, column: str, judges: Sequence[str]) -> Any:
        row = find(kept["rows"], network=network, column=column)
        return np.abs([row["errors"][judge] for judge in judges]).T

    plain = {network: offsets(network, "no shift", names) for network in kept["detection"]}
    means = {network: dict(zip(names, found.mean(axis=0).tolist(), strict=True)) for network, found in plain.items()}
    rates = kept["detection"]["icos_c"]["selfchecker"]
    wrong = 1 - mean(find(kept["rows"], network="icos_c", column="no shift")["truth"])
    yield says(
        "here it does on A and B, and on C SelfChecker is off by {:.4f} and ICOS by {:.4f}. That is no better "
        "oracle: an estimate is right where misses and false alarms cancel, and SelfChecker on C misses mistakes in "
        "{:.2f} % of the images and objects to right predictions in {:.2f} %. On A and B, where they do not cancel, "
        "it is off by {:.3f} and {:.3f}.",
        means["icos_c"]["selfchecker"],
        means["icos_c"]["icos_fine"],
        100 * (1 - rates["tpr"]) * wrong,
        100 * rates["fpr"] * (1 - wrong),
        means["icos_a"]["selfchecker"],
        means["icos_b"]["selfchecker"],
        provided=[min(found, key=found.__getitem__) for found in means.values()]
        == ["icos_fine", "icos_fine", "selfchecker"],
    )
    test = friedman(np.concatenate(list(plain.values())), names)
    ranks = dict(zip(names, test.ranks.tolist(), strict=True))
    apart = {pair: abs(ranks[pair[0]] - ranks[pair[1]]) > test.critical_difference for pair in (names[1:3], names[2:4])}
    yield says(
        "The ranks of Figure 7 over these networks are {:.2f} (ICOS, finer), {:.2f} (coarser), {:.2f} (SelfChecker) "
        "and {:.2f} (cross-referencing), with a critical difference of {:.2f}: SelfChecker is told apart from ICOS "
        "with the coarser partition,",
        *ranks.values(),
        float(test.critical_difference),
        provided=list(apart.values()) == [True, False],
    )
    yield says(
        "in each of ours the order of the four oracles is the same in all {}: what the test takes for {} blocks are "
        "three.",
        len(plain["icos_a"]),
        test.blocks,
        provided=all(np.ptp(rankdata(found, axis=1), axis=0).max() == 0 for found in plain.values()),
    )
    ranked = [line for line in lines_of_study("oracles-figure7") if line.ours]
    six = {line.row: line.ours.value for line in ranked if line.column == "mean rank"}
    (critical,) = (line.ours.value for line in ranked if line.column == "critical difference")
    order = sorted(six.values())
    yield says(
        "With D, E and F the ranks are {:.2f}, {:.2f}, {:.2f} and {:.2f}, and all differ by more than {:.2f}.",
        *(six[name] for name in ("ICOS, fine", "ICOS, equal", "SelfChecker", "cross-referencing")),
        critical,
        provided=all(after - before > critical for before, after in pairwise(order)),
    )
    swaps = {pair: offsets("icos_c", f"labels {pair} swapped", names[:3]) for pair in ("2/7", "5/6", "6/8")}
    off = {pair: found.mean(axis=0).tolist() for pair, found in swaps.items()}
    failing = [off["2/7"][2], *off["5/6"][1:], *off["6/8"]]
    after = friedman(np.concatenate(list(swaps.values())), names[:3])
    yield says(
        "ICOS is off by {:.3f} and {:.3f} after 2/7, with the finer partition by {:.3f} after 5/6, and otherwise "
        "everybody by {:.2f} to {:.2f}.",
        *off["2/7"][:2],
        off["5/6"][0],
        min(failing),
        max(failing),
    )
    yield says(
        "by mean ranks SelfChecker ({:.2f}) comes before ICOS with the coarser partition ({:.2f}), because where all"
        " fail it fails least, by less than .01.",
        float(after.ranks[2]),
        float(after.ranks[1]),
        provided=all(
            found[2] == min(found[1:]) and max(found[1:]) - found[2] < 0.01 for found in (off["5/6"], off["6/8"])
        ),
    )


def oracles_on_photographs() -> Iterator[Claim]:
    """Networks D, E and F on CIFAR-10."""
    rows = record("oracles/cifar10.json")["rows"]
    mine = {letter: [row for row in rows if row["network"] == f"icos_{letter}"] for letter in "def"}
    first = [mine[letter][0] for letter in "def"]

    def rate(judge: str, key: str) -> list[float]:
        """Means over trainings."""
        return [mean(row["detection"][judge][key] for row in mine[letter]) for letter in "def"]

    yield says(
        "D, E and F are right on {:.2f}, {:.2f} and {:.2f} of the operational images",
        *(mean([mean(row["truth"]) for row in mine[letter]]) for letter in "def"),
        provided=[len(found) for found in mine.values()] == [1, 2, 1],
    )
    lines = [line for number in (6, 7, 8) for line in compared(f"oracles-table{number}") if line.row in "EF"]
    right, total = close(lines)
    crossed = [abs(line.difference) for line in lines if line.column == "cross-referencing"]
    yield says(
        "Of the {} trusted cells of E and F {} are within .05 of the paper's; cross-referencing is within {:.3f} in "
        "all.",
        total,
        right,
        max(crossed),
        provided=not any(line.paper.unreliable for line in lines),
    )
    (alarms,) = (line for line in compared("oracles-table7") if (line.row, line.column) == ("E", "ICOS, fine"))
    yield says(
        "ICOS has more false alarms on E ({:.2f} against {:.2f}), because pixel rules object to {:.2f} of the right "
        "predictions and the forest to {:.2f} and more.",
        alarms.ours.value,
        alarms.paper.value,
        rate("pixel_rules", "fpr")[1],
        min(row["detection"]["forest"]["fpr"] for row in mine["e"]),
    )
    yield says(
        "the coarser partition finds more than the finer one ({:.2f}, {:.2f} and {:.2f} against {:.2f}, {:.2f} and "
        "{:.2f}), since it separates classes that are confused, and leads by F1 on all three.",
        *rate("icos_equal", "tpr"),
        *rate("icos_fine", "tpr"),
        provided=all(
            max(found, key=lambda judge: found[judge]["f1"]) == "icos_equal"
            for row in first
            for found in [{judge: row["detection"][judge] for judge in row["errors"]}]
        ),
    )
    off = [{judge: row["detection"][judge]["mae"] for judge in row["errors"]} for row in first]
    yield says(
        "ICOS with the finer partition is best on F only (off by {:.3f}; SelfChecker by {:.3f}), and SelfChecker on "
        "D and E ({:.3f} and {:.3f} against {:.3f} and {:.3f}),",
        off[2]["icos_fine"],
        off[2]["selfchecker"],
        *(one["selfchecker"] for one in off[:2]),
        *(one["icos_fine"] for one in off[:2]),
        provided=[min(one, key=one.__getitem__) for one in off] == ["selfchecker", "selfchecker", "icos_fine"],
    )
    low = [-row["detection"][judge]["bias"] for row in first for judge in ("icos_fine", "icos_equal")]
    yield says("ICOS {:.2f} to {:.2f} too low, because false alarms are many;", min(low), max(low))
    yield says(
        "validation images is off by {:.3f}, {:.3f} and {:.3f} on the same draws, and the agreement of the three "
        "networks by {:.3f}, {:.3f} and {:.3f}.",
        *(row["estimators"][name] for name in ("validation_accuracy", "ensemble_agreement") for row in first),
    )
    ratios = {(line.row, line.column): line for line in compared("oracles-figure10") if line.row.startswith("CIFAR-10")}
    found = [
        ratios[f"CIFAR-10, criterion {number} against 1", f"{name}, relative"]
        for name in ("TPR", "FPR")
        for number in (2, 3)
    ]
    yield says(
        "TPR {:.2f} and {:.2f} times, FPR {:.2f} and {:.2f} times (the paper {:.2f} and {:.2f}, {:.2f} and {:.2f}).",
        *(line.ours.value for line in found),
        *(line.paper.value for line in found),
        provided=all(line.ours.value < line.paper.value for line in found),
    )
    yield says(
        "again spares false alarms (of the right predictions on D {:.3f} without it and {:.3f} with it, on F {:.3f} "
        "and {:.3f}).",
        *(
            row["detection"][name]["fpr"]
            for row in (first[0], first[2])
            for name in ("selfchecker", "selfchecker_wide")
        ),
    )


def oracles_retrained() -> Iterator[Claim]:
    """C1, C2 and C3, and other trainings of A, B and C."""
    rows = record("oracles/retrained.json")["rows"]

    def off(judge: str, validation: str) -> list[float]:
        return [
            mean(map(abs, find(rows, swap=swap, validation=validation)["errors"][judge]))
            for swap in ("2/7", "5/6", "6/8")
        ]

    yield says(
        "ICOS is off by {:.3f}, {:.3f} and {:.3f} with the finer partition, by {:.3f}, {:.3f} and {:.3f} with the "
        "coarser one, SelfChecker by {:.3f}, {:.3f} and {:.3f}.",
        *(value for judge in ("icos_fine", "icos_equal", "selfchecker") for value in off(judge, "swapped")),
    )
    clean = off("icos_fine", "clean") + off("icos_equal", "clean")
    checked = off("selfchecker", "clean")
    yield says(
        "ICOS is off by {:.3f} at most, whatever the partition, SelfChecker by {:.3f} to {:.3f}.",
        max(clean),
        min(checked),
        max(checked),
    )
    plain = {row["network"]: row for row in rows if not row["swap"]}
    errors = {
        name: {judge: mean(map(abs, row["errors"][judge])) for judge in row["errors"]} for name, row in plain.items()
    }
    yield says(
        "ICOS off by {:.3f}, {:.3f} and {:.3f}, SelfChecker on B finding {:.2f} of the mistakes again, and on C off by "
        "{:.3f}, less than ICOS again.",
        *(errors[name]["icos_fine"] for name in ("icos_a", "icos_b", "icos_c")),
        plain["icos_b"]["detection"]["selfchecker"]["tpr"],
        errors["icos_c"]["selfchecker"],
        provided=errors["icos_c"]["selfchecker"] < errors["icos_c"]["icos_fine"],
    )


def networks_of_c() -> list[bool]:
    """For each network of C whether SelfChecker estimates its accuracy better than ICOS with the finer partition."""
    first = find(record("oracles/mnist.json")["rows"], network="icos_c", column="no shift")["errors"]
    again = [
        row
        for name in ("retrained", "seeds")
        for row in record(f"oracles/{name}.json")["rows"]
        if row["network"] == "icos_c" and not row["swap"]
    ]
    off = [first, *(row["errors"] for row in again)]
    return [mean(map(abs, one["selfchecker"])) < mean(map(abs, one["icos_fine"])) for one in off]


def oracles_several() -> Iterator[Claim]:
    """Five networks of A, B and C, three of each with swapped labels."""
    rows = record("oracles/seeds.json")["rows"]
    plain = {name: [row for row in rows if row["network"] == f"icos_{name}" and not row["swap"]] for name in "abc"}

    def spread(name: str, judge: str, what: str) -> tuple[float, float]:
        values = [row["detection"][judge][what] for row in plain[name]]
        return min(values), max(values)

    pairs = [
        (row["detection"]["icos_fine"], row["detection"]["selfchecker"]) for some in plain.values() for row in some
    ]
    yield says(
        "ICOS with the finer partition has an F1 of {:.2f} to {:.2f} on A, {:.2f} to {:.2f} on B and {:.2f} to {:.2f} "
        "on C, SelfChecker {:.2f} to {:.2f}, {:.2f} to {:.2f} and {:.2f} to {:.2f}: ICOS leads with every one of "
        "the {}",
        *(value for judge in ("icos_fine", "selfchecker") for name in "abc" for value in spread(name, judge, "f1")),
        len(pairs),
        provided=all(ours["f1"] > theirs["f1"] for ours, theirs in pairs)
        and {len(one) for one in plain.values()} == {5},
    )
    nearer = [row["detection"]["icos_fine"]["mae"] < row["detection"]["selfchecker"]["mae"] for row in plain["c"]]
    yield says(
        "with the five networks it is off by {:.4f} to {:.4f}, ICOS by {:.4f} to {:.4f}, less than SelfChecker with {} "
        "of them.",
        *spread("c", "selfchecker", "mae"),
        *spread("c", "icos_fine", "mae"),
        sum(nearer),
    )
    off = {
        swap: [
            row["detection"]["icos_fine"]["mae"]
            for row in rows
            if (row["swap"], row["validation"]) == (swap, "swapped")
        ]
        for swap in ("2/7", "5/6", "6/8")
    }
    known = off["2/7"] + off["5/6"]
    yield says(
        "ICOS is off by {:.3f} to {:.3f} after 2/7 and 5/6, and by {:.3f} after 6/8.",
        min(known),
        max(known),
        mean(off["6/8"]),
        provided={len(some) for some in off.values()} == {3} and max(off["6/8"]) - min(off["6/8"]) < 0.001,
    )


def networks_of_photographs() -> list[Any]:
    """What was found with every network of D, E and F."""
    return [row for name in ("cifar10", "photo_seeds") for row in record(f"oracles/{name}.json")["rows"]]


def selfchecker_is_nearer() -> dict[str, list[bool]]:
    """For D, E and F, and each network, whether SelfChecker estimates the accuracy better than ICOS, finer."""
    return {
        name: [
            row["detection"]["selfchecker"]["mae"] < row["detection"]["icos_fine"]["mae"]
            for row in networks_of_photographs()
            if row["network"] == f"icos_{name}"
        ]
        for name in "def"
    }


def oracles_of_photographs() -> Iterator[Claim]:
    """Several networks of D, E and F."""
    rows = networks_of_photographs()
    leads = all(
        max(("icos_fine", "icos_equal", "selfchecker"), key=lambda judge: row["detection"][judge]["f1"]) == "icos_equal"
        for row in rows
    )
    yield says("leads by F1 with all {} networks of D, E and F.", len(rows), provided=leads)
    yield says(
        "with {} of {} networks of D and {} of {} of E, and with {} of {} of F.",
        *(number for some in selfchecker_is_nearer().values() for number in (sum(some), len(some))),
    )


def _mean(value: Any) -> float:
    return value["mean"] if isinstance(value, dict) else value


def search() -> Iterator[Claim]:
    """Adversarial distance."""
    mine, gradient = "adversarial_distance", "adversarial_distance_gradient"
    yield from _networks.quoted()
    yield says(
        "say the same: {:.2f} after 20 queries and {:.2f} after 50 with {:.0f} queries an image, {:.2f} and {:.2f} by "
        "gradients.",
        *(over("cats_dogs", "cat", mine, queries, "sdr") for queries in (20, 50)),
        pools("cats_dogs", "cat")[0]["about"]["queries_per_image"],
        *(over("cats_dogs", "cat", gradient, queries, "sdr") for queries in (20, 50)),
    )
    yield says(
        "there the residual misleads (AUROC {:.2f} and {:.2f} for errors of equal confidence, by gradients "
        "{:.2f} and {:.2f})",
        *aurocs("search/account.json", "dog", "residual"),
        *aurocs("search/account.json", "dog", "residual, gradient"),
    )
    released = record("search/released.json")
    after = {queries: find(released["study"]["table"], method=mine, queries=queries) for queries in (20, 50)}
    yield says(
        "With the smoother of their Python code, asked about all images at once, it has {:.2f} after 20 queries, a "
        "lift of {:.2f} (`study compare search-released`).",
        released["whole"]["linear, robust"]["20"],
        released["whole"]["linear, robust"]["20"] / released["study"]["pool_sdr"],
    )
    yield says(
        "whose pool has an SDR of {:.2f}, adversarial distance has {:.2f} after 20 queries: a lift of {:.2f}, "
        "and {:.2f} after 50 (`lab/experiments/search_released.py`; their own {:.6f} after 100 queries comes out).",
        released["study"]["pool_sdr"],
        after[20]["sdr"]["pooled"],
        after[20]["lift"]["pooled"],
        after[50]["lift"]["pooled"],
        released["golden"]["sdr"],
    )
    yield says(
        "has a matched lift of {:.1f} with the blind spot and {:.1f} without.",
        *(over("cats_dogs", critical, "adaptive", 50, "matched_lift") for critical in ("dog", "cat")),
    )
    spreads = {
        pool: over(*pool, mine, 50, "spread") / over(*pool, "random", 50, "spread") - 1
        for pool in (("cats_dogs", "dog"), ("cats_dogs", "cat"), ("fashion_mnist", "all classes"))
    }
    *animals, clothes = (100 * value for value in spreads.values())
    yield says(
        "its spread is that of random search to {:.0f} %, also when it is computed on the right rows (on "
        "Fashion-MNIST it is {:.0f} % larger)",
        max(animals),
        clothes,
    )


def mixtures() -> Iterator[Claim]:
    """Estimates of accuracy from detectors of trouble."""
    plain, rehearsed = (cells(f"mixtures/mixtures-{name}.json") for name in ("accuracy", "rehearsed"))

    def error(row: str, column: str, table: dict = plain) -> float:
        return table[row, column]["value"]

    confidence, panel = "average_confidence, (probabilities)", "thresholded, panel"
    yield says(
        "is among the best there ({:.2f} and {:.2f} against {:.2f} and {:.2f}); it is blind to attacks and invalid "
        "images ({:.2f} and {:.2f}), where the panel is nearly exact ({:.2f}).",
        error(confidence, "ambiguous"),
        error(confidence, "corrupted"),
        error(panel, "ambiguous"),
        error(panel, "corrupted"),
        error(confidence, "adversarial"),
        error(confidence, "invalid"),
        error(panel, "adversarial"),
        provided=all(
            sum(cell["value"] < error(confidence, column) for (_, found), cell in plain.items() if found == column) < 5
            for column in ("ambiguous", "corrupted")
        ),
    )
    overall = plain[panel, "overall"]
    yield says(
        "is best, {:.3f} ± {:.3f} over six classifiers: {:.1f} times as good as the accuracy on validation images",
        overall["value"],
        overall["spread"],
        error("validation_accuracy, (probabilities)", "overall") / overall["value"],
        provided=overall["n"] == 6
        and overall["value"] == min(cell["value"] for (_, column), cell in plain.items() if column == "overall"),
    )
    calibrated = plain["calibrated, panel", "overall"]
    yield says(
        "depends on the classifier ({:.3f} ± {:.3f}). DSA and Dissector alone reach {:.3f}",
        calibrated["value"],
        calibrated["spread"],
        max(error(f"thresholded, {name}", "overall") for name in ("dsa", "dissector")),
    )
    changes = {
        estimator: [
            error(row, "overall", rehearsed) - error(row, "overall")
            for row, column in plain
            if column == "overall" and row.startswith(f"{estimator}, ") and not row.endswith(", panel")
        ]
        for estimator in ("thresholded", "calibrated")
    }
    yield says(
        "help most single supervisors, not all: with `thresholded`, {} of {} improve and {} get worse; with "
        "`calibrated`, {} improve.",
        sum(change < 0 for change in changes["thresholded"]),
        len(changes["thresholded"]),
        sum(change > 0 for change in changes["thresholded"]),
        sum(change < 0 for change in changes["calibrated"]),
        provided=len(changes["calibrated"]) == len(changes["thresholded"]),
    )
    yield says(
        "DSA goes from {:.3f} to {:.3f}, relative Mahalanobis at half depth from {:.3f} to {:.3f}, the panel, which "
        "has learnt from such anyway, from {:.3f} to {:.3f}.",
        *(
            error(row, "overall", table)
            for row in ("thresholded, dsa", "thresholded, relative_mahalanobis@50%", panel)
            for table in (plain, rehearsed)
        ),
    )
    yield says(
        "where nothing is wrong (DSA {:.3f} and then {:.3f}, the panel {:.3f} and {:.3f}).",
        *(error(row, "nominal", table) for row in ("thresholded, dsa", panel) for table in (plain, rehearsed)),
    )
    shares = cells("mixtures/mixtures-shares.json")

    def best(share: str) -> list[float]:
        return sorted(100 * cell["value"] for (_, column), cell in shares.items() if column == share)[:3]

    yield says(
        "at 10 % the best are off by {:.1f} points, at 50 % by {:.0f} to {:.0f}.",
        best("10%")[0],
        best("50%")[0],
        best("50%")[-1],
    )
    corrected = [
        cell["value"] for (row, column), cell in plain.items() if row.startswith("corrected, ") and column == "overall"
    ]
    yield says("fails under shift ({:.2f} in the median over detectors)", median(corrected))
    combinations = {row for row, column in plain if column == "overall"}
    yield says("of some of the {} combinations", len(combinations))
