from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from secondguess import UserError, __version__, load, load_images, supervisors


def test_version(run):
    outcome = run("--version")
    assert (outcome.code, outcome.out) == (0, f"secondguess {__version__}\n")


def test_arguments_in_messages_are_spelt_as_options():
    from secondguess.cli.wording import in_options

    assert in_options("Lower `min_confidence`, or `use` another `model`.") == (
        "Lower --min-confidence, or `use` another --model."
    )


@pytest.mark.parametrize(
    ("words", "example"),
    [
        (["--help"], "secondguess audit"),
        (["audit", "--help"], "secondguess audit --model resnet20.onnx --test photos/test"),
        (["data", "--help"], "secondguess data mnist5k --export digits.parquet"),
        (["supervisors", "-h"], "secondguess supervisors entropy"),
        (["bench", "--help"], "observe"),
    ],
)
def test_help_shows_examples(run, words, example):
    outcome = run(*words)
    assert outcome.code == 0
    assert example in " ".join(outcome.out.split())


def test_an_unknown_option_is_refused_with_a_suggestion(run):
    outcome = run("audit", "--modle", "x.onnx")
    assert outcome.code == 2
    assert outcome.out == ""
    assert "No such option" in outcome.err and "--model" in outcome.err


def test_usage_errors_are_json_too(run):
    outcome = run("audit", "--epochs", "0", "--json")
    assert outcome.code == 2
    assert "--epochs" in outcome.json()["error"]


def test_data_lists_the_embedded_sets(run):
    assert [card["name"] for card in run("data", "--json").json()["datasets"]] == ["mnist5k", "digits", "photos"]
    assert "4,000 + 1,000 images of 1 x 28 x 28" in run("data").out


def test_data_describes_a_set(run):
    card = run("data", "digits", "--json").json()
    digits = load("digits")
    assert card["fingerprint"] == digits.fingerprint
    assert card["test"]["images"] == len(digits.test)
    text = run("data", "digits").out
    assert "1,437 images" in text and digits.test.fingerprint in text


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_data_exports_what_can_be_loaded_again(run, tmp_path, suffix):
    outcome = run("data", "digits", "--export", f"copy{suffix}")
    assert outcome.code == 0 and f"Written: copy{suffix}" in outcome.out
    copy, original = load_images(tmp_path / f"copy{suffix}"), load("digits").test
    np.testing.assert_array_equal(copy.labels, original.labels)
    np.testing.assert_allclose(copy.images[:], original.images[:], atol=0.5 / 255)


def test_data_refuses_other_formats(run):
    outcome = run("data", "digits", "--export", "copy.csv")
    assert outcome.code == 2
    assert outcome.err == "Error: copy.csv ends in '.csv'; data can be exported to .npz and .parquet.\n"


def test_supervisors_are_listed_and_described(run):
    listed = run("supervisors", "--json").json()["supervisors"]
    assert [card["name"] for card in listed] == supervisors.names()
    assert "entropy" in run("supervisors").out
    card = run("supervisors", "entropy", "--json").json()
    assert card["needs"] == ["probabilities"] and card["requires_fit"] is False
    assert "probabilities" in run("supervisors", "entropy").out


def test_the_list_of_supervisors_is_a_table_of_families(run):
    cards = run("supervisors", "--json").json()["supervisors"]
    lines = run("supervisors").out.splitlines()
    assert lines[0].split() == ["needs", "fit", "suspicious", "is"]
    headings = [line for line in lines if not line.startswith((" ", "*"))]
    assert headings == list(dict.fromkeys(card["family"] for card in cards))
    rows = {line.split()[0].rstrip("*"): line for line in lines if line.startswith("  ") and line.split()[0] != "needs"}
    assert rows.keys() == {card["name"] for card in cards}
    for card in cards:
        needs = ", ".join(sorted(set(card["needs"]) - {"probabilities"})) or "-"
        said = card["summary"].removeprefix("Suspicious = ")
        assert f"{needs} " in rows[card["name"]] and rows[card["name"]].endswith(f"  {said}")
        assert (" yes " if card["requires_fit"] else " no ") in rows[card["name"]]
    assert "-" in rows["entropy"].split()


def test_expensive_supervisors_are_marked(run, monkeypatch):
    from secondguess.supervisors.softmax import Entropy

    assert run("supervisors", "entropy", "--json").json()["expensive"] is False
    assert "*" not in run("supervisors", "entropy").out
    monkeypatch.setattr(Entropy, "expensive", True, raising=False)
    listed = run("supervisors").out
    assert "  entropy*" in listed and "* expensive: not in an audit unless named, or" in listed
    assert run("supervisors", "entropy", "--json").json()["expensive"] is True


def test_errors_are_one_sentence_and_exit_code_2(run):
    outcome = run("supervisors", "entropie")
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err == "Error: There is no supervisor 'entropie'; did you mean 'entropy'?\n"


def test_errors_are_json_where_json_was_asked_for(run):
    outcome = run("supervisors", "entropie", "--json")
    assert outcome.code == 2
    assert outcome.json() == {"error": "There is no supervisor 'entropie'; did you mean 'entropy'?"}


def test_debug_shows_the_traceback(run):
    with pytest.raises(UserError, match="no supervisor"):
        run("supervisors", "entropie", "--debug")


def test_bench_observe_prints_the_overhead(run):
    words = ["bench", "observe", "--count", "64", "--repeats", "2", "--device", "cpu"]
    rows = run(*words, "--json").json()["rows"]
    assert rows[0]["work"] == "bare forward pass"
    assert rows[0]["ratio"] == 1.0
    assert all(row["overhead"] == pytest.approx(row["ratio"] - 1) for row in rows)
    assert "overhead" in run(*words, "--quiet").out


def test_bench_fleet_compares_with_the_loop(run):
    words = ["bench", "fleet", "--members", "2", "--count", "40", "--architecture", "icos_a", "--device", "cpu"]
    rows = run(*words, "--json").json()["rows"]
    assert [row["mode"] for row in rows] == ["loop", "stacked", "auto"]
    assert all(row["speed_up"] == pytest.approx(rows[0]["seconds"] / row["seconds"]) for row in rows)
    assert "x the loop" in run(*words, "--quiet").out


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["supervisors"]])
def test_light_commands_do_not_import_torch(words):
    code = f"import sys; from secondguess.cli import main; main({words!r}); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_python_dash_m_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "secondguess", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, f"secondguess {__version__}")
