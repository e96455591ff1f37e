"""What ordinary classifiers make of ambiguous photographs, how real these are, and how models rank on them.

    secondguess generate ambiguous --method flow --data cifar10.npz --pairs all --count 9000 --out kept/photos
    python ambiguous_photos.py cifar10.npz --set kept/photos --plain plain.npz --models models/cifar10 --out photos.json

`--plain` is an .npz with plain samples of the same generator at the same guidance (`images`, uint8 (n, C, H, W));
`--models` a folder with one folder for each model, with a `model.toml` or `onnx.toml`; without it, only how real the
images are is measured. `--generation` adds what the run
that made the images wrote down. The temperature of a model is fitted on the first half of the test images that are
used, and accuracies are those on the second half.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from secondguess import Classifier, load
from secondguess.images import load_images
from secondguess.metrics.interval import wilson
from secondguess.model.needs import Needs
from secondguess.stress.ambiguous import PixelBlend
from secondguess.stress.ambiguous.flow.reality import Reality, nearest_distances
from secondguess.training.temperature import fit_temperature
from secondguess_lab.record import provenance, say, write

SURE = 0.95
LEAST = 5  # models of a family, for a rank correlation within it


def main():
    """Measure and write the record, again after each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--set", type=Path, required=True)
    parser.add_argument("--plain", type=Path, required=True)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--generation", type=Path)
    parser.add_argument("--test-images", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data = load(arguments.data)
    ambiguous = load_images(arguments.set / "images.npz")
    test = data.test.head(arguments.test_images, seed=arguments.seed)
    blends = PixelBlend(pairs="all").generate(data.train, len(ambiguous), seed=arguments.seed).images
    record = {**provenance(vars(arguments), data), "images": described(ambiguous)}
    if arguments.generation:
        record["generation"] = json.loads(arguments.generation.read_text("utf-8"))
    record["realism"] = realism(data.train, ambiguous, np.load(arguments.plain)["images"], test, arguments.seed)
    say(record["realism"])
    write(arguments.out, record | {"seconds": provenance({})["seconds"]})
    record["models"] = []
    sets = {"ambiguous": ambiguous, "blends": blends}
    for folder in sorted(path for path in arguments.models.iterdir() if path.is_dir()) if arguments.models else ():
        file = next((folder / name for name in ("onnx.toml", "model.toml") if (folder / name).is_file()), None)
        if file is None:
            continue
        record["models"].append(asked(folder.name, Classifier.open(file), sets, test))
        say(record["models"][-1])
        record["ranks"] = ranks(record["models"], *sets)
        write(arguments.out, record | {"seconds": provenance({})["seconds"]})


def described(ambiguous):
    """How many images of which pairs, and how ambiguous their labels are."""
    soft = ambiguous.soft_labels
    names = ambiguous.class_names
    pairs, counts = np.unique(
        np.stack([ambiguous.columns["class_1"], ambiguous.columns["class_2"]], axis=1), axis=0, return_counts=True
    )
    return {
        "count": len(ambiguous),
        "pairs": {f"{names[a]}-{names[b]}": int(n) for (a, b), n in zip(pairs.tolist(), counts, strict=True)},
        "label_entropy_bits": float(-(soft * np.log2(np.maximum(soft, 1e-12))).sum(axis=1).mean()),
    }


def realism(train, ambiguous, plain, test, seed):
    """Kernel distances to real images beside those of plain samples, and distances to the nearest training image."""
    made, real = (np.rint(one.images[:] * 255).astype(np.uint8) for one in (ambiguous, test))
    measured = Reality(train, plain, seed=seed)
    near = {
        name: nearest_distances(one, train) for name, one in (("ambiguous", made), ("plain", plain), ("test", real))
    }
    return {
        **measured.measure(made),
        "as_real_as_plain_samples": float(measured.accepts(made).mean()),
        "nearest_training_image": {
            name: {"median": float(np.median(values)), "1%": float(np.quantile(values, 0.01))}
            for name, values in near.items()
        },
    }


def asked(name, classifier, sets, test):
    """One model on sets of ambiguous images and on clear ones, before and after temperature scaling."""

    def logits_of(images):
        seen = classifier.observe(images, Needs(logits=True))
        return np.asarray(seen.logits, dtype=np.float64)

    half = len(test) // 2
    clear = logits_of(test)
    temperature = fit_temperature(clear[:half], test.labels[:half])
    row = {
        "model": name,
        "family": name.partition("_")[0].rstrip("0123456789"),
        "accuracy": float((clear[half:].argmax(axis=1) == test.labels[half:]).mean()),
        "temperature": temperature,
    }
    for kind, images in (*sets.items(), ("clear", test)):
        logits = clear if images is test else logits_of(images)
        for suffix, divisor in (("", 1.0), ("_scaled", temperature)):
            odds = np.exp((logits - logits.max(axis=1, keepdims=True)) / divisor)
            p = odds / odds.sum(axis=1, keepdims=True)
            sure = wilson(int((p.max(axis=1) > SURE).sum()), len(p))
            row[f"{kind}{suffix}"] = {
                "sure": [sure.value, sure.low, sure.high],
                "confidence": float(p.max(axis=1).mean()),
                "entropy_bits": float(-(p * np.log2(np.maximum(p, 1e-12))).sum(axis=1).mean()),
            }
            if images.soft_labels is not None:
                top = np.sort(np.argsort(-p, axis=1)[:, :2], axis=1)
                pair = np.sort(np.stack([images.columns["class_1"], images.columns["class_2"]], axis=1), axis=1)
                mass = np.take_along_axis(p, pair, axis=1).sum(axis=1)
                row[f"{kind}{suffix}"] |= {
                    "top_pair": float((top == pair).all(axis=1).mean()),
                    "pair_mass": float(mass.mean()),
                }
    return row


def ranks(rows, first, second, *, by="sure"):
    """Spearman correlations of models' overconfidence on two kinds of images: over all, and within families.

    Overconfidence is the share of sure answers, or with `by="confidence"` the mean confidence.
    """
    from scipy.stats import spearmanr

    found = {}
    families = {"all": rows} | {
        family: [row for row in rows if row["family"] == family] for family in sorted({row["family"] for row in rows})
    }
    for family, some in families.items():
        if len(some) >= LEAST:
            ours, theirs = both = np.array([[np.ravel(row[kind][by])[0] for row in some] for kind in (first, second)])
            rng = np.random.default_rng(0)
            draws = [both[:, rng.integers(0, len(some), len(some))] for _ in range(500)]
            # A draw of few models may have a value alone, which has no rank.
            resampled = [spearmanr(*draw).statistic for draw in draws if np.ptp(draw, axis=1).all()]
            low, high = np.quantile(resampled, [0.025, 0.975])
            found[family] = {
                "models": len(some),
                "spearman": float(spearmanr(ours, theirs).statistic),
                "low": float(low),
                "high": float(high),
            }
    return found


if __name__ == "__main__":
    main()
