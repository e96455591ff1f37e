"""What an image costs, part by part: a model fitted to measurements, and checked against whole runs.

    python scaling_cost.py --out results/scaling/cost.json
    python scaling_cost.py --write-docs
    python scaling_cost.py --bill --images 2e9 --core-hour 0.03

The first measures every part alone, at several sizes, in seconds of one core; fits to each the sum of terms that its
operation count suggests; then runs whole jobs with one and two workers and holds them against the sum of the parts. It
takes about four minutes. The second writes the tables of docs/evidence/scaling.md, the third prints the bill at your
prices, with GPUs and the network beside it. Terms are never negative and are fitted to relative errors
(`scipy.optimize.nnls`).
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import scaling_bill as bill
from PIL import Image
from scipy.optimize import nnls

from secondguess_lab.record import provenance, say, write

HERE = Path(__file__).resolve().parent
RECORD = HERE.parents[1] / "results" / "scaling" / "cost.json"

JOB = {"network": "cats_dogs_cnn", "side": 160, "width": 500, "height": 375, "classes": 10, "training": 256}
SMALL = {"network": "cats_dogs_cnn", "side": 64, "width": 120, "height": 90, "classes": 10, "training": 160}
SUPERVISORS = ("max_softmax", "entropy", "energy", "vim", "relative_mahalanobis", "knn")
SHARD, COUNTS = 24, (48, 240)  # images of a shard, of the archive that opens the model, and of the one that is timed
RATE, SECONDS = 6, 8  # of requests
TURNS = 30  # of transactions of each size
FEWEST, ENOUGH = 3, 0.3  # turns, and seconds after which there is no other


def main():
    """Measure, write the tables, or print a bill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RECORD, help="the record to write, or to read")
    parser.add_argument("--write-docs", action="store_true", help="put the tables of the record into the page")
    parser.add_argument("--bill", action="store_true", help="print what the record says at these prices")
    bill.add_prices(parser)
    arguments = parser.parse_args()
    if not (arguments.write_docs or arguments.bill):
        measure(arguments.out)
        return
    record = json.loads(arguments.out.read_text("utf-8"))
    gpu, network, price = bill.beside("gpu"), bill.beside("network"), bill.prices(arguments)
    if arguments.bill:
        tables = (bill.bill_table(record, price), bill.gpu_bill_table(record, gpu, price))
        say("\n\n".join([*tables, bill.network_table(record, gpu, network, price)]))
    else:
        bill.PAGE.write_text(bill.filled(bill.PAGE.read_text("utf-8"), record, gpu, network), "utf-8")


