"""`secondguess generate`: stress sets as files, to keep, to train on, or to audit with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess.cli.generate_options import CompanionOptions
from secondguess.cli.groups import grouped
from secondguess.cli.options import (
    COUNT,
    DATA,
    ENGINE,
    MAX_IMAGES,
    Common,
    Device,
    LoadingOptions,
    ModelOptions,
    Seed,
    listed,
    open_classifier,
    plain,
    print_json,
    say,
)
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.images import ImageSet

__all__ = ["app"]

app = typer.Typer(
    help="Make stress sets: images.npz, images.parquet, card.json and a contact sheet, in one folder.",
    no_args_is_help=True,
)

Data = Annotated[str, DATA]
FLOW, GAN = "flow", "ambigan"
MaxImages = Annotated[int | None, MAX_IMAGES]
Folder = Annotated[Path, typer.Option("--out", "-o", help="Folder for the set; nothing is written anywhere else.")]


@app.command("ambiguous")
@grouped
def ambiguous(
    *,
    out: Folder,
    data: Data = "mnist5k",
    count: Annotated[int, COUNT] = 1000,
    method: Annotated[
        str, typer.Option(help="auto (what suits the images), ambiguess, flow, gan, blend, or one of another package.")
    ] = "auto",
    generator: Annotated[
        Path | None,
        typer.Option(help="Folder of a trained flow to draw from, such as the folder `generator` of a set."),
    ] = None,
    pairs: Annotated[str, typer.Option(help="all, confused, or class names such as 3-8,4-9.")] = "confused",
    autoencoders: Annotated[
        int | None, typer.Option(min=1, help="Of AmbiGuess, for each pair; the paper trains 20. [default: 4]")
    ] = None,
    delta_max: Annotated[
        float | None,
        typer.Option(help="Largest |p1 - p2|; the paper takes 0.25, 0.4 to train on. [default: the method's]"),
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of each autoencoder. [default: the method's]")] = None,
    mode: Annotated[
        str | None, typer.Option(help="Of AmbiGuess: paper, or legacy: as the authors' code does it. [default: paper]")
    ] = None,
    acceptance: Annotated[
        str | None,
        typer.Option(
            help="Of autoencoders: paper, or achievable, for classes that nobody can tell apart. [default: paper]"
        ),
    ] = None,
    train_steps: Annotated[int | None, typer.Option(min=1, help="Of a flow. [default: its preset's]")] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="End the drawing from a flow after so long, with what it has found.")
    ] = None,
    realism: Annotated[bool, typer.Option(help="Reject images that fit neither class.")] = True,
    loading: LoadingOptions,
    seed: Seed = 0,
    device: Device = "auto",
    common: Common,
) -> None:
    """Images to which two classes are right, with soft labels.

    What is trained is kept in the folder: an interrupted run goes on where it stopped, and more images of the same
    autoencoders or of the same flow cost little.

    **Examples**

    `secondguess generate ambiguous --out out/ambiguous`

    `secondguess generate ambiguous --method flow --data photos/ --size 64 --count 500 --out out/cats_or_dogs`

    `secondguess generate ambiguous --data photos/ --size 64 --generator out/cats_or_dogs/generator --out out/more`
    """
    from secondguess.images import load
    from secondguess.stress.ambiguous.choosing import suited_generator
    from secondguess.stress.registry import generator_parameters, make_generator

    dataset = load(data, **loading.arguments())
    train = dataset.train or dataset.test
    name, note = GAN if method == "gan" else method, ""
    if plain(method) == "auto":
        name, note = (FLOW, "") if generator else suited_generator(train, device=device, folder=out / "generator")
    chosen = _pairs(pairs, train)
    given: dict[str, Any] = {
        "autoencoders": autoencoders,
        "epochs": epochs,
        "mode": mode and plain(mode),
        "acceptance": acceptance and plain(acceptance),
        "delta_max": delta_max,
        "train_steps": train_steps,
        "minutes": minutes,
        "generator": generator,
    }
    given = {key: value for key, value in given.items() if value is not None}
    own = generator_parameters(name) - ({"epochs"} if plain(name) == GAN else set())  # those are of two stages
    if unfit := sorted(given.keys() - own):
        taken = f"{name}, which auto takes here" if plain(method) == "auto" else f"--method {method}"
        raise UserError(f"--{unfit[0].replace('_', '-')} is not for {taken}; leave it out, or name another method.")
    options: dict[str, Any] = {"pairs": chosen, "realism": realism, "device": device, "autoencoders": 4} | given
    if plain(name) == GAN:
        options["classes"] = chosen[0] if isinstance(chosen, list) and len(chosen) == 1 else None
    else:
        options["folder"] = out / ("generator" if plain(name) == FLOW else "autoencoders")
    made = make_generator(name, **options).generate(train, count, seed=seed, progress=common.progress)
    made.save(out)
    card = made.card if not note else made.card | {"notes": [note, *made.card["notes"]]}
    _report(card, out, as_json=common.json)


@app.command("companion")
@grouped
def companion(
    *,
    out: Folder,
    data: Data = "mnist5k",
    count: Annotated[int, COUNT] = 5000,
    options: CompanionOptions,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure how real the images are, against real ones of their classes.")
    ] = False,
    loading: LoadingOptions,
    seed: Seed = 0,
    device: Device = "auto",
    common: Common,
) -> None:
    """Images that many small classifiers find ambiguous, with their judgement of each.

    The estimator, checkpoints of the GAN and sample sheets are kept in the folder: an interrupted run goes on where it
    stopped.

    **Examples**

    `secondguess generate companion --data mnist.npz --between 9,8 --out out/nine_or_eight`

    `secondguess generate companion --data xrays/ --between pneumonia,normal --r dial --out out/dial`

    `secondguess generate companion --data photos/ --size 64 --between cat,dog --measure --out out/cat_or_dog`
    """
    from secondguess.stress.ambiguous import make_companion

    card = make_companion(
        data,
        out,
        options.settings(),
        count=count,
        measure=measure,
        seed=seed,
        device=device,
        progress=common.progress,
        **loading.arguments(),
    )
    _report(card, out, as_json=common.json)


@app.command("corrupted")
@grouped
def corrupted(
    *,
    out: Folder,
    data: Data = "mnist5k",
    corruptions: Annotated[str | None, typer.Option(help="Names separated by commas. [default: a mix of 15]")] = None,
    mix: Annotated[str | None, typer.Option(help="A published mix: mnist_c or fashion_mnist_c.")] = None,
    severity: Annotated[int | None, typer.Option(min=1, max=5, help="1 mild to 5. [default: as published]")] = None,
    max_images: MaxImages = None,
    loading: LoadingOptions,
    engine: Annotated[str, ENGINE] = "local",
    seed: Seed = 0,
    common: Common,
) -> None:
    """Corrupted images whose class is unchanged.

    **Examples**

    `secondguess generate corrupted --out out/corrupted`

    `secondguess generate corrupted --data photos/test --corruptions fog,jpeg_compression --severity 3 --out out/foggy`

    `secondguess generate corrupted --data photos/ --size 224 --engine local:8 --out out/corrupted`
    """
    from secondguess.stress import Corrupted

    names = [plain(name) for name in listed(corruptions)] if corruptions else None
    mix = mix and plain(mix)
    maker = Corrupted(names, mix=mix, severity=severity)  # type: ignore[arg-type]
    nominal = _nominal(data, loading.arguments(), max_images, seed)
    images = maker.make(nominal, seed=seed, progress=common.progress, folder=out, engine=engine)
    settings = {"corruptions": names, "mix": mix, "severity": severity, "seed": seed}
    _save(images, "corrupted", settings, out, by=("corruption",), as_json=common.json)


@app.command("adversarial")
@grouped
def adversarial(
    *,
    out: Folder,
    model: ModelOptions,
    data: Data = "mnist5k",
    attacks: Annotated[str, typer.Option(help="Names separated by commas.")] = "fgsm,pgd,bim,deepfool",
    max_images: MaxImages = None,
    loading: LoadingOptions,
    seed: Seed = 0,
    common: Common,
) -> None:
    """The smallest perturbations of a grid that fool a model; through a surrogate where it gives no gradients.

    **Examples**

    `secondguess generate adversarial --model m.pt2 --data photos/test --max-images 500 --out out/attacked`

    `secondguess generate adversarial --model m.onnx --data test.npz --attacks fgsm --out out/fgsm`
    """
    from secondguess.model.agreement import agree
    from secondguess.stress import Adversarial

    classifier = open_classifier(model, loading)
    nominal = _nominal(data, loading.arguments(classifier), max_images, seed)
    classifier, nominal, _ = agree(classifier, nominal)
    maker = Adversarial([plain(name) for name in listed(attacks)])
    how: Any = {"progress": common.progress, "folder": out, "engine": model.engine}
    images = maker.make(nominal, classifier=classifier, seed=seed, **how)
    settings = {"model": classifier.fingerprint, "attacks": list(maker.attacks), "seed": seed}
    _save(images, "adversarial", settings, out, by=("attack",), as_json=common.json)


@app.command("invalid")
@grouped
def invalid(
    *,
    out: Folder,
    data: Data = "mnist5k",
    source: Annotated[
        str, typer.Option(help="mixed, textures, shuffled, inverted, a data set, or a folder.")
    ] = "mixed",
    max_images: MaxImages = None,
    loading: LoadingOptions,
    seed: Seed = 0,
    common: Common,
) -> None:
    """Images that belong to no class, in the shape of yours.

    **Examples**

    `secondguess generate invalid --out out/invalid`

    `secondguess generate invalid --data xrays/test --source holiday_photos/ --out out/not_xrays`
    """
    from secondguess.stress import Invalid

    nominal = _nominal(data, loading.arguments(), max_images, seed)
    images = Invalid(source).make(nominal, seed=seed, progress=common.progress)
    _save(images, "invalid", {"source": source, "seed": seed}, out, by=("source",), as_json=common.json)


def _nominal(data: str, loading: dict[str, Any], max_images: int | None, seed: int) -> ImageSet:
    from secondguess.images import load_images

    images = load_images(data, **loading)
    return images.head(max_images, seed=seed) if max_images and max_images < len(images) else images


def _pairs(text: str, train: ImageSet) -> str | list[tuple[int, int]]:
    """`all`, `confused`, or pairs of class names joined by a hyphen and separated by commas."""
    if text in ("all", "confused") or not train.is_labelled:  # the generator says that labels are missing
        return text
    places = {name: index for index, name in enumerate(train.class_names)}
    pairs = []
    for part in text.split(","):
        halves = [
            (places[part[:cut].strip()], places[part[cut + 1 :].strip()])
            for cut in range(len(part))
            if part[cut] == "-" and part[:cut].strip() in places and part[cut + 1 :].strip() in places
        ]
        if len(halves) != 1:
            names = ", ".join(train.class_names[:10])
            raise UserError(f"{part!r} is not a pair of classes such as 3-8; the classes are: {names}.")
        pairs += halves
    return pairs


def _save(
    images: ImageSet, kind: str, settings: dict[str, Any], out: Path, *, by: tuple[str, ...], as_json: bool
) -> None:
    from secondguess.stress.saving import card_of, save_stress_set

    card = card_of(images, kind, settings)
    save_stress_set(images, card, out, by=by)
    _report(card, out, as_json=as_json)


def _report(card: dict[str, Any], out: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(card | {"files": str(out)})
        return
    say(f"{card['images']:,} images in {out} (images.npz, card.json, sheet.png)")
    for name, counts in card.get("counts", {}).items():
        say(f"  {name}: " + ", ".join(f"{kind or 'none'} {count}" for kind, count in counts.items()))
    if card.get("realism") is not None:
        say(f"  {_realism(card['realism'])}")
    for note in card.get("notes", []):
        say(f"  {note}")


def _realism(measured: dict[str, Any]) -> str:
    """The measured realism in one line; beside each number that of held-out images, or of a flow's plain samples."""
    if "kernel" in measured:
        made, plain = measured["kernel"][0], measured["kernel_of_plain_samples"][0]
        return f"kernel distance to real images, in brackets that of plain samples: {made:.3g} ({plain:.3g})"
    names = {"frechet": "Fréchet distance", "precision": "precision", "recall": "recall", "coverage": "coverage"}
    made, real = measured["generated"], measured["held_out"]
    parts = [f"{name} {made[key]:.3g} ({real[key]:.3g})" for key, name in names.items()]
    return "realism, in brackets that of held-out real images: " + ", ".join(parts)
