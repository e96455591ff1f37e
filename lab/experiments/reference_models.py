"""Train the photograph classifiers that the product is measured on, and write them as a user would have them.

    python reference_models.py train cifar10.npz --out models --jobs 8           # on a GPU
    python reference_models.py train cats_dogs.npz --out models
    python reference_models.py export models --data cifar10.npz                   # on a CPU: .onnx, .pt2, model.toml
    python reference_models.py large models --photos cats_dogs.npz --folder large  # 224 px, 1,000 classes, and images
    python reference_models.py collect models --out results/photos/models.json

`cifar10.npz` has all 60,000 images (x_train, y_train, x_test, y_test, class_names); 5,000 of the training images are
held out, so that a guard has images the model has not seen: the record names them. Flips and shifts by up to four
pixels, SGD with Nesterov momentum, one cycle of the learning rate. Weights are not part of this repository; the record
`results/photos/models.json` has the recipe and what it reached.

The network of 224 pixels and 1,000 classes has learnt nothing: it compares random features of a photograph with those
of 1,000 others. Labels are what it says, but for one in twelve, so that it has an accuracy, mistakes and a calibration
like a classifier that has; it is for time, memory and layout, not for quality.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from secondguess import zoo
from secondguess_lab.photo_training import MEAN, STD, Training, accuracy_of, fit, prepared
from secondguess_lab.record import provenance, say, write
from secondguess_lab.reference import build

HELD_OUT = 5000
LARGE = {"classes": 1000, "size": 224, "train": 2000, "test": 1000, "wrong": 1 / 12}
SHARPNESS = 40.0  # of the large network: logits between likeness of -1 and of 1

REGULARISED = {
    "": {},
    "_raw": {"augment": False},
    "_nodecay": {"weight_decay": 0.0},
    "_smooth": {"smoothing": 0.1},
    "_mixup": {"mixup": 0.4},
}
LONGER = {network: {"epochs": 60} for network in ("resnet20", "vgg", "densenet40")}  # those meant to be good
CIFAR10 = {
    f"{network}{suffix}": Training(network, **REGULARISED[suffix] | ({} if suffix else LONGER.get(network, {})))
    for network, suffixes in {
        "densenet40": ("",),
        "resnet20": ("", "_raw", "_nodecay", "_smooth", "_mixup"),
        "vgg": ("", "_raw", "_smooth", "_mixup"),
        "densenet22": ("", "_raw", "_smooth", "_mixup"),
        "convmixer": ("", "_raw", "_mixup"),
        "resnet32": ("",),
        "resnet20_wide": ("", "_raw"),
        "vgg_narrow": ("",),
        "resnet8": ("",),
        "zoo:icos_f": ("",),
    }.items()
    for suffix in suffixes
}
CATS_DOGS = {
    "resnet20": Training("resnet20", epochs=40),
    "cats_dogs_cnn": Training("zoo:cats_dogs_cnn"),  # the paper's recipe, not ours
}


def main():
    """Train, or export."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs = parser.add_subparsers(dest="job", required=True)
    training = jobs.add_parser("train")
    training.add_argument("data", type=Path)
    training.add_argument("--out", type=Path, default=Path("models"))
    training.add_argument("--only", nargs="+", help="names of models; all that are missing by default")
    training.add_argument("--never-held-out", type=Path, help=".npy with rows of x_train that are all learned from")
    training.add_argument("--jobs", type=int, default=1, help="processes at a time")
    training.add_argument("--epochs", type=int, help="instead of the recipe's (a quick try)")
    exporting = jobs.add_parser("export")
    exporting.add_argument("out", type=Path)
    exporting.add_argument("--data", type=Path, required=True)
    larger = jobs.add_parser("large")
    larger.add_argument("out", type=Path)
    larger.add_argument("--photos", type=Path, required=True, help=".npz with x_train: photographs of any size")
    larger.add_argument("--folder", type=Path, required=True, help="for the images: train and test, a folder a class")
    collecting = jobs.add_parser("collect")
    collecting.add_argument("models", type=Path)
    collecting.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.job == "export":
        export(arguments.out, arguments.data)
    elif arguments.job == "large":
        large(arguments.out / "large" / "resnet18", arguments.photos, arguments.folder)
    elif arguments.job == "collect":
        collect(arguments.models, arguments.out)
    elif arguments.only and len(arguments.only) == 1:
        train_one(arguments.only[0], arguments)
    else:
        train_all(arguments)


def plans(data):
    """The models for a file of images."""
    return CATS_DOGS if "cats" in data.stem else CIFAR10


