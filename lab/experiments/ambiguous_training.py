"""What classifiers learn from ambiguous photographs: the question of Table 1 of the paper on true ambiguity.

    python ambiguous_training.py cifar10.npz --set kept/photos --out training.json --jobs 6 --others    # on a GPU

Each network is trained twice in each run, on the nominal images alone and on these and a half of the ambiguous ones
with their soft labels, and asked about the test images and the other half. With `--others`, `OTHERS` are trained too,
once and on nominal images alone, and all of these models are ranked by how sure they are of the ambiguous images and
of blends of two photographs, before and after temperature scaling on the first half of the test images. `--jobs`
trainings run at a time, each in a process of its own; those that are done are kept in `--kept` and not made again, and
none begins after `--minutes`. `--before` trains whatever learns nominal images alone, before there is a set to ask
about, and keeps its weights for the run that asks. Grey images are given to the same networks with three equal
channels, and neither flipped nor shifted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from ambiguous_photos import LEAST, ranks
from safetensors import safe_open
from safetensors.torch import save
from scipy.stats import entropy

from secondguess import load
from secondguess.files import write_bytes, write_json
from secondguess.images import load_images
from secondguess.metrics import top_pair_accuracy
from secondguess.stress.ambiguous import PixelBlend
from secondguess.training.temperature import apply_temperature, fit_temperature
from secondguess_lab.photo_training import Training, fit, probabilities_of
from secondguess_lab.record import provenance, say, write
from secondguess_lab.reference import build

SURE = 0.95
KINDS = {"raw": {"augment": False}, "smooth": {"smoothing": 0.1}, "mixup": {"mixup": 0.4}}
ALONE = ("densenet22", "resnet32", "resnet20_wide", "vgg_narrow", "resnet8")  # trained as usual only
REGULARISED = ("resnet20", "vgg", "convmixer", "densenet22", "resnet8")
OTHERS = [(one, "nominal") for one in ALONE] + [(one, kind) for kind in KINDS for one in REGULARISED]


def main():
    """Train what is missing, then write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--set", type=Path)
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--networks", nargs="+", default=["resnet20", "vgg", "convmixer"])
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--lr", type=float, default=0.4)
    parser.add_argument("--others", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--kept", type=Path, default=Path("trainings"))
    parser.add_argument("--only", nargs=3, metavar=("NETWORK", "RUN", "KIND"))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if not arguments.before and None in (arguments.set, arguments.out):
        parser.error("--set and --out are missing; only --before can do without.")
    if arguments.only:
        train_one(arguments, arguments.only[0], int(arguments.only[1]), arguments.only[2])
        return
    runs = [[(n, r, k) for n in arguments.networks for k in ("nominal", "mixed")] for r in range(arguments.runs)]
    grey = np.load(arguments.data, allow_pickle=False)["x_train"].ndim != 4  # and so never augmented
    others = [(network, 0, kind) for network, kind in OTHERS if arguments.others and not (grey and kind == "raw")]
    wanted = list(dict.fromkeys([*runs[0], *others, *(one for run in runs[1:] for one in run)]))
    if arguments.before:
        train_all(arguments, [one for one in wanted if one[2] != "mixed" and not weights_of(arguments, *one).exists()])
        return
    make_blends(arguments)
    train_all(arguments, [one for one in wanted if not kept(arguments, *one).exists()])
    rows = [json.loads(kept(arguments, *one).read_text("utf-8")) for one in wanted if kept(arguments, *one).exists()]
    models = [row for row in rows if row["kind"] != "mixed" and not row["run"] and "ambiguous" in row]
    record = {
        "trainings": rows,
        "networks": summed([row for row in rows if row["network"] in arguments.networks]),
        "models": len(models),
    }
    if len(models) >= LEAST:
        record["ranks"] = {
            f"{by}{suffix}": ranks(models, f"ambiguous{suffix}", f"blends{suffix}", by=by)
            for by in ("sure", "confidence")
            for suffix in ("", "_scaled")
        }
    write(arguments.out, provenance(vars(arguments)) | record)


def kept(arguments, network, run, kind):
    """Where the row of a training is kept."""
    return arguments.kept / f"{network}-{run}-{kind}.json"


def train_all(arguments, wanted):
    """Every training in a process of its own, `--jobs` at a time."""
    running, began = [], time.monotonic()
    while wanted or running:
        running = [process for process in running if process.poll() is None]
        if arguments.minutes is not None and time.monotonic() - began > 60 * arguments.minutes:
            wanted = []
        while wanted and len(running) < arguments.jobs:
            words = [sys.executable, *sys.argv, "--only", *map(str, wanted.pop(0))]
            running.append(subprocess.Popen(words))
        time.sleep(0.2)


def train_one(arguments, network, run, kind):
    """Train a network on nominal or on mixed images, and ask it."""
    data = np.load(arguments.data, allow_pickle=False)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ambiguous = None if arguments.before else load_images(arguments.set / "images.npz")
    model, learnt, seconds = trained(arguments, data, ambiguous, (network, run, kind), device)
    if ambiguous is None:
        return
    asked = halves(ambiguous, run)[1]
    blends = np.load(blends_of(arguments))["x"]
    p, soft = probabilities_of(model, pixels_of(ambiguous)[asked], device), ambiguous.soft_labels[asked]
    clear = probabilities_of(model, in_colour(data["x_test"]), device)
    right = clear.argmax(axis=1) == data["y_test"]
    half = len(clear) // 2
    temperature = fit_temperature(logarithms(clear[:half]), data["y_test"][:half])
    sets = {"ambiguous": p, "blends": probabilities_of(model, blends, device)}
    sets["clear"] = clear[half:]
    row = {
        "network": network,
        "family": network.partition("_")[0].rstrip("0123456789"),
        "run": run,
        "kind": kind,
        "learnt": learnt,
        "asked": len(asked),
        "accuracy": float(right.mean()),
        "top_pair": top_pair_accuracy(p, soft),
        "pair_mass": float(np.where(soft > 0, p, 0).sum(axis=1).mean()),
        "entropy_bits": float(entropy(p, base=2, axis=1).mean()),
        "label_entropy_bits": float(entropy(soft, base=2, axis=1).mean()),
        "sure": float((p.max(axis=1) > SURE).mean()),
        "temperature": temperature,
        **{name: sureness(found) for name, found in sets.items()},
        **{
            f"{name}_scaled": sureness(apply_temperature(logarithms(found), temperature))
            for name, found in sets.items()
        },
        "seconds": seconds,
    }
    say({name: value for name, value in row.items() if not isinstance(value, dict)})
    arguments.kept.mkdir(parents=True, exist_ok=True)
    write_json(kept(arguments, network, run, kind), row)


def trained(arguments, data, ambiguous, which, device):
    """A trained network, how many images it has learnt and in how many seconds; those of nominal images are kept."""
    network, run, kind = which
    classes, file = len(data["class_names"]), weights_of(arguments, *which)
    torch.manual_seed(run)
    model = build(network, classes).to(device).to(memory_format=torch.channels_last)
    images, labels = in_colour(data["x_train"]), np.eye(classes, dtype=np.float32)[data["y_train"]]
    told = {name: str(getattr(arguments, name)) for name in ("epochs", "batch_size", "lr")} | {
        "images": str(len(images))
    }
    if kind != "mixed" and file.exists():
        with safe_open(file, "pt", device) as weights:
            seconds = (about := weights.metadata()).pop("seconds")
            if about == told:
                model.load_state_dict({name: weights.get_tensor(name) for name in weights.keys()})  # noqa: SIM118
                return model.eval(), len(images), float(seconds)
    if kind == "mixed":
        learnt = halves(ambiguous, run)[0]
        images = np.concatenate([images, pixels_of(ambiguous)[learnt]])
        labels = np.concatenate([labels, ambiguous.soft_labels[learnt].astype(np.float32)])
    began = time.perf_counter()
    settings = {"augment": data["x_train"].ndim == 4} | KINDS.get(kind, {})
    plan = Training(network, epochs=arguments.epochs, **settings)
    fit(model, images, labels, plan, device, batch=arguments.batch_size, lr=arguments.lr)
    seconds = time.perf_counter() - began
    if kind != "mixed":
        arguments.kept.mkdir(parents=True, exist_ok=True)
        state = {name: value.contiguous() for name, value in model.state_dict().items()}
        write_bytes(file, save(state, told | {"seconds": str(seconds)}))
    return model, len(images), seconds


def weights_of(arguments, network, run, kind):
    """Where the weights of a training are kept."""
    return kept(arguments, network, run, kind).with_suffix(".safetensors")


def pixels_of(ambiguous):
    """Its images in 8 bits, (n, H, W, 3)."""
    return in_colour(np.rint(ambiguous.images[:] * 255).astype(np.uint8).transpose(0, 2, 3, 1))


def blends_of(arguments):
    """Where the blends are kept."""
    return arguments.kept / "blends.npz"


def make_blends(arguments):
    """As many blends of two photographs as models are asked about ambiguous images, for all trainings."""
    if blends_of(arguments).exists():
        return
    arguments.kept.mkdir(parents=True, exist_ok=True)
    count = len(load_images(arguments.set / "images.npz")) // 2
    made = PixelBlend(pairs="all").generate(load(str(arguments.data)).train, count).images
    pixels = np.rint(made.images[:] * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    half_written = arguments.kept / "unfinished.npz"
    np.savez(half_written, x=in_colour(pixels))
    half_written.rename(blends_of(arguments))


def logarithms(p):
    """Logits (n, K) of probabilities."""
    return np.log(np.maximum(p.astype(np.float64), 1e-30))


def sureness(p):
    """The share of answers with more than 95 % confidence, and the mean confidence."""
    return {"sure": float((p.max(axis=1) > SURE).mean()), "confidence": float(p.max(axis=1).mean())}


def in_colour(images):
    """Images (n, H, W, 3); grey ones (n, H, W) or (n, H, W, 1) have three equal channels."""
    images = images if images.ndim == 4 else images[..., None]
    return images if images.shape[3] == 3 else np.repeat(images, 3, axis=3)


def halves(ambiguous, run):
    """Rows to learn from, and rows to be asked about: every pair in both."""
    rng = np.random.default_rng(run)
    pair = np.stack([ambiguous.columns["class_1"], ambiguous.columns["class_2"]], axis=1)
    learnt = [rows[: len(rows) // 2] for one in np.unique(pair, axis=0)
              if len(rows := rng.permutation(np.flatnonzero((pair == one).all(axis=1))))]  # fmt: skip
    learnt = np.sort(np.concatenate(learnt))
    return learnt, np.setdiff1d(np.arange(len(pair)), learnt)


def summed(rows):
    """Means over the runs, by network and kind, and how much accuracy the ambiguous images cost."""
    found = {}
    for network in dict.fromkeys(row["network"] for row in rows):
        mine = {
            kind: [r for r in rows if (r["network"], r["kind"]) == (network, kind)] for kind in ("nominal", "mixed")
        }
        names = ("accuracy", "top_pair", "pair_mass", "entropy_bits", "sure")
        means = {k: {n: float(np.mean([r[n] for r in some])) for n in names} for k, some in mine.items() if some}
        found[network] = {"runs": min(map(len, mine.values())), **means}
        if len(means) == 2:
            found[network]["accuracy_lost"] = means["nominal"]["accuracy"] - means["mixed"]["accuracy"]
    return found


if __name__ == "__main__":
    main()
