"""The example configurations of docs/service.md, run with the real nginx and Caddy in front of the service."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service_house import TOKEN, Server, picture

DOCS = Path(__file__).parents[2] / "docs" / "service.md"
NAME = "guard.example.org"
PNG = {"content-type": "image/png"}


def example(kind: str) -> str:
    """The configuration in the page, but for its patience with the head of a request, for which tests would wait."""
    (found,) = re.findall(rf"```{kind}\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    found, changed = re.subn(r"(client_header_timeout|read_header) 10s", r"\1 1s", found)
    assert changed == 1
    return str(found)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def certificate(folder: Path) -> None:
    words = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={NAME} -addext subjectAltName=DNS:{NAME}".split()
    subprocess.run(
        ["openssl", *words, "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True
    )


def nginx(folder: Path, port: int, service: str) -> list[str]:
    text = example("nginx").replace("127.0.0.1:8000", service).replace("listen 443", f"listen 127.0.0.1:{port}")
    text = text.replace("/etc/ssl/guard.pem", str(folder / "cert.pem"))
    text = text.replace("/etc/ssl/guard.key", str(folder / "key.pem"))
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"{'user root;' if os.getuid() == 0 else ''} daemon off; pid {folder}/pid; error_log stderr warn; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{text}\n}}\n"
    )
    words = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    checked = subprocess.run([*words, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    return words


def caddy(folder: Path, port: int, service: str) -> list[str]:
    text = example("caddyfile").replace("127.0.0.1:8000", service)
    # No certificate can be had for this name, and nothing is to be listened to but the one port.
    text = text.replace("{\n", "{\n\tadmin off\n\tauto_https disable_redirects\n", 1)
    own = f"{NAME}:{port} {{\n\tbind 127.0.0.1\n\ttls {folder}/cert.pem {folder}/key.pem"
    text = text.replace(f"{NAME} {{", own, 1)
    (folder / "Caddyfile").write_text(text)
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


PROXIES = {"nginx": nginx, "caddy": caddy}


@pytest.fixture(params=list(PROXIES), scope="module")
def proxied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, int, httpx.Client]]:
    """The service, the port of the proxy before it, and a client of the proxy."""
    tmp_path = tmp_path_factory.mktemp(request.param)
    for program in (request.param, "openssl"):
        if shutil.which(program) is None:
            pytest.skip(f"NO TEST OF THE PROXY: {program} is not installed (apt-get install {program})")
    own = dict.fromkeys(("XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME"), str(tmp_path))
    certificate(tmp_path)
    server = Server(str(tmp_path / "records.sqlite"), hosts=NAME)
    port = free_port()
    words = PROXIES[request.param](tmp_path, port, server.address.removeprefix("http://"))
    with (tmp_path / "log").open("w") as log:
        proxy = subprocess.Popen(words, cwd=tmp_path, env=os.environ | own, stdout=log, stderr=log)
    trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    client = httpx.Client(verify=trusted, timeout=30, base_url=f"https://127.0.0.1:{port}")
    client.headers.update({"host": NAME, "authorization": f"Bearer {TOKEN}"})
    client.extensions = {"sni_hostname": NAME}  # type: ignore[attr-defined]
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                assert asked(client, "GET", "/healthz").status_code == 200
                break
            except httpx.TransportError:
                assert proxy.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(0.1)
        yield server, port, client
    finally:
        client.close()
        proxy.send_signal(signal.SIGTERM)
        proxy.wait(30)
        if server.process.poll() is None:
            server.end()


def asked(client: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response:
    return client.request(method, path, extensions={"sni_hostname": NAME}, **options)


def test_predictions_and_refusals_come_through(proxied: tuple[Server, int, httpx.Client]) -> None:
    _, _, client = proxied
    for _ in range(5):
        answer = asked(client, "POST", "/predict", content=picture(), headers=PNG)
        assert answer.status_code == 200 and answer.json()["results"][0]["class_name"] == "grey"
    assert asked(client, "GET", "/readyz").json() == {"status": "ready"}
    for options, status in (
        ({"content": picture(), "headers": PNG | {"authorization": "Bearer wrong"}}, 401),
        ({"content": b"no picture", "headers": PNG}, 422),
        ({"content": b"x" * 8_500_000, "headers": PNG}, 413),
        ({"content": picture(), "headers": {"content-type": "text/html"}}, 415),
    ):
        answer = asked(client, "POST", "/predict", **options)  # type: ignore[arg-type]
        assert answer.status_code == status and answer.json()["detail"].endswith("."), answer.text
    assert asked(client, "POST", "/predict", content=b"x" * 20_000_000, headers=PNG).status_code == 413


def test_metrics_are_not_for_everybody(proxied: tuple[Server, int, httpx.Client]) -> None:
    _, _, client = proxied
    assert asked(client, "GET", "/metrics").status_code == 403


def test_a_request_that_does_not_arrive_never_reaches_the_service(proxied: tuple[Server, int, httpx.Client]) -> None:
    server, port, _ = proxied
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as bare,
        context.wrap_socket(bare, server_hostname=NAME) as line,
    ):
        line.sendall(f"POST /predict HTTP/1.1\r\nHost: {NAME}\r\nContent-Le".encode())
        line.settimeout(25)
        try:  # nginx answers 408, Caddy just closes
            heard = line.recv(4096)
        except (ConnectionError, ssl.SSLError):
            heard = b""
        assert heard == b"" or b" 408 " in heard[:40] or b" 400 " in heard[:40], heard
    counted = httpx.get(f"{server.address}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).text
    assert 'secondguess_ended_connections_total{reason="head"} 0.0' in counted


def test_connections_that_the_service_has_closed_are_not_used_again(proxied: tuple[Server, int, httpx.Client]) -> None:
    """The service closes idle connections after 30 seconds; a proxy that keeps them longer answers 502."""
    _, _, client = proxied
    for pause in (0, 0.5, 1):
        time.sleep(pause)
        assert asked(client, "POST", "/predict", content=picture(), headers=PNG).status_code == 200
    kept = [int(one) for one in re.findall(r"(?:keepalive_timeout|keepalive) (\d+)s", DOCS.read_text("utf-8"))]
    assert kept == [20, 20]


def test_a_service_that_is_down_is_said(proxied: tuple[Server, int, httpx.Client]) -> None:
    """The last one, for it ends the service that the others share."""
    server, _, client = proxied
    server.end(signal.SIGKILL)
    assert asked(client, "POST", "/predict", content=picture(), headers=PNG).status_code in (502, 503)
