"""`secondguess generate`: stress sets as files, to keep, to train on, or to audit with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secondguess.cli.options import Debug, Device, Json, Quiet, Seed, print_json, progress_for, say
from secondguess.errors import UserError

if TYPE_CHECKING:
    from secondguess.images import ImageSet

__all__ = ["app"]

app = typer.Typer(
    help="Make stress sets: images.npz, images.parquet, card.json and a contact sheet, in one folder.",
    no_args_is_help=True,
)

Data = Annotated[str, typer.Option(help="The images to start from: a name, a folder or a file.")]
Size = Annotated[int | None, typer.Option(min=1, help="Resize the images to so many pixels a side.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Start from at most so many images.")]
Folder = Annotated[Path, typer.Option("--out", "-o", help="Folder for the set; nothing is written anywhere else.")]


@app.command("ambiguous")
def ambiguous(
    out: Folder,
    data: Data = "mnist5k",
    count: Annotated[int, typer.Option(min=1, help="How many images.")] = 1000,
    generator: Annotated[str, typer.Option(help="ambiguess, blend, or one that another package adds.")] = "ambiguess",
    pairs: Annotated[str, typer.Option(help="all, confused, or class names such as 3-8,4-9.")] = "confused",
    autoencoders: Annotated[int, typer.Option(min=1, help="For each pair; the paper trains 20.")] = 4,
    delta_max: Annotated[float, typer.Option(help="Largest |p1 - p2|; the paper takes 0.25, 0.4 to train on.")] = 0.25,
    epochs: Annotated[int, typer.Option(min=1, help="Of each autoencoder.")] = 80,
    mode: Annotated[str, typer.Option(help="paper, or legacy: as the authors' code does it.")] = "paper",
    realism: Annotated[bool, typer.Option(help="Reject images that nobody would call either class.")] = True,
    size: Size = None,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Images to which two classes are right, with soft labels.

    The autoencoders are kept in the folder: an interrupted run goes on where it stopped, and more images of the same
    autoencoders cost seconds.

    **Examples**

    `secondguess generate ambiguous --out out/ambiguous`

    `secondguess generate ambiguous --data photos/ --size 64 --pairs cat-dog --count 500 --out out/cats_or_dogs`
    """
    from secondguess.images import load
    from secondguess.stress.registry import make_generator

    dataset = load(data, size=size)
    train = dataset.train or dataset.test
    chosen = _pairs(pairs, train)
    maker = make_generator(
        generator,
        pairs=chosen,
        autoencoders=autoencoders,
        delta_max=delta_max,
        epochs=epochs,
        mode=mode,
        realism=realism,
        device=device,
        folder=out / "autoencoders",
    )
    made = maker.generate(train, count, seed=seed, progress=progress_for(quiet=quiet or json))
    made.save(out)
    _report(made.card, out, as_json=json)


@app.command("companion")
def companion(
    out: Folder,
    data: Annotated[
        str, typer.Option("--dataset", "--data", help="The images to start from: a name, a folder or a file.")
    ] = "mnist5k",
    classes: Annotated[str, typer.Option(help="Class names such as 9,8; the first is the one r speaks of.")] = "9,8",
    method: Annotated[str, typer.Option(help="agreement, ambigan, gasten or gasten2.")] = "agreement",
    count: Annotated[int, typer.Option(min=1, help="How many images.")] = 5000,
    r: Annotated[str, typer.Option("--r", help="Target probability of the first class, or dial.")] = "0.5",
    combine: Annotated[
        str, typer.Option(help="guarded (ours), sum (the paper), alternate (its authors' code), or auto.")
    ] = "auto",
    alpha: Annotated[
        float | None, typer.Option(help="How much ambiguity counts; see the documentation. [default: the method's]")
    ] = None,
    variance: Annotated[float | None, typer.Option(help="Of the Gaussian likelihood. [default: the method's]")] = None,
    grid: Annotated[bool, typer.Option("--grid", help="Try the paper's alphas and variances, choose one.")] = False,
    preset: Annotated[str, typer.Option(help="paper, small, or auto: paper on a GPU, small elsewhere.")] = "auto",
    epochs: Annotated[str | None, typer.Option(help="Of stage 1 and stage 2, e.g. 100,50. [default: preset]")] = None,
    filters: Annotated[int | None, typer.Option(min=1, help="Of the GAN. [default: preset]")] = None,
    batch_size: Annotated[int, typer.Option(min=2, help="Of the GAN.")] = 32,
    lr: Annotated[float, typer.Option(help="Learning rate of the GAN.")] = 2e-4,
    members: Annotated[int, typer.Option(min=1, help="Networks of the ambiguity estimator.")] = 50,
    estimator_epochs: Annotated[int | None, typer.Option(min=1, help="[default: preset]")] = None,
    subsets: Annotated[str, typer.Option(help="What its members see: disjoint, batch, or auto.")] = "auto",
    tolerance: Annotated[float, typer.Option(help="Reject images farther than this from the target.")] = 0.1,
    disagreement: Annotated[float, typer.Option(help="Reject above this mutual information, in nats.")] = 0.2,
    realism: Annotated[bool, typer.Option(help="Reject images that nobody would call either class.")] = True,
    reject: Annotated[bool, typer.Option(help="Reject images at all.")] = True,
    collapse: Annotated[
        float, typer.Option(help="Begin anew if images vary less than this share of real ones.")
    ] = 0.25,
    resume: Annotated[bool, typer.Option(help="Go on where an interrupted run in this folder stopped.")] = True,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure how real the images are, against real ones of their classes.")
    ] = False,
    size: Size = None,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Images that many small classifiers find ambiguous, with their judgement of each.

    The estimator, checkpoints of the GAN and sample sheets are kept in the folder: an interrupted run goes on where it
    stopped.

    **Examples**

    `secondguess generate companion --dataset mnist.npz --classes 9,8 --out out/nine_or_eight`

    `secondguess generate companion --dataset xrays/ --classes pneumonia,normal --r dial --out out/dial`

    `secondguess generate companion --dataset photos/ --size 64 --classes cat,dog --measure --out out/cat_or_dog`
    """
    from secondguess.cli.companion import Choices, make_companion
    from secondguess.cli.generate_realism import with_realism, yardstick

    choices = Choices(
        data=data,
        classes=classes,
        method=method,
        r=r,
        combine=combine,
        alpha=alpha,
        variance=variance,
        grid=grid,
        preset=preset,
        epochs=epochs,
        filters=filters,
        batch_size=batch_size,
        lr=lr,
        members=members,
        estimator_epochs=estimator_epochs,
        subsets=subsets,
        tolerance=tolerance if reject else None,
        disagreement=disagreement if reject else None,
        realism=realism and reject,
        collapse=collapse,
        resume=resume,
        size=size,
        seed=seed,
        device=device,
    )
    progress = progress_for(quiet=quiet or json)
    real = yardstick(choices, count) if measure else None  # whose mistakes are told before the long work
    card = make_companion(choices, count, out, progress)
    if real is not None:
        card = with_realism(out, real, choices, progress)
    _report(card, out, as_json=json)


@app.command("corrupted")
def corrupted(
    out: Folder,
    data: Data = "mnist5k",
    corruptions: Annotated[str | None, typer.Option(help="Names separated by commas. [default: a mix of 15]")] = None,
    mix: Annotated[str | None, typer.Option(help="A published mix: mnist_c or fashion_mnist_c.")] = None,
    severity: Annotated[int | None, typer.Option(min=1, max=5, help="1 mild to 5. [default: as published]")] = None,
    size: Size = None,
    limit: Limit = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Spoilt images whose class is still what it was.

    **Examples**

    `secondguess generate corrupted --out out/corrupted`

    `secondguess generate corrupted --data photos/test --corruptions fog,jpeg_compression --severity 3 --out out/foggy`
    """
    from secondguess.stress import Corrupted

    names = [name.strip() for name in corruptions.split(",")] if corruptions else None
    maker = Corrupted(names, mix=mix, severity=severity)  # type: ignore[arg-type]
    images = maker.make(_nominal(data, size, limit, seed), seed=seed, progress=progress_for(quiet=quiet or json))
    settings = {"corruptions": names, "mix": mix, "severity": severity, "seed": seed}
    _save(images, "corrupted", settings, out, by=("corruption",), as_json=json)