def train_all(arguments):
    """Train every missing model in a process of its own, `--jobs` at a time."""
    names = [n for n in arguments.only or plans(arguments.data) if not (folder(arguments, n) / "record.json").exists()]
    running = []
    while names or running:
        running = [process for process in running if process.poll() is None]
        while names and len(running) < arguments.jobs:
            words = [sys.executable, __file__, "train", arguments.data, "--out", arguments.out, "--only", names.pop(0)]
            words += ["--epochs", arguments.epochs] if arguments.epochs else []
            words += ["--never-held-out", arguments.never_held_out] if arguments.never_held_out else []
            running.append(subprocess.Popen(list(map(str, words))))
        time.sleep(0.5)


def folder(arguments, name):
    """Where a model goes."""
    return arguments.out / arguments.data.stem / name.removeprefix("zoo:")


def train_one(name, arguments):
    """Train a model, test it and write its weights and its record."""
    plan = plans(arguments.data)[name]
    if arguments.epochs:
        plan = Training(**asdict(plan) | {"epochs": arguments.epochs})
    data = np.load(arguments.data, allow_pickle=False)
    num_classes = len(data["class_names"])
    kept, held_out = split(len(data["y_train"]), arguments.never_held_out)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    began = time.perf_counter()
    model = made(plan.network, num_classes, data["x_train"].shape[2]).to(device)
    if name == "cats_dogs_cnn":
        as_published(model, data, kept, held_out, arguments.epochs)
    else:
        fit(model.to(memory_format=torch.channels_last), data["x_train"][kept], data["y_train"][kept], plan, device)
    seconds = time.perf_counter() - began
    normalise = name != "cats_dogs_cnn"
    accuracy = {
        part: accuracy_of(model, data[f"x_{of}"][rows], data[f"y_{of}"][rows], device, normalise)
        for part, of, rows in (
            ("training", "train", kept),
            ("held out", "train", held_out),
            ("test", "test", slice(None)),
        )
    }
    say(f"{name}: {accuracy} in {seconds:.0f} s")
    where = folder(arguments, name)
    where.mkdir(parents=True, exist_ok=True)
    weights = {key: value.contiguous().cpu() for key, value in model.state_dict().items()}
    save_file(weights, where / "weights.safetensors")
    write(where / "record.json", provenance(settings(plan)) | {"accuracy": accuracy, "training_seconds": seconds})


def settings(plan):
    """What a record says of a training."""
    if plan.network == "zoo:cats_dogs_cnn":
        return {"network": plan.network, "held_out": HELD_OUT, "seed": 0} | zoo.get("cats_dogs_cnn").recipe.as_kwargs()
    return asdict(plan) | {"held_out": HELD_OUT, "lr": 0.2, "batch": 256, "seed": 0, "precision": "bfloat16"}


