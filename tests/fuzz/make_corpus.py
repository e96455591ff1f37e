"""Write the corpus: one small sound file of every kind. Run it when a kind is added.

python tests/fuzz/make_corpus.py
"""

from __future__ import annotations

import gzip
import json
import struct
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from secondguess import Observation, supervisors
from secondguess.contracts.sealed import write_json_sealed
from secondguess.images import ImageSet, save_npz, save_parquet

sys.path.insert(0, str(Path(__file__).parent.parent))

from compare_house import flipped

CORPUS = Path(__file__).parent / "corpus"


def main() -> None:
    CORPUS.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    colour = rng.integers(0, 256, (6, 5, 3), dtype=np.uint8)
    grey = rng.integers(0, 256, (6, 5), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    for suffix in ("png", "jpg", "webp", "bmp", "gif", "tiff"):
        Image.fromarray(colour).save(CORPUS / f"colour.{suffix}", **({"exif": exif} if suffix == "jpg" else {}))
    Image.fromarray(grey).save(CORPUS / "grey.png")
    Image.fromarray((grey / 255).astype(np.float32)).save(CORPUS / "float.tiff")
    Image.fromarray(grey.astype(np.uint16) * 257).save(CORPUS / "deep.png")
    Image.fromarray(colour).convert("P").save(CORPUS / "palette.png", transparency=3)

    images = ImageSet.from_arrays(
        rng.integers(0, 256, (4, 6, 5), dtype=np.uint8), np.array([0, 1, 1, 0]), ids=["a", "b", "c", "d"]
    )
    save_npz(images, CORPUS / "images.npz")
    save_parquet(images, CORPUS / "images.parquet")
    np.savez(CORPUS / "predictions.npz", p0=[0.5, 0.1], p1=[0.5, 0.9])
    (CORPUS / "predictions.csv").write_text("id,p0,p1\na,0.5,0.5\nb,0.1,0.9\n")

    pixels = struct.pack(">IIII", 0x803, 3, 4, 5) + rng.bytes(60)
    (CORPUS / "t10k-images-idx3-ubyte").write_bytes(pixels)
    (CORPUS / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(pixels, mtime=0))
    (CORPUS / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 3) + bytes([0, 1, 1]))

    (CORPUS / "model.toml").write_text(
        'import = "nets:make"\nweights = "w.safetensors"\nclasses = ["cat", "dog"]\n\n[input]\nsize = [6, 5]\n'
        'channels = 3\nmean = [0.5, 0.4, 0.3]\nstd = 0.2\nresize = "pad"\n\n[output]\nkind = "logits"\n\n'
        '[layers]\npenultimate = "pool"\n'
    )
    rules = {"partition": [{"name": "day", "ids": ["day/*"], "labels": ["cat"]}]}
    (CORPUS / "rules.json").write_text(json.dumps(rules))
    (CORPUS / "rules.toml").write_text('[[partition]]\nname = "day"\nids = ["day/*"]\nlabels = ["cat"]\n')
    (CORPUS / "request.json").write_text(json.dumps({"images": [[[0, 1, 0.5], [0.25, 0, 1]]] * 2, "scale": 1}))
    write_json_sealed(CORPUS / "guard.json", {"format": 4, "class_names": ["a", "b"], "rate": 0.01})

    audit = flipped(2, 1)[0]
    digest = audit.predictions.save(CORPUS / "answers.npz")
    sealed = {"predictions": {"file": "answers.npz", "digest": digest}}
    (CORPUS / "audit.json").write_text(json.dumps(audit.to_dict() | sealed))

    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).eval()
    save_file({name: one.contiguous() for name, one in net.state_dict().items()}, CORPUS / "weights.safetensors")
    example = torch.zeros(2, 1, 8, 8)
    torch.export.save(
        torch.export.export(net, (example,), dynamic_shapes=({0: torch.export.Dim("n")},)), CORPUS / "net.pt2"
    )
    torch.onnx.export(
        net, (example,), str(CORPUS / "net.onnx"), dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}}
    )
    seen = Observation(
        probabilities=np.full((6, 3), 1 / 3), traces={"penultimate": rng.random((6, 2))}, labels=np.array([0, 1, 2] * 2)
    )
    learnt = supervisors.make("knn", k=2).fit(seen)
    learnt.save(CORPUS / "learner.safetensors")


if __name__ == "__main__":
    main()
