"""What does adversarial distance find? Many networks for cats and dogs, and the distribution over them.

    python search_networks.py cats_dogs_25k_64_webp.npz --keep kept/networks
    python search_networks.py --kept kept/networks --out results/search/networks.json

The first command trains the paper's network, `cats_dogs_cnn`, again and again: without the darkest 0 to 30 % of the
training half's cats, each share with several seeds. A tenth of the remaining images is held out; training stops when
their loss has not fallen for some epochs, and the weights of the best epoch are calibrated on them by temperature
scaling. For all test images predicted to be cats with a confidence above 0.65 it measures the distance to another
decision by gradients, and with `--attacks` also by decisions alone. Every network is kept as soon as it is measured,
and a second call continues where the first was interrupted. Several processes can work on one folder, each on its part
of the networks (`--part 0/3`).

The second command needs no GPU. It simulates the searches in random parts of 2,000 images and writes, for each network,
the standardised discovery ratio (SDR) and the confidence-matched lift after 20 and 50 queries. Over the networks it
writes their distribution, with the share of networks, and of single draws, that reach the ratios of the paper's text:
about 4 after 20 queries, more than 2 after 50. Where another attack measured 2,000 images of a pool, these are searched
once by its distances and once by those of gradients; there `random` is a single draw, at the same positions in every
pool, and says nothing. Each row has the AUROC of the residual for errors against right answers of equal confidence (see
search_account.py; .5 = no information).
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr
from search_account import within
from search_pools import unpacked

from secondguess import Classifier, ImageSet, zoo
from secondguess.model.needs import Needs
from secondguess.model.observation import Observation
from secondguess.search import Distances, Pool, measure_distances, simulate
from secondguess.search.adversarial_distance import residuals
from secondguess.search.pool import MIN_CONFIDENCE, pixel_features
from secondguess.training import fit_temperature, train
from secondguess_lab.record import provenance, say, write
from secondguess_lab.studies.tasks.search import FITTED, SUBJECTS, biased

SHARES = (0.0, 0.05, 0.10, 0.15, 0.20, 0.25, 0.30)
SUBJECT = SUBJECTS["cats_dogs"]
CRITICAL = "cat"  # the paper's critical class
QUERIES = (20, 50)
PUBLISHED = {20: 4.0, 50: 2.0}  # in words: about 4, more than 2
QUANTILES = {"min": 0.0, "low": 0.05, "lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75, "max": 1.0}
COLUMNS = ("mae", "l2", "linf", "queries", "failed")
MEASURES = ("sdr", "matched_lift", "errors")
STATISTICS = ("pooled", "median", "low", "high")  # over the draws


def main():
    """Train and measure networks, or simulate searches on those that were kept."""
    arguments = parsed()
    if arguments.kept:
        search_networks(arguments)
    else:
        make_networks(arguments)


def parsed():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="cats_dogs_25k_64_webp.npz")
    parser.add_argument("--keep", type=Path, help="folder for the pools of the networks")
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES), help="of cats left out, the darkest")
    parser.add_argument("--seeds", type=int, default=4, help="networks for each share")
    parser.add_argument("--epochs", type=int, default=40, help="at most; 40 is the recipe's")
    parser.add_argument("--patience", type=int, default=5, help="epochs without a lower validation loss; 0 for no stop")
    parser.add_argument(
        "--attacks", nargs="+", default=["gradient"], help="to measure, or to search with: gradient, or NAME:QUERIES"
    )
    parser.add_argument("--attacked", type=int, default=2000, help="images at most for attacks other than gradient")
    parser.add_argument("--weights", action="store_true", help="keep the networks, too")
    parser.add_argument("--part", default="0/1", help="which part of the networks: 0/3, 1/3 or 2/3, say")
    parser.add_argument("--limit", type=int, help="so many training and test images only (a quick try)")
    parser.add_argument("--kept", type=Path, help="folder of pools to search")
    parser.add_argument("--out", type=Path, default=Path("networks.json"))
    parser.add_argument("--methods", nargs="+", default=["random", "low_confidence", "adversarial_distance"])
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--subset", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=-1)
    arguments = parser.parse_args()
    if not arguments.kept and not (arguments.data and arguments.keep):
        parser.error("give the data and --keep, or --kept")
    if arguments.subset < max(QUERIES):
        parser.error(f"--subset must be at least {max(QUERIES)}, the queries of a search")
    return arguments


def make_networks(arguments):
    """Every network of this part; of one that is there, the attacks that it lacks, if its weights were kept.

    Those with the lowest seeds come first, so that an interrupted call leaves about as many networks for each share.
    """
    data = unpacked(arguments.data)
    test = data.test.head(arguments.limit, seed=0) if arguments.limit else data.test  # its cats come first
    features = pixel_features(test.images)
    arguments.keep.mkdir(parents=True, exist_ok=True)
    number, parts = (int(one) for one in arguments.part.split("/"))
    wanted = [(seed, share) for seed in range(arguments.seeds) for share in arguments.shares]
    for seed, share in wanted[number::parts]:
        path = arguments.keep / f"share{round(100 * share):02d}_seed{seed}.npz"
        arrays, about = kept_network(path)
        if all(attack in about.get("attacks", ()) for attack in arguments.attacks):
            continue
        model, about = network(data, share, seed, arguments, about, path.with_suffix(".safetensors"))
        arrays, about = measured(model, test, features, seed, arguments, arrays, about)
        with (temporary := path.with_suffix(".tmp")).open("wb") as file:
            np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)
        temporary.replace(path)  # nobody finds half a file
        say(f"{path.name}: {about}")


def kept_network(path):
    """The arrays of a kept pool, and what is known of its network; nothing if there is none."""
    if not path.exists():
        return {}, {}
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return arrays, json.loads(str(arrays.pop("about")))


def network(data, share, seed, arguments, about, weights):
    """A calibrated network, read or trained, and what is known of it."""
    from safetensors.torch import load_file, save_file

    if about and weights.exists():
        model = zoo.make(SUBJECT.architecture, num_classes=2, input_shape=data.test.shape, seed=seed)
        model.load_state_dict(load_file(weights))
        return model.eval(), about
    began = time.perf_counter()
    training, _ = biased(data, replace(SUBJECT, share=share))
    if arguments.limit:
        training = training.head(arguments.limit, seed=0)
    model, found = stopped_early(training, seed, arguments)
    if arguments.weights:
        save_file({key: value.contiguous().cpu() for key, value in model.state_dict().items()}, weights)
    head = provenance({key: getattr(arguments, key) for key in ("epochs", "patience", "limit")})
    return model, {
        "share": share,
        "seed": seed,
        "training_images": len(training),
        **found,
        "training_seconds": since(began),
        **{key: head[key] for key in ("command", "commit", "hardware", "versions", "settings")},
        "data": Path(arguments.data).stem,
        "attacks": {},
    }


def measured(model, test, features, seed, arguments, arrays, about):
    """The predicted cats of a network, and their distances by each attack that was not made before."""
    classifier = Classifier(model, class_names=test.class_names, batch_size=4096, output_kind="logits")
    whole = Pool.of(classifier, test, min_confidence=MIN_CONFIDENCE, features=features, seed=seed)
    pool = whole.narrowed()
    cats = np.flatnonzero(pool.predictions == test.class_names.index(CRITICAL))
    if not arrays:
        about = about | {"test_accuracy": float((whole.predictions == test.labels).mean())}
        arrays = {
            "test_rows": whole.rows[cats],
            "labels": pool.images.labels[cats],
            "probabilities": pool.observation.probabilities[cats],
            "features": pool.features[cats],
        }
    for attack in arguments.attacks:
        if attack in about["attacks"]:
            continue
        began = time.perf_counter()
        name, _, budget = attack.partition(":")
        drawn = np.sort(np.random.default_rng(seed).permutation(len(cats))[: arguments.attacked])
        places = np.arange(len(cats)) if name == "gradient" else drawn
        found = measure_distances(
            classifier, pool.images, attack=name, budget=int(budget) if budget else None, seed=seed, rows=cats[places]
        )
        arrays = arrays | {f"{attack} {column}": getattr(found, column)[cats[places]] for column in COLUMNS}
        arrays[f"{attack} places"] = places
        about = about | {"attacks": about["attacks"] | {attack: {"images": len(places), "seconds": since(began)}}}
    return arrays, about


def stopped_early(training, seed, arguments):
    """A calibrated network with the weights of its best epoch, and what is known of it."""
    import torch

    fitting, held_out = training.split(FITTED, seed=seed)
    architecture = SUBJECT.architecture
    model = zoo.make(architecture, num_classes=training.num_classes, input_shape=training.shape, seed=seed)
    recipe = zoo.get(architecture).recipe.as_kwargs() | {"epochs": arguments.epochs}
    recipe["validation"] = (held_out.materialise(), held_out.labels)
    history = train(
        model, fitting.materialise(), fitting.labels, seed=seed, **recipe | {"patience": arguments.patience or None}
    )
    classifier = Classifier(model, class_names=training.class_names, batch_size=1000, output_kind="logits")
    seen = classifier.observe(held_out, Needs(logits=True))
    temperature = fit_temperature(np.asarray(seen.logits), held_out.labels)
    with torch.no_grad():
        for parameter in model.get_submodule("logits").parameters():
            parameter.div_(temperature)
    kept = history.kept_epoch
    return model, {
        "temperature": temperature,
        "epochs": len(history.rows),
        "kept_epoch": kept,
        **history.rows[kept - 1],
    }


def record(arguments, networks, rows):
    """What the searches found so far, and the distribution over the networks."""
    shown = ("methods", "attacks", "replications", "subset")
    kinds = dict.fromkeys(row["distances"] for row in rows)
    settings = {key: getattr(arguments, key) for key in shown}
    return {
        **provenance(settings | {"min_confidence": MIN_CONFIDENCE, "critical": CRITICAL}),
        "published": {f"sdr@{number}": value for number, value in PUBLISHED.items()},
        "summary": {kind: summary([row for row in rows if row["distances"] == kind]) for kind in kinds},
        "rows": rows,
        "networks": networks,
    }


def search_networks(arguments):
    """Simulate searches in every kept pool; the record is written after each."""
    networks, rows = {}, []
    for path in sorted(arguments.kept.glob("*.npz")):
        arrays, about = kept_network(path)
        if not (arrays["labels"] != arrays["probabilities"].argmax(axis=1)).any():
            say(f"{path.stem}: no error among {len(arrays['labels'])} predicted cats, left out")
            continue
        networks[path.stem] = about
        shown = ("share", "seed", "validation_accuracy", "test_accuracy")
        rows += [
            {"network": path.stem} | {key: about[key] for key in shown} | row for row in searched(arrays, arguments)
        ]
        write(arguments.out, record(arguments, networks, rows))
        say(f"{path.stem}: searched")


def searched(arrays, arguments):
    """A row for each kind of distances: by gradients, by another attack, and by gradients on the images of that."""
    for attack in arguments.attacks:
        if len(arrays.get(f"{attack} places", ())) < max(QUERIES):  # not measured, or too few to search
            continue
        places = arrays[f"{attack} places"]
        pool = kept_pool(arrays, attack, places)
        if attack == "gradient":
            yield {"distances": attack} | simulated(pool, arrays["labels"][places], arguments)
            continue
        by_gradient = kept_pool(arrays, "gradient", places)
        agreement = float(spearmanr(residuals(pool), residuals(by_gradient)).statistic)
        for name, one in ((attack, pool), (f"gradient, images of {attack}", by_gradient)):
            yield {"distances": name, "spearman": agreement} | simulated(one, arrays["labels"][places], arguments)


def kept_pool(arrays, attack, places):
    """Predicted cats with the distances that an attack measured; `places` are among those that it measured."""
    n, mine = len(places), np.searchsorted(arrays[f"{attack} places"], places)
    blank = np.zeros((n, 1, 1, 1), np.float32)
    columns = {column: arrays[f"{attack} {column}"][mine] for column in COLUMNS}
    return Pool(
        observation=Observation(arrays["probabilities"][places], class_names=("cat", "dog")),
        images=ImageSet.from_arrays(blank.astype(np.uint8), layout="NCHW"),
        features=arrays["features"][places],
        eligible=np.ones(n, dtype=bool),
        distances=Distances(**columns, counterexamples=blank, counterexample_predictions=np.zeros(n, np.int64)),
    )


def simulated(pool, labels, arguments):
    """What is known of a pool, and each method's measures pooled over the draws, with their median and band.

    A pool that is no larger than a draw is searched once.
    """
    replications = arguments.replications if len(pool) > arguments.subset else 1
    common = {"replications": replications, "subset": arguments.subset, "budget": max(QUERIES), "jobs": arguments.jobs}
    found = simulate(pool, labels, arguments.methods, **common)
    methods = {}
    for method in found.outcomes:
        curves = {measure: found.curve(method, measure) for measure in MEASURES}
        methods[method] = {
            f"{measure}@{number}": {name: curve.at(number)[name] for name in STATISTICS}
            for measure, curve in curves.items()
            for number in QUERIES
        }
        for number, published in PUBLISHED.items():
            reached = found.values(method, "sdr")[:, number - 1] >= published
            methods[method][f"draws that reach the published sdr@{number}"] = float(reached.mean())
    about = {name: getattr(found, name) for name in ("size", "subset", "pool_errors", "pool_sdr", "replications")}
    about["median_mae"] = float(np.median(pool.distances.mae))
    about["auroc_at_equal_confidence"] = within(-residuals(pool), pool.errors(labels), pool.confidence)
    return about | {"methods": methods}


def summary(rows):
    """The distribution over the networks, all together and for each share of cats left out."""
    groups = {"all": rows}
    for share in sorted({row["share"] for row in rows}):
        groups[f"share {share:.2f}"] = [row for row in rows if row["share"] == share]
    return {name: of_group(mine) for name, mine in groups.items()}


def of_group(rows):
    """Accuracies, ratio of the pool, and each method's ratios: mean, standard deviation and quantiles over networks."""
    table = {"networks": len(rows)}
    for key in ("validation_accuracy", "test_accuracy", "pool_sdr", "auroc_at_equal_confidence"):
        table[key] = spread([row[key] for row in rows])
    for method in rows[0]["methods"]:
        mine = [row["methods"][method] for row in rows]
        table[method] = {
            f"{measure}@{number}": spread([one[f"{measure}@{number}"]["pooled"] for one in mine])
            for measure in MEASURES
            for number in QUERIES
        }
        for number, published in PUBLISHED.items():
            reached = [one[f"sdr@{number}"]["pooled"] >= published for one in mine]
            key = f"draws that reach the published sdr@{number}"
            table[method][f"networks that reach the published sdr@{number}"] = float(np.mean(reached))
            table[method][key] = float(np.mean([one[key] for one in mine]))
    return table


def spread(values):
    """Mean, standard deviation and quantiles."""
    quantiles = {name: float(np.quantile(values, level)) for name, level in QUANTILES.items()}
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "std": std, **quantiles}


def since(began):
    """Seconds."""
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
