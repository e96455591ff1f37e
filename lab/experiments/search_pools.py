"""Which search finds the confident mistakes? The study of adversarial distances, with pools of known labels.

    python search_pools.py cats_dogs_25k_64_webp.npz --out cats_dogs.json --keep kept/cats_dogs
    python search_pools.py mnist.npz --biased 3 --out mnist.json --keep kept/mnist
    python search_pools.py --kept kept/cats_dogs --out cats_dogs.json   # search again, without training
    python search_pools.py cats_dogs_25k_64_webp.npz --unpack cats_dogs.npz   # for every other command

Cats and dogs: the network and recipe of the paper, trained on the training half without its 30 % darkest cats, a tenth
held out, calibrated by temperature scaling on it. Other data: `simple_cnn`, trained without the brightest 60 % of one
class. Of all test images predicted with a confidence above 0.65 the distance to another decision is measured by the
default attack (decisions only) and by the gradient attack; then every search is simulated on random parts of the pool.
Several models give the honest error bar: the repetitions of one pool overlap. All of this is the task of
`secondguess study run search-figure4`; here models and pools can be kept, and every point of the curves.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from secondguess import Classifier, ImageSet, load
from secondguess.images import Dataset
from secondguess.search import Distances, Pool
from secondguess.search.pool import MIN_CONFIDENCE
from secondguess_lab.record import provenance, say, write
from secondguess_lab.studies.tasks.search import SUBJECTS, biased, calibrated, make_pool, search_pool

SCORES = ("knn", "mdsa", "relative_mahalanobis")
GOAL = 50
PATHS = ("data", "out", "keep", "kept", "unpack")
MAKING = ("models", "epochs", "biased", "attack", "queries", "supervisors", "limit", "no_search")  # not of a search
SEARCHING = ("replications", "subset", "budget", "seed", "jobs")
COLUMNS = ("mae", "l2", "linf", "queries", "failed")


def unpacked(path):
    """Cats and dogs from the file in which they are packed: WebP images one after another, and where each begins."""
    from PIL import Image

    with np.load(path, allow_pickle=False) as file:
        webp, offset, labels = file["webp"], file["offset"], file["is_dog"].astype(np.int64)
        is_test, luma = file["split"] == "test", file["center_luma"].astype(np.float64)

    def decode(i):
        return np.asarray(Image.open(io.BytesIO(webp[offset[i] : offset[i + 1]].tobytes())).convert("RGB"))

    with ThreadPoolExecutor() as workers:
        pixels = np.stack(list(workers.map(decode, range(len(labels)))))
    columns = {"luma": luma}  # of the middle of the photographs; `biased` measures it on the pixels
    images = ImageSet.from_arrays(pixels, labels, class_names=("cat", "dog"), columns=columns, name="cats and dogs")
    return Dataset("cats and dogs", images.take(~is_test), images.take(is_test))


def cats_and_dogs(path):
    """Training images without the darkest 30 % of cats, and test images."""
    return biased(unpacked(path), SUBJECTS["cats_dogs"])


def unpack(path, out):
    """Write them as an archive that every command reads: x_train, y_train, x_test, y_test and class_names."""
    data = unpacked(path)
    arrays = {"class_names": np.array(data.class_names)}
    for split, images in (("train", data.train), ("test", data.test)):
        pixels = np.round(images.materialise() * 255).astype(np.uint8)
        arrays |= {f"x_{split}": pixels.transpose(0, 2, 3, 1), f"y_{split}": images.labels}
    np.savez(out, **arrays)


def keep(folder, seed, model, pool, gradient, critical, about):
    """Everything that the simulations need, so that they can be repeated without a GPU."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {key: value.contiguous().cpu() for key, value in model.state_dict().items()},
        folder / f"model{seed}.safetensors",
    )
    np.savez_compressed(
        folder / f"pool{seed}.npz",
        probabilities=pool.observation.probabilities,
        class_names=np.array(pool.observation.class_names),
        labels=pool.images.labels,
        features=pool.features,
        about=np.array(json.dumps({"critical": critical, "model": about})),
        **{f"distance_{name}": getattr(pool.distances, name) for name in COLUMNS},
        **{f"gradient_{name}": getattr(gradient, name) for name in COLUMNS},
        **{f"score_{name}": values for name, values in pool.scores.items()},
    )


def kept(path):
    """A pool, its labels, the distances by gradient, the critical classes, and what is known of the model."""
    from secondguess.model.observation import Observation

    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    n = len(arrays["labels"])

    def distances(kind):
        columns = {name: arrays[f"{kind}_{name}"] for name in COLUMNS}
        return Distances(
            **columns,
            counterexamples=np.zeros((n, 1, 1, 1), np.float32),
            counterexample_predictions=np.zeros(n, np.int64),
        )

    pool = Pool(
        observation=Observation(arrays["probabilities"], class_names=tuple(arrays["class_names"].tolist())),
        images=ImageSet.from_arrays(np.zeros((n, 1, 1, 1), np.uint8), layout="NCHW"),
        features=arrays["features"],
        eligible=np.ones(n, dtype=bool),
        distances=distances("distance"),
        scores={name.removeprefix("score_"): values for name, values in arrays.items() if name.startswith("score_")},
    )
    about = json.loads(str(arrays["about"]))
    return pool, arrays["labels"], distances("gradient"), about["critical"], about["model"]


