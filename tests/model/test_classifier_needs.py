from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from secondguess import Classifier, Needs, Trace, UserError

TRACES = st.builds(Trace, st.sampled_from(["a", "b", "penultimate"]), st.sampled_from(["flatten", "mean"]))
NEEDS = st.builds(
    Needs,
    logits=st.booleans(),
    traces=st.frozensets(TRACES),
    samples=st.integers(0, 5),
    images=st.booleans(),
    gradients=st.booleans(),
)


@given(NEEDS, NEEDS, NEEDS)
def test_the_union_of_needs_is_a_union(a: Needs, b: Needs, c: Needs) -> None:
    assert a | b == b | a
    assert (a | b) | c == a | (b | c)
    assert a | a == a | Needs() == a
    assert (a | b).abilities == a.abilities | b.abilities
    assert (a | b).traces == a.traces | b.traces
    assert (a | b).samples == max(a.samples, b.samples)


def test_abilities_are_the_words_of_gives() -> None:
    assert Needs().abilities == {"probabilities"}
    assert Needs(images=True).abilities == {"probabilities"}
    everything = Needs(logits=True, traces=[Trace()], samples=1, gradients=True)
    assert everything.abilities == {"probabilities", "logits", "traces", "dropout", "gradients"}


def test_traces_may_be_given_as_any_collection() -> None:
    assert Needs(traces=[Trace("a"), Trace("a")]).traces == frozenset({Trace("a")})
    assert str(Trace("a", "mean")) == "a/mean"


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(UserError, match="reduced by 'flatten', 'mean' or 'grid', not by 'max'"):
        Trace("a", "max")


@pytest.mark.parametrize("shape", [(7,), (4, 6), (3, 4, 5), (2, 3, 4, 5)])
def test_a_trace_has_the_width_it_announces(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).random((6, *shape), dtype=np.float32)
    for reduce in ("flatten", "mean"):
        assert Trace("a", reduce).apply(values).shape == (6, Trace("a", reduce).width(shape))


def test_the_mean_is_taken_over_positions() -> None:
    rng = np.random.default_rng(0)
    maps, tokens = rng.random((6, 3, 4, 5), dtype=np.float32), rng.random((6, 4, 8), dtype=np.float32)
    np.testing.assert_allclose(Trace("a", "mean").apply(maps), maps.reshape(6, 3, 20).mean(2), rtol=1e-5)
    np.testing.assert_allclose(Trace("a", "mean").apply(tokens), tokens.mean(1), rtol=1e-5)


def test_a_torch_module_gives_what_it_has(cnn: nn.Module) -> None:
    assert Classifier(cnn).gives == {"probabilities", "logits", "traces", "gradients", "dropout"}
    plain = Classifier(nn.Linear(2, 2), output_kind="probabilities")
    assert plain.gives == {"probabilities", "traces", "gradients"}
    assert repr(plain) == "Classifier(Linear: a torch module, gives gradients, probabilities, traces)"


def test_a_callable_gives_probabilities_and_asks_for_what_it_lacks(images: np.ndarray) -> None:
    def endpoint(batch: np.ndarray) -> np.ndarray:
        assert batch.dtype == np.float32
        return np.tile([0.25, 0.75], (len(batch), 1))

    classifier = Classifier(endpoint)
    seen = classifier.observe(images)
    np.testing.assert_array_equal(seen.predictions, 1)
    assert classifier.layers() == []
    for needs, what, advice in [
        (Needs(traces=[Trace()]), "traces", "wrap the torch module or the ONNX file itself"),
        (Needs(samples=2), "dropout", "use a torch module with torch.nn.Dropout layers"),
        (Needs(gradients=True), "gradients", "use a torch module"),
    ]:
        message = rf"This request needs {what}, but endpoint \(a callable\) gives probabilities only; {advice}"
        with pytest.raises(UserError, match=message):
            classifier.observe(images, needs)
    with pytest.raises(UserError, match="A callable has no layers to observe"):
        classifier.backend.forward(images, ["conv"])


def test_a_check_names_both_sides() -> None:
    classifier = Classifier(lambda x: x, name="the endpoint")
    with pytest.raises(UserError, match=r"dissector needs dropout, traces, but the endpoint \(a callable\) gives"):
        classifier.check(Needs(traces=[Trace()], samples=3), who="dissector")
    classifier.check(Needs(images=True), who="autoencoder")


def test_names_come_from_the_model(tmp_path: Path, cnn: nn.Module) -> None:
    assert Classifier(cnn).name == "TinyCNN"
    assert Classifier(cnn, name="mine").name == "mine"
    assert Classifier("zoo:simple_cnn").name == "zoo:simple_cnn"
