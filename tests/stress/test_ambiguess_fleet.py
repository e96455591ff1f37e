from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from secondguess.stress.ambiguous import acceptance, networks
from secondguess.stress.ambiguous.acceptance import TrainedFleet, examine
from secondguess.stress.ambiguous.autoencoders import Member, RaaeFleet
from secondguess.stress.ambiguous.networks import Raae
from secondguess.stress.ambiguous.realism import sharpness

CPU = torch.device("cpu")
MEMBERS = [Member((0, 2), 0, 11), Member((1, 2), 0, 12), Member((0, 2), 1, 13)]


def make_fleet(members=MEMBERS, shape=(1, 8, 8), codes=2) -> RaaeFleet:
    return RaaeFleet(members, shape, codes, CPU)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def module_of(fleet: RaaeFleet, index: int, shape=(1, 8, 8)) -> Raae:
    """One member as an ordinary module."""
    module = Raae(shape, fleet.codes, seed=0)
    for part, state in fleet.parts.items():
        getattr(module, part).load_state_dict({name: value[index].detach() for name, value in state.items()})
    return module.eval()


def task(fleet: RaaeFleet, count: int = 30):
    """Images and, for each member, which of them it learns from and their class."""
    images = random(count, 1, 8, 8)
    rows = [np.arange(index, count - 2 * index) for index in range(len(fleet))]
    return images, rows, [row % 2 for row in rows]


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 12, 9)])
@pytest.mark.parametrize("codes", [2, 3])
def test_a_stack_computes_what_its_members_compute(shape, codes):
    fleet = make_fleet(shape=shape, codes=codes)
    x, z = random(3, 5, *shape), 4 * random(3, 5, 2, seed=1) - 2
    which = torch.tensor([[0, 1, 1, 0, 1]] * 3)
    for index, member in enumerate(MEMBERS):
        alone = Raae(shape, codes, member.seed).eval()
        code = which[index] if codes == 2 else torch.tensor(member.pair)[which[index]]
        told = torch.cat([z[index], functional.one_hot(code, codes)], dim=1)
        close = {"atol": 1e-5, "rtol": 1e-4}
        torch.testing.assert_close(fleet.encode(x)[index], alone.encoder(x[index]), **close)
        torch.testing.assert_close(fleet.decode(z)[index], alone.decoder(z[index]), **close)
        torch.testing.assert_close(fleet.discriminate(z, which)[index], alone.discriminator(told)[:, 0], **close)


def test_class_logits_are_those_of_the_two_classes():
    fleet, z = make_fleet(codes=3), random(3, 4, 2)
    logits = fleet.class_logits(z)
    for which in (0, 1):
        torch.testing.assert_close(logits[..., which], fleet.discriminate(z, torch.full((3, 4), which)))