@app.command("adversarial")
def adversarial(
    out: Folder,
    model: Annotated[str, typer.Option(help="An .onnx or .pt2 file, zoo:NAME, or package.module:make_model.")],
    weights: Annotated[Path | None, typer.Option(help="A .safetensors file for a torch module.")] = None,
    data: Data = "mnist5k",
    attacks: Annotated[str, typer.Option(help="Names separated by commas.")] = "fgsm,pgd,bim,deepfool",
    size: Size = None,
    limit: Limit = None,
    seed: Seed = 0,
    device: Device = "auto",
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """The smallest perturbations of a grid that fool a model; through a surrogate where it gives no gradients.

    **Examples**

    `secondguess generate adversarial --model m.pt2 --data photos/test --limit 500 --out out/attacked`

    `secondguess generate adversarial --model m.onnx --data test.npz --attacks fgsm --out out/fgsm`
    """
    from secondguess.model.classifier import Classifier
    from secondguess.stress import Adversarial

    classifier = Classifier(model, weights=weights, device=device)
    shape = classifier.input_shape
    nominal = _nominal(data, size, limit, seed, shape)
    maker = Adversarial([name.strip() for name in attacks.split(",")])
    images = maker.make(nominal, classifier=classifier, seed=seed, progress=progress_for(quiet=quiet or json))
    settings = {"model": classifier.fingerprint, "attacks": list(maker.attacks), "seed": seed}
    _save(images, "adversarial", settings, out, by=("attack",), as_json=json)


@app.command("invalid")
def invalid(
    out: Folder,
    data: Data = "mnist5k",
    source: Annotated[
        str, typer.Option(help="mixed, textures, shuffled, inverted, a data set, or a folder.")
    ] = "mixed",
    size: Size = None,
    limit: Limit = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Images that belong to no class, in the shape of yours.

    **Examples**

    `secondguess generate invalid --out out/invalid`

    `secondguess generate invalid --data xrays/test --source holiday_photos/ --out out/not_xrays`
    """
    from secondguess.stress import Invalid

    nominal = _nominal(data, size, limit, seed)
    images = Invalid(source).make(nominal, seed=seed, progress=progress_for(quiet=quiet or json))
    _save(images, "invalid", {"source": source, "seed": seed}, out, by=("source",), as_json=json)


def _nominal(
    data: str, size: int | None, limit: int | None, seed: int, shape: tuple[int, int, int] | None = None
) -> ImageSet:
    from secondguess.images import load_images

    options: dict[str, Any] = {"size": size}
    if shape is not None:
        options = {"size": shape[1:], "channels": shape[0]}
    images = load_images(data, **options)
    return images.head(limit, seed=seed) if limit and limit < len(images) else images


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
    if "realism" in card:
        from secondguess.cli.generate_realism import spelt

        say(f"  {spelt(card['realism'])}")
    for note in card.get("notes", []):
        say(f"  {note}")
