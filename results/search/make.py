"""Which search finds the confident mistakes? The study of adversarial distances, with pools of known labels.

    python results/search/make.py cats_dogs_25k_64_webp.npz --out cats_dogs.json --keep kept/cats_dogs
    python results/search/make.py mnist.npz --biased 3 --out mnist.json --keep kept/mnist
    python results/search/make.py --kept kept/cats_dogs --out cats_dogs.json   # search again, without training

Cats and dogs: the network and recipe of the paper, trained on the training half without its 30 % darkest cats, a tenth
held out, calibrated by temperature scaling on it. Other data: `simple_cnn`, trained without the brightest 60 % of one
class. Of all test images predicted with a confidence above 0.65 the distance to another decision is measured by the
default attack (decisions only) and by the gradient attack; then every search is simulated on random parts of the pool.
Several models give the honest error bar: the repetitions of one pool overlap.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np

from secondguess import Classifier, ImageSet, Needs, load, zoo
from secondguess._versions import versions
from secondguess.search import Distances, Pool, measure_distances, simulate
from secondguess.supervisors import make as make_supervisors

TAU = 0.65
SCORES = ("knn", "mdsa", "relative_mahalanobis")
METHODS = {
    "random": ("random", {}),
    "low_confidence": ("low_confidence", {}),
    "adversarial_distance": ("adversarial_distance", {}),
    "adversarial_distance_raw": ("adversarial_distance", {"log": False}),
    "bandit": ("bandit", {}),
    "bandit_published": ("bandit", {"variant": "published", "elbow": "published"}),
    "coverage": ("coverage", {}),
    "coverage_published": ("coverage", {"variant": "bw_published", "elbow": "published"}),
    "facility": ("facility", {}),
    "adaptive": ("adaptive", {}),
}
GOAL = 50
PATHS = ("data", "out", "keep", "kept")
MAKING = ("models", "epochs", "biased", "attack", "queries", "supervisors", "limit", "no_search")  # not of a search


def cats_and_dogs(path):
    """Training images without the darkest 30 % of cats, test images, the architecture and the classes in question."""
    from PIL import Image

    with np.load(path, allow_pickle=False) as file:
        webp, offset, labels = file["webp"], file["offset"], file["is_dog"].astype(np.int64)
        is_test, luma = file["split"] == "test", file["center_luma"].astype(np.float64)

    def decode(i):
        return np.asarray(Image.open(io.BytesIO(webp[offset[i] : offset[i + 1]].tobytes())).convert("RGB"))

    with ThreadPoolExecutor() as workers:
        pixels = np.stack(list(workers.map(decode, range(len(labels)))))
    images = ImageSet.from_arrays(
        pixels, labels, class_names=("cat", "dog"), columns={"luma": luma}, name="cats and dogs"
    )
    dark = luma < np.quantile(luma[~is_test & (labels == 0)], 0.3)
    training = images.take(~is_test & ~(dark & (labels == 0)))
    return training, images.take(is_test), "cats_dogs_cnn", ("dog", "cat")


def biased_digits(path, biased, share=0.6):
    """Training images without the brightest 60 % of one class, test images, architecture; all classes in question."""
    data = load(path)
    brightness = np.concatenate(
        [data.train.images[i : i + 5000].mean(axis=(1, 2, 3)) for i in range(0, len(data.train), 5000)]
    )
    mine = data.train.labels == biased
    dropped = mine & (brightness > np.quantile(brightness[mine], 1 - share))
    return data.train.take(~dropped), data.test, "simple_cnn", (None,)


def train_calibrated(training, architecture, seed, epochs):
    """A network trained by its recipe, its logits divided by the temperature that suits the held-out tenth."""
    import torch

    from secondguess.training import fit_temperature, train

    fitting, held_out = training.split(0.9, seed=seed)
    model = zoo.make(architecture, num_classes=training.num_classes, input_shape=training.shape, seed=seed)
    recipe = zoo.describe(architecture).recipe.as_kwargs() | ({"epochs": epochs} if epochs else {})
    recipe["validation"] = (held_out.materialise(), held_out.labels)
    history = train(model, fitting.materialise(), fitting.labels, seed=seed, **recipe)
    classifier = Classifier(model, class_names=training.class_names, batch_size=1000)
    seen = classifier.observe(held_out, Needs(logits=True))
    temperature = fit_temperature(seen.logits, held_out.labels)
    with torch.no_grad():
        model.logits.weight /= temperature
        model.logits.bias /= temperature
    return model, fitting, {"temperature": temperature, "validation": history.rows[-1]}


def make_pool(classifier, fitting, test, arguments, seed):
    """The pool of all test images above the threshold, with distances by both attacks, and their labels."""
    supervisors = make_supervisors(arguments.supervisors) if arguments.supervisors else []
    learnt = classifier.observe(fitting, reduce(Needs.__or__, (one.needs for one in supervisors), Needs()))
    for one in supervisors:
        one.fit(learnt, fitting.labels)
    whole = Pool.of(classifier, test, tau=TAU, supervisors=supervisors, seed=seed)
    accuracy = float((whole.predictions == test.labels).mean())
    pool = whole.narrowed()
    began = time.perf_counter()
    distances = measure_distances(classifier, pool.images, attack=arguments.attack, budget=arguments.queries, seed=seed)
    attacked = time.perf_counter() - began
    gradient = measure_distances(classifier, pool.images, attack="gradient", seed=seed)
    about = {
        "test_accuracy": accuracy,
        "attack_seconds": attacked,
        "gradient_seconds": time.perf_counter() - began - attacked,
        "median_mae": float(np.median(distances.mae)),
        "median_mae_gradient": float(np.median(gradient.mae)),
        "failed": int(distances.failed.sum()),
        "queries_per_image": float(distances.queries.mean()),
    }
    return replace(pool, distances=distances), gradient, about


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
        **{f"distance_{name}": getattr(pool.distances, name) for name in ("mae", "l2", "linf", "queries", "failed")},
        **{f"gradient_{name}": getattr(gradient, name) for name in ("mae", "l2", "linf", "queries", "failed")},
        **{f"score_{name}": values for name, values in pool.scores.items()},
    )


def kept(path):
    """A pool, its labels, the distances by gradient, the critical classes, and what is known of the model."""
    from secondguess.observation import Observation

    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    n = len(arrays["labels"])

    def distances(kind):
        columns = {name: arrays[f"{kind}_{name}"] for name in ("mae", "l2", "linf", "queries", "failed")}
        return Distances(**columns, twins=np.zeros((n, 1, 1, 1), np.float32), twin_predictions=np.zeros(n, np.int64))

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


def study(pool, labels, gradient, critical, arguments):
    """All searches on one pool; the adaptive one also without supervisors, and the distance also by gradient."""
    pool = replace(pool, eligible=pool.eligible & _predicted(pool, critical))
    common = {
        "budget": arguments.budget,
        "replications": arguments.replications,
        "subset": arguments.subset,
        "seed": arguments.seed,
        "jobs": arguments.jobs,
    }
    main = simulate(pool, labels, METHODS, **common)
    by_gradient = replace(pool, distances=gradient, scores={})
    plain = simulate(replace(pool, scores={}), labels, {"adaptive_without_scores": ("adaptive", {})}, **common)
    others = simulate(by_gradient, labels, {"adversarial_distance_gradient": ("adversarial_distance", {})}, **common)
    together = [main, plain, others]  # one seed, hence the same parts of the pool
    return replace(
        main,
        outcomes={name: seen for one in together for name, seen in one.outcomes.items()},
        titles={name: title for one in together for name, title in one.titles.items()},
    )


def measured(pool, labels, gradient, criticals, about, seed, arguments):
    """The record of one model: a study for every critical class, and how alike the two distances are."""
    from scipy.stats import spearmanr

    from secondguess.search.adversarial_distance import residuals

    rows = []
    for critical in criticals:
        began = time.perf_counter()
        if not (pool.errors(labels) & _predicted(pool, critical)).any():
            say(f"model {seed}, {critical or 'all classes'}: no error above the threshold, nothing to search for")
            continue
        found = study(pool, labels, gradient, critical, arguments)
        mine = replace(pool, eligible=pool.eligible & _predicted(pool, critical))
        ours, theirs = residuals(mine), residuals(replace(mine, distances=gradient))
        both = np.isfinite(ours) & np.isfinite(theirs)
        row = {
            "model": seed,
            "critical": critical or "all classes",
            "seconds": time.perf_counter() - began,
            "spearman_residuals": float(spearmanr(ours[both], theirs[both]).statistic),
            "about": about,
            "study": found.to_json(curves=seed == 0),
        }
        rows.append(row)
        say(f"model {seed}, {row['critical']}: {found.pool_errors} errors in {found.size}, SDR {found.pool_sdr:.2f}")
        for method in found.outcomes:
            shown = {
                key: found.curve(method, key).at(found.budget)["pooled"] for key in ("errors", "lift", "matched_lift")
            }
            say(f"  {method:32} " + "  ".join(f"{key} {value:.2f}" for key, value in shown.items()))
    return rows


def _predicted(pool, critical):
    if critical is None:
        return np.ones(len(pool), dtype=bool)
    return pool.predictions == pool.observation.class_names.index(critical)


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
    parser.add_argument("--no-search", action="store_true", help="only train, measure and keep; search with --kept")
    parser.add_argument("--models", type=int, default=2)
    parser.add_argument("--epochs", type=int, help="other than the recipe's")
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
    began, rows = time.perf_counter(), []
    for seed, made in enumerate(pools(arguments)):
        if arguments.no_search:
            continue
        rows += measured(*made, seed, arguments)
        arguments.out.write_text(json.dumps(record(arguments, rows, time.perf_counter() - began), indent=1) + "\n")


def pools(arguments):
    """One pool after the other, from a folder or newly made."""
    if arguments.kept:
        paths = sorted(arguments.kept.glob("pool*.npz"), key=lambda path: (len(path.name), path.name))  # 2 before 10
        yield from (kept(path) for path in paths)
        return
    began = time.perf_counter()
    cats = "cats_dogs" in Path(arguments.data).name
    source = cats_and_dogs(arguments.data) if cats else biased_digits(arguments.data, arguments.biased)
    training, test, architecture, critical = source
    if arguments.limit:
        training, test = training.head(arguments.limit, seed=0), test.head(arguments.limit, seed=0)
    say(f"{len(training)} training and {len(test)} test images after {time.perf_counter() - began:.0f} s")
    for seed in range(arguments.models):
        model, fitting, about = train_calibrated(training, architecture, seed, arguments.epochs)
        say(f"model {seed}: trained after {time.perf_counter() - began:.0f} s, {about}")
        classifier = Classifier(model, class_names=training.class_names, batch_size=4096)
        pool, gradient, more = make_pool(classifier, fitting, test, arguments, seed)
        say(f"model {seed}: measured after {time.perf_counter() - began:.0f} s, {more}")
        settings = {key: getattr(arguments, key) for key in MAKING} | {"data": Path(arguments.data).stem}
        about |= more | {"made_with": settings}
        if arguments.keep:
            keep(arguments.keep, seed, model, pool, gradient, critical, about)
        yield pool, pool.images.labels, gradient, critical, about


def record(arguments, rows, seconds):
    """The record of the models so far; with what a kept pool was made stands in its rows."""
    import torch

    left_out = (*PATHS, *(MAKING if arguments.kept else ()))
    return {
        "script": "results/search/make.py",
        "settings": {key: value for key, value in vars(arguments).items() if key not in left_out},
        "data": Path(arguments.data).stem if arguments.data else arguments.kept.name,
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": versions(),
        "seconds": seconds,
        "summary": summary(rows),
        "rows": rows,
    }


def say(what):
    """A line on standard output, at once."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
