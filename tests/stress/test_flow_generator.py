"""AmbiFlow end to end with a tiny generator of striped images: training, resuming, saving, judging, composing."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.special import expit, logit
from scipy.stats import spearmanr

from secondguess.contracts.sealed import read_json, write_json_sealed
from secondguess.errors import UserError
from secondguess.images import ImageSet
from secondguess.progress import Callback, Silent
from secondguess.stress.ambiguous.base import Candidates
from secondguess.stress.ambiguous.choosing import cheaper_generator, choose_generator, suited_generator
from secondguess.stress.ambiguous.flow import AmbiFlow, Committee, DenoisingJudge, Flow, drawing
from secondguess.stress.ambiguous.flow import committee as committee_module
from secondguess.stress.ambiguous.flow import generator as generator_module
from secondguess.stress.ambiguous.flow.calibration import LossCalibration
from secondguess.stress.ambiguous.flow.dial import Dial, Lessons
from secondguess.stress.ambiguous.flow.fields import VelocityField
from secondguess.stress.ambiguous.flow.losses import NoiseBank, denoising_losses
from secondguess.stress.ambiguous.flow.misses import TRIES, NearMisses
from secondguess.stress.ambiguous.flow.mixtures import known_mixtures
from secondguess.stress.ambiguous.flow.network import Architecture, FlowNetwork, architecture_for
from secondguess.stress.ambiguous.flow.pixels import from_padded, to_padded
from secondguess.stress.ambiguous.flow.pool import Pool
from secondguess.stress.ambiguous.flow.rounds import Round, Rounds
from secondguess.stress.ambiguous.flow.selection import CHECKS
from secondguess.stress.ambiguous.flow.shares import ShareCalibration, log_odds_of
from secondguess.stress.ambiguous.flow.training import Schedule, train_flow
from secondguess.stress.base import Given
from secondguess.stress.registry import make, make_generator

SIZE = 8
CPU = torch.device("cpu")


def blobs(count=240, seed=0):
    """Grey images with a bright bar on the left, in the middle or on the right, at a height that varies."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    images = rng.uniform(0, 0.15, (count, 1, SIZE, SIZE)).astype(np.float32)
    for image, label in zip(images, labels, strict=True):
        top = rng.integers(0, 3)
        image[0, top : top + 5, 3 * label : 3 * label + 2] = rng.uniform(0.7, 1)
    return ImageSet.from_arrays(images, labels, class_names=["left", "middle", "right"], name="bars", layout="NCHW")


