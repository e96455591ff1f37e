from __future__ import annotations

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
