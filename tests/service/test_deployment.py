"""The files in `deploy/` fit the service that they deploy."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
pytest.importorskip("prometheus_client")

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))


@pytest.fixture(scope="module")
def dashboard():
    return json.loads((DEPLOY / "grafana/dashboard.json").read_text("utf-8"))


def test_the_commands_have_options_that_exist(compose):
    from secondguess.cli.guard_service import serve

    known = {f"--{name.replace('_', '-')}" for name in serve.__annotations__}
    image = dict(re.findall(r"^(ENTRYPOINT|CMD) (\[.*\])$", (DEPLOY / "Dockerfile").read_text("utf-8"), re.MULTILINE))
    assert json.loads(image["ENTRYPOINT"]) == ["secondguess"]
    for words in (compose["services"]["guard"]["command"], json.loads(image["CMD"])):
        assert words[:3] == ["guard", "serve", "/guard"]
        assert {word for word in words if word.startswith("--")} <= known


def test_the_image_installs_extras_that_exist_and_is_no_root():
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    extras = re.search(r'"\.\[([a-z,]+)\]"', text)[1].split(",")
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras)
    copied = [word for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    steps = re.findall(r"^([A-Z]+) ", text, re.MULTILINE)
    assert re.match(r"(#.*\n)*FROM [a-z/]+:[\w.-]+\n", text)  # a version, not whatever is latest
    known = r"FROM|WORKDIR|COPY|RUN|USER|ENV|EXPOSE|HEALTHCHECK|STOPSIGNAL|ENTRYPOINT|CMD"
    assert all(re.fullmatch(known, step) for step in steps)
    assert [line for line in text.splitlines() if line and not re.match(r"#|[A-Z]+ ", line)] == []
    assert steps.index("USER") < steps.index("ENTRYPOINT")
    assert re.search(r"^USER (?!root)", text, re.MULTILINE)
    assert "/readyz" in re.search(r"^HEALTHCHECK .*$", text, re.MULTILINE)[0]


def test_services_name_files_volumes_and_services_that_exist(compose):
    services = compose["services"]
    for name, service in services.items():
        assert ("image" in service) != ("build" in service), name
        assert ":latest" not in service.get("image", "x:1") and ":" in service.get("image", "x:1")
        assert set(service.get("depends_on", ())) <= set(services)
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).is_file(), volume
            elif not source.startswith("$"):
                assert source in compose["volumes"], volume
    assert "ports" not in services["records"]
    assert "ports" not in services["guard"]


def test_prometheus_asks_the_service_with_its_token(compose):
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text("utf-8"))["scrape_configs"]
    assert job["dns_sd_configs"][0]["names"] == ["guard"]
    assert job["authorization"]["credentials_file"] == "/run/secrets/token"
    assert "token" in compose["services"]["prometheus"]["secrets"]


def test_the_dashboard_shows_metrics_that_the_service_has(dashboard, tmp_path):
    from secondguess.service.api import Service
    from secondguess.service.records import Record, Records
    from service_house import TOKEN, subject

    service = Service(subject(), Records(str(tmp_path / "records.sqlite")), TOKEN)
    service.metrics.request(200, 0.01)
    service.metrics.judged([Record(0, "r", "p", 0, "a", 0.9, 0.5, "nominal", "accept", 0)])
    page = service.metrics.page().decode()
    service.records.close()
    shown = set(re.findall(r"secondguess_\w+", json.dumps(dashboard["panels"])))
    assert len(shown) > 8
    for name in shown:
        assert re.search(rf"^{name}(\{{| )", page, re.MULTILINE), name
    labels = set(re.findall(r"sum by \((\w+)\)", json.dumps(dashboard["panels"])))
    assert labels and all(f'{label}="' in page for label in labels)


def test_the_dashboard_holds_together(dashboard):
    datasource = yaml.safe_load((DEPLOY / "grafana/datasource.yml").read_text("utf-8"))["datasources"][0]
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        assert panel["datasource"]["uid"] == datasource["uid"]
        place = panel["gridPos"]
        cells = {(place["x"] + right, place["y"] + down) for right in range(place["w"]) for down in range(place["h"])}
        assert max(column for column, _ in cells) < 24 and not cells & taken
        taken |= cells