def measured(pool, labels, gradient, criticals, about, seed, arguments):
    """The record of one model: a study for every critical class that has errors."""
    common = {key: getattr(arguments, key) for key in SEARCHING}
    rows = []
    for found in search_pool(pool, labels, gradient, criticals, curves=seed == 0, **common):
        study = found["study"]
        rows.append({"model": seed, "about": about} | found)
        say(
            f"model {seed}, {found['critical']}: {study['pool_errors']} errors in {study['size']}, "
            f"SDR {study['pool_sdr']:.2f}"
        )
        for line in (line for line in study["table"] if line["queries"] == study["budget"]):
            shown = {key: line[key]["pooled"] for key in ("errors", "lift", "matched_lift")}
            say(f"  {line['method']:32} " + "  ".join(f"{key} {value:.2f}" for key, value in shown.items()))
    if len(rows) < len(criticals):
        say(f"model {seed}: {len(criticals) - len(rows)} classes without an error above the threshold")
    return rows


def summary(rows):
    """Over the models: mean and standard deviation of what the study promises, for every critical class and method."""
    table = {}
    for critical in dict.fromkeys(row["critical"] for row in rows):
        mine = [row["study"] for row in rows if row["critical"] == critical]
        table[critical] = {"pool_sdr": _spread([one["pool_sdr"] for one in mine])}
        for method in mine[0]["titles"]:
            cells = [[row for row in one["table"] if row["method"] == method] for one in mine]
            table[critical][method] = {
                f"{metric}@{last}": _spread([rows_[place][metric]["pooled"] for rows_ in cells])
                for place, last in enumerate(row["queries"] for row in cells[0])
                for metric in ("sdr", "lift", "matched_lift", "errors", "spread", "utility", "confidence")
            }
    return table


def _spread(values):
    std = round(float(np.std(values, ddof=1)), 4) if len(values) > 1 else None
    return {"mean": round(float(np.mean(values)), 4), "std": std}


def main():
    """Train, measure, search, write after every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="cats_dogs_25k_64_webp.npz, mnist.npz or fashion_mnist.npz")
    parser.add_argument("--out", type=Path, default=Path("search.json"))
    parser.add_argument("--keep", type=Path, help="folder for models and pools")
    parser.add_argument("--kept", type=Path, help="folder of pools to search again instead of training")
    parser.add_argument("--unpack", type=Path, help="only write cats and dogs to this .npz, which every command reads")
    parser.add_argument("--no-search", action="store_true", help="only train, measure and keep; search with --kept")
    parser.add_argument("--models", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=0, help="other than the recipe's")
    parser.add_argument(
        "--biased", type=int, default=3, help="the class that is thinned in other data than cats and dogs"
    )
    parser.add_argument("--attack", default="hop_skip_jump")
    parser.add_argument("--queries", type=int, default=500, help="of the attack, an image")
    parser.add_argument("--supervisors", nargs="*", default=list(SCORES))
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--subset", type=int, default=2000)
    parser.add_argument("--budget", type=int, default=GOAL)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=-1)
    parser.add_argument("--limit", type=int, help="so many training and test images only (a quick try)")
    arguments = parser.parse_args()
    if arguments.unpack:
        unpack(arguments.data, arguments.unpack)
        return
    rows = []
    for seed, made in enumerate(pools(arguments)):
        if arguments.no_search:
            continue
        rows += measured(*made, seed, arguments)
        write(arguments.out, record(arguments, rows))


def pools(arguments):
    """One pool after the other, from a folder or newly made."""
    if arguments.kept:
        paths = sorted(arguments.kept.glob("pool*.npz"), key=lambda path: (len(path.name), path.name))  # 2 before 10
        yield from (kept(path) for path in paths)
        return
    began = time.perf_counter()
    cats = "cats_dogs" in Path(arguments.data).name
    subject = SUBJECTS["cats_dogs"] if cats else replace(SUBJECTS["mnist"], biased=arguments.biased)
    training, test = cats_and_dogs(arguments.data) if cats else biased(load(arguments.data), subject)
    if arguments.limit:
        training, test = training.head(arguments.limit, seed=0), test.head(arguments.limit, seed=0)
    say(f"{len(training)} training and {len(test)} test images after {time.perf_counter() - began:.0f} s")
    for seed in range(arguments.models):
        model, fitting, about = calibrated(training, subject.architecture, seed=seed, epochs=arguments.epochs)
        say(f"model {seed}: trained after {time.perf_counter() - began:.0f} s, {about}")
        classifier = Classifier(model, class_names=training.class_names, batch_size=4096)
        common = {key: getattr(arguments, key) for key in ("supervisors", "attack", "queries")}
        pool, gradient, more = make_pool(classifier, fitting, test, **common, seed=seed)
        say(f"model {seed}: measured after {time.perf_counter() - began:.0f} s, {more}")
        settings = {key: getattr(arguments, key) for key in MAKING} | {"data": Path(arguments.data).stem}
        about |= more | {"made_with": settings}
        if arguments.keep:
            keep(arguments.keep, seed, model, pool, gradient, subject.critical, about)
        yield pool, pool.images.labels, gradient, subject.critical, about


def record(arguments, rows):
    """The record of the models so far; with what a kept pool was made stands in its rows."""
    left_out = (*PATHS, *(MAKING if arguments.kept else ()))
    settings = {key: value for key, value in vars(arguments).items() if key not in left_out}
    return {
        **provenance(settings | {"min_confidence": MIN_CONFIDENCE}),
        "data": Path(arguments.data).stem if arguments.data else arguments.kept.name,
        "summary": summary(rows),
        "rows": rows,
    }


if __name__ == "__main__":
    main()
