"""Whether SelfChecker misses the flattened layer of the paper's networks B and C, which is too wide for a density.

    python oracles_wide.py mnist.npz --out results/oracles/wide.json

`oracles.py` leaves layers of more than 512 numbers out: B's 9,216 and C's 5,880. Here each network is judged by
SelfChecker without that layer and with it, reduced to 512 principal components, on the same operational images.
Networks, training and validation images are those of `oracles.py`; operation is a part of its images, drawn once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from secondguess import load
from secondguess.metrics.verdict_confusion import verdict_confusion
from secondguess_lab.record import provenance, say, write
from secondguess_lab.studies.papers.oracles import SCALE
from secondguess_lab.studies.tasks.oracles import WIDEST, classifier_of, selfchecker_of, split, train_network


def main():
    """Train, judge and write the record after every network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--networks", nargs="+", default=["icos_b", "icos_c"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--training", type=int, default=SCALE["training"])
    parser.add_argument("--operation", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=0, help="of the networks; 0 for the paper's number")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    data, rows = load(arguments.data), []
    for seed in arguments.seeds:
        for network in arguments.networks:
            rows += judged(network, data, arguments, seed)
            settings = vars(arguments) | {"validation": SCALE["validation"], "components": WIDEST}
            write(arguments.out, provenance(settings, data) | {"rows": rows})


def judged(network, data, arguments, seed):
    """What SelfChecker finds in one network, without the wide layer and with it."""
    learning, checking, operating = split(data, arguments.training, SCALE["validation"])
    drawn = np.random.default_rng(seed).choice(len(operating), arguments.operation, replace=False)
    model = train_network(network, learning, seed=seed, epochs=arguments.epochs, device="cpu")
    classifier, rows = classifier_of(model, learning), []
    for wide in (False, True):
        checker = selfchecker_of(classifier, "cpu", wide=wide)
        known, held_out, operation = (
            classifier.observe(one, checker.needs) for one in (learning, checking, operating.take(drawn))
        )
        verdicts = checker.fit(known, held_out).judge(operation)
        found = verdict_confusion(verdicts.judged_wrong.astype(int), operation.correct)
        flat = [number for number, trace in enumerate(checker.layers) if trace.layer == "flatten"]
        rows.append(
            {
                "network": network,
                "seed": seed,
                "wide": wide,
                "layers": int(checker.alarm_layers_.shape[1]),
                "classes_that_use_the_wide_layer": int(checker.alarm_layers_[:, flat].sum()),
                "accuracy": float(operation.correct.mean()),
                **{rate: float(getattr(found, rate)) for rate in ("tpr", "fpr", "f1")},
                "bias": float(found.estimated_accuracy - operation.correct.mean()),
            }
        )
        say(rows[-1])
    return rows


if __name__ == "__main__":
    main()
