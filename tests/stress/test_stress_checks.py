from __future__ import annotations

import numpy as np
import pytest

from secondguess import ImageSet, StressSet
from secondguess.stress import Corrupted, Given, Invalid, check_stress_set, make


@pytest.mark.parametrize(
    "name", ["corrupted", "corrupted:fog:severity=2", "invalid", "invalid:inverted", "ambiguous:blend"]
)
def test_ours_keep_the_contract(name: str) -> None:
    assert "check_repetition" in check_stress_set(make(name))


def test_an_attack_keeps_the_contract() -> None:
    assert "check_columns" in check_stress_set(make("adversarial:fgsm"), images=6)


class Careless(StressSet):
    kind = "invalid"
    name = "careless"

    def _make(self, given: Given) -> ImageSet:
        return given.nominal


class Moody(Invalid):
    name = "moody"

    def _make(self, given: Given) -> ImageSet:
        return Invalid("textures").make(given.nominal, seed=int(np.random.default_rng().integers(1 << 30)))


class Forgetful(Corrupted):
    name = "forgetful"

    def __init__(self, amount: int = 3) -> None:
        super().__init__()


def test_the_kit_finds_what_is_wrong() -> None:
    with pytest.raises(AssertionError, match="check_labels failed for Careless: no class is right on invalid images"):
        check_stress_set(Careless())
    with pytest.raises(AssertionError, match="check_repetition failed for Moody: one seed made different images"):
        check_stress_set(Moody)
    with pytest.raises(AssertionError, match=r"check_declaration failed for Forgetful: .*store every parameter"):
        check_stress_set(Forgetful())
    with pytest.raises(AssertionError, match=r"is not a secondguess\.StressSet"):
        check_stress_set(dict)
