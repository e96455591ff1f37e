"""`secondguess label` from the outside: a process, its port, its folder."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import typer
from label_house import Server
from torch import nn

from secondguess.cli.label import label
from secondguess.errors import UserError
from secondguess.images import ImageSet, load, load_images, save_npz
from secondguess.search.pool import Pool
from secondguess.supervisors import Supervisor
from secondguess.web.access import Keys
from secondguess.web.server import listen, serve

Run = Callable[..., None]


@pytest.fixture
def run(house: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command in this process, in an empty folder; what would be served is not."""
    monkeypatch.syspath_prepend(house)
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(label)
    return lambda *words: app([str(word) for word in words], standalone_mode=False)


@pytest.fixture
def about(house: Path) -> list[str]:
    """A model and its images, with all that they need."""
    return ["--model", "label_models:make_model", "--images", str(house / "incoming.npz"), "--size", "8"]


@contextmanager
def opened(server: Server) -> Iterator[httpx.Client]:
    """Somebody who has opened the link and speaks as the page does."""
    home = f"http://127.0.0.1:{server.port}"
    with httpx.Client(base_url=home, trust_env=False) as client:
        page = client.get(server.link)
        assert page.status_code == 200
        csrf = page.text.partition('name="csrf-token" content="')[2].partition('"')[0]
        client.headers.update({"origin": home, "x-csrf-token": csrf})
        yield client