def generator(**changes):
    settings = {"preset": "tiny", "train_steps": 90, "steps": 8, "each": 12, "guidance": 1.0, "device": "cpu"}
    return AmbiFlow(**settings | {"pairs": "all", "committee": False, "realism": False, "mass": 0.5} | changes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flow")
    return generator(folder=folder).fit(blobs()), folder


def test_a_tiny_generator_makes_ambiguous_images_end_to_end(trained, tmp_path):
    flow, _ = trained
    made = generator(delta_max=0.9, committee=True, realism=True, disagreement=1.0).generate(blobs(), 6, trained=flow)
    assert 1 <= len(made.images) <= 6
    assert made.images.shape == (1, SIZE, SIZE)
    assert made.images.soft_labels.sum(axis=1) == pytest.approx(1)
    assert (made.images.soft_labels > 0).sum(axis=1).max() == 2
    card = made.card
    assert card["generator"] == "AmbiFlow"
    assert card["scale_of_shares"]["judge"] == flow.judge.shares.scale
    assert card["scale_of_shares"]["committee"] > 0
    assert card["drawn"] >= card["passed"]["between"] >= card["passed"]["ambiguous"] >= card["passed"]["agreed"]
    assert card["passed"]["agreed"] >= card["passed"]["real"] >= card["passed"]["settled"] >= len(made.images)
    assert {"dial", "share_generative", "share_committee", "class_1"} <= made.images.columns.keys()
    assert "share_committee" not in generator(delta_max=0.9).generate(blobs(), 2, trained=flow).images.columns
    made.save(tmp_path / "set")
    assert {path.name for path in (tmp_path / "set").iterdir()} >= {"images.npz", "card.json", "sheet.png"}


def test_the_same_seed_gives_the_same_images(trained):
    flow, _ = trained
    first, second = (generator(delta_max=0.9).generate(blobs(), 4, seed=3, trained=flow) for _ in range(2))
    assert np.array_equal(first.images.images[:], second.images.images[:])


def test_the_judge_tells_the_classes_of_real_images(trained):
    flow, _ = trained
    fresh = blobs(60, seed=9)
    images = np.rint(fresh.images[:] * 255).astype(np.uint8)
    found = flow.judge.judge(images)
    assert (found.argmax(axis=1) == fresh.labels).mean() > 0.8
    assert found.sum(axis=1) == pytest.approx(1)
    assert np.allclose(flow.judge.judge(images[:7]), found[:7], atol=1e-3)  # whatever else is judged with them


def test_shares_follow_the_dial(trained):
    flow, _ = trained
    pair = np.tile([0, 1], (8, 1))
    shares = []
    for odds in (-30.0, 0.0, 30.0):
        target = np.stack([np.full(8, odds), np.zeros(8)], axis=1)
        found = flow.judge.judge(flow.compose(pair, target, guidance=1.0, steps=6))
        shares.append((found[:, 0] / found[:, :2].sum(axis=1)).mean())
    assert shares[0] < shares[1] < shares[2]


def test_a_folder_is_read_instead_of_training_again(trained):
    flow, folder = trained
    steps = []
    again = generator(folder=folder).fit(blobs(), progress=Callback(lambda done, total: steps.append(total)))
    assert not steps
    labels = np.array([0, 1, 2])
    assert np.array_equal(again.sample(labels, seed=1), flow.sample(labels, seed=1))
    assert again.history == flow.history
    by_path = generator(generator=folder, delta_max=0.9).generate(blobs(), 2)
    assert by_path.card["settings"]["generator"] == str(folder)


def test_a_resumed_training_gives_what_an_uninterrupted_one_gives(tmp_path):
    data = blobs(90)
    images = np.rint(data.images[:] * 255).astype(np.uint8)
    shape = Architecture((1, SIZE, SIZE), 3, width=8, multipliers=(1, 2), blocks=1, head=8, dropout=0.1)
    schedule = Schedule(12, batch_size=16, warm_up=2, flips=True)
    whole, rows = train_flow(images, data.labels, shape, schedule, device=CPU, save_every=4)

    class Killed(Exception):
        pass

    def kill(done, total):
        if done == 6:
            raise Killed

    with pytest.raises(Killed):
        train_flow(
            images, data.labels, shape, schedule, device=CPU, folder=tmp_path, save_every=4, progress=Callback(kill)
        )
    first = []
    resumed, again = train_flow(
        images,
        data.labels,
        shape,
        schedule,
        device=CPU,
        folder=tmp_path,
        save_every=4,
        progress=Callback(lambda done, total: first.append(done)),
    )
    assert first[0] == 5
    assert again == rows
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_other_held_out_images_calibrate_anew_without_another_training(tmp_path):
    first, second = (
        generator(folder=tmp_path, train_steps=20).fit(blobs(60), held_out=blobs(30, seed=seed)) for seed in (5, 6)
    )
    assert first.digest == second.digest
    assert first.judge.calibrations() != second.judge.calibrations()


def test_a_processor_calibrates_with_fewer_images_of_every_class(monkeypatch):
    seen, fit = [], DenoisingJudge.fit

    def noting(self, images, labels, **settings):
        seen.append(np.bincount(labels).tolist())
        return fit(self, images, labels, **settings)

    monkeypatch.setattr(DenoisingJudge, "fit", noting)
    monkeypatch.setitem(generator_module.CALIBRATED, "tiny", 12)
    one = generator(train_steps=1)
    one.fit(blobs(60), held_out=blobs(30))
    one.fit(blobs(60), held_out=blobs(9))
    rare = blobs(60).take(np.flatnonzero((blobs(60).labels != 2) | (np.arange(60) < 6)))
    one.fit(blobs(60), held_out=rare)
    assert seen == [[4, 4, 4], [3, 3, 3], [6, 6, 2]]
    with pytest.raises(UserError, match="The held-out images have one class"):
        one.fit(blobs(60), held_out=blobs(30).take(blobs(30).labels == 1))
    assert len(seen) == 3


@pytest.mark.parametrize("harm", ["older", "damaged"])
def test_a_folder_that_cannot_be_used_is_trained_anew(trained, tmp_path, harm):
    flow, _ = trained
    flow.save(tmp_path)
    if harm == "older":
        card = read_json(tmp_path / "flow.json")
        write_json_sealed(tmp_path / "flow.json", card | {"format": 1})
        assert not Flow.at_hand(tmp_path)
        assert suited_generator(photographs(), device="cpu", folder=tmp_path)[0] == "blend", (
            "not trained here for hours"
        )
        with pytest.raises(UserError, match="of another version: format 1"):
            Flow.load(tmp_path)
        again = generator(folder=tmp_path).fit(blobs())
    else:
        (tmp_path / "weights.safetensors").write_bytes(b"nothing")
        with pytest.warns(UserWarning, match="is damaged"):
            again = generator(folder=tmp_path).fit(blobs())
    assert Flow.at_hand(tmp_path)
    assert again.digest == flow.digest == Flow.load(tmp_path, device="cpu").digest


def test_without_stratification_all_pairs_have_a_chance(trained):
    made = generator(delta_max=0.9, stratify=False).generate(blobs(), 12, seed=1, trained=trained[0])
    assert len(made.images) == 12
    assert len({tuple(row["pair"]) for row in made.card["pairs"] if row["images"]}) > 1
    few = generator(delta_max=0.9).generate(blobs(), 1, seed=1, trained=trained[0])
    assert not any("passed every check" in note for note in few.card["notes"])


def test_pairs_may_be_numpy_integers(trained, tmp_path):
    flow, _ = trained
    pairs = [(np.int64(0), np.int64(1))]
    made = generator(delta_max=0.9, pairs=pairs, folder=tmp_path).generate(blobs(), 2, trained=flow)
    assert len(made.images)


def test_a_class_without_images_takes_no_part():
    images = blobs()
    named = ImageSet.from_arrays(
        images.images[:], images.labels, class_names=[*images.class_names, "nothing"], name="bars", layout="NCHW"
    )
    flow = generator().fit(named)
    found = flow.judge.judge(np.rint(blobs(60, seed=9).images[:] * 255).astype(np.uint8))
    assert found[:, 3].max() < 1e-6
    assert (found.argmax(axis=1) == blobs(60, seed=9).labels).mean() > 0.8


def test_the_committee_sees_mirrored_blends_where_images_may_be_mirrored():
    images = blobs(24)
    plain, turned = (committee_module._Mixed(images, flips, 0)[np.arange(48)] for flips in (False, True))
    assert np.array_equal(plain[:24], turned[:24])
    partner, weight = (
        committee_module._Mixed(images, True, 0)._partner,
        committee_module._Mixed(images, True, 0)._weight,
    )
    share = weight[:, None, None, None]
    expected = share * images.images[:][..., ::-1] + (1 - share) * images.images[:][partner]
    assert turned[24:] == pytest.approx(expected, abs=1e-5)


def test_a_judge_looks_into_the_mirror_where_the_flow_has_learnt_both_sides(trained):
    assert not trained[0].judge.mirrored
    flow = generator(flips=True, train_steps=3).fit(blobs())
    assert flow.judge.mirrored
    with pytest.raises(UserError, match="multiples of 4"):
        DenoisingJudge(flow.field, few=6, draws=4, last=4, mirrored=True)


def test_a_damaged_folder_is_refused(trained, tmp_path):
    flow, _ = trained
    flow.save(tmp_path)
    content = bytearray((tmp_path / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "weights.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"is damaged \(weights.safetensors does not hold what was written\)"):
        Flow.load(tmp_path)


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: AmbiFlow(delta_max=0), "delta_max is 0"),
        (lambda: AmbiFlow(mass=1), "mass is 1"),
        (lambda: generator(preset="huge").fit(blobs()), "The preset is 'huge'"),
        (lambda: Flow.load("/nowhere"), "There is no trained generator in /nowhere"),
        (lambda: architecture_for((3, 224, 224), 10, "full"), "224 x 224 pixels"),
        (lambda: architecture_for((3, 32, 32), 1000, "full"), "There are 1000 classes"),
        (lambda: generator().generate(blobs(), 0), "0 ambiguous images were asked for"),
    ],
)
def test_what_cannot_be_done_is_said(make_it, message):
    with pytest.raises(UserError, match=message):
        make_it()


