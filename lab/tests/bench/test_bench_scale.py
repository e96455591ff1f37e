from __future__ import annotations

import pytest

from secondguess_lab.bench import scale


def test_passes_with_and_without_an_engine_are_timed():
    found = scale.run(images=0, observed=600, engines=["local:1"], repeats=1)
    assert [row["engine"] for row in found["observing"]] == ["local", "local:1"]
    assert found["audit"] is None
    assert next(iter(scale.lines(found))).startswith("600 images of 32 x 32 pixels observed")


def test_an_audit_is_told_by_its_sections():
    audited = {"seconds": 30.0, "milliseconds": 0.3, "mebibytes": 1500.0, "sections": {"risk": 4.0}, "failed": ["a: b"]}
    told = list(scale.lines({"observed": 1, "cores": 2, "observing": [], "images": 100_000, "audit": audited}))
    assert told[1] == "100,000 audited: 30 s, 0.30 ms an image, 1,500 MiB"
    assert "risk" in told[2] and told[3] == "  failed: a: b"


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.slow
def test_real_workers_are_timed_against_a_loop_and_one_may_be_lost():
    pytest.importorskip("distributed", reason="NO DASK: pip install secondguess[distributed]")
    found = scale.run(images=0, observed=600, engines=["dask:1"], repeats=1, lost=2000)
    assert [row["engine"] for row in found["observing"]] == ["local", "dask:1"]
    assert all(0 < row["core_seconds"] < row["seconds"] + 1 for row in found["observing"])
    assert found["lost"]["killed"].startswith("Observing") and found["lost"]["numbers"] > 50
    assert found["lost"]["same"] and found["lost"]["different"] == 0
    assert found["targets"][0]["what"] == "overhead of one Dask worker, small CNN"
    assert found["targets"][1] == {
        "what": "numbers that differ after a lost worker",
        "found": 0,
        "aim": 0,
        "met": True,
    }


def test_aims_are_held_against_what_was_found():
    seconds = {"local": 10.0, "dask:1": 10.5, "dask:2": 5.5}
    passes = [{"engine": name, "seconds": value} for name, value in seconds.items()]
    audited = {"milliseconds": 0.15, "mebibytes": 3000.0}
    found = scale.targets({"observing": passes, "photographs": passes, "audit": audited, "images": 1_000_000})
    assert [(row["aim"], row["met"]) for row in found] == [
        (1.8, True), (0.1, True), (1.7, True), (0.1, True), (0.3, True), (2048, False),
    ]  # fmt: skip
    assert found[1]["found"] == pytest.approx(0.05)
    smaller = scale.targets({"audit": audited, "images": 100_000})
    assert [row["met"] for row in smaller] == [None, None]
    result = {"observed": 1, "cores": 2, "observing": [], "images": 0, "audit": None, "targets": found + smaller}
    told = list(scale.lines(result))
    assert told[1] == "  two Dask workers against one, small CNN: 1.909, aim 1.8: met"
    assert told[6].endswith("aim 2048: missed") and told[7].endswith("not measured at that size")


def test_an_audit_writes_its_report():
    found = scale.run(images=600, observed=600, engines=[], repeats=1, minutes=0.1)["audit"]
    assert found["failed"] == [] and min(found["bytes"].values()) > 1000
    assert set(found["bytes"]) == {"report.html", "audit.json", "predictions.npz"}