def test_one_of_them_is_a_fleet_of_its_own():
    fleet, z = make_fleet(codes=3), random(3, 4, 2)
    one = fleet.only(1)
    assert len(one) == 1 and one.members == [MEMBERS[1]] and len(fleet) == 3
    torch.testing.assert_close(one.class_logits(z[1:2]), fleet.class_logits(z)[1:2], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(one.decode(z[1:2]), fleet.decode(z)[1:2], atol=1e-6, rtol=1e-5)


def test_the_prior_is_half_of_each_class_around_its_centre():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        z, which = make_fleet().prior(20_001)
    assert z.shape == (3, 20_001, 2) and which.shape == (3, 20_001)
    assert (which == 0).sum(dim=1).tolist() == [10_000] * 3
    for label, centre in ((0, -3.0), (1, 3.0)):
        points = z[which == label].double()
        torch.testing.assert_close(points.mean(dim=0), torch.tensor([centre, 0.0]).double(), atol=0.03, rtol=0)
        torch.testing.assert_close(points.std(dim=0), torch.ones(2).double(), atol=0.03, rtol=0)
    assert not torch.equal(z[0], z[1])


def test_dropout_differs_between_calls_and_members_and_is_off_when_not_training():
    twins = make_fleet([Member((0, 1), 0, 5), Member((0, 1), 1, 5)])
    x = random(1, 200, 1, 8, 8).expand(2, -1, -1, -1, -1)
    with torch.random.fork_rng(), torch.no_grad():
        first, second = (twins._apply("encoder", x, train=True) for _ in "ab")
    assert not torch.isclose(first, second).all(dim=-1).any()
    assert not torch.isclose(first[0], first[1]).all(dim=-1).any()
    assert torch.equal(twins.encode(x)[0], twins.encode(x)[1])


@pytest.fixture
def exact(monkeypatch):
    """A fleet without dropout, in double precision, whose prior is always the same points."""

    def make(members) -> RaaeFleet:
        monkeypatch.setattr(networks, "DROPOUT", 0.0)
        fleet = make_fleet(members)
        for state in fleet.parts.values():
            for name, value in state.items():
                state[name] = value.detach().double().requires_grad_()
        which = torch.tensor([0] * 4 + [1] * 5).expand(len(members), 9)
        z = (4 * random(len(members), 9, 2, seed=9) - 2).double()
        fleet.prior = lambda count: (z, which)
        return fleet

    return make


def optimisers(parts) -> dict[str, torch.optim.Optimizer]:
    def adam(*names):
        return torch.optim.Adam([value for name in names for value in parts(name)], lr=1e-3, eps=1e-7)

    return {
        "reconstruction": adam("encoder", "decoder"),
        "discriminator": adam("discriminator"),
        "generator": adam("encoder"),
    }


def by_hand(model: Raae, x, y, prior, classes, m, steps: dict[str, torch.optim.Optimizer]) -> None:
    """The three updates as the paper has them, for one autoencoder and one batch; m divides the adversarial losses."""

    def judge(z, which):
        return model.discriminator(torch.cat([z, functional.one_hot(which, 2)], dim=1))[:, 0]

    def cross_entropy(logits, target):
        return functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))

    def update(name, loss):
        model.zero_grad()
        loss.backward()
        steps[name].step()

    update("reconstruction", nn.MSELoss()(model.decoder(model.encoder(x)), x))
    real = cross_entropy(judge(prior, classes), 1.0)
    update("discriminator", (real + cross_entropy(judge(model.encoder(x).detach(), y), 0.0)) / (2 * m))
    update("generator", cross_entropy(judge(model.encoder(x), y), 1.0) / m)


def test_three_batches_change_every_member_as_by_hand(exact):
    fleet = exact(MEMBERS[:2])
    prior, classes = fleet.prior(9)
    alone = [module_of(fleet, index).double() for index in range(2)]
    steps = [optimisers(lambda part, m=model: list(getattr(m, part).parameters())) for model in alone]
    together = optimisers(lambda part: list(fleet.parts[part].values()))
    before = fleet.parts["encoder"]["1.weight"].detach().clone()
    for batch in range(3):
        x = random(2, 9, 1, 8, 8, seed=batch).double()
        y = (random(2, 9, seed=batch + 50) > 0.5).long()
        fleet._step(x, y, torch.ones(2, 9), torch.tensor([9, 20]), together)
        for index, model in enumerate(alone):
            by_hand(model, x[index], y[index], prior[index], classes[index], (9, 20)[index], steps[index])
    assert (fleet.parts["encoder"]["1.weight"] - before).abs().max() > 1e-4
    for index, model in enumerate(alone):
        for part, state in fleet.parts.items():
            for name, value in getattr(model, part).state_dict().items():
                torch.testing.assert_close(state[name][index].detach(), value, atol=1e-9, rtol=1e-7)


def test_padding_changes_nothing(exact):
    full, padded = exact(MEMBERS[:1]), exact(MEMBERS[:1])
    x, y = random(1, 6, 1, 8, 8).double(), torch.tensor([[0, 1, 1, 0, 1, 0]])
    garbage = torch.cat([x, random(1, 3, 1, 8, 8, seed=4).double()], dim=1)
    weights = torch.tensor([[1.0] * 6 + [0.0] * 3])
    for fleet, images, labels, weight in (
        (full, x, y, torch.ones(1, 6)),
        (padded, garbage, torch.cat([y, torch.ones(1, 3).long()], dim=1), weights),
    ):
        steps = optimisers(lambda part, f=fleet: list(f.parts[part].values()))
        for _ in range(2):
            fleet._step(images, labels, weight, torch.tensor([6]), steps)
    for part, state in full.parts.items():
        for name, value in state.items():
            torch.testing.assert_close(padded.parts[part][name], value, atol=1e-12, rtol=1e-10)