def test_a_generator_of_other_images_is_refused(trained):
    flow, _ = trained
    other = blobs()
    renamed = ImageSet.from_arrays(other.images[:], other.labels, class_names=["a", "b", "c"], layout="NCHW")
    with pytest.raises(UserError, match="train another one"):
        generator().generate(renamed, 2, trained=flow)


def test_it_is_found_by_name():
    assert isinstance(make("ambiguous_flow"), AmbiFlow)
    assert make_generator("flow", pairs="all", autoencoders=3).pairs == "all"


def test_a_trained_folder_is_a_way_to_make_ambiguous_images(trained):
    _, folder = trained
    chosen, note = choose_generator(str(folder), blobs(), device="cpu")
    assert isinstance(chosen, AmbiFlow)
    assert chosen.generator == str(folder)
    assert not note
    with pytest.raises(UserError, match="or by the generator in a folder, not by 'nowhere'"):
        choose_generator("nowhere", blobs())


def test_the_price_counts_the_training_only_where_there_is_one(trained):
    _, folder = trained
    given = Given(blobs(), blobs(), device="cpu")
    pace = SimpleNamespace(clock=time.perf_counter)
    dear, cheap = (generator(generator=one).price(pace, given) for one in (None, folder))
    assert dear.fixed > 0 == cheap.fixed
    assert cheap.each > 0
    assert cheap.full == len(blobs())


def test_padding_is_taken_off_again():
    shape = Architecture((1, 10, 9), 2, width=8, multipliers=(1, 2, 2))
    images = np.random.default_rng(0).integers(0, 256, (2, 1, 10, 9)).astype(np.uint8)
    padded = to_padded(images, shape)
    assert padded.shape == (2, 1, 12, 12)
    assert np.array_equal(from_padded(padded.float() / 127.5 - 1, shape), images)


def lessons(pair, asked, got, wanted, before=None):
    """What a dial may learn from fresh candidates, or from some that are composed anew."""
    again = np.full(len(pair), before is not None)
    return Lessons(pair, asked, got, wanted, again, np.zeros(len(pair)) if before is None else before)


def test_the_dial_learns_its_slope_and_the_bias_of_each_pair():
    rng, dial = np.random.default_rng(0), Dial()
    pair, bias = np.repeat([[0, 1], [0, 2]], 200, axis=0), np.repeat([0.7, -0.4], 200)
    for _ in range(4):
        asked = rng.normal(0, 4, 400)
        got = 0.25 * asked + bias + rng.normal(0, 0.3, 400)
        dial.learn(lessons(pair, asked, got, 1 / (1 + np.exp(-0.5 * asked))))
    assert dial.slope == pytest.approx(0.25, abs=0.01)
    assert dial.offsets[0, 1] == pytest.approx(0.7, abs=0.05)
    assert dial.offsets[0, 2] == pytest.approx(-0.4, abs=0.05)
    assert dial.logits((0, 1), np.array([0.5]))[0] == pytest.approx(-0.7 / 0.25, abs=0.2)
    assert dial.followed() == pytest.approx(0.25 / 0.5, abs=0.05)
    assert Dial().followed() is None


def test_the_second_round_of_a_dial_already_hits_what_is_wanted():
    rng, dial, wanted = np.random.default_rng(1), Dial(), np.full(100, 0.5)
    pair = np.repeat([[3, 8]], 100, axis=0)
    means = []
    for _ in range(2):
        asked = dial.logits((3, 8), wanted) + rng.normal(0, 1, 100)
        got = 0.25 * asked + 1.0
        dial.learn(lessons(pair, asked, got, wanted))
        means.append(got.mean())
    assert abs(means[0]) > 0.9
    assert abs(means[1]) < 0.05


def test_the_judge_settles_shares_and_leans_without_shrinking(trained):
    judge = trained[0].judge
    fresh = blobs(24, seed=9)
    images = np.rint(fresh.images[:] * 255).astype(np.uint8)
    pair = np.stack([fresh.labels, (fresh.labels + 1) % 3], axis=1)
    seen = judge.examine(images)
    shares = judge.settle(images, pair, seen)
    assert shares.sum(axis=1) == pytest.approx(1)
    assert (shares[:, 0] > 0.5).mean() > 0.8
    swapped = judge.settle(images, pair[:, ::-1], seen)
    assert swapped[:, ::-1] == pytest.approx(shares)
    glance = judge.glance(images)
    leans = judge.lean(pair, glance)
    assert leans == pytest.approx(-judge.lean(pair[:, ::-1], glance))
    assert np.sign(leans).mean() > 0.6  # each image leans to its own class


def test_a_judge_knows_shares_better_than_its_log_odds_of_real_images_tell_them(trained):
    flow, folder = trained
    judge, fresh = flow.judge, blobs(120, seed=11)
    known = known_mixtures(np.rint(fresh.images[:] * 255).astype(np.uint8), fresh.labels, 60, seed=3)
    odds = judge.weigh(known.images, known.pair)
    assert odds == pytest.approx(-judge.weigh(known.images, known.pair[:, ::-1]))
    shares, as_real = expit(judge.shares.logits(odds, known.pair)), expit(odds)
    assert spearmanr(odds, known.share).statistic > 0.6
    blends = (known.share > 0) & (known.share < 1)
    off, off_as_real = (np.abs(found - known.share)[blends].mean() for found in (shares, as_real))
    assert off < 0.8 * off_as_real
    assert judge.shares.cost(odds, known) < ShareCalibration().cost(odds, known)
    quality = flow.history["judge"]
    assert quality["scale_of_shares"] == judge.shares.scale
    assert 0 < quality["cost_of_shares"] < quality["cost_of_even_shares"]
    again = Flow.load(folder).judge.shares
    assert again.scale == judge.shares.scale
    assert np.array_equal(again.separation, judge.shares.separation)
    assert judge.with_seed(1).shares is judge.shares