def posted(client: httpx.Client, path: str, **body: Any) -> Any:
    answer = client.post(f"/api/{path}", json={"annotator": "Ada"} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def announce_only(
    app: Any, keys: Keys, listening: socket.socket, *, announce: Callable[[str], None], browser: bool
) -> None:
    """In place of the server: the link is told, and the session is over once the distances are measured."""
    announce("the link")
    await_distances()
    listening.close()


def await_distances() -> None:
    """Let the thread end that measures behind the page."""
    for thread in threading.enumerate():
        if thread.name == "distances":
            thread.join()


def test_a_session_survives_a_kill(
    serve_in_process: Callable[..., Server], run: Run, about: list[str], tmp_path: Path
) -> None:
    words = [*about, "--min-confidence", "0", "--out", tmp_path / "labels"]
    server = serve_in_process("--search", "low-confidence")
    assert server.labelled == 0
    with opened(server) as client:
        state = posted(client, "next")
        for i in range(5):
            state = posted(client, "answer", image=state["question"]["image"], classes=[i], key=f"answer-{i}")
    server.end(signal.SIGKILL)
    again = serve_in_process("--search", "low-confidence")
    assert (again.link, again.labelled) == (server.link, 5)  # the open page finds it again
    with opened(again) as client:
        after = posted(client, "next")
        assert after["question"] == state["question"]
        assert after["progress"] == state["progress"]
    with pytest.raises(UserError, match=r"Another process is labelling into .*labels; go on in its page"):
        run(*words, "--search", "low-confidence")
    assert_only_this_machine_is_served(again)
    run("--export", "csv", "--out", tmp_path / "labels")  # while the page is open
    assert len((tmp_path / "labels/labels.csv").read_text().splitlines()) == 6
    assert again.end(signal.SIGINT) == ""
    assert again.process.returncode == 0
    with pytest.raises(UserError, match='were begun with search "low_confidence", not "random"'):
        run(*words, "--search", "random")
    assert stat.S_IMODE((tmp_path / "labels/.access.json").stat().st_mode) == 0o600


def assert_only_this_machine_is_served(server: Server) -> None:
    home = f"http://127.0.0.1:{server.port}"
    with httpx.Client(trust_env=False) as client:
        assert client.get(f"{home}/").status_code == 401
        assert client.get(server.link, headers={"host": "evil.example"}).status_code == 403
        refused = client.post(f"{home}/api/next", json={"annotator": "Eve"}, headers={"origin": "http://evil.example"})
        assert refused.status_code == 401
        assert "server" not in refused.headers
    elsewhere = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in elsewhere - {"127.0.0.1"}:
        with pytest.raises(OSError), socket.create_connection((address, server.port), timeout=2):
            pass


def test_distances_are_measured_for_what_may_be_asked_about(
    run: Run, about: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that is only a function, with no gradients: measured, kept, and not measured again."""
    served: list[Any] = []
    monkeypatch.setattr("secondguess.web.server.serve", announce_only)
    monkeypatch.setattr(
        "secondguess.labelling.explaining.explainer", lambda classifier, current, album: served.append(current)
    )
    words = [*about, "--min-confidence", "0.9", "--budget", "250", "--out", tmp_path / "labels", "--no-browser"]
    run(*words)
    pool = served[0]()
    assert pool.distances is not None
    assert 0 < pool.size < 60
    measured = pool.distances.queries > 0
    np.testing.assert_array_equal(measured, pool.eligible)
    assert (pool.distances.queries <= 250).all()
    assert np.isinf(pool.distances.mae[~pool.eligible]).all()
    assert isinstance(pool.distances.counterexamples, np.memmap)  # on disk: they are as large as all images together
    assert Path(str(pool.distances.counterexamples.filename)).parent == tmp_path / "labels/distances"
    known = ~pool.distances.failed
    np.testing.assert_allclose(
        pool.distances.mae[known],
        np.abs(pool.distances.counterexamples[known] - pool.images.materialise()[known]).mean(axis=(1, 2, 3)),
        rtol=1e-5,
    )
    assert "Images labelled: 0, errors found: 0." in capsys.readouterr().out


def test_answers_that_cannot_be_used_end_no_session_and_are_told(
    run: Run, house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model has no answer to changed images that are dark."""
    (tmp_path / "sick_models.py").write_text(
        "import numpy as np\n"
        "from label_models import make_model as make_well\n"
        "def make_model():\n"
        "    well = make_well()\n"
        "    def answer(images):\n"
        "        changed = np.abs(16 * images - np.rint(16 * images)).max(axis=(1, 2, 3)) > 1e-3\n"
        "        dark = images.mean(axis=(1, 2, 3)) < 0.28\n"
        "        return np.where((changed & dark)[:, None], np.nan, well(images))\n"
        "    return answer\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("secondguess.web.server.serve", announce_only)
    words = [
        "--model",
        "sick_models:make_model",
        "--images",
        house / "incoming.npz",
        "--size",
        "8",
        "--min-confidence",
        "0",
    ]
    run(*words, "--budget", "200", "--out", tmp_path / "labels", "--no-browser")
    said = capsys.readouterr().out
    unusable = r"^[\d,]+ questions about \d+ images had no answer that can be used \(NaN or an error\);"
    assert re.search(unusable, said, re.MULTILINE)
    assert "60 images may be asked about." in said


def test_an_image_that_the_model_cannot_answer_is_left_out_and_told(
    run: Run, house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NaN for one of the images themselves: it keeps its number, and nobody is asked about it."""
    np.save(tmp_path / "bad.npy", load_images(house / "incoming.npz", size=8).images[[4]])
    (tmp_path / "blind_models.py").write_text(
        "import numpy as np\n"
        "from label_models import make_model as make_well\n"
        "def make_model():\n"
        f"    well, bad = make_well(), np.load({str(tmp_path / 'bad.npy')!r})\n"
        "    def answer(images):\n"
        "        same = (images == bad).all(axis=(1, 2, 3))\n"
        "        return np.where(same[:, None], np.nan, well(images))\n"
        "    return answer\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    served: list[Any] = []
    monkeypatch.setattr("secondguess.web.server.serve", announce_only)
    monkeypatch.setattr(
        "secondguess.labelling.explaining.explainer", lambda classifier, current, album: served.append(current)
    )
    words = [
        "--model",
        "blind_models:make_model",
        "--images",
        house / "incoming.npz",
        "--size",
        "8",
        "--min-confidence",
        "0",
    ]
    run(*words, "--budget", "200", "--out", tmp_path / "labels", "--no-browser")
    assert np.flatnonzero(~served[0]().eligible).tolist() == [4]
    said = capsys.readouterr().out
    assert said.startswith("The model had no usable answer (NaN or an error) to 1 of 60 images; these are left out.\n")
    assert "59 images may be asked about." in said
    run(*words, "--search", "low-confidence", "--json", "--out", tmp_path / "others", "--no-browser")
    assert json.loads(capsys.readouterr().out)["unanswered"] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "There is nothing to label; say with --model and --images"),
        (["--classes", "a,b"], "gives 10 classes, but 2 class names"),
        (["--min-confidence", "0.999999999"], "None of the 60 images is given any class with a confidence above"),
        (["--critical", "owl"], "There is no class 'owl'"),
        (["--search", "psychic"], "There is no search 'psychic'"),
        (["--budget", "2"], "A budget of 2 queries per image was given"),
        (["--attack", "kindness"], "kindness"),
        (["--train", "digits"], "Training images were given, but no supervisors to fit on them; name supervisors"),
        (
            ["--search", "adversarial-distance", "--supervisors", "entropy"],
            "the search 'adversarial_distance' does not use their scores",
        ),
    ],
)
def test_mistakes_are_told_before_anything_is_served(
    run: Run, about: list[str], words: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        run("--out", tmp_path / "labels", *(about if words else []), *words)
    run_again = [*about, "--search", "psychic", "--out", tmp_path / "labels"]
    with pytest.raises(UserError, match="psychic"):  # neither settings nor a lock are left behind
        run(*run_again)


@pytest.fixture
def watched(run: Run, house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pool]:
    """`watched("--supervisors", "knn")` runs an adaptive session of a network with layers, and returns its pool."""
    (tmp_path / "layered_models.py").write_text(
        "import torch\n"
        "def make_model():\n"
        "    torch.manual_seed(0)\n"
        "    layers = torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), *layers)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    pools: list[Callable[[], Pool]] = []
    monkeypatch.setattr("secondguess.web.server.serve", announce_only)
    monkeypatch.setattr(
        "secondguess.labelling.explaining.explainer", lambda classifier, current, album: pools.append(current)
    )

    def call(*words: object) -> Pool:
        about = ["--model", "layered_models:make_model", "--images", house / "incoming.npz", "--size", "8"]
        settings = [
            "--min-confidence",
            "0",
            "--search",
            "adaptive",
            "--attack",
            "gradient",
            "--device",
            "cpu",
            "--no-browser",
        ]
        run(*about, *settings, "--out", tmp_path / "labels", *words)
        return pools[-1]()

    return call


def test_the_adaptive_search_is_given_the_scores_of_supervisors(watched: Callable[..., Pool]) -> None:
    pool = watched("--supervisors", "knn:k=3, entropy", "--train", "digits")
    assert set(pool.scores) == {"knn", "entropy"}
    p = pool.observation.probabilities
    np.testing.assert_allclose(pool.scores["entropy"], -(p * np.log2(p)).sum(axis=1), rtol=1e-5)
    hidden = make_layered()[:-1]
    train = load("digits").train
    assert train is not None
    with torch.no_grad():
        known, new = (hidden(torch.from_numpy(one.materialise())).double() for one in (train, pool.images))
    apart = torch.cdist(nn.functional.normalize(new), nn.functional.normalize(known))
    np.testing.assert_allclose(pool.scores["knn"], apart.sort(dim=1).values[:, 2].numpy(), atol=1e-5)
    assert pool.distances is not None


def make_layered() -> nn.Sequential:
    from layered_models import make_model  # written by `watched`

    made: nn.Sequential = make_model()
    return made


def test_another_supervisor_is_another_session(watched: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--supervisors", "knn:k=3,entropy", "--train", "digits"]
    first = watched(*words)
    again = watched("--supervisors", "entropy, knn:k=3", "--train", "digits")  # in any order
    np.testing.assert_array_equal(first.scores["knn"], again.scores["knn"])

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("fitted before the settings were compared")

    monkeypatch.setattr("secondguess.search.find.add_scores", refuse)
    with pytest.raises(UserError, match=r'were begun with supervisors \["entropy", "knn:k=3"\], not \["entropy"\]'):
        watched("--supervisors", "entropy")
    with pytest.raises(UserError, match=r'were begun with supervisors \["entropy", "knn:k=3"\], not null'):
        watched()
    with pytest.raises(UserError, match=r"were begun with train \"\w+\", not"):
        watched(*words[:3], "mnist5k")


def test_supervisors_are_fitted_at_the_first_start_only(
    watched: Callable[..., Pool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--supervisors", "knn:k=3,entropy", "--train", "digits"]
    fits: list[str] = []
    fit = Supervisor.fit

    def counted(self: Supervisor, *given: Any) -> Supervisor:
        fits.append(self.name)
        return fit(self, *given)

    monkeypatch.setattr(Supervisor, "fit", counted)
    first = watched(*words)
    again = watched(*words)
    assert fits == ["knn"]
    assert {name: values.tolist() for name, values in again.scores.items()} == {
        name: values.tolist() for name, values in first.scores.items()
    }
    kept = tmp_path / "labels/scores.npz"
    other = io.BytesIO()
    np.savez(other, about=np.array("another session"), **again.scores)
    for content in (kept.read_bytes()[:-20], b"", other.getvalue()):
        kept.write_bytes(content)
        np.testing.assert_array_equal(watched(*words).scores["knn"], first.scores["knn"])
    assert fits == ["knn"] * 4, "a damaged file, or one about something else, is made again"


def test_supervisors_that_learn_nothing_need_no_training_images(watched: Callable[..., Pool]) -> None:
    assert set(watched("--supervisors", "entropy,pcs").scores) == {"entropy", "pcs"}
    assert set(watched("--supervisors", "entropy,pcs", "--train", "nowhere").scores) == {"entropy", "pcs"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--supervisors", "knn"], "The supervisor 'knn' must be fitted first; give labelled images .* as train"),
        (["--supervisors", "psychic"], "There is no supervisor 'psychic'"),
        (["--supervisors", ","], "The list of supervisors is empty; give names"),
        (
            ["--supervisors", "knn:k=2,knn:k=2", "--train", "digits"],
            "The supervisor 'knn:k=2' was given more than once",
        ),
        (["--supervisors", "knn", "--train", "photos"], "photos have no labels; give labelled ones"),
        (
            ["--supervisors", "knn", "--train", "fashion.npz"],
            r"fashion.npz has the class 'coat', which the model has not; its classes are 0, 1",
        ),
    ],
)
def test_mistakes_about_supervisors_are_told_before_anything_is_measured(
    watched: Callable[..., Pool], words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secondguess.search.find.make_pool", None)
    pixels = np.zeros((10, 8, 8), dtype=np.uint8)
    save_npz(ImageSet.from_arrays(pixels, np.arange(10) % 2, class_names=["coat", "hat"]), tmp_path / "fashion.npz")
    with pytest.raises(UserError, match=message):
        watched(*words)
    assert not (tmp_path / "labels").exists()


def test_a_black_box_has_no_layers_for_a_supervisor(run: Run, about: list[str], tmp_path: Path) -> None:
    words = [*about, "--search", "adaptive", "--supervisors", "mdsa", "--train", "digits", "--out", tmp_path / "labels"]
    with pytest.raises(UserError, match="The supervisor 'mdsa' needs traces, but"):
        run(*words)


def test_export_without_labels(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There are no labels in"):
        run("--export", "csv", "--out", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_ctrl_c_ends_in_good_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The link is announced when the page can be opened; a browser is sent there; an interrupt is no failure."""
    seen: dict[str, Any] = {}
    sent = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"the page"})

    def announce(link: str) -> None:
        seen["link"] = link

    def browse(link: str) -> None:
        seen["page"] = httpx.get(link, trust_env=False).text
        seen["browsed"] = link
        os.kill(os.getpid(), signal.SIGINT)
        sent.set()

    monkeypatch.setattr("webbrowser.open", browse)
    listening, keys = listen(), Keys.new()
    port = listening.getsockname()[1]
    serve(app, keys, listening, announce=announce)
    assert sent.wait(10)
    assert seen == {"link": keys.link(port), "browsed": keys.link(port), "page": "the page"}
    assert listening.fileno() == -1
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=2)


def test_small_answers_are_sent_at_once() -> None:
    with listen() as listening, socket.create_connection(listening.getsockname(), timeout=5):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_port_is_remembered_but_not_insisted_on(tmp_path: Path) -> None:
    file = tmp_path / "port.json"
    first = listen(remembered=file)
    port = first.getsockname()[1]
    assert first.getsockname()[0] == "127.0.0.1"
    other = listen(remembered=file)  # the first is still in use
    assert other.getsockname()[1] != port
    first.close()
    other.close()
    file.write_text(json.dumps({"port": port}))
    again = listen(remembered=file)
    assert again.getsockname()[1] == port
    with pytest.raises(UserError, match=rf"Port {port} of 127\.0\.0\.1 cannot be used .* give another one with --port"):
        listen(port)
    again.close()
    file.write_text("nonsense")
    listen(remembered=file).close()
    assert json.loads(file.read_text())["port"] > 0