def test_an_epoch_shows_every_member_each_of_its_images_once():
    fleet = make_fleet()
    _, rows, which = task(fleet)
    batches = list(fleet._batches(rows, which, 11, epoch=0))
    assert [tuple(chosen.shape) for chosen, _, _ in batches] == [(3, 11), (3, 11), (3, 8)]
    for index, mine in enumerate(rows):
        seen = [chosen[index][weights[index] > 0] for chosen, _, weights in batches]
        np.testing.assert_array_equal(np.sort(torch.cat(seen).numpy()), mine)
        for chosen, classes, _ in batches:
            np.testing.assert_array_equal(classes[index], chosen[index] % 2)  # that is how `task` labels them
    later = torch.cat([chosen for chosen, _, _ in fleet._batches(rows, which, 11, epoch=1)], dim=1)
    assert not torch.equal(later, torch.cat([chosen for chosen, _, _ in batches], dim=1))


def weights_of(fleet: RaaeFleet) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for state in fleet.parts.values() for value in state.values()])


def test_the_seed_decides_and_the_callers_random_numbers_stay():
    trained = []
    for seed in (1, 1, 2):
        fleet = make_fleet()
        images, rows, which = task(fleet)
        torch.manual_seed(seed + len(trained))
        before = torch.get_rng_state()
        fleet.fit(images, rows, which, epochs=2, batch_size=11, seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        trained.append(weights_of(fleet))
    assert torch.equal(trained[0], trained[1])
    assert not torch.equal(trained[0], trained[2])


@pytest.mark.parametrize(("by_own_size", "expected"), [(False, [4, 4, 4]), (True, [4, 4, 1])])
def test_a_small_last_batch_is_divided_by_the_size_of_a_full_one_unless_told_otherwise(
    monkeypatch, by_own_size, expected
):
    fleet, seen = make_fleet(MEMBERS[:1]), []
    monkeypatch.setattr(fleet, "_step", lambda x, y, weights, divisor, _: seen.append(divisor.tolist()))
    rows, which = [np.arange(9)], [np.arange(9) % 2]
    fleet.fit(random(9, 1, 8, 8), rows, which, epochs=1, batch_size=4, by_own_size=by_own_size)
    assert seen == [[divisor] for divisor in expected]


def test_progress_counts_epochs():
    fleet, calls = make_fleet(), []
    fleet.fit(*task(fleet), epochs=3, batch_size=30, after_epoch=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_training_brings_images_closer_and_the_latent_points_apart():
    rng = np.random.default_rng(0)
    which = np.arange(200) % 2
    blobs = np.zeros((200, 1, 8, 8), dtype=np.float32)
    blobs[which == 0, :, 1:4, 1:7] = rng.uniform(0.6, 1, (100, 1, 1, 1))
    blobs[which == 1, :, 2:7, 4:6] = rng.uniform(0.6, 1, (100, 1, 1, 1))
    images, fleet = torch.from_numpy(blobs), make_fleet(MEMBERS[:1])

    def look():
        with torch.no_grad():
            z = fleet.encode(images[None])
            return z[0, which == 1, 0].mean() - z[0, which == 0, 0].mean(), (fleet.decode(z) - images).square().mean()

    gap, error = look()
    fleet.fit(images, [np.arange(200)], [which], epochs=40, batch_size=40)
    wider, better = look()
    assert better < error / 5
    assert wider > max(3, gap)


def test_weights_can_be_saved_and_loaded_again(tmp_path):
    fleet, fresh = make_fleet(), make_fleet()
    fleet.fit(*task(fleet), epochs=1, batch_size=30)
    assert not torch.equal(weights_of(fleet), weights_of(fresh))
    path = tmp_path / "deep" / "fleet.safetensors"
    fleet.save(path)
    assert fresh.load(path)
    assert torch.equal(weights_of(fleet), weights_of(fresh))
    assert [one.name for one in path.parent.iterdir()] == ["fleet.safetensors"]
    fresh.fit(*task(fresh), epochs=1, batch_size=30)  # loaded weights are still weights
    assert not torch.equal(weights_of(fleet), weights_of(fresh))


def test_a_foreign_file_is_refused_and_nothing_is_touched(tmp_path):
    fleet = make_fleet()
    before = weights_of(fleet)
    for index, other in enumerate(
        (
            make_fleet(MEMBERS[:2]),
            make_fleet([MEMBERS[1], MEMBERS[0], MEMBERS[2]]),
            make_fleet([*MEMBERS[:2], Member((0, 2), 1, 99)]),
            make_fleet(codes=3),
            make_fleet(shape=(1, 9, 8)),
        )
    ):
        other.save(tmp_path / f"{index}.safetensors")
        assert not fleet.load(tmp_path / f"{index}.safetensors")
    (tmp_path / "garbage.safetensors").write_bytes(b"nothing of the kind")
    with pytest.warns(UserWarning, match="is damaged .* its networks are trained again"):
        assert not fleet.load(tmp_path / "garbage.safetensors")
    assert not fleet.load(tmp_path / "missing.safetensors")
    assert torch.equal(weights_of(fleet), before)


def test_acceptance_has_the_thresholds_of_the_paper():
    fooled = np.array([0.39, 0.4, 0.5, 0.6, 0.61, 0.5, 0.5])
    right = np.array([1.0, 0.9, 0.9, 1.0, 1.0, 0.899, 0.2])
    trained = TrainedFleet(make_fleet(), fooled, right, np.zeros(7), np.zeros(7))
    assert trained.accepted.tolist() == [False, True, True, True, False, False, False]


def test_natural_neighbours_are_asked_for_what_is_achievable():
    right = np.array([0.88, 0.8, 0.76, 0.9])
    achievable = np.array([1.0, 0.87, 0.87, 1.0])
    trained = TrainedFleet(make_fleet(), np.full(4, 0.5), right, np.zeros(4), np.zeros(4), achievable)
    assert trained.accepted.tolist() == [False, True, False, True]


def test_what_lies_between_the_clusters_may_be_recognised():
    fooled, clear = np.array([0.6, 0.66, 0.66, 0.39]), np.array([0.6, 0.6, 0.61, 0.5])
    trained = TrainedFleet(make_fleet(), fooled, np.ones(4), np.zeros(4), np.zeros(4), 0.86, clear)
    assert trained.accepted.tolist() == [True, True, False, False]


def test_margins_are_those_of_the_best_rule():
    rng = np.random.default_rng(0)
    which = np.arange(1600) % 2
    images = rng.normal(0, 0.2, (1600, 1, 8, 8)).astype(np.float32)
    images[:, 0, 0, 0] += 0.2 * which
    images[:, 0, 5, 5] += 0.2 * which
    best = 0.5 * (
        1 + math.erf(math.sqrt(2) / 2 / math.sqrt(2))
    )  # of Gaussians whose means lie sqrt(2) deviations apart
    chosen, margin = acceptance.margins(images, which)
    assert sorted(chosen.tolist()) == list(range(1600))
    assert (margin > 0).mean() == pytest.approx(best, abs=0.06)
    truth = (images[:, 0, 0, 0] + images[:, 0, 5, 5] - 0.2) * (2 * which - 1)  # the best rule's, up to a factor
    assert np.corrcoef(truth[chosen], margin)[0, 1] > 0.7
    assert acceptance.margins(images[:4], which[:4])[1].tolist() == [1.0] * 4


def test_only_pairs_that_fall_short_are_measured_against_a_classifier(monkeypatch):
    fleet = make_fleet()
    images, rows, which = task(fleet, 60)
    rows, which = [rows[0]] * 3, [which[0]] * 3  # all autoencoders of a pair have the same images
    asked = []

    def found(x, own, **_):
        asked.append(len(x))
        return np.arange(len(x)), np.where(np.arange(len(x)) % 10 < 7, 2.0, -1.0)

    monkeypatch.setattr(acceptance, "margins", found)
    monkeypatch.setattr(acceptance, "TELLS_APART", 1.1)
    judged = examine(fleet, images, rows, which, seed=0, acceptance="achievable")
    assert len(asked) == 2  # three autoencoders of two pairs
    assert judged.achievable == pytest.approx([0.7] * 3, abs=0.02)
    plain = examine(fleet, images, rows, which, seed=0)
    assert plain.achievable.tolist() == [1.0] * 3
    assert plain.fooled.tolist() == judged.fooled.tolist()
    assert plain.fooled_clear.tolist() == plain.fooled.tolist()
    assert len(asked) == 2


def test_the_clear_images_alone_are_compared_with_the_prior(monkeypatch):
    fleet = make_fleet()
    images, rows, which = task(fleet, 60)
    rows, which = [rows[0]] * 3, [which[0]] * 3
    clear = np.arange(len(rows[0])) % 3 == 0

    def found(x, own, **_):
        return np.arange(len(x)), np.where(np.arange(len(x)) % 3 == 0, 1.5, 0.5)

    monkeypatch.setattr(acceptance, "margins", found)
    monkeypatch.setattr(acceptance, "TELLS_APART", 1.1)
    judged = examine(fleet, images, rows, which, seed=4, acceptance="achievable")
    model, x, y = module_of(fleet, 0), images[rows[0]], torch.from_numpy(which[0])
    with torch.no_grad():
        z = model.encoder(x)
        fake = fleet.only(0).discriminate(z[None], y[None])[0] <= 0
    everything = judged.fooled[0] * 2 - float(fake.float().mean())  # what is right about points of the prior
    assert judged.fooled_clear[0] * 2 == pytest.approx(everything + float(fake[torch.from_numpy(clear)].float().mean()))


def test_an_examination_counts_what_a_loop_counts():
    fleet = make_fleet()
    images, rows, which = task(fleet, 60)
    fleet.fit(images, rows, which, epochs=3, batch_size=20)
    before = torch.get_rng_state()
    found = examine(fleet, images, rows, which, seed=4)
    again = examine(fleet, images, rows, which, seed=4)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(found.fooled, again.fooled)
    for index in range(3):
        model, x, y = module_of(fleet, index), images[rows[index]], torch.from_numpy(which[index])
        with torch.no_grad():
            z = model.encoder(x)
            decoded = model.decoder(z)
            logits = torch.cat(
                [model.discriminator(torch.cat([z, torch.eye(2)[[k] * len(z)]], dim=1)) for k in (0, 1)], dim=1
            )
        assert found.class_accuracy[index] == pytest.approx((logits.argmax(dim=1) == y).double().mean().item())
        assert found.reconstruction[index] == pytest.approx(functional.mse_loss(decoded, x).item(), rel=1e-4)
        assert found.blur[index] == pytest.approx(np.quantile(sharpness(decoded.numpy()), 0.05), rel=1e-4)
        # Half of the accuracy comes from the images, which are known; the other half from fresh points of the prior.
        on_fake = (logits[torch.arange(len(y)), y] <= 0).double().mean().item()
        assert 0 <= 2 * found.fooled[index] - on_fake <= 1


def test_the_blur_of_sorted_images_is_measured_on_both_classes(monkeypatch):
    shown = []
    images = torch.cat([torch.zeros(30, 1, 8, 8), torch.ones(30, 1, 8, 8)])
    monkeypatch.setattr(acceptance, "BLURRED", 10)
    monkeypatch.setattr(RaaeFleet, "decode", lambda fleet, z: images[None])
    monkeypatch.setattr(acceptance, "sharpness", lambda some: shown.append(some) or sharpness(some))
    examine(make_fleet(MEMBERS[:1]), images, [np.arange(60)], [np.repeat([0, 1], 30)], seed=0)
    assert shown[0].shape == (10, 1, 8, 8)
    assert shown[0].mean() == pytest.approx(0.5)