def test_a_committee_is_kept_beside_the_generator_and_damage_is_said(tmp_path):
    images, folder = blobs(), tmp_path / "committee"
    committee = Committee(epochs=1, device="cpu").fit(images, images)
    committee.save(folder)
    asked = images.take(np.arange(5))
    again = Committee.load(folder, about=committee.about(images), device="cpu")
    assert again is not None
    assert again.judge(asked) == pytest.approx(committee.judge(asked), abs=1e-6)
    assert again.digest == committee.digest
    assert again.shares.to_dict() == committee.shares.to_dict()
    again.shares = ShareCalibration(2 * committee.shares.scale, prior=committee.shares.prior)
    assert again.digest != committee.digest
    for other in (Committee(epochs=2), Committee(epochs=1, flips=True), Committee(["lenet"], epochs=1)):
        assert Committee.load(folder, about=other.about(images)) is None
    assert Committee.load(folder, about=committee.about(blobs(60))) is None
    assert Committee.load(tmp_path) is None
    card = read_json(folder / "committee.json")
    write_json_sealed(folder / "committee.json", {key: card[key] for key in card if key not in ("format", "shares")})
    assert Committee.load(folder) is None, "of an older version, which is no damage"
    write_json_sealed(folder / "committee.json", card)
    known = known_mixtures(np.rint(images.images[:] * 255).astype(np.uint8), images.labels, 60, seed=3)
    odds = log_odds_of(committee.judge(ImageSet.from_arrays(known.images, layout="NCHW")), known.pair)
    assert committee.shares.cost(odds, known) < 0.9 * ShareCalibration(0.0).cost(odds, known)
    weights = next(folder.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.warns(UserWarning, match="damaged"):
        assert Committee.load(folder) is None


def test_a_batch_that_does_not_fit_into_memory_is_learnt_from_in_parts(monkeypatch):
    images, labels = (np.rint(blobs().images[:] * 255).astype(np.uint8), blobs().labels)
    small = {"shape": (1, SIZE, SIZE), "classes": 3, "preset": "tiny"}
    schedule = Schedule(steps=3, batch_size=60, lr=1e-3)

    def trained_with(most):
        plain = FlowNetwork.forward

        def forward(self, x, t, weights):
            if len(x) > most:
                raise torch.OutOfMemoryError("too much")
            return plain(self, x, t, weights)

        monkeypatch.setattr(FlowNetwork, "forward", forward)
        network, rows = train_flow(images, labels, architecture_for(**small), schedule, device=CPU)
        monkeypatch.setattr(FlowNetwork, "forward", plain)
        return network, rows

    (whole, rows), (parted, again) = trained_with(60), trained_with(20)
    assert again[-1]["loss"] == pytest.approx(rows[-1]["loss"], rel=1e-4)
    for one, other in zip(whole.parameters(), parted.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    with pytest.raises(torch.OutOfMemoryError):
        trained_with(0)


def test_judging_halves_batches_that_do_not_fit_into_memory(trained, monkeypatch):
    flow, _ = trained
    field = VelocityField(flow.field.network, batch_size=64)
    x, t, labels = torch.randn(50, 1, SIZE, SIZE), torch.full((50,), 0.5), torch.zeros(50, dtype=torch.int64)
    whole = field(x, t, labels)
    plain = field._forward

    def forward(x, t, weights):
        if len(x) > 20:
            raise torch.OutOfMemoryError("too much")
        return plain(x, t, weights)

    monkeypatch.setattr(field, "_forward", forward)
    torch.testing.assert_close(field(x, t, labels), whole)
    assert field.batch_size == 16


def test_a_drawing_ends_after_its_minutes_with_what_it_has(trained, monkeypatch):
    flow, _ = trained
    now = [0.0]

    def later():
        now[0] += 100.0
        return now[0]

    monkeypatch.setattr(drawing.time, "monotonic", later)
    made = generator(delta_max=0.9, minutes=0.5).generate(blobs(), 2000, trained=flow)
    assert made.card["drawn"] == 3 * 3, "one small round of three pairs"
    assert 1 <= len(made.images) < 2000
    assert made.card["notes"][-1].endswith("instead of 2000: the time was up.")


def drawer_of(flow, found, drawn, each=100):
    """One that has found some images of each pair among so many candidates."""
    one = drawing.FlowDrawer(flow, None, 1.0, 0.0, 8, each, 0)
    for pair, number in found.items():
        one.drawn[pair] = drawn[pair]
        one._pools[pair] = [
            Candidates(np.zeros((number, 1, 1, 1), np.uint8), np.tile(pair, (number, 1)), np.zeros(number))
        ]
    return one


def test_what_a_pair_does_not_need_is_left_to_the_others(trained):
    flow, _ = trained
    easy, hard, harder = (0, 1), (0, 2), (1, 2)
    one = drawer_of(flow, {easy: 90, hard: 5, harder: 0}, dict.fromkeys([easy, hard, harder], 100))
    shares = one._shared(one._lacking([easy, hard, harder], 300, 1, stratify=True), 300, turn=1)
    assert shares[easy] == 14, "ten images are missing, of which 91 in 101 are accepted, and a fifth to spare"
    assert shares[hard] == shares[harder] == 143
    nearly = drawer_of(flow, {easy: 90, hard: 99}, {easy: 100, hard: 300})
    lacking = nearly._lacking([easy, hard], 200, 1, stratify=True)
    assert lacking == {easy: 10, hard: 1}
    assert sum(nearly._shared(lacking, 300, turn=1).values()) == 14 + 4, "no more than seems to be needed"
    assert one._shared({easy: 10, hard: 95}, 300, turn=0) == {easy: 25, hard: 25}, "the first round is small"


def test_images_do_not_depend_on_the_block_they_are_computed_in(trained, monkeypatch):
    flow, _ = trained
    pair = np.tile([[0, 1]], (70, 1))
    made = []
    for size in (256, 32, 16):
        monkeypatch.setattr(flow.field, "batch_size", size)
        made.append(flow.compose(pair, np.zeros((70, 2)), guidance=2.0, steps=4, seed=3))
        made.append(flow.sample(np.arange(70) % 3, steps=4, seed=3))
    for other in (made[2:4], made[4:]):
        for one, same in zip(made[:2], other, strict=True):
            assert np.abs(one.astype(int) - same).max() <= 1, "but for rounding"


def test_a_committee_is_trained_once_beside_a_generator_of_another_folder(trained, tmp_path, monkeypatch):
    flow, _ = trained
    flow.save(tmp_path / "generator")
    trainings, fit = [], Committee.fit

    def fitted(self, learnt, kept_back, *, progress=None):
        trainings.append(learnt)
        return fit(self, learnt, kept_back, progress=progress)

    monkeypatch.setattr(Committee, "fit", fitted)
    made = generator(generator=tmp_path / "generator", folder=tmp_path / "out", committee=True)
    first, again = (made.fit_committee(blobs(), seed=0) for _ in range(2))
    assert len(trainings) == 1 and first.digest == again.digest


def test_barren_pairs_leave_their_images_to_the_others(trained):
    flow, _ = trained
    one, other, barren = (0, 1), (0, 2), (1, 2)
    drawer = drawer_of(flow, {one: 60, other: 20, barren: 1}, {one: 100, other: 100, barren: 1000})
    for pair, number in {one: 60, other: 20, barren: 1}.items():
        drawer.passed[CHECKS[-1]][pair] = number
    pairs = [one, other, barren]
    assert drawer._lacking(pairs, 150, drawing.PATIENCE - 1, stratify=True) == {other: 30, barren: 49}
    shared = drawer._lacking(pairs, 150, drawing.PATIENCE, stratify=True)
    assert shared == {one: 15, other: 55}, "75 of each where the third gives one"
    assert drawer._lacking(pairs, 150, drawing.PATIENCE, stratify=False) == {one: 35, other: 35}
    assert drawer._lacking([barren], 150, drawing.PATIENCE, stratify=True) == {}


def test_without_strata_a_pair_gives_more_than_its_share(trained, monkeypatch):
    """A pair of which half of the candidates are accepted, and one that gives none, are asked for 200 images."""
    flow, _ = trained
    good, bad = (0, 1), (0, 2)

    def made(self, shares, turn):
        pairs = list(shares)
        number = shares.get(good, 0) // 2
        found = Candidates(
            np.zeros((number, 1, SIZE, SIZE), np.uint8), np.tile(good, (number, 1)), np.full(number, 0.5)
        )
        passed = np.array([[number if pair == good else 0] * len(CHECKS) for pair in pairs])
        nothing = np.zeros((len(pairs), flow.field.classes))
        learnt = Lessons(np.zeros((0, 2), np.int64), *(np.zeros(0) for _ in range(3)), np.zeros(0, bool), np.zeros(0))
        near = NearMisses.none((1, SIZE, SIZE))
        each = np.array(list(shares.values()))
        return Round(np.array(pairs), each, 0 * each, passed, nothing, learnt, found, near, 0.0)

    monkeypatch.setattr(drawing.FlowDrawer, "_round", made)
    for stratify in (True, False):
        drawer = drawing.FlowDrawer(flow, None, 1.0, 0.0, 8, 60, 0)
        chosen = drawer.run([good, bad], 200, stratify=stratify, progress=Silent())
        assert len(chosen) == 200 and drawer.drawn[bad] < 500


def test_the_card_says_how_long_the_drawing_took(trained):
    flow, _ = trained
    began = time.monotonic()
    made = generator(delta_max=0.9).generate(blobs(), 2, trained=flow)
    assert 0 < made.card["seconds"] <= time.monotonic() - began


def test_the_preset_suits_images_and_device():
    colour = ImageSet.from_arrays(np.zeros((4, 3, SIZE, SIZE), np.float32), np.arange(4) % 2, layout="NCHW")
    cuda = torch.device("cuda")
    cases = [(CPU, colour, "small"), (cuda, colour, "full"), (cuda, blobs(), "medium")]
    assert all(AmbiFlow()._preset(device, images) == preset for device, images, preset in cases)


def photographs(size=32, classes=2):
    pixels = np.zeros((classes, 3, size, size), np.float32)
    return ImageSet.from_arrays(pixels, np.arange(classes), layout="NCHW")


def test_auto_takes_blends_where_no_flow_can_be_made(monkeypatch):
    monkeypatch.setattr("secondguess.devices.pick_device", lambda _: torch.device("cuda"))
    assert suited_generator(photographs()) == ("flow", "")
    assert suited_generator(photographs(80))[1].endswith("is made for 8 to 64 pixels per side.")
    assert suited_generator(photographs(classes=101))[1].endswith("is made for at most 100 classes.")
    assert cheaper_generator(AmbiFlow()).name == "ambiguous_blend"
    assert cheaper_generator(None) is None


class Counted:
    """Counts the rounds that are drawn."""

    def __init__(self, monkeypatch):
        self.calls, one = 0, drawing.FlowDrawer._round

        def counting(*arguments):
            self.calls += 1
            return one(*arguments)

        monkeypatch.setattr(drawing.FlowDrawer, "_round", counting)


class Killed(Exception):
    pass


def drawn_until_a_round_is_done(flow, monkeypatch, count, **settings):
    keep = Rounds.keep

    def last(*arguments):
        keep(*arguments)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Rounds, "keep", last)
        with pytest.raises(Killed):
            generator(**settings).generate(blobs(), count, seed=4, trained=flow)


def test_an_interrupted_drawing_goes_on_with_its_rounds(trained, tmp_path, monkeypatch):
    flow, _ = trained
    counted, settings = (
        Counted(monkeypatch),
        {"delta_max": 0.3, "contrast": 0.5, "committee": True, "disagreement": 1.0},
    )
    whole = generator(**settings, folder=tmp_path / "whole").generate(blobs(), 60, seed=4, trained=flow)
    rounds = counted.calls
    for _ in range(2):
        drawn_until_a_round_is_done(flow, monkeypatch, 60, **settings, folder=tmp_path / "killed")
    kept = len(list((tmp_path / "killed" / "drawing").glob("*.npz")))
    assert kept == 2 < rounds
    counted.calls = 0
    resumed = generator(**settings, folder=tmp_path / "killed").generate(blobs(), 60, seed=4, trained=flow)
    assert counted.calls == rounds - kept
    assert np.array_equal(resumed.images.images[:], whole.images.images[:])
    assert np.array_equal(resumed.images.soft_labels, whole.images.soft_labels)
    assert whole.card["again"] > 0
    for part in ("drawn", "again", "dial", "dial_again", "passed", "pairs"):
        assert resumed.card[part] == whole.card[part]


def test_more_minutes_go_on_with_a_drawing_and_another_judge_begins_anew(trained, tmp_path, monkeypatch):
    flow, _ = trained
    counted, settings = Counted(monkeypatch), {"delta_max": 0.9, "folder": tmp_path}
    generator(**settings, minutes=0).generate(blobs(), 12, seed=4, trained=flow)
    assert counted.calls == 1
    generator(**settings, minutes=0).generate(blobs(), 12, seed=4, trained=flow)
    assert counted.calls == 1
    generator(**settings).generate(blobs(), 12, seed=4, trained=flow)
    assert counted.calls > 1
    doubting = flow.judge.with_seed(flow.judge.seed)
    doubting.final = LossCalibration(flow.judge.final.weights * 0.5, flow.judge.final.offsets)
    counted.calls = 0
    other = Flow(flow.network, flow.class_names, doubting, flow.history)
    generator(**settings, minutes=0).generate(blobs(), 12, seed=4, trained=other)
    assert counted.calls == 1


def test_rounds_of_another_drawing_are_not_taken_and_damaged_ones_are_said(tmp_path):
    found = Candidates(np.zeros((2, 1, SIZE, SIZE), np.uint8), np.array([[0, 1], [0, 1]]), np.array([0.4, 0.5]))
    counts, seen = np.array([[5, 4, 3, 2, 2]]), np.ones((1, 3))
    learnt = lessons(np.array([[0, 1]] * 3), *np.arange(12.0).reshape(4, 3))
    near = NearMisses(np.ones((1, 1, SIZE, SIZE), np.uint8), np.array([[0, 1]]), np.array([1.5]), np.array([2]))
    one = Round(np.array([[0, 1]]), np.array([8]), np.array([3]), counts, seen, learnt, found, near, 3.5)
    Rounds(tmp_path, {"seed": 0, "pairs": [(0, 1)]}).keep(one)
    again = Rounds(tmp_path, {"seed": 0, "pairs": [(0, 1)]}).load()
    assert [len(each.found) for each in again] == [2]
    assert np.array_equal(again[0].passed, one.passed)
    assert again[0].each.tolist() == [8]
    assert np.array_equal(again[0].seen, seen)
    assert again[0].again.tolist() == [3]
    assert all(np.array_equal(values, vars(learnt)[name]) for name, values in vars(again[0].learnt).items())
    assert again[0].near.images.sum() == SIZE**2
    assert [float(again[0].near.lean[0]), int(again[0].near.tries[0])] == [1.5, 2]
    assert again[0].seconds == 3.5
    assert Rounds(tmp_path, {"seed": 1, "pairs": [(0, 1)]}).load() == []
    file = tmp_path / "round-00000.npz"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.warns(UserWarning, match="damaged"):
        assert Rounds(tmp_path, {"seed": 0, "pairs": [(0, 1)]}).load() == []
    longer, shorter = Rounds(tmp_path, {"seed": 2}), Rounds(tmp_path, {"seed": 3})
    for _ in range(3):
        longer.keep(one)
    assert len(Rounds(tmp_path, {"seed": 2}).load()) == 3
    shorter.keep(one)
    assert [path.name for path in tmp_path.glob("*.npz")] == ["round-00000.npz"]
    assert len(Rounds(tmp_path, {"seed": 3}).load()) == 1


def test_sheets_of_samples_show_how_the_training_goes(trained):
    sheets = sorted((trained[1] / "training").glob("samples-*.png"))
    assert [path.name for path in sheets] == ["samples-000090.png"]
    with Image.open(sheets[0]) as sheet:
        assert sheet.size == (16 * (SIZE + 1), 8 * (SIZE + 1))


def test_the_label_is_the_opinion_pool_of_both_judges(trained, tmp_path, monkeypatch):
    flow, _ = trained
    common = {"delta_max": 0.9, "committee": True, "disagreement": 1.0, "folder": tmp_path}
    made = generator(**common).generate(blobs(), 6, trained=flow)
    images, pool = made.images, Pool(**made.card["pool"])
    own, theirs = (logit(images.columns[name]) for name in ("share_generative", "share_committee"))
    label = np.take_along_axis(images.soft_labels, images.columns["class_1"][:, None], axis=1)[:, 0]
    assert label == pytest.approx(expit(pool.logits(own, theirs)), abs=1e-3)
    assert pool != Pool(), "weights are fitted"
    with monkeypatch.context() as patched:
        patched.setattr(DenoisingJudge, "weigh", None)  # nobody is asked again
        assert generator(**common).generate(blobs(), 6, trained=flow).card["pool"] == pool.to_dict()
    assert generator(delta_max=0.9).generate(blobs(), 2, trained=flow).card["pool"] is None


def test_the_pool_is_fitted_to_images_that_nobody_has_learnt_and_kept(trained, tmp_path, monkeypatch):
    flow, _ = trained
    given = []

    def noting(judge, committee, images, labels, **settings):
        given.append((images, labels))
        return Pool(0.7, 0.2)

    monkeypatch.setattr(generator_module, "pool_of", noting)
    ours = generator(committee=True, folder=tmp_path)
    committee = ours.fit_committee(blobs())
    assert ours.fit_pool(blobs(), flow, committee) == Pool(0.7, 0.2)
    learnt, kept_back = generator_module._parts(blobs(), None, 0)
    (found,) = given
    assert np.array_equal(found[0], np.rint(kept_back.images[:] * 255).astype(np.uint8))
    assert np.array_equal(found[1], kept_back.labels)
    assert committee.learnt == learnt.fingerprint == flow.history["origin"]["data"]
    for other in (ours, generator(committee=True, generator=tmp_path)):
        assert other.fit_pool(blobs(), flow, committee, seed=9) == Pool(0.7, 0.2), "it belongs to the judges"
    assert len(given) == 1, "and is kept beside them"
    elsewhere = generator(committee=True, folder=tmp_path / "other")
    assert elsewhere.fit_pool(blobs(), flow, committee, seed=9) == Pool(), "who has learnt what is not known"
    assert elsewhere.fit_pool(blobs(300), flow, committee) == Pool()
    assert len(given) == 1


def test_a_class_that_the_last_calibration_has_not_seen_does_not_lean_by_its_frequency(trained):
    """Two images with a wrong class: at the second look nobody thinks of it any more."""
    field, images = trained[0].field, blobs(62)
    labels = np.where(np.arange(62) < 60, images.labels % 2, 2)
    pixels = np.rint(images.images[:] * 255).astype(np.uint8)
    right = pixels[labels == images.labels], labels[labels == images.labels]
    wrong = pixels[images.labels == 0][:2], np.array([2, 2])
    judge = DenoisingJudge(field, few=4, draws=4, last=4)
    judge.fit(*(np.concatenate(both) for both in zip(right, wrong, strict=True)))
    apart = judge.final.offsets[[0, 1]] - judge.final.offsets[2] - (judge.shares.prior[[0, 1]] - judge.shares.prior[2])
    assert np.abs(apart).max() < 2, "of nats that are left when the frequencies are taken out"


def test_a_committee_that_has_learnt_a_frequent_class_is_as_sure_of_it():
    rng, whole = np.random.default_rng(0), blobs(1200)
    share = np.array([1.0, 0.08, 0.04])
    images = whole.take(np.flatnonzero(rng.random(1200) < share[whole.labels]))
    held_out = blobs(300, seed=5)
    held_out = held_out.take(np.flatnonzero(rng.random(300) < share[held_out.labels]))
    committee = Committee(epochs=6, device="cpu").fit(images, held_out)
    fresh = blobs(90, seed=6)
    common = fresh.take(np.flatnonzero(fresh.labels == 0))
    seen, pair = committee.judge(common), np.tile([0, 1], (len(common), 1))
    shares = expit(committee.shares.logits(log_odds_of(seen, pair), pair))
    assert np.median(shares) > 0.9


def test_looks_in_a_mirror_do_not_tell_an_image_from_its_mirror_image(trained):
    field = trained[0].field
    judge = DenoisingJudge(field, few=4, draws=4, last=4, mirrored=True)
    images = np.random.default_rng(0).integers(0, 256, (3, 1, SIZE, SIZE)).astype(np.uint8)
    bank = NoiseBank(field.network.architecture.padded, 2, 0, CPU)
    x = images / np.float32(127.5) - 1
    wanted = torch.ones(3, 3, dtype=torch.bool)
    plain, turned = (
        denoising_losses(field, torch.from_numpy(one.copy()), wanted, bank, slice(0, 2), batch_size=64)
        for one in (x, x[..., ::-1])
    )
    judge._bank.noise = torch.cat([bank.noise, bank.noise], dim=1)  # the same noise for both sides
    both = judge._losses(images, wanted.numpy(), slice(0, 4), None)
    assert both == pytest.approx(((plain + turned) / 2).numpy(), rel=1e-4)


def test_rivals_of_a_pair_are_the_classes_that_the_committee_sees_instead(trained):
    flow, _ = trained
    drawer = drawing.FlowDrawer(flow, None, 2.0, 0.6, 8, 4, 0)
    assert drawer._rivals((0, 1)).tolist() == [0, 0, 0, 1]  # nothing is known yet
    found = Candidates(np.zeros((0, 1, SIZE, SIZE), np.uint8), np.zeros((0, 2), np.int64), np.zeros(0))
    none, nothing = NearMisses.none((1, SIZE, SIZE)), lessons(np.zeros((0, 2), int), *np.zeros((3, 0)))
    for _ in range(2):
        counts = (np.array([[0, 1]]), np.array([10]), np.array([4]), np.zeros((1, 5), int))
        drawer._take(Round(*counts, np.array([[5.0, 3.0, 2.0]]), nothing, found, none))
    assert drawer.drawn[0, 1] == 20
    assert drawer.again[0, 1] == 8
    assert drawer._rivals((0, 1)) == pytest.approx([0, 0, 0.6, 0.4])
    assert drawer._rivals((0, 2)).tolist() == [0, 0, 0, 1]
    drawer._seen[0, 2] = np.array([4.0, 1.0, 5.0])
    assert drawer._rivals((0, 2)) == pytest.approx([0, 0.6, 0, 0.4])


def test_contrast_changes_what_is_drawn_after_the_first_round(trained, tmp_path, monkeypatch):
    flow, _ = trained
    settings = {"delta_max": 0.9, "committee": True, "disagreement": 1.0, "guidance": 2.0}
    drawn = []
    for number, contrast in enumerate((0.0, 1.0)):
        folder = tmp_path / str(number)
        for _ in range(2):
            drawn_until_a_round_is_done(flow, monkeypatch, 60, **settings, contrast=contrast, folder=folder)
        kept = [Round.from_bytes(path.read_bytes()) for path in sorted(folder.glob("drawing/round-*.npz"))]
        drawn.append(kept)
    assert np.array_equal(drawn[0][0].seen, drawn[1][0].seen)
    assert drawn[0][0].seen.sum() == pytest.approx(drawn[0][0].each.sum())
    assert not np.array_equal(drawn[0][1].seen, drawn[1][1].seen)
    with pytest.raises(UserError, match=r"contrast is 1\.5"):
        generator(contrast=1.5)


def test_two_classes_may_be_compared_before_the_others_are_examined(trained):
    judge, fresh = trained[0].judge, blobs(20, seed=9)
    images = np.rint(fresh.images[:] * 255).astype(np.uint8)
    pair = np.stack([fresh.labels, (fresh.labels + 1) % 3], axis=1)
    look = judge.glance(images)
    at_once, compared = judge.examine(images, look), judge.compare(images, pair, look)
    later = judge.examine(images, look, compared=compared)
    assert later.probabilities == pytest.approx(at_once.probabilities, abs=1e-4)
    both = np.take_along_axis(judge.examine(images, look, compared=compared).losses, pair[:, :, None], axis=1)
    assert both == pytest.approx(np.take_along_axis(compared.losses, pair[:, :, None], axis=1))
    assert compared.probabilities.sum(axis=1) == pytest.approx(1)
    assert np.take_along_axis(compared.probabilities, pair, axis=1).sum(axis=1) == pytest.approx(1), "no other class"


@pytest.mark.parametrize("steps", [8, 9])
def test_what_is_composed_anew_keeps_much_of_what_it_was(trained, steps):
    flow, _ = trained
    pair, target = np.tile([0, 1], (16, 1)), np.zeros((16, 2))
    first = flow.compose(pair, target, steps=steps, seed=1)
    again, other = (
        flow.compose(pair, target, steps=steps, seed=2, again=one).astype(float).reshape(16, -1)
        for one in (first, None)
    )

    def apart(second):
        return np.abs(first.reshape(16, -1) - second).mean()

    assert 0 < apart(again) < 0.9 * apart(other)
    shares = []
    for odds in (-30.0, 30.0):
        asked = np.stack([np.full(16, odds), np.zeros(16)], axis=1)
        found = flow.judge.judge(flow.compose(pair, asked, steps=steps, seed=2, again=first))
        shares.append((found[:, 0] / found[:, :2].sum(axis=1)).mean())
    assert shares[0] < shares[1]


def test_near_misses_that_lean_least_are_tried_again_a_few_times():
    pair = np.array([[0, 1], [0, 1], [0, 2], [0, 1], [1, 2]])
    tries, lean = np.array([0, TRIES, 1, 2, 0]), np.array([1.5, 0.1, 2.0, -0.7, 0.0])
    near = NearMisses(np.arange(5, dtype=np.uint8)[:, None, None, None], pair, lean, tries).open()
    assert near.images.ravel().tolist() == [0, 2, 3, 4]
    assert near.among([(0, 1), (0, 2)], [1, 5]).images.ravel().tolist() == [3, 2]
    assert near.among([(0, 1), (0, 2)], [5, 5]).images.ravel().tolist() == [3, 0, 2]
    assert len(NearMisses.none((1, 2, 2)).among([(0, 1)], [3])) == 0


def test_a_dial_learns_how_much_of_an_earlier_lean_is_kept():
    rng, dial = np.random.default_rng(2), Dial(kept=0.1)
    pair = np.repeat([[0, 1]], 300, axis=0)
    assert dial.logits((0, 1), np.array([0.5]), np.array([2.0]), unknown=1.0)[0] == pytest.approx(-1.2)
    asked, before = rng.normal(0, 4, 300), rng.normal(0, 2, 300)
    got = 0.3 * asked + 0.4 * before + 0.6 + rng.normal(0, 0.2, 300)
    dial.learn(lessons(pair, asked, got, np.full(300, 0.5), before))
    assert dial.slope == pytest.approx(0.3, abs=0.02)
    assert dial.kept == pytest.approx(0.4, abs=0.02)
    assert dial.offsets[0, 1] == pytest.approx(0.6, abs=0.05)
    assert dial.logits((0, 1), np.array([0.5]), np.array([1.0]))[0] == pytest.approx(-(0.6 + 0.4) / 0.3, abs=0.3)


def test_near_misses_of_a_round_are_composed_anew_in_the_next(trained, tmp_path, monkeypatch):
    flow, _ = trained
    compose, composed = Flow.compose, []

    def noting(self, pair, target, **settings):
        composed.append((pair, target, settings))
        return compose(self, pair, target, **settings)

    monkeypatch.setattr(Flow, "compose", noting)
    mildest = 0.02
    made = generator(delta_max=mildest, folder=tmp_path).generate(blobs(), 60, seed=1, trained=flow)
    rounds = [Round.from_bytes(path.read_bytes()) for path in sorted((tmp_path / "drawing").glob("round-*.npz"))]
    assert len(composed) == 2 * len(rounds) > 4
    fresh, again = Dial(), Dial(kept=drawing.KEPT)
    before = NearMisses.none((1, SIZE, SIZE))
    for turn, (one, (pair, target, settings)) in enumerate(zip(rounds, composed[1::2], strict=True)):
        tried = before.among([(int(a), int(b)) for a, b in one.pairs], one.each.tolist())
        assert np.array_equal(settings["again"], tried.images)
        assert np.array_equal(pair, tried.pair)
        wanted = 0.5 + mildest * np.random.default_rng([1, 2, turn]).uniform(-0.5, 0.5, one.each.sum())
        for number, (first, second) in enumerate(tried.pair.tolist()):
            place = len(wanted) - len(tried) + number
            known = (1 - again.kept) * fresh.offsets.get((first, second), 0.0)
            asked = again.logits((first, second), wanted[[place]], tried.lean[[number]], known)
            per_nat = flow.judge.shares.per_nat(tried.pair[[number]])
            assert target[number] == pytest.approx([asked[0] / per_nat[0], 0])
        second = one.learnt.take(one.learnt.again)
        assert len(second) == sum(1 for k in range(len(wanted) - len(tried), len(wanted)) if not turn or k % 4 == 0)
        assert set(second.before) <= set(tried.lean)
        for dial, part in ((fresh, one.learnt.take(~one.learnt.again)), (again, second)):
            if len(part):
                dial.learn(part)
        before = one.near
    assert rounds[0].again.sum() == 0
    assert made.card["again"] == sum(int(one.again.sum()) for one in rounds) > 0
    assert max(one.near.tries.max(initial=0) for one in rounds) == TRIES - 1, "who has been tried more is not kept"
    assert made.images.columns["tries"].max() > 0