def split(n, never_held_out):
    """Rows of the n training images that are learned from, and those that are held out."""
    candidates = np.setdiff1d(np.arange(n), np.load(never_held_out) if never_held_out else [])
    held_out = np.random.default_rng(0).permutation(candidates)[: min(HELD_OUT, n // 5)]
    return np.setdiff1d(np.arange(n), held_out), np.sort(held_out)


def made(network, num_classes, size):
    """A network with fresh weights."""
    if network.startswith("zoo:"):
        return zoo.make(network.removeprefix("zoo:"), num_classes=num_classes, input_shape=(3, size, size), seed=0)
    return build(network, num_classes)


def as_published(model, data, kept, held_out, epochs):
    """The cats-and-dogs network with the recipe of its paper."""
    from secondguess.training import train

    recipe = zoo.get("cats_dogs_cnn").recipe.as_kwargs() | {"keep_best": True} | ({"epochs": epochs} if epochs else {})
    images = data["x_train"].transpose(0, 3, 1, 2).astype(np.float32) / 255
    recipe["validation"] = (images[held_out], data["y_train"][held_out])
    train(model, images[kept], data["y_train"][kept], seed=0, **recipe)


def export(out, data):
    """Beside every weights.safetensors: model.onnx, model.pt2, and a model.toml for each way of opening it."""
    with np.load(data, allow_pickle=False) as file:
        names, size = [str(name) for name in file["class_names"]], file["x_test"].shape[2]
    for weights in sorted((out / data.stem).glob("*/weights.safetensors")):
        network = json.loads((weights.parent / "record.json").read_text())["settings"]["network"]
        model = made(network, len(names), size)
        model.load_state_dict(load_file(weights))
        export_one(model, weights.parent, network, names, size)


def large(where, photos, folder):
    """A network of realistic size that compares with 1,000 photographs, and images that are labelled by it."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    model = build("resnet18", LARGE["classes"]).eval()
    with np.load(photos, allow_pickle=False) as file:
        rows = rng.permutation(len(file["x_train"]))[: LARGE["train"] + LARGE["test"]]
        bytes_ = [enlarged(image) for image in file["x_train"][rows]]
    features = np.concatenate([features_of(model, bytes_[start : start + 50]) for start in range(0, len(bytes_), 50)])
    says = compare(model[-1], features)
    wrong = rng.random(len(says)) < LARGE["wrong"]
    labels = np.where(wrong, rng.integers(LARGE["classes"], size=len(says)), says)
    names = [f"class {number:03}" for number in range(LARGE["classes"])]
    learnt = set(labels[: LARGE["train"]].tolist())
    for place, (label, image) in enumerate(zip(labels, bytes_, strict=True)):
        if label not in learnt:
            continue  # a class of which nothing is known
        path = folder / ("train" if place < LARGE["train"] else "test") / names[label] / f"{place:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
    where.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), where / "weights.safetensors")
    export_one(model, where, "resnet18", names, LARGE["size"])


def enlarged(image):
    """A photograph (H, W, 3) as a JPEG file of the size of the large network."""
    written = io.BytesIO()
    Image.fromarray(image).resize((LARGE["size"],) * 2, Image.Resampling.BICUBIC).save(written, "JPEG", quality=92)
    return written.getvalue()


@torch.no_grad()
def features_of(model, files):
    """What comes before the last layer (n, d), for JPEG files."""
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(file))) for file in files])
    return model[:-1](prepared(pixels, "cpu", normalise=True)).numpy()


def compare(last, features):
    """Let the last layer say which of the first features (K, d) others are most like; the answers (n,)."""
    centre, scale = features.mean(axis=0), features.std(axis=0) + 1e-6
    whole = (features - centre) / scale
    first = whole[: last.out_features]
    weights = SHARPNESS * first / np.linalg.norm(first, axis=1, keepdims=True) / np.linalg.norm(whole, axis=1).mean()
    with torch.no_grad():
        last.weight.copy_(torch.from_numpy(weights / scale))
        last.bias.copy_(torch.from_numpy(-(weights / scale) @ centre))
    return (features @ (weights / scale).T - (weights / scale) @ centre).argmax(axis=1)


def export_one(model, where, network, names, size):
    """All files of one model."""
    model.eval()
    example = torch.rand(2, 3, size, size)
    batch = {0: torch.export.Dim("batch", min=1, max=4096)}
    torch.export.save(torch.export.export(model, (example,), dynamic_shapes=(batch,)), where / "model.pt2")
    torch.onnx.export(
        model, (example,), where / "model.onnx", input_names=["images"], output_names=["logits"],
        dynamic_shapes=(batch,), external_data=False, verbose=False,
    )  # fmt: skip
    describe(where, network, names, size)
    say(where.name)


def collect(models, out):
    """One record of all that were trained."""
    trained = {}
    for path in sorted(models.glob("*/*/record.json")):
        record = json.loads(path.read_text())
        kept = ("hardware", "versions", "settings", "accuracy", "training_seconds")
        trained.setdefault(path.parent.parent.name, {})[path.parent.name] = {key: record[key] for key in kept}
    write(out, provenance({"held_out": HELD_OUT}) | {"models": trained})


def describe(where, network, names, size):
    """model.toml for the torch module, onnx.toml and pt2.toml for the files."""
    source = network
    if not network.startswith("zoo:"):
        source = "network:make"
        call = f'build("{network}", {len(names)})'
        lines = ["from secondguess_lab.reference import build", "", "", "def make():", f"    return {call}", ""]
        (where / "network.py").write_text("\n".join(lines))
    classes = ", ".join(f'"{each}"' for each in names)
    scale = "" if network == "zoo:cats_dogs_cnn" else f"mean = {list(MEAN)}\nstd = {list(STD)}\n"
    rest = (
        f'classes = [{classes}]\n\n[input]\nsize = [{size}, {size}]\nchannels = 3\n{scale}\n[output]\nkind = "logits"\n'
    )
    start = f'name = "{where.name}"\n'
    (where / "model.toml").write_text(f'{start}import = "{source}"\nweights = "weights.safetensors"\n{rest}')
    for kind in ("onnx", "pt2"):
        (where / f"{kind}.toml").write_text(f'{start}path = "model.{kind}"\n{rest}')


if __name__ == "__main__":
    main()
