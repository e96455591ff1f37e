"""docs/evidence/accuracy.md: the recommended number on photographs; oracles and estimates of accuracy on MNIST."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location

from claims import ROOT, Claim, record, rows, says

PAGE = "docs/evidence/accuracy.md"
NETWORKS = ("icos_a", "icos_b", "icos_c")
ORACLES = {  # with the paper's F1, where it has one
    "icos_fine": ("ICOS, fine partitions", (0.809, 0.758, 0.790)),
    "icos_equal": ("ICOS, equal partitions", (0.701, 0.693, 0.708)),
    "icos_without_input_rules": ("ICOS without input rules", ()),
    "input_rules_fine": ("fine input rules alone", ()),
    "cross_reference": ("cross-referencing, .8% undecided", (0.632, 0.496, 0.502)),
    "selfchecker": ("SelfChecker", (0.546, 0.328, 0.784)),
}


PHOTOS = {
    "cifar10/resnet20": "CIFAR-10, ResNet-20",
    "cifar10/vgg": "CIFAR-10, VGG",
    "cats_dogs/resnet20": "cats and dogs, ResNet-20",
    "cats_dogs/cats_dogs_cnn": "cats and dogs, the paper's CNN",
    "mnist5k/mlp": "digits (`mnist5k`), one hidden layer",
}
RIVALS = {
    "validation_accuracy": "`validation_accuracy`",
    "average_confidence": "`average_confidence`",
    "difference_of_confidences": "`difference_of_confidences` (DoC)",
    "thresholded_confidence": "`thresholded_confidence` (ATC)",
    "thresholded_entropy": "`thresholded_entropy` (ATC)",
    "nuclear_norm": "`nuclear_norm`",
    "label_shift_em": "`label_shift_em`",
    "cbpe": "CBPE (NannyML's method)",
    "cot": "COT (optimal transport)",
}
WAYS = ("none", "classes", "appearance", "both")


def claims() -> Iterator[Claim]:
    """All of them."""
    models = record("photos/accuracy.json")["models"]
    yield from photographs(models)
    yield from missed(models)
    kept = record("oracles/mnist.json")
    yield says(
        "{:,} for validation (accuracy {:.3f}, {:.3f}, {:.3f}), {} draws of {:,}",
        kept["settings"]["validation"],
        *(kept["networks"][name]["validation_accuracy"] for name in NETWORKS),
        kept["settings"]["repetitions"],
        kept["settings"]["drawn"],
    )
    yield rows(*(_detection(kept["detection"], name, *about) for name, about in ORACLES.items()))
    yield says(_table()(kept["errors"]))
    seconds = [kept["networks"][name]["seconds"] for name in NETWORKS]
    fits, judged = ([one[key] for one in seconds] for key in ("icos_fit", "icos_judge_20000"))
    yield says(
        "Fitting ICOS takes {:.0f} to {:.0f} seconds on two cores, judging 20,000 images {:.1f} to {:.1f} seconds.",
        *(pick(values) for values in (fits, judged) for pick in (min, max)),
    )
    yield from estimates(kept)


def photographs(models: dict) -> Iterator[Claim]:
    """How far off the recommended number is, how often there is one, and how often its interval covers."""
    shifted = {name: models[name]["summary"]["shifted"] for name in PHOTOS}
    yield rows(
        *(
            (
                f"| {title} | {{:.3f}} | {{:.0f}} % | {{:.1f}} | {{:.0f}} % | {{:.1f}} |",
                models[name]["accuracy"],
                100 * shifted[name]["given"],
                shifted[name]["error"],
                100 * shifted[name]["covered"],
                shifted[name]["error_all"],
            )
            for name, title in PHOTOS.items()
        )
    )
    two = [models[name]["summary"] for name in ("cifar10/resnet20", "cifar10/vgg")]
    line = " | ".join(["{:.1f}"] * 8)
    yield rows(
        (
            f"| `synthetic_shifts`, withheld ones too | {line} |",
            *(one[way]["error_all"] for one in two for way in WAYS),
        ),
        *(
            (f"| {title} | {line} |", *(one[way]["rivals"][name] for one in two for way in WAYS))
            for name, title in RIVALS.items()
        ),
    )
    cifar = [one["shifted"] for one in two]
    yield says(
        "CIFAR-10: the three targets are met by both networks. The default `widest` of 35 points was chosen on these "
        "sets: with 30 points a number is given in {:.0f} % (ResNet-20) and {:.0f} % (VGG) of the cases, with 40 "
        "points in {:.0f} % and {:.0f} %; the error stays below 5 points with each.",
        *(100 * one["widest"][width]["given"] for width in ("0.30", "0.40") for one in cifar),
        provided=all(one["error"] <= 5 and one["given"] >= 0.6 and one["covered"] >= 0.9 for one in cifar)
        and all(one["widest"][width]["error"] < 5 for one in cifar for width in ("0.30", "0.40")),
    )
    yield says(
        "Where appearance and classes have both changed, the error is {:.1f} and {:.1f} points, and the VGG gets a "
        "number in {:.0f} % of the changes of appearance alone and in {:.0f} % of the changes of both.",
        *(one["both"]["error"] for one in two),
        *(100 * two[1][way]["given"] for way in ("appearance", "both")),
    )
    yield says(
        "Changes of appearance were recognised in {} and {} of 45 sets as such and nothing else, other classes in {} "
        "and {} of 20. Where both have changed, that the classes have is noticed in {} and {} of 45 sets;",
        *(one[way]["recognised"][way] for way in ("appearance", "classes", "both") for one in two),
    )


def missed(models: dict) -> Iterator[Claim]:
    """What does not reach the targets."""
    animals = [models[name]["summary"] for name in ("cats_dogs/resnet20", "cats_dogs/cats_dogs_cnn")]
    digits = models["mnist5k/mlp"]["summary"]
    yield says(
        "Cats and dogs: a number is given in {:.0f} and {:.0f} % of the cases only.",
        *(100 * one["shifted"]["given"] for one in animals),
        provided=all(one["shifted"]["given"] < 0.6 for one in animals),
    )
    yield says(
        "for the same reason {} and {} of 45 changes of appearance are said to be changes of the classes, too.",
        *(one["appearance"]["recognised"]["both"] for one in animals),
    )
    yield says(
        "Digits: a number is given in {:.0f} % of the cases. `average_confidence`, which led before there was an "
        "answer, is off by {:.1f} points on these sets, and by {:.1f} with other classes alone, where the answer is "
        "off by {:.1f}.",
        100 * digits["shifted"]["given"],
        digits["shifted"]["rivals"]["average_confidence"],
        digits["classes"]["rivals"]["average_confidence"],
        digits["classes"]["error_all"],
        provided=digits["shifted"]["given"] < 0.6,
    )
    name, case = worst(models)
    yield says(
        "The worst number given is {:.0f} points off (cats and dogs, the paper's CNN, shot noise of severity 3 with "
        "other classes): the answer is {:.2f}, with an interval of {:.2f} to {:.2f}, and the truth is {:.2f}. The "
        "report does say there that both have changed,",
        100 * abs(case["value"] - case["truth"]),
        *(case[key] for key in ("value", "low", "high", "truth")),
        provided=(name, case["set"], case["way"]) == ("cats_dogs/cats_dogs_cnn", "shot_noise 3", "both")
        and case["looks"]["way"] == "both",
    )


def worst(models: dict) -> tuple[str, dict]:
    """The case in which a number that was given is farthest off, and the model."""
    given = [(name, case) for name in PHOTOS for case in models[name]["cases"] if not case["withheld"]]
    return max(given, key=lambda one: abs(one[1]["value"] - one[1]["truth"]))


def _detection(measured: dict, name: str, title: str, paper: tuple[float, ...]) -> tuple:
    """One line: TPR, FPR and F1 of each network."""
    f1 = "**{:.3f}**" if name == "icos_fine" else "{:.3f}"
    fpr = "{:.0f}" if name == "input_rules_fine" else "{:.4f}"
    text, values = f"| {title} |", []
    for place, network in enumerate(NETWORKS):
        text += f" {{:.3f}} / {fpr} / {f1}" + (" ({:.3f}) |" if paper else " |")
        values += [measured[network][name][key] for key in ("tpr", "fpr", "f1")] + list(paper[place : place + 1])
    return text, *values


def _table() -> object:
    """The table of errors as lab/experiments/oracles_table.py makes it."""
    spec = spec_from_file_location("oracles_table", ROOT / "lab/experiments/oracles_table.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.table


def nearest(errors: dict) -> Iterator[Claim]:
    """Where `rules_and_confidence` is nearer to the truth than the other methods, and how near it is."""
    mine, icos = errors["rules_and_confidence"], errors["icos_fine"]
    hidden = "labels 6/8 swapped"
    seen = [column for column in mine["networks"] if column != hidden]
    others = {
        column: min(found[column] for name, found in errors.items() if not name.startswith("rules_and_confidence"))
        for column in seen
    }
    behind = {column: 100 * (mine[column] - others[column]) for column in seen if mine[column] > others[column]}
    yield says(
        "nearer to the truth than every other method, or within {:.2f} points of the nearest (without shift), in every "
        "column but 6/8.",
        max(behind.values()),
        provided=list(behind) == ["no shift"],
    )
    alone = [100 * found[hidden] / (len(seen)) for found in (mine, icos)]
    yield says(
        "Of both, {:.1f} points are the 6/8 column alone;",
        alone[0],
        provided=f"{alone[0]:.1f}" == f"{alone[1]:.1f}" and len(seen) == 10,
    )
    yield says(
        "On A and C it is within {:.1f} in all columns but 6/8.",
        max(100 * mine["networks"][column][place] for column in seen for place in (0, 2)),
    )


def estimates(kept: dict) -> Iterator[Claim]:
    """What the text says of the table."""
    errors, detection = kept["errors"], kept["detection"]["icos_a"]
    best, icos = errors["rules_and_confidence"], errors["icos_fine"]
    yield says(
        "F1 falls to {:.2f} and {:.2f} there and the estimate is {:.1f} and {:.0f} points too low.",
        *(detection[f"icos_fine_criterion_{number}"]["f1"] for number in (2, 3)),
        *(abs(100 * detection[f"icos_fine_criterion_{number}"]["bias"]) for number in (2, 3)),
    )
    yield says(
        "the error of the estimate from {:.1f} to {:.1f} points on A;",
        *(100 * detection[name]["mae"] for name in ("icos_fine", "input_rules_fine")),
    )
    yield from nearest(errors)
    low = [-100 * kept["detection"][network]["selfchecker"]["bias"] for network in NETWORKS]
    yield says(
        "SelfChecker looks best there because it is {:.1f} points too low on A and {:.1f} on B without any shift.",
        *low[:2],
        provided=abs(low[2]) < 0.1,
    )
    yield says(
        "Its mean over the ten shifts is {:.1f} points; that of the next method, ICOS with fine partitions, is {:.1f}.",
        100 * best["mean over shifts"],
        100 * icos["mean over shifts"],
    )
    yield says(
        "over the other nine it is {:.2f} against {:.1f}.",
        100 * best["mean over shifts without 6/8"],
        100 * icos["mean over shifts without 6/8"],
    )
    yield says(
        "On B it is {:.1f} points too low on ambiguous images, {:.1f} where half are: it infers more errors "
        "inside the partitions than there are, and the plain share of ICOS is nearer ({:.1f} and {:.1f}).",
        *(100 * one["networks"][f"{share} ambiguous"][1] for one in (best, icos) for share in ("all", "half")),
    )
    many = kept["ranks"]["shifts, a block a repetition"]
    few = kept["ranks"]["shifts, a block a network and column"]
    yield says(
        "Friedman's test over {} blocks (network, shift, repetition) puts `rules_and_confidence` first, with "
        "mean ranks {:.2f} and {:.2f} for fine and equal partitions, then ICOS with {:.2f}; the critical "
        "difference is {:.2f}.",
        many["blocks"],
        *(many["mean_ranks"][name] for name in ("rules_and_confidence", "rules_and_confidence_equal", "icos_fine")),
        many["critical_difference"],
    )
    yield says(
        "With one block for each network and shift, {} of them, the critical difference is {:.1f}:",
        few["blocks"],
        few["critical_difference"],
    )
