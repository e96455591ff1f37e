"""What secondguess is built on: licences, a software bill of materials (SBOM), and known vulnerabilities.

python -m secondguess_lab.supply licences           one line for each package
python -m secondguess_lab.supply sbom --out FILE     CycloneDX 1.5, JSON
python -m secondguess_lab.supply audit               pip-audit over the same packages

The packages are those that are installed here of what `secondguess` asks for, with all its extras, and of what these
ask for in turn. Only `audit` needs the network: the advisories of PyPI.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from secondguess.errors import UserError
from secondguess.files import write_json

__all__ = ["Package", "audit", "main", "packages", "sbom"]

ROOT = "secondguess"
LONGEST = 80  # letters of a licence; some packages put the whole text there
CLASSIFIER = "License :: OSI Approved :: "


@dataclass(frozen=True)
class Package:
    """An installed package.

    Attributes:
        name: as PyPI writes it, in lower case with hyphens.
        version: that is installed.
        licence: as the package says; "unknown" where it does not.
        needs: names of the packages that it asks for and that are installed.
    """

    name: str
    version: str
    licence: str
    needs: tuple[str, ...]

    @property
    def url(self) -> str:
        """Its package URL (purl)."""
        return f"pkg:pypi/{self.name}@{self.version}"


def packages(root: str = ROOT) -> list[Package]:
    """A package and what it needs, in the order of names; what is not installed is left out."""
    found: dict[str, Package] = {}
    waiting = [(_plain(root), frozenset(metadata.metadata(root).get_all("Provides-Extra") or ()))]
    extras_of: dict[str, frozenset[str]] = {}
    while waiting:
        name, extras = waiting.pop()
        known = extras_of.get(name, frozenset())
        if name in found and extras <= known:
            continue
        extras_of[name] = extras | known
        try:
            about = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        needs = dict(_needs(about, extras_of[name]))
        present = tuple(sorted(other for other in needs if other != name and _is_installed(other)))
        found[name] = Package(name, about.version, _licence(about.metadata), present)
        waiting += needs.items()
    return [found[name] for name in sorted(found)]


def sbom(known: Sequence[Package]) -> dict[str, Any]:
    """A CycloneDX 1.5 document of these packages, of which one is secondguess itself."""
    (root,) = (one for one in known if one.name == ROOT)
    others = [one for one in known if one.name != ROOT]
    by_name = {one.name: one for one in known}
    content = json.dumps([(one.name, one.version) for one in known])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": _component(root) | {"type": "application"},
        },
        "components": [_component(one) for one in others],
        "dependencies": [
            {"ref": one.url, "dependsOn": [by_name[name].url for name in one.needs if name in by_name]} for one in known
        ],
    }


def audit(known: Sequence[Package]) -> list[dict[str, Any]]:
    """The known vulnerabilities of these packages, by pip-audit: `{"name", "version", "id", "fixed_in"}`.

    Raises:
        UserError: pip-audit is not installed, or could not reach its source.
    """
    if find_spec("pip_audit") is None:
        raise UserError("pip-audit is not installed, so nothing was looked up; install it with: pip install pip-audit")
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "requirements.txt"
        asked.write_text("".join(f"{one.name}=={one.version.partition('+')[0]}\n" for one in known if one.name != ROOT))
        options = ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
        done = subprocess.run(
            [sys.executable, "-m", "pip_audit", "--requirement", str(asked), *options],
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        answer = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError) as error:
        said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise UserError(
            f"pip-audit could not look anything up ({said[:300]}), so nothing is known; try again where pypi.org can "
            "be reached."
        ) from error
    return [
        {"name": one["name"], "version": one["version"], "id": found["id"], "fixed_in": found.get("fix_versions", [])}
        for one in answer
        for found in one.get("vulns", [])
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit code 1 if there are vulnerabilities, 2 if nothing could be found out."""
    parser = argparse.ArgumentParser(prog="python -m secondguess_lab.supply", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["licences", "sbom", "audit"])
    parser.add_argument("--out", type=Path, help="a file for the SBOM; standard output if left out")
    chosen = parser.parse_args(arguments)
    known = packages()
    try:
        if chosen.what == "licences":
            _say(f"{one.name:<28} {one.version:<16} {one.licence}" for one in known)
        elif chosen.what == "sbom" and chosen.out is not None:
            write_json(chosen.out, sbom(known))
        elif chosen.what == "sbom":
            _say([json.dumps(sbom(known), indent=2)])
        else:
            return _audited(known)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _audited(known: Sequence[Package]) -> int:
    found = audit(known)
    _say(
        f"{one['name']} {one['version']}: {one['id']}, fixed in {', '.join(one['fixed_in']) or 'no version yet'}"
        for one in found
    )
    _say([f"{len(found)} known vulnerabilities in {len(known)} packages."])
    return 1 if found else 0


def _needs(about: metadata.Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Names of the packages that a package with these extras asks for here, with the extras that it asks of them."""
    from packaging.requirements import Requirement

    for text in about.requires or ():
        wanted = Requirement(text)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            yield _plain(wanted.name), frozenset(wanted.extras)


def _licence(about: Any) -> str:
    expression = about.get("License-Expression")
    if expression:
        return str(expression)
    classified = [
        one.removeprefix(CLASSIFIER) for one in about.get_all("Classifier") or () if one.startswith(CLASSIFIER)
    ]
    stated = " ".join((about.get("License") or "").split())
    return ", ".join(classified) or (stated if 0 < len(stated) <= LONGEST else "") or "unknown"


def _component(one: Package) -> dict[str, Any]:
    licences = [] if one.licence == "unknown" else [{"license": {"name": one.licence}}]
    return {
        "type": "library",
        "bom-ref": one.url,
        "name": one.name,
        "version": one.version,
        "purl": one.url,
        "licenses": licences,
    }


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _say(lines: Any) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