def measure(out):
    """Write the record, step by step."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])  # of the workers
    import torch

    torch.set_num_threads(1)
    settings = {"job": JOB, "small": SMALL, "supervisors": SUPERVISORS, "shard": SHARD, "counts": COUNTS}
    settings |= {"requests a second": RATE, "request seconds": SECONDS}
    record = json.loads(out.read_text("utf-8")) if out.exists() else {"load": os.getloadavg()[0], "parts": {}}
    steps = {
        "decode": lambda: {"parts": record["parts"] | {"decode": fitted(decoding())}},
        "forward": lambda: {"parts": record["parts"] | {"forward": fitted(forwards())}},
        "scores": lambda: {"parts": record["parts"] | {name: fitted(rows) for name, rows in scores().items()}},
        "decision": lambda: {"parts": record["parts"] | {"decision": fitted(decisions())}},
        "records": lambda: {"records": {"sqlite": sqlite(), "postgresql": postgresql()}},
        "archives": archives,
        "services": services,
    }
    for name, step in steps.items():
        if name not in record.setdefault("done", []):  # an interrupted run goes on
            record |= step()
            record |= provenance(settings) | {"done": [*record["done"], name]}
            write(out, record)


def fitted(rows):
    """Rows {terms, seconds} -> the seconds of each term, and the largest relative error."""
    names = list(rows[0]["terms"])
    seconds = np.array([row["seconds"] for row in rows])
    terms = np.array([[row["terms"][name] for name in names] for row in rows])
    found, _ = nnls(terms / seconds[:, None], np.ones(len(rows)))
    error = float(np.abs(terms @ found / seconds - 1).max())
    return {"seconds": dict(zip(names, found.tolist(), strict=True)), "largest_error": error, "rows": rows}


def took(work):
    """Seconds of a core that some work takes, the least of several turns, after one to warm up."""
    work()
    best, began = np.inf, time.perf_counter()
    turns = 0
    while turns < FEWEST or time.perf_counter() - began < ENOUGH:
        started = time.process_time()
        work()
        best, turns = min(best, time.process_time() - started), turns + 1
    return best


def photograph(width, height, seed=0):
    """A JPEG file of smooth noise with some grain, about as large as a photograph's."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (max(2, height // 16), max(2, width // 16), 3), dtype=np.uint8))
    pixels = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), dtype=np.int16)
    grained = np.clip(pixels + rng.normal(0, 4, pixels.shape), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(grained).save(file, "JPEG", quality=85)
    return file.getvalue()


def decoding():
    """Reading a JPEG file of several sizes into 224 x 224 pixels."""
    from secondguess.images import read

    rows = []
    for width, height in ((64, 48), (160, 120), (320, 240), (640, 480), (1280, 960)):
        file = photograph(width, height)
        seconds = took(lambda file=file: [read(file, (3, 224, 224)) for _ in range(8)]) / 8
        rows.append({"terms": {"image": 1, "megapixel": width * height / 1e6}, "seconds": seconds, "bytes": len(file)})
    return rows


def job():
    """The network of the job, as workers open it: `scaling_cost:job`."""
    return network(JOB["network"], JOB["side"], JOB["classes"])


def small():
    """That of the small job."""
    return network(SMALL["network"], SMALL["side"], SMALL["classes"])


def network(name, side, classes):
    """An untrained network of the zoo."""
    from secondguess import zoo

    return zoo.make(name, num_classes=classes, input_shape=(3, side, side), seed=0).eval()


def gflop(net, side):
    """Thousand million operations of one image."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        net(torch.zeros(1, 3, side, side))
    return counted.get_total_flops() / 1e9


def layers(net):
    """How many modules have no others within."""
    return sum(1 for module in net.modules() if not list(module.children()))


def forwards():
    """A session's look at images, with the trace that supervisors read."""
    from secondguess.model.classifier import Classifier
    from secondguess.model.needs import Needs, Trace

    rows = []
    needs = Needs(logits=True, traces=frozenset({Trace("penultimate")}))
    for name, side, batches in (
        ("cats_dogs_cnn", 32, (1, 32)),
        ("cats_dogs_cnn", 64, (1, 32)),
        ("resnet50", 64, (1, 24)),
        ("resnet50", 128, (1, 24)),
        ("resnet50", 224, (1, 8)),
    ):
        net = network(name, side, 10)
        for batch in batches:
            images = np.random.default_rng(0).random((batch, 3, side, side), dtype=np.float32)
            with Classifier(net).session(needs, (3, side, side)) as session:
                seconds = took(lambda session=session, images=images: session.observe(images)) / batch
            terms = {"layer a batch": layers(net) / batch, "image": 1, "gflop": gflop(net, side)}
            rows.append({"network": name, "side": side, "batch": batch, "terms": terms, "seconds": seconds})
            say(rows[-1])
    return rows


def observation(images, dimensions, classes, seed=0):
    """Made-up traces, and logits that follow from them."""
    from secondguess.model.needs import Trace
    from secondguess.model.observation import Observation

    rng = np.random.default_rng(seed)
    traces = np.abs(rng.normal(size=(images, dimensions))).astype(np.float32)
    weights = np.random.default_rng(1).normal(size=(dimensions, classes)).astype(np.float32) / dimensions**0.5
    logits = (traces @ weights).astype(np.float32)
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = (shifted / shifted.sum(axis=1, keepdims=True)).astype(np.float64)
    labels = probabilities.argmax(axis=1)
    return Observation(probabilities=probabilities, logits=logits, traces={Trace("penultimate"): traces}, labels=labels)


TERMS = {  # what a score computes for one image, beside its share of the batch
    "max_softmax": lambda n, d, k: {"class": k},
    "entropy": lambda n, d, k: {"class": k},
    "energy": lambda n, d, k: {"class": k},
    "vim": lambda n, d, k: {"dimension^2": d * d},
    "relative_mahalanobis": lambda n, d, k: {"dimension^2": d * d, "dimension x class": d * k},
    "knn": lambda n, d, k: {"training image": n, "training image x dimension": n * d},
}
ONCE = {"dimension^2", "training image x dimension"}  # a matrix that is read from memory once for a batch
SIZES = (
    (1000, 256, 10),
    (4000, 256, 10),
    (4000, 512, 10),
    (1000, 512, 100),
    (2000, 1024, 10),
    (8000, 512, 10),
)


def scores():
    """Each supervisor on made-up traces of several sizes, one image and many at a time."""
    from secondguess.supervisors import make

    found = {name: [] for name in SUPERVISORS}
    for training, dimensions, classes in SIZES:
        learnt = observation(training, dimensions, classes)
        for name in SUPERVISORS:
            supervisor = make(name).fit(learnt)
            for batch in (1, 256):
                seen = observation(batch, dimensions, classes, seed=2)
                seconds = took(lambda supervisor=supervisor, seen=seen: supervisor.score(seen)) / batch
                terms = {"batch": 1 / batch, "image": 1} | TERMS[name](training, dimensions, classes)
                terms |= {f"{term} a batch": terms[term] / batch for term in ONCE & terms.keys()}
                sizes = {"training": training, "dimensions": dimensions, "classes": classes, "batch": batch}
                found[name].append({**sizes, "terms": terms, "seconds": seconds})
    say({name: rows[-1]["seconds"] for name, rows in found.items()})
    return found


def guard_for(job, supervisors, folder, model="small"):
    """A guard for an untrained network, which answers noise rightly because the labels are its own answers."""
    from secondguess import Guard, ImageSet
    from secondguess.model.classifier import Classifier

    shape = (3, job["side"], job["side"])
    pixels = np.random.default_rng(0).integers(0, 256, (job["training"] + 200, *shape[1:], 3), dtype=np.uint8)
    # An untrained network answers a black image with zeros, of which nobody can say what they are.
    classifier = Classifier.open(f"scaling_cost:{model}", batch_size=32, output_kind="logits")
    labels = classifier.observe(ImageSet.from_arrays(pixels, np.zeros(len(pixels), np.int64))).probabilities.argmax(1)
    names = [str(place) for place in range(job["classes"])]
    sets = [
        ImageSet.from_arrays(pixels[rows], labels[rows], class_names=names, name=name)
        for name, rows in (("train", slice(job["training"])), ("validation", slice(job["training"], None)))
    ]
    guard = Guard(list(supervisors), rule="bonferroni", false_alarms=0.05).fit(classifier, *sets)
    return guard.save(folder) and guard


def decisions():
    """From scores to judgements as plain values."""
    rows = []
    for count in (2, 4, 6):
        with tempfile.TemporaryDirectory() as folder:
            guard = guard_for(SMALL, SUPERVISORS[:count], Path(folder))
            for batch in (1, 256):
                images = np.random.default_rng(0).random((batch, *guard.shape), dtype=np.float32)
                seen = guard.session.observe(images)
                scored = guard.pipeline.supervisors.score(seen)

                def decide(guard=guard, seen=seen, scored=scored):
                    return [one.to_dict() for one in guard.pipeline.judge_scores(seen.probabilities, scored)]

                terms = {"batch": 1 / batch, "image": 1, "supervisor": count}
                rows.append({"batch": batch, "terms": terms, "seconds": took(decide) / batch})
    return rows


def record_of(number):
    """A record as large as those of a service."""
    from secondguess.service.records import Record

    likeliest, name = json.dumps([[place, 0.123456] for place in range(5)]), f"{number:032x}"
    return Record(10**12 + number, name, name, 1, "a class", 0.9, 0.5, "nominal", "accept", 0, likeliest)


def writing(where, bytes_of):
    """Seconds of a transaction by its number of images, as time passes, and bytes a record."""
    from secondguess.service.records import Records

    with closing(Records(where)) as records:
        records.begin({"model": "cost"})
        times = {batch: [] for batch in (1, 8, 64)}
        for turn in range(TURNS):
            for batch, seconds in times.items():
                some = [record_of(1000 * turn + place) for place in range(batch)]
                started = time.perf_counter()
                records.append(some)
                seconds.append(time.perf_counter() - started)
        rows = [
            {"terms": {"transaction": 1, "image": batch}, "seconds": float(np.median(seconds))}
            for batch, seconds in times.items()
        ]
        before, count = bytes_of(), 20_000
        for start in range(0, count, 1000):
            records.append([record_of(start + place) for place in range(1000)])
        return fitted(rows) | {"bytes": (bytes_of() - before) / count}


def sqlite():
    """A file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.sqlite"

        def size():
            with closing(sqlite3.connect(path)) as base:
                base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return path.stat().st_size

        return writing(str(path), size)


def postgresql():
    """A server of this machine, as it comes; None where there is none."""
    if shutil.which("initdb") is None:
        return None
    import psycopg

    with tempfile.TemporaryDirectory() as folder:
        as_owner = []
        if os.getuid() == 0:  # PostgreSQL refuses to be root
            shutil.chown(folder, "postgres")
            as_owner = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

        def run(*words):
            subprocess.run([*as_owner, *words], check=True, stdout=subprocess.DEVNULL, cwd=folder)

        run("initdb", "-D", f"{folder}/data", "-U", "postgres", "-A", "trust")
        options = f"-k {folder} -c listen_addresses=''"
        run("pg_ctl", "-D", f"{folder}/data", "-o", options, "-w", "-l", f"{folder}/log", "start")
        try:
            url = f"postgresql://postgres@/postgres?host={folder}"
            with psycopg.connect(url, autocommit=True) as base:
                size = "SELECT pg_total_relation_size('secondguess_records')"
                return writing(url, lambda: base.execute(size).fetchone()[0])
        finally:
            run("pg_ctl", "-D", f"{folder}/data", "-m", "immediate", "stop")


def archives():
    """An archive of photographs with one and two workers."""
    checks = []
    with tempfile.TemporaryDirectory() as place:
        guard_for(JOB, SUPERVISORS, Path(place) / "guard", "job")
        for workers in (1, 2):
            used, rate = archive(Path(place), workers)
            row = {"job": "archive", "workers": workers, "sizes": sizes_of(JOB, SHARD)}
            checks.append(row | {"core_seconds": used, "images_a_second": rate})
            say(checks[-1])
    return {"archives": checks}


def services():
    """Requests with small pictures, which show what one takes beside its parts, and with photographs."""
    checks = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        guard_for(SMALL, SUPERVISORS, folder / "small")
        used, batch, _ = requests(folder / "small", folder, SMALL, 1)
        small = {"core_seconds": used, "sizes": sizes_of(SMALL, batch)}
        large = SMALL | {"width": JOB["width"], "height": JOB["height"]}
        for workers in (1, 2):
            used, batch, memory = requests(folder / "small", folder, large, workers)
            row = {"job": "service", "workers": workers, "sizes": sizes_of(large, batch)}
            checks.append(row | {"core_seconds": used})
            say(checks[-1])
    return {"services": checks, "small": small, "worker_mebibytes": memory}


def sizes_of(job, batch):
    """What the model of cost wants to know of a job."""
    net = network(job["network"], job["side"], job["classes"])
    return {
        "batch": batch,
        "megapixels": job["width"] * job["height"] / 1e6,
        "gflop": gflop(net, job["side"]),
        "layers": layers(net),
        "dimensions": 256,
        "classes": job["classes"],
        "training": job["training"],
    }


def archive(folder, workers):
    """Seconds of a core an image, and images a second, of so many processes that have the model open already."""
    from secondguess import Guard
    from secondguess.guard import judging

    judging.SHARD = SHARD  # so that few images are enough for both
    guard = Guard.load(folder / "guard", batch_size=SHARD)
    for count in COUNTS:
        images = folder / f"images{count}"
        if not images.exists():
            images.mkdir()
            for number in range(count):
                (images / f"{number}.jpg").write_bytes(photograph(JOB["width"], JOB["height"], number))
        how = {"engine": f"local:{workers}", "changes": {"batch_size": SHARD}}
        work = judging.ShardedJudging.of(guard, folder / "guard", [str(images)], **how)
        before, started = sum(spent(os.getpid()).values()), time.perf_counter()
        sum(1 for _ in work.rows())
        took, used = time.perf_counter() - started, sum(spent(os.getpid()).values()) - before
    return used / count, count / took


def requests(guard, folder, job, workers):
    """Seconds of a core a request, images judged together, and MiB a worker, under a steady load."""
    import httpx

    from secondguess_lab.bench.http_load import call
    from secondguess_lab.bench.serving import SERVE, Serving

    token = folder / "token"
    words = (str(guard), "--port", "0", "--token-file", str(token), "--workers", str(workers), "--json")
    records = ("--records", str(folder / f"{guard.name}{workers}.sqlite"))
    serving = Serving([*SERVE, *words, *records], folder / "log")
    try:
        secret = token.read_text("utf-8").strip()
        files = [photograph(job["width"], job["height"], number) for number in range(8)]
        asyncio.run(call(serving.address, secret, files, RATE, 3))  # what is set up late
        before = spent(serving.process.pid)
        found = asyncio.run(call(serving.address, secret, files, RATE, SECONDS))
        used = sum(spent(serving.process.pid).values()) - sum(before.values())
        page = httpx.get(f"{serving.address}/metrics", headers={"Authorization": f"Bearer {secret}"}).text
        sums = [float(re.search(rf"^secondguess_batch_images_{end} (\S+)$", page, re.M)[1]) for end in ("sum", "count")]
        memory = max(map(resident, spent(serving.process.pid)))
    finally:
        serving.end()
    assert found["errors"] == 0, found
    return used / found["requests"], sums[0] / sums[1], memory


def spent(parent):
    """Seconds of a core that a process and its children have used, by their ids."""
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    found = {}
    for pid in (parent, *children):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def resident(pid):
    """MiB that a process holds for itself."""
    return int(re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


if __name__ == "__main__":
    main()
