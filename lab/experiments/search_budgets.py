"""Does a better attack make adversarial distance find more? Distances of the same predicted cats, by attack and budget.

    python search_networks.py cats_dogs_25k_64_webp.npz --keep kept --shares 0.3 --seeds 1 --weights
    python search_budgets.py cats_dogs_25k_64_webp.npz --kept kept --out budgets.json

Reads networks that search_networks.py kept with `--weights`. Of the test images that a network takes for cats with a
confidence above 0.65 some are drawn at random and measured by

* `gradient`, which sees gradients: the reference;
* `hop_skip_jump`, our default, from the nearest image that the network takes for a dog;
* `boundary from noise`, the paper's attack from the paper's start: uniform noise of its own for each image. Departures:
  50 draws of noise at most instead of 1,000, and bisection of the line from the image to the noise where foolbox tries
  1,000 points of it in turn: 10 queries instead of up to 1,000. The paper's 1,000 iterations take about 26,000 queries.

An attack on decisions is run once, up to its largest budget, and looked at where a smaller budget would have ended it;
what comes later does not change what came before. Distances are of the nearest image that was decided otherwise when it
was asked about. At the end of a run the last one is shown to the model once more; how many were not confirmed, nor any
that lay a little farther, is said where all images ended at the same budget (`unconfirmed`). All images have the
budgets of `--budgets`, every `--every`th part of them also those of `--long`. Parts are kept in the folder as they are
measured, and a second call goes on.

For each attack and budget the record has the distances, how they rank images beside those of gradients (`spearman_mae`;
`spearman_residuals` for what is left of them at equal confidence, by which a search asks; `first_20_in_common` of the
first twenty that each asks for), and searches as in search_networks.py, in random parts of three quarters of the
images, where there are at least a hundred. A search of so few asks for a far larger share of them than one of 2,000
does: its ratios are for comparing attacks, not for comparison with other pools.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.stats import spearmanr
from search_networks import COLUMNS, CRITICAL, QUERIES, SUBJECT, kept_network, kept_pool, simulated
from search_pools import unpacked

from secondguess import Classifier, zoo
from secondguess.search import measure_distances
from secondguess.search.adversarial_distance import residuals
from secondguess.search.attacks import Attack, Boundary, Gradient, HopSkipJump
from secondguess_lab.record import provenance, say, write

GRADIENT, OURS, PAPERS = "gradient", "hop_skip_jump", "boundary from noise"
SHOWN = ("share", "seed", "kept_epoch", "validation_accuracy", "test_accuracy")
FIRST = min(QUERIES)
ENOUGH = 2 * max(QUERIES)  # images for a search; of fewer it would ask for most
NOISE = 200  # images of noise that are looked at, to say what the network takes them for


@dataclass(frozen=True)
class Watched(Attack):
    """An attack that notes where smaller budgets would have ended it.

    Args:
        attack: what is run.
        budgets: to look at.
        seen: what was found, by budget and place of an image: mean absolute, Euclidean and largest change, queries.
    """

    name: ClassVar[str] = "watched"

    attack: Attack
    budgets: tuple[int, ...]
    seen: dict[tuple[int, int], tuple[float, ...]] = field(default_factory=dict)

    @property
    def usual_queries(self) -> int:
        """As many as the attack."""
        return self.attack.usual_queries

    @property
    def least_queries(self) -> int:
        """As many as the attack."""
        return self.attack.least_queries

    def settings(self) -> dict[str, Any]:
        """Those of the attack."""
        return self.attack.settings() | {"budgets": list(self.budgets)}

    def start(self, walk, decide):
        """As the attack."""
        self.attack.start(walk, decide)

    def step(self, walk, decide, noise):
        """As the attack."""
        self.attack.step(walk, decide, noise)

    def finished(self, walk, decide):
        """As the attack; before, every budget is asked whether it would have ended here."""
        whole = decide.budget
        for budget in self.budgets:
            decide.budget = min(budget, whole)
            over = self.attack.finished(walk, decide).nonzero()[:, 0]
            change = (walk.counterexamples[over] - walk.images[over]).double().flatten(1).abs()
            queries = decide.spent[walk.rows[over]] + 1  # the last check
            lengths = change.mean(dim=1), change.norm(dim=1), change.max(dim=1).values, queries
            for row, *found in zip(walk.rows[over].tolist(), *(one.tolist() for one in lengths), strict=True):
                self.seen.setdefault((budget, row), tuple(found))
        decide.budget = whole
        return self.attack.finished(walk, decide)


def main():
    """Measure what is not measured yet in every kept network, then search."""
    arguments = parsed()
    data = unpacked(arguments.data)
    test = data.test.head(arguments.limit, seed=0) if arguments.limit else data.test
    networks, rows = {}, []
    for path in sorted(arguments.kept.glob("share*.npz")):
        arrays, about = kept_network(path)
        model = zoo.make(SUBJECT.architecture, num_classes=2, input_shape=test.shape)
        model.load_state_dict(weights_of(path))
        classifier = Classifier(
            model.eval().to(memory_format=torch.channels_last),  # twice as fast on a processor
            class_names=test.class_names,
            batch_size=arguments.batch_size,
            output_kind="logits",
        )
        parts = measured(classifier, test, arrays, path, arguments)
        networks[path.stem] = about | {"noise_taken_for_cats": noise_taken_for_cats(classifier, test.shape)}
        for few in (False, True):
            chosen = [part for part in parts if part["long"] or not few]
            for row in compared(arrays, chosen, few, arguments):
                rows.append({"network": path.stem} | {key: about[key] for key in SHOWN} | row)
                say({key: value for key, value in rows[-1].items() if key != "methods"})
        seconds = {name: sum(float(part[f"{name} seconds"]) for part in parts) for name in (GRADIENT, OURS, PAPERS)}
        networks[path.stem] |= {"measuring_seconds": seconds}
        write(arguments.out, record(arguments, networks, rows))


def parsed():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="cats_dogs_25k_64_webp.npz")
    parser.add_argument("--kept", type=Path, required=True, help="folder of networks with their weights")
    parser.add_argument("--out", type=Path, default=Path("budgets.json"))
    parser.add_argument("--images", type=int, default=200, help="of each network, drawn at random")
    parser.add_argument("--part", type=int, default=20, help="images measured at a time")
    parser.add_argument("--budgets", type=int, nargs="+", default=[500, 1000], help="queries an image")
    parser.add_argument("--long", type=int, nargs="*", default=[2000, 5000], help="the same, for some of the parts")
    parser.add_argument("--every", type=int, default=3, help="which parts: the first of each so many")
    parser.add_argument("--methods", nargs="+", default=["random", "adversarial_distance"])
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--limit", type=int, help="so many test images only, as the networks had them (a quick try)")
    parser.add_argument("--jobs", type=int, default=1)
    return parser.parse_args()


def weights_of(path):
    """The weights of a kept network."""
    from safetensors.torch import load_file

    return load_file(path.with_suffix(".safetensors"))


def measured(classifier, test, arrays, path, arguments):
    """Every part of the drawn images with its distances, read or measured."""
    order = np.random.default_rng(0).permutation(len(arrays["labels"]))[: arguments.images]
    dogs = None
    found = []
    for number, first in enumerate(range(0, len(order), arguments.part)):
        places = np.sort(order[first : first + arguments.part])
        file = path.with_name(f"budgets_{path.stem}_{number:03d}.npz")
        if not file.exists():
            dogs = predicted_dogs(classifier, test) if dogs is None else dogs
            part = measured_part(classifier, test, arrays["test_rows"][places], dogs, number, arguments)
            with (temporary := file.with_suffix(".tmp")).open("wb") as opened:
                np.savez_compressed(opened, places=places, **part)
            temporary.replace(file)  # nobody finds half a file
            say(f"{file.name}: {[round(float(value)) for name, value in part.items() if 'seconds' in name]} s")
        with np.load(file, allow_pickle=False) as opened:
            found.append({name: opened[name] for name in opened.files})
        if f"{PAPERS} unconfirmed" not in found[-1]:
            raise SystemExit(f"{file} was measured by an older version; remove it.")
        if not np.array_equal(found[-1]["places"], places):
            raise SystemExit(f"{file} holds other images; it was measured with another --part or --images.")
    return found


def predicted_dogs(classifier, test):
    """Pixels of the test images that the network does not take for cats."""
    predictions = classifier.predict(test).argmax(axis=1)
    return torch.from_numpy(test.take(predictions != test.class_names.index(CRITICAL)).materialise())


def measured_part(classifier, test, rows, dogs, number, arguments):
    """Distances of the test images at `rows` by each attack and budget, in columns."""
    images = test.take(rows).materialise()
    long = number % arguments.every == 0 and bool(arguments.long)
    budgets = tuple(sorted({*arguments.budgets, *(arguments.long if long else ())}))
    pixels = torch.from_numpy(images).flatten(1)
    # The nearest dog of each image is all that the others would be looked at for.
    nearest = torch.cdist(pixels, dogs.flatten(1)).argmin(dim=1)
    columns = {"long": np.array(long)}
    plan = {
        GRADIENT: (Gradient(), None, None),
        OURS: (HopSkipJump(), budgets, dogs[nearest.unique()].numpy()),
        PAPERS: (Boundary(), budgets, None),  # all images have one decision, so that it starts from noise
    }
    for name, (attack, mine, starts) in plan.items():
        began = time.perf_counter()
        watched = attack if mine is None else Watched(attack, mine)
        whole = None if mine is None else max(mine)
        distances = measure_distances(classifier, images, attack=watched, budget=whole, seed=number, starts=starts)
        columns[f"{name} seconds"] = np.array(time.perf_counter() - began)
        if mine is None:
            columns |= {f"{name} {column}": getattr(distances, column) for column in COLUMNS}
            continue
        missed = (np.inf, np.inf, np.inf, 0)
        for budget in mine:
            rest = [watched.seen.get((budget, row), missed) for row in range(len(images))]
            *lengths, queries = (np.array(one) for one in zip(*rest, strict=True))
            found = np.isfinite(lengths[0])
            values = (*lengths, np.where(found, queries, distances.queries), ~found)
            columns |= {f"{name}:{budget} {column}": one for column, one in zip(COLUMNS, values, strict=True)}
        columns[f"{name} unconfirmed"] = distances.failed & np.isfinite(lengths[0])  # at the largest budget
    return columns


def noise_taken_for_cats(classifier, shape):
    """The share of images of uniform noise from which no walk of a predicted cat could start."""
    noise = np.random.default_rng(0).random((NOISE, *shape), dtype=np.float32)
    return float((classifier.predict(noise).argmax(axis=1) == classifier.class_names.index(CRITICAL)).mean())


def compared(arrays, parts, few, arguments):
    """A row for each attack and budget on the same images: all, or those few with the large budgets."""
    if not parts:
        return
    places = np.concatenate([part["places"] for part in parts])
    order = np.argsort(places)
    budgets = sorted({*arguments.budgets, *(arguments.long if few else ())})
    names = [GRADIENT, *(f"{name}:{budget}" for name in (OURS, PAPERS) for budget in budgets)]
    whole = {key: arrays[key] for key in ("labels", "probabilities", "features")}
    for name in names:
        whole |= {
            f"{name} {column}": np.concatenate([part[f"{name} {column}"] for part in parts])[order]
            for column in COLUMNS
        }
        whole[f"{name} places"] = places[order]
    pools = {name: kept_pool(whole, name, places[order]) for name in names}
    truth = pools[GRADIENT]
    labels = arrays["labels"][places[order]]
    settings = argparse.Namespace(**vars(arguments), subset=3 * len(places) // 4)
    for name, pool in pools.items():
        known = ~pool.distances.failed & ~truth.distances.failed
        ours, theirs = residuals(pool), residuals(truth)
        attack, _, budget = name.partition(":")
        ended = budget == str(budgets[-1]) and (few or not any(part["long"] for part in parts))  # here, for all images
        yield {
            "attack": attack,
            "budget": int(budget) if budget else None,
            "images": "few" if few else "all",
            "failed": int(pool.distances.failed.sum()),
            "unconfirmed": int(sum(part[f"{attack} unconfirmed"].sum() for part in parts)) if ended else None,
            "queries_median": float(np.nanmedian(pool.distances.queries)),
            "mae_over_gradient_median": float(np.median((pool.distances.mae / truth.distances.mae)[known])),
            "l2_over_gradient_median": float(np.median((pool.distances.l2 / truth.distances.l2)[known])),
            "spearman_mae": float(spearmanr(pool.distances.mae[known], truth.distances.mae[known]).statistic),
            "spearman_residuals": float(spearmanr(ours[known], theirs[known]).statistic),
            "first_20_in_common": len(np.intersect1d(np.argsort(ours)[:FIRST], np.argsort(theirs)[:FIRST])),
            **(simulated(pool, labels, settings) if len(pool) >= ENOUGH else of_few(pool, labels)),
        }


def of_few(pool, labels):
    """What `simulated` says of a pool, without the searches."""
    return {
        "size": len(pool),
        "pool_errors": int(pool.errors(labels).sum()),
        "median_mae": float(np.median(pool.distances.mae)),
    }


def record(arguments, networks, rows):
    """What was found so far."""
    shown = ("images", "part", "budgets", "long", "every", "methods", "replications", "batch_size", "limit")
    settings = {key: getattr(arguments, key) for key in shown}
    return {**provenance(settings | {"critical": CRITICAL}), "rows": rows, "networks": networks}


if __name__ == "__main__":
    main()
