"""The ambiguity paper's rival, AmbiguousMNIST, with its own number of candidates, beside fewer.

    python ambiguous_rival.py mnist.npz --folder kept/rival --out results/ambiguity/rival.json
    python ambiguous_rival.py mnist.npz ... --architectures fully_connected simple_cnn densenet_se resnet50

One autoencoder and five judges make three sets of 12,000 images, half of them to train on: chosen from ten candidates
each; from 350, about as many as the original; and as published, where besides the sources are arbitrary digits, the
grey levels are stretched as the authors stretched them, and labels are ten draws each. Networks are trained on MNIST
alone and with 6,000 images of each set, and asked about the other 6,000, as for Table 1 of the paper.

Sets stay in the folder, and what was measured is written after each network: what is there is not made again.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from secondguess import load
from secondguess.images import save_npz
from secondguess.metrics.ambiguity import mean_entropy
from secondguess.progress import Lines
from secondguess_lab.record import provenance, say, write
from secondguess_lab.rivals.latent_mixture import DRAWS, LatentMixture
from secondguess_lab.rivals.latent_mixture_vae import GreyLevels
from secondguess_lab.studies import get
from secondguess_lab.studies.tasks.ambiguity import measure, train_classifiers

GENERATION = get("ambiguity-table1").scale["generation"]
COUNT = 12_000  # images of AmbiguousMNIST
HALVES = ("train", "test")
SETS = {
    "10 candidates": {"pool": 10},
    "350 candidates": {"pool": 350},
    "as published": {"pool": 350, "mode": "legacy", "stretch": (1.2, -0.15), "labels": "draws"},
}


class Sets:
    """The sets of one autoencoder and its judges, made when they are first needed and kept in a folder."""

    def __init__(self, images, made_of, folder):
        self.images, self.made_of, self.folder = images, made_of, folder

    def halves(self, name):
        """Images to learn from and images to ask about, and how they came about."""
        place = self.folder / name.replace(" ", "_")
        if not (place / "card.json").exists():
            began, how = time.perf_counter(), SETS[name]
            grey = GreyLevels.fit(self._trained.vae, self.images.images, stretch=how.get("stretch"), seed=0)
            trained = replace(self._trained, calibration=grey)
            count, progress = self.made_of["settings"]["count"], Lines(every=60)
            made = self._maker(**how).generate(self.images, count, trained=trained, progress=progress)
            place.mkdir(parents=True, exist_ok=True)
            for half, images in zip(HALVES, made.images.split(0.5, seed=0, stratify=False), strict=True):
                save_npz(images, place / f"{half}.npz")
            about = {"made_of": self.made_of, "seconds_to_draw": time.perf_counter() - began}
            write(place / "card.json", made.card | about)
        card = kept(place / "card.json", self.made_of)
        train, test = (load(place / f"{half}.npz").test for half in HALVES)
        return train, test, card

    def _maker(self, **how):
        settings = self.made_of["settings"]
        return LatentMixture(epochs=settings["mixture_epochs"], member_epochs=settings["judge_epochs"], **how)

    @cached_property
    def _trained(self):
        return self._maker().train(self.images, progress=Lines(every=60))


def main(words=None):
    """Make the sets, train what is missing, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--folder", type=Path, required=True, help="keeps the sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--architectures", nargs="+", default=["fully_connected", "simple_cnn"])
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--members", type=int, default=1, help="networks of each architecture")
    parser.add_argument("--epochs", type=int, default=0, help="of each; its own number if left out")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--mixture-epochs", type=int, default=GENERATION["mixture_epochs"])
    parser.add_argument("--judge-epochs", type=int, default=GENERATION["judge_epochs"])
    arguments = parser.parse_args(words)
    data = load(arguments.data)
    named = ("members", "epochs", "count", "mixture_epochs", "judge_epochs")
    settings = {name: getattr(arguments, name) for name in named}
    made_of = {"settings": settings, "data": data.fingerprint}
    record = kept(arguments.out, made_of) if arguments.out.exists() else {"sets": {}, "rows": []}
    record |= provenance(settings | {"sets": SETS}, data) | {"made_of": made_of}
    sets = Sets(data.train, made_of, arguments.folder)
    halves = {name: sets.halves(name) for name in arguments.sets}
    for name, (_, test, card) in halves.items():
        record["sets"][name] = {**card, "test": described(test, drawn=SETS[name].get("labels") == "draws")}
    for architecture in arguments.architectures:
        for training in ("clean", *arguments.sets):
            known = {"architecture": architecture, "training": training}
            if any(known.items() <= row.items() for row in record["rows"]):
                continue
            extra = None if training == "clean" else halves[training][0]
            fleet = train_classifiers(
                data.train, architecture, extra, members=settings["members"], epochs=settings["epochs"], seed=0
            )
            asked = halves if training == "clean" else {training: halves[training]}
            for name, (_, test, _) in asked.items():
                for member, model in enumerate(fleet):
                    record["rows"].append(known | {"set": name, "member": member} | measure(model, data.test, test))
            say(record["rows"][-1])
            write(arguments.out, record)
    write(arguments.out, record)


def described(images, *, drawn):
    """How ambiguous the labels are: as they are and, unless they are that already, as ten draws from each."""
    soft = images.soft_labels
    about = {"images": len(images), "fingerprint": images.fingerprint, "label_entropy_bits": mean_entropy(soft)}
    ten = soft if drawn else np.random.default_rng(0).multinomial(DRAWS, soft / soft.sum(axis=1, keepdims=True)) / DRAWS
    return about | {
        "entropy_bits_of_ten_draws": mean_entropy(ten),
        "share_of_one_class": float((ten.max(axis=1) == 1).mean()),
    }


def kept(path, made_of):
    """What lies there; what was made of other data or with other settings is refused."""
    found = json.loads(path.read_text("utf-8"))
    if found["made_of"] != made_of:
        raise SystemExit(f"{path} was made of other data or with other settings; name another file and folder.")
    return found


if __name__ == "__main__":
    main()
