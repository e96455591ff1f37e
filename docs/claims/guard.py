"""docs/evidence/guard.md: what the panel sees, what kinds are named, what is kept of promises, what a guard costs."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

from claims import Claim, record, rows, says

PAGE = "docs/evidence/guard.md"
KINDS = ("ambiguous", "adversarial", "corrupted", "invalid")
DATA = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
BEST = {"mnist": ("entropy", "dsa", "dsa", "max_logit"), "fashion_mnist": ("dissector", "dsa", "dsa", "vim")}
PHOTOS = {
    "cifar10_resnet20": "CIFAR-10, ResNet-20",
    "cifar10_vgg": "CIFAR-10, VGG",
    "cats_dogs_cats_dogs_cnn": "cats and dogs, CNN",
    "cats_dogs_resnet20": "cats and dogs, ResNet-20",
}
COMPROMISE = {"mnist": "dissector", "fashion_mnist": "relative_mahalanobis"}


def runs(data: str) -> list[dict]:
    """Both models of a data set."""
    return record(f"guard/{data}.json")["rows"]


def auroc(data: str, name: str, kind: str) -> float:
    """The mean over models."""
    return mean(run["auroc"][name][kind] for run in runs(data))


def singles(data: str) -> list[str]:
    """All single supervisors."""
    return [name for name in runs(data)[0]["auroc"] if not name.startswith("panel")]


def claims() -> Iterator[Claim]:
    """All of them."""
    yield from seen()
    yield from decided()
    yield from photographs()
    yield from risks()
    yield from features()
    yield from mirrors()
    yield from costs()


def seen() -> Iterator[Claim]:
    """AUROC of the panel and of single supervisors."""
    lines: list[tuple] = []
    for data, title in DATA.items():
        starred = [
            f"`{name}`" + ("*" if (data, place) == ("fashion_mnist", 0) else "")
            for place, name in enumerate(BEST[data])
        ]
        lines += [
            (f"| {title}, panel |" + 4 * " {:.3f} |", *(auroc(data, "panel", kind) for kind in KINDS)),
            (
                "| the best supervisor of each column |" + "".join(f" {{:.3f}} {name} |" for name in starred),
                *(_of(data, name, kind) for name, kind in zip(BEST[data], KINDS, strict=True)),
            ),
            (
                f"| the best compromise, `{COMPROMISE[data]}` |" + 4 * " {:.3f} |",
                *(auroc(data, COMPROMISE[data], kind) for kind in KINDS),
            ),
        ]
    yield rows(*lines)
    behind = [
        (auroc(data, "panel", kind) - max(auroc(data, name, kind) for name in singles(data)), data, kind)
        for data in DATA
        for kind in KINDS
    ]
    worst = min(run["margin"][kind] for data in DATA for run in runs(data) for kind in KINDS)
    yield says(
        "above the best single supervisor of every column but one, where it is {:.3f} below ({:.3f} in the "
        "worse of the two models);",
        -min(behind)[0],
        -worst,
        provided=sum(one[0] < 0 for one in behind) == 1,
    )
    short = [
        max(max(auroc(data, other, kind) for other in singles(data)) - auroc(data, name, kind) for kind in KINDS)
        for data in DATA
        for name in singles(data)
    ]
    near = _of("fashion_mnist", "dissector", "ambiguous") - _of("fashion_mnist", "entropy", "ambiguous")
    yield says(
        "no single one comes within .03 of the best in all four. `*`: `entropy` is within .001 of it.",
        provided=min(short) > 0.03 and abs(near) < 0.001,
    )


def _of(data: str, name: str, kind: str) -> float:
    """By its better fit, where it was also fitted alone."""
    known = runs(data)[0]["auroc"]
    return max(auroc(data, one, kind) for one in (name, f"{name} alone") if one in known)


def decided() -> Iterator[Claim]:
    """Detection, false alarms and verdicts."""
    yield rows(
        *(
            (
                f"| {title}, detected |" + 4 * " {:.3f} |" + " {:.3f} and {:.3f} |",
                *(mean(run["detected"][kind]["value"] for run in runs(data)) for kind in KINDS),
                *(run["false_alarms"]["value"] for run in runs(data)),
            )
            for data, title in DATA.items()
        )
    )
    lines: list[tuple] = []
    for data, title in DATA.items():
        for key, words in (("all", "all images"), ("alarms", "images with an alarm")):
            values = [mean(run["verdicts"][kind][key] for run in runs(data)) for kind in KINDS]
            lines.append((f"| {title}, {words} |" + 5 * " {:.3f} |", *values, mean(values)))
    yield rows(*lines)
    named = {
        name: [100 * run["verdicts"]["corrupted"]["named"][name] for data in DATA for run in runs(data)]
        for name in ("invalid", "adversarial")
    }
    yield says(
        "of unseen sorts, {:.0f} to {:.0f} % are called invalid and {:.0f} to {:.0f} % adversarial.",
        *(end for values in named.values() for end in (min(values), max(values))),
    )
    quarters = [run["cascades"][0] for data in DATA for run in runs(data)]
    yield says(
        "asks the expensive supervisors about a fifth of the nominal images and loses nothing: detection stays within "
        ".005 of the full panel in every column.",
        provided=all(abs(lost) <= 0.005 for one in quarters for lost in one["lost"].values())
        and 0.15 < mean(one["asked_about_nominal"] for one in quarters) < 0.25,
    )


def costs() -> Iterator[Claim]:
    """`bench guard`."""
    kept = record("bench/guard.json")
    single, batch = kept["overhead"]
    exported, exported_batch = kept["exported"]
    bare = sorted([batch["bare_ms"], exported_batch["bare_ms"]])
    yield rows(
        (
            "| single image, {:.2f} to {:.2f} ms bare | {:+.0f} to {:+.0f} % | {:+.0f} to {:+.0f} % |",
            *sorted([single["bare_ms"], exported["bare_ms"]]),
            *(100 * one[key] for one in (single, exported) for key in ("overhead", "median_overhead")),
        ),
        (
            "| batch of 256, {:.0f} to {:.0f} ms bare | {:+.0f} to {:+.0f} % | {:+.0f} to {:+.0f} % |",
            *bare,
            *(100 * one[key] for one in (batch, exported_batch) for key in ("overhead", "median_overhead")),
        ),
    )
    photographs = kept["photographs"]
    yield rows(
        *(
            (
                f"| ResNet-20, {words}, {{:{places}}} ms bare | {{:+.0f}} to {{:+.0f}} % | |",
                row["bare_ms"],
                100 * row["overhead"],
                100 * row["median_overhead"],
            )
            for words, places, row in zip(("single image", "batch of 256"), (".1f", ".0f"), photographs, strict=True)
        )
    )


def photographs() -> Iterator[Claim]:
    """The panel and the verdicts on photographs."""
    models, verdicts = (record(f"photos/{name}.json")["models"] for name in ("panel", "verdict"))
    columns, lines = ("mistakes", "ambiguous", "corrupted", "adversarial", "invalid"), []
    for name, title in PHOTOS.items():
        one = models[name]
        pairs = [value for column in columns for value in (one["now"][column], one["margins"][column])]
        missed = one["now"]["missed"], one["entropy"]["missed"]
        lines.append((f"| {title} |" + 5 * " {:.3f} ({:+.3f}) |" + " {:.2f} ({:.2f}) |", *pairs, *missed))
    yield rows(*lines)
    alone = record("photos/panel.json")["models"]["mnist_simple_cnn"]["margins"]
    digits = verdicts["mnist_simple_cnn"]["now"]["all"]
    yield says(
        "Its panel is above the best single supervisor or within {:.3f} of it in every column, and single verdicts, "
        "{:.0f} % of all, are right in {:.0f} % of cases.",
        -min(alone.values()),
        100 * digits["single"],
        100 * digits["right"],
    )
    worst = [min(models[name]["ceiling"].values()) for name in PHOTOS]
    others = [models[name]["margins_others"] for name in PHOTOS]
    spoilt = [row["corrupted"] for row in others]
    yield says("are {:.3f} to {:.3f} behind in their worst column (`ceiling`);", -max(worst), -min(worst))
    yield from behind(models)
    yield says(
        "the panel is {:.3f} behind in its worst column and {:.3f} to {:.3f} ahead on corrupted images.",
        -min(min(row.values()) for row in others),
        min(spoilt),
        max(spoilt),
    )
    novel = [models[name]["novelty"] for name in PHOTOS]
    found = [[row[column] for row in novel] for column in ("corrupted", "invalid")]
    yield says(
        "the panel has {:.3f} to {:.3f} on corrupted and {:.3f} to {:.3f} on invalid images, and less on mistakes "
        "with all four;",
        *(pick(values) for values in found for pick in (min, max)),
        provided=all(models[name]["novelty"]["mistakes"] < models[name]["now"]["mistakes"] for name in PHOTOS),
    )
    more, fewer = (
        [name for name in PHOTOS if models[name]["errors"][column] > models[name]["now"][column] + 0.001]
        for column in ("mistakes", "missed")
    )
    yield says(
        "Its AUROC on mistakes is higher with two of the models, but at 5 % false alarms it misses more of them with "
        "both models for cats and dogs.",
        provided=len(more) == 2 and fewer == list(PHOTOS)[2:],
    )
    called = [verdicts[name]["now"]["sorts"]["invalid, other data set"] for name in list(PHOTOS)[:2]]
    yield says(
        "Another data set as invalid images is named so in {:.0f} and {:.0f} % of its alarms",
        *(100 * one["likeliest"] / one["alarms"] for one in called),
    )
    yield from named(verdicts)
    yield says(
        "it misses more mistakes with all four models.",
        provided=all(models[name]["before"]["missed"] > models[name]["now"]["missed"] for name in PHOTOS),
    )
    shares = [("now", "single"), ("now", "right"), ("now", "likeliest"), ("before", "likeliest")]
    yield rows(
        *(
            (
                f"| {title} | {{:.3f}} | {{:.2f}} | {{:.2f}} ({{:.2f}}) |",
                *(verdicts[name][a]["all"][b] for a, b in shares),
            )
            for name, title in PHOTOS.items()
        )
    )


def behind(models: dict) -> Iterator[Claim]:
    """Where the panel is more than .01 below the best single supervisor."""

    def missed(column: str) -> list[str]:
        return [name for name in PHOTOS if models[name]["margins"][column] < -0.01]

    yield says(
        "for corrupted and for invalid images with all four, for mistakes with three, for ambiguous and adversarial "
        "images with the ResNet-20 of CIFAR-10.",
        provided=missed("corrupted") == missed("invalid") == list(PHOTOS)
        and len(missed("mistakes")) == 3
        and missed("ambiguous") == missed("adversarial") == ["cifar10_resnet20"],
    )
    yield says(
        "With the VGG, more mistakes are missed than by `entropy` alone.",
        provided=[name for name in PHOTOS if models[name]["now"]["missed"] > models[name]["entropy"]["missed"]]
        == ["cifar10_vgg"],
    )
    looks = {name: models[name]["single"]["appearance"] for name in PHOTOS}
    yield says(
        "is `appearance`, which says nothing of mistakes (of attacks it says nothing on CIFAR-10, and with the CNN for "
        "cats and dogs more than any other, {:.3f});",
        looks["cats_dogs_cats_dogs_cnn"]["adversarial"],
        provided=all(models[name]["best"][kind] == "appearance" for name in PHOTOS for kind in ("corrupted", "invalid"))
        and all(abs(row["mistakes"] - 0.5) < 0.05 for row in looks.values())
        and all(abs(looks[name]["adversarial"] - 0.5) < 0.05 for name in list(PHOTOS)[:2])
        and models["cats_dogs_cats_dogs_cnn"]["best"]["adversarial"] == "appearance",
    )


def by_sorts(found: dict, *, without: str = "", only: str = "") -> dict[str, tuple[float, float]]:
    """By kind, of the alarms: the shares of single verdicts and of right ones; sorts weigh the same."""
    shares: dict[str, list[tuple[float, float]]] = {}
    for place, one in found["sorts"].items():
        kind, sort = place.split(", ", 1)
        if sort != without and only in ("", sort):
            shares.setdefault(kind, []).append((one["single"] / one["alarms"], one["right"] / one["alarms"]))
    return {kind: (mean(a for a, _ in pairs), mean(b for _, b in pairs)) for kind, pairs in shares.items()}


def named(verdicts: dict) -> Iterator[Claim]:
    """Single verdicts by kind, and without the one sort that was always met."""
    titles = PHOTOS | {"mnist_simple_cnn": "digits, SimpleCNN"}
    lines: list[tuple] = []
    for name, title in titles.items():
        found = verdicts[name]["now"]
        unmet = by_sorts(found, without="blend")
        single, right = (mean(pair[place] for pair in unmet.values()) for place in (0, 1))
        flow = by_sorts(found, only="flow").get("ambiguous")
        cells = [(found[kind]["right"], found[kind]["single"]) for kind in ("corrupted", "adversarial", "invalid")]
        cells.append((right / single, single))
        words = " {:.2f} ({:.2f}) |" + (" {:.2f} ({:.2f}) |" if flow else " |") + 4 * " {:.2f} ({:.2f}) |"
        first = [found["ambiguous"]["right"], found["ambiguous"]["single"]]
        first += [flow[1] / flow[0], flow[0]] if flow else []
        lines.append((f"| {title} |" + words, *first, *(value for cell in cells for value in cell)))
    yield rows(*lines)
    photos = [verdicts[name]["now"] for name in PHOTOS]
    yield says(
        "More than .70 of the single verdicts are right with all four,",
        provided=all(one["all"]["right"] > 0.7 for one in photos),
    )
    alone = [one["invalid"] for one in photos[:2]]
    vgg = photos[1]["sorts"]["ambiguous, flow"]
    yield says(
        "(Invalid images reach it by themselves, with {:.2f} and {:.2f}, and so do the generator's with the VGG; but "
        "hardly any of them is named alone.)",
        *(one["right"] for one in alone),
        provided=min(vgg["right"] / vgg["single"], *(one["right"] for one in alone)) > 0.7
        and max(vgg["single"] / vgg["alarms"], *(one["single"] for one in alone)) < 0.1,
    )
    spoilt = [one["corrupted"] for one in photos[:2]]
    yield says(
        "A corruption that was not met is hardly ever named alone ({:.2f} and {:.2f} of the alarms), and then wrongly:",
        *(one["single"] for one in spoilt),
        provided=all(one["right"] < 0.1 for one in spoilt),
    )
    now, before = (verdicts["mnist_simple_cnn"][when]["corrupted"] for when in ("now", "before"))
    yield says(
        "{:.2f} of the single verdicts are right, where names by the scores alone had {:.2f}; the likeliest kind is "
        "right for {:.2f} of these alarms, before {:.2f}.",
        now["right"],
        before["right"],
        now["likeliest"],
        before["likeliest"],
    )


PAIR = " {:.2f} ({:.2f}) |"


def risks() -> Iterator[Claim]:
    """What is kept of a promised risk, on nominal and on other images."""
    kept = record("photos/risk.json")
    models = {name: kept["models"][name] for name in PHOTOS}
    yield rows(*(line for name, title in PHOTOS.items() for line in _promises(title, models[name]["panel"])))
    found = [
        one["panel"][risk] for one in models.values() for risk in one["panel"] if one["panel"][risk]["refused"] < 1
    ]
    yield says(
        "In {} random splits a promise, where any was made, is given and broken in {:.1f} to {:.1f} % of the cases. "
        "That has the chance of a finite test in it; counted without it, with calibration images drawn from a world "
        "that is known to the last image, it is {:.1f} to {:.1f} %, where 5 % are allowed",
        kept["settings"]["splits"],
        *(100 * pick(one["broken"] for one in found) for pick in (min, max)),
        *(100 * pick(one["drawn"]["broken"] for one in found) for pick in (min, max)),
        provided=all(one["drawn"]["broken"] <= 0.05 for one in found),
    )
    rare = models["cats_dogs_resnet20"]["panel"]["0.01"]
    yield says(
        "(the ResNet-20 for cats and dogs refuses 1 % in {:.0f} % of the splits; of the promises that it gives, {:.0f} "
        "% are broken in the splits and {:.0f} % in the known world; the CNN refuses 5 % in {:.0f} %, and of those "
        "that it gives {:.0f} % and {:.0f} % are broken).",
        *(
            100 * share
            for one in (rare, models["cats_dogs_cats_dogs_cnn"]["panel"]["0.05"])
            for share in (one["refused"], one["broken_of_given"], one["drawn"]["broken_of_given"])
        ),
    )
    two = [{rule: one[rule]["0.02"]["sets"] for rule in ("panel", "entropy")} for one in list(models.values())[:2]]

    def both(rule: str, name: str, what: str) -> list[float]:
        return [one[rule][name][what] for one in two]

    hard = "corrupted, severity 5"
    yield says(
        "At 2 % and severity 5, {:.0f} and {:.0f} % of what is accepted is wrong with the two networks for CIFAR-10, "
        "and {:.0f} and {:.0f} % of the attacks that fooled the model pass.",
        *(100 * value for value in both("panel", hard, "wrong") + both("panel", "adversarial", "accepted")),
    )
    yield says(
        "With `entropy` in place of the guard's statistic the same promise accepts {:.0f} and {:.0f} % of the nominal "
        "images, against {:.0f} and {:.0f}; but of what it accepts at severity 5, {:.0f} and {:.0f} % are wrong.",
        *(100 * value for rule in ("entropy", "panel") for value in both(rule, "nominal", "accepted")),
        *(100 * value for value in both("entropy", hard, "wrong")),
    )
    tight = {rule: [one[rule]["0.01"] for one in list(models.values())[:2]] for rule in ("panel", "entropy")}
    yield says(
        "at 1 % the guard accepts {:.2f} and {:.2f} and refuses in {:.2f} and {:.2f} of the splits, where `entropy` "
        "accepts {:.2f} and {:.2f} and hardly ever refuses.",
        *(one["sets"]["nominal"]["accepted"] for one in tight["panel"]),
        *(one["refused"] for one in tight["panel"]),
        *(one["sets"]["nominal"]["accepted"] for one in tight["entropy"]),
        provided=max(one["refused"] for one in tight["entropy"]) < 0.01,
    )


def _promises(title: str, found: dict) -> Iterator[tuple]:
    """A line of the table for each risk."""
    for risk, one in found.items():
        start = f"| {title} | {100 * float(risk):.0f} % | {{:.2f}} |"
        if "sets" not in one:
            yield start + 10 * " |", one["refused"]
            continue
        sets = one["sets"]
        names = ("ambiguous", "corrupted", "corrupted, severity 1", "corrupted, severity 5")
        pairs = [(sets[name]["accepted"], sets[name]["wrong"]) for name in names]
        words = "".join(" {:.2f} |" if wrong is None else PAIR for _, wrong in pairs)
        values = [value for pair in pairs for value in pair if value is not None]
        yield (
            start + " {:.2f} | {:.3f} | {:.3f} | {:.3f} |" + words + " {:.2f} | {:.2f} |",
            one["refused"],
            sets["nominal"]["accepted"],
            sets["nominal"]["wrong"],
            one["broken"],
            one["drawn"]["broken"],
            *values,
            *(sets[kind]["accepted"] for kind in ("adversarial", "invalid")),
        )


GROUPS = {
    "scores alone": "scores alone, without `appearance`",
    "scores and noise": "and noise",
    "scores and flat": "and what is flat or clipped",
    "scores and sharpness": "and sharpness, edges, blocks",
    "scores and colour": "and brightness, contrast, colour",
    "scores and frequency": "and frequencies",
    "scores and novelty": "and novelty of the pixels (`appearance`)",
    "scores and consistency": "and consistency under a flip and a slight blur",
    "today": "as it is: noise, flat or clipped, `appearance`",
    "today and consistency": "as it is, and consistency",
    "all": "all of them",
}


def features() -> Iterator[Claim]:
    """What each group of features adds to names."""
    models = [record("photos/features.json")["models"][name] for name in PHOTOS]

    def average(title: str, when: str, column: str) -> float:
        return mean(one[title][when][column] for one in models)

    columns = [("unmet", kind) for kind in ("corrupted", "adversarial", "invalid")]
    columns += [("met", "corrupted"), ("met", "mean"), ("unmet", "single"), ("unmet", "right")]
    yield rows(
        *(
            (f"| {words} |" + len(columns) * " {:.2f} |", *(average(title, *column) for column in columns))
            for title, words in GROUPS.items()
        )
    )
    gains = {
        group: {
            (when, kind): average(f"scores and {group}", when, kind) - average("scores alone", when, kind)
            for when in ("met", "unmet")
            for kind in KINDS
        }
        for group in ("sharpness", "colour", "frequency")
    }
    sharp, colour, frequency = gains.values()
    yield says(
        "sharpness helps with corruptions and invalid images that were met, and much less with others; colour helps a "
        "little with corruptions, met or not; frequencies help most with invalid images, met or not.",
        provided=min(sharp["met", "corrupted"], sharp["met", "invalid"]) > 0.1
        and max(gain for place, gain in sharp.items() if place not in {("met", "corrupted"), ("met", "invalid")}) < 0.06
        and max(colour, key=colour.__getitem__)[1] == "corrupted"
        and all(0.04 < colour[when, "corrupted"] < 0.07 for when in ("met", "unmet"))
        and all(
            frequency[when, "invalid"] == max(frequency[when, kind] for kind in KINDS) for when in ("met", "unmet")
        ),
    )
    yield says(
        "All of them together raise what is right of sorts that were met from {:.2f} to {:.2f}, and lower what is "
        "right of corruptions that were not from {:.2f} to {:.2f}",
        *(average(title, "met", "mean") for title in ("today", "all")),
        *(average(title, "unmet", "corrupted") for title in ("today", "all")),
        provided=average("all", "met", "mean") > average("today", "met", "mean")
        and all(
            average(f"today and {group}", "unmet", "corrupted") < average("today", "unmet", "corrupted")
            for group in ("sharpness", "frequency")
        ),
    )
    yield says(
        "raises what is right of attacks that were not met from {:.2f} to {:.2f}, single verdicts from {:.2f} to "
        "{:.2f} of the alarms, and what is right of these from {:.2f} to {:.2f}.",
        *(average(title, "unmet", key) for key in ("adversarial", "single", "right") for title in ("today", MORE)),
    )


MORE = "today and consistency"


def mirrors() -> Iterator[Claim]:
    """What a guard names rightly with mirror images and without."""
    models = record("photos/verdict_consistency.json")["models"]
    photos, digits = [models[name] for name in PHOTOS], models["mnist_simple_cnn"]
    groups = ("corrupted", "adversarial", "invalid", "others", "blends")
    lines: list[tuple] = []
    for name, title in (PHOTOS | {"mnist_simple_cnn": "digits, SimpleCNN"}).items():
        for first, names, words in ((f" {title} ", "without", "without"), (" ", "mirror", "with a mirror")):
            cells = [models[name][names][group][key] for group in groups for key in ("right", "single")]
            lines.append((f"|{first}| {words} |" + len(groups) * PAIR, *cells))
    yield rows(*lines)

    def right(names: str, group: str = "others") -> list[float]:
        return [one[names][group]["right"] for one in photos]

    def single(names: str) -> list[float]:
        return [one[names]["others"]["single"] for one in photos]

    yield says(
        "{:.2f} to {:.2f} of the single verdicts are now right with all four networks for photographs, where {:.2f} to "
        "{:.2f} were, and there are more of them.",
        *(pick(right(names)) for names in ("mirror", "without") for pick in (min, max)),
        provided=all(now > before for now, before in zip(single("mirror"), single("without"), strict=True)),
    )
    before, now = ([one[names] for one in photos] for names in ("without", "mirror"))
    yield says(
        "On CIFAR-10 the gain is that of attacks; for cats and dogs more attacks are named alone, about as rightly as "
        "before, and corruptions and invalid images are named more rightly.",
        provided=all(
            now[place]["adversarial"]["single"] > before[place]["adversarial"]["single"] + 0.1 for place in range(4)
        )
        and all(
            now[place][group]["right"] < before[place][group]["right"] + 0.01
            for place in (0, 1)
            for group in ("corrupted", "invalid")
        )
        and all(
            abs(now[place]["adversarial"]["right"] - before[place]["adversarial"]["right"]) < 0.02 for place in (2, 3)
        )
        and all(
            now[place][group]["right"] > before[place][group]["right"]
            for place in (2, 3)
            for group in ("corrupted", "invalid")
        ),
    )
    changed = [[1 - one["kept"]["mirror"][f"judge {kind}"] for one in photos] for kind in KINDS]
    attacks, others = changed.pop(KINDS.index("adversarial")), [value for values in changed for value in values]
    yield says(
        "The answers to attacks change in a mirror in {:.0f} to {:.0f} % of the cases, those to other anomalies in "
        "{:.0f} to {:.0f} %.",
        *(100 * pick(values) for values in (attacks, others) for pick in (min, max)),
    )
    yield says(
        "Nothing is won for corruptions on CIFAR-10: hardly one is named alone, and then wrongly, as before. Invalid "
        "photographs that are named alone are still named wrongly more often than rightly with the ResNet-20 for cats "
        "and dogs.",
        provided=max(right("mirror", "corrupted")[:2] + right("without", "corrupted")[:2]) < 0.1
        and right("mirror", "invalid")[3] < 0.5,
    )
    blends = [[one[names]["blends"]["likeliest"] for one in photos] for names in ("mirror", "without")]
    named = [
        abs(now - before) for now, before in zip(right("mirror", "blends"), right("without", "blends"), strict=True)
    ]
    yield says(
        "where they are named alone the name is right as often, within {:.2f}, but",
        max(named),
    )
    yield says(
        "their likeliest kind is right for {:.2f} to {:.2f} of the alarms, before {:.2f} to {:.2f}.",
        *(pick(values) for values in blends for pick in (min, max)),
    )
    nominal = [one["kept"]["mirror"]["learn nominal"] for one in photos]
    yield says(
        "keep {:.0f} to {:.0f} % of their answers to nominal images in a mirror, that for digits {:.0f} %: its guard "
        "does not ask",
        *(100 * value for value in (min(nominal), max(nominal), digits["kept"]["mirror"]["learn nominal"])),
        provided=all(one["guard"] for one in photos) and not digits["guard"],
    )
    order = ("without", "blur", "mirror", "mirror and blur")
    yield says(
        "{:.2f} are right without changes, {:.2f} with the blur, {:.2f} with the mirror image and {:.2f} with both, "
        "{:.2f}, {:.2f}, {:.2f} and {:.2f} of the alarms being named alone (means over the four networks). On the "
        "judged images both have {:.2f}, the mirror image {:.2f}.",
        *(mean(one["chosen"][names][key] for one in photos) for key in ("right", "single") for names in order),
        *(mean(right(names)) for names in ("mirror and blur", "mirror")),
    )
