from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np

from secondguess_lab.statistics.diagram import critical_difference_diagram
from secondguess_lab.statistics.friedman import friedman


def test_the_diagram_names_all_methods_and_joins_those_that_do_not_differ() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(40, 5)) + np.array([0, 0.1, 3, 3.1, 8])
    names = ("ours", "confidence", "atc & co", "doc", "oracle")
    test = friedman(values, names)
    svg = critical_difference_diagram(test)
    root = ElementTree.fromstring(svg)
    texts = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
    for name, rank in zip(names, test.ranks, strict=True):
        assert f"{name} {rank:.2f}" in [" ".join(text.split()) for text in texts]
    assert f"CD = {test.critical_difference:.2f}" in texts
    assert str(svg).count("stroke-width: 3") == len(test.groups()) == 2
    assert "5 methods over 40 blocks" in root.attrib["aria-label"]
    assert "var(--accent)" in svg
