from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from secondguess_lab import supply

FAKE = """
import json, sys

words = sys.argv
names = [line.partition("==")[0] for line in open(words[words.index("--requirement") + 1])]
assert "secondguess" not in names and "numpy" in names
{what}
"""
FOUND = """
vulns = [{"id": "PYSEC-1", "fix_versions": ["9.9"], "aliases": []}]
found = [{"name": name, "version": "1", "vulns": vulns if name == "numpy" else []} for name in names]
print(json.dumps({"dependencies": found, "fixes": []}))
sys.exit(1)
"""


@pytest.fixture(scope="module")
def known():
    return supply.packages()


def test_what_is_needed_is_found_with_what_that_needs(known):
    names = {one.name: one for one in known}
    assert {"secondguess", "numpy", "torch", "scikit-learn", "joblib", "markupsafe"} <= names.keys()
    assert "BSD" in names["numpy"].licence
    assert names["secondguess"].licence == "Apache-2.0"
    assert "markupsafe" in names["jinja2"].needs
    assert all(len(one.licence) < 200 for one in known)


def test_the_bill_of_materials_is_whole(known, tmp_path):
    assert supply.main(["sbom", "--out", str(tmp_path / "sbom.json")]) == 0
    bill = json.loads((tmp_path / "sbom.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    assert bill["metadata"]["component"]["name"] == "secondguess"
    refs = [one["bom-ref"] for one in bill["components"]] + [bill["metadata"]["component"]["bom-ref"]]
    assert len(set(refs)) == len(refs) == len(known)
    assert all(re.fullmatch(r"pkg:pypi/[a-z0-9-]+@\S+", ref) for ref in refs)
    assert {one["ref"] for one in bill["dependencies"]} == set(refs)
    assert {other for one in bill["dependencies"] for other in one["dependsOn"]} <= set(refs)
    assert supply.sbom(known)["serialNumber"] == bill["serialNumber"], "the same packages, the same number"


def test_licences_are_listed(known, capsys):
    assert supply.main(["licences"]) == 0
    assert re.search(r"^numpy +\S+ +.*BSD", capsys.readouterr().out, re.MULTILINE)


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    (tmp_path / "pip_audit").mkdir()
    (tmp_path / "pip_audit" / "__init__.py").touch()
    (tmp_path / "pip_audit" / "__main__.py").write_text(FAKE.format(what=what) if what != FOUND else FAKE[:-7] + FOUND)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")


def test_vulnerabilities_are_listed(tmp_path, monkeypatch, capsys):
    fake(tmp_path, monkeypatch, FOUND)
    assert supply.main(["audit"]) == 1
    printed = capsys.readouterr().out
    assert "numpy 1: PYSEC-1, fixed in 9.9" in printed
    assert "1 known vulnerabilities in" in printed


def test_a_source_out_of_reach_is_one_sentence(tmp_path, monkeypatch, capsys):
    fake(tmp_path, monkeypatch, "sys.exit('ERROR:pip_audit._cli:Could not connect to PyPI')")
    assert supply.main(["audit"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "could not look anything up (ERROR:pip_audit._cli:Could not connect to PyPI), so nothing is known" in said


def test_without_pip_audit_it_is_said(monkeypatch, capsys):
    monkeypatch.setattr(supply, "find_spec", lambda name: None)
    assert supply.main(["audit"]) == 2
    assert "pip-audit is not installed, so nothing was looked up" in capsys.readouterr().err
