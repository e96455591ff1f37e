from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from secondguess.errors import UserError
from secondguess.web.access import CheckedApp, Keys

PORT = 8123
HOME = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def client(keys: Keys) -> TestClient:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    heard: list[str] = []

    @app.get("/")
    def front() -> dict[str, str]:
        return {"page": "front"}

    @app.get("/heard")
    def listing() -> list[str]:
        return heard

    @app.post("/say")
    def say() -> dict[str, int]:
        heard.append("something")
        return {"heard": len(heard)}

    return TestClient(CheckedApp(app, keys, PORT), base_url=HOME)


@pytest.fixture
def page(client: TestClient, keys: Keys) -> TestClient:
    """Somebody who has opened the link."""
    assert client.get("/", params={"token": keys.token}).status_code == 200
    return client


def said(client: TestClient, **headers: str) -> int:
    return client.post("/say", headers=headers).status_code


def test_without_the_token_everything_is_refused(client: TestClient) -> None:
    for path in ("/", "/heard", "/nowhere", "/?token=", "/?token=wrong", "/heard?token=wrong"):
        answer = client.get(path)
        assert answer.status_code == 401
        assert answer.json() == {
            "detail": "Open the link that was printed when the page was started: it holds the token."
        }
        assert "set-cookie" not in answer.headers
    assert said(client, origin=HOME) == 401


def test_the_token_is_good_for_the_front_page_only(client: TestClient, keys: Keys) -> None:
    assert client.get("/heard", params={"token": keys.token}).status_code == 401
    assert client.post("/", params={"token": keys.token}).status_code == 401


def test_the_link_is_traded_for_a_cookie(client: TestClient, keys: Keys) -> None:
    answer = client.get(keys.link(PORT))
    assert answer.status_code == 200
    name, _, attributes = answer.headers["set-cookie"].partition("=")
    assert name == keys.cookie
    assert attributes.split("; ")[1:] == ["HttpOnly", "SameSite=Strict", "Path=/"]
    assert client.get("/heard").json() == []
    client.cookies.clear()
    client.cookies.set(keys.cookie, "wrong")
    assert client.get("/heard").status_code == 401


def test_a_cookie_of_another_session_is_no_use(client: TestClient) -> None:
    other = Keys.new()
    client.cookies.set(other.cookie, other.token)
    assert client.get("/heard").status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80", f"127.0.0.1.evil.example:{PORT}", ""]
)
def test_another_host_name_is_refused(page: TestClient, host: str) -> None:
    answer = page.get("/heard", headers={"host": host})
    assert answer.status_code == 403
    assert "127.0.0.1 and localhost only" in answer.json()["detail"]


def test_localhost_is_another_name_of_ours(page: TestClient, keys: Keys) -> None:
    headers = {"host": f"localhost:{PORT}", "cookie": f"{keys.cookie}={keys.ticket}"}
    assert page.get("/heard", headers=headers).status_code == 200


def test_a_post_needs_our_origin_and_the_pages_token(page: TestClient, keys: Keys) -> None:
    good = {"origin": HOME, "x-csrf-token": keys.csrf}
    assert said(page, **good) == 200
    for bad in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": HOME.replace("http", "https")},
        {"origin": f"http://localhost:{PORT}"},  # our other name, but not the one that was asked
        {"origin": ""},
        {"x-csrf-token": ""},
        {"x-csrf-token": keys.token},
        {"x-csrf-token": keys.csrf + "0"},
    ):
        assert said(page, **good | bad) == 403, bad
    assert said(page, origin=HOME) == 403
    assert said(page, **{"x-csrf-token": keys.csrf}) == 403
    assert page.get("/heard").json() == ["something"]


def test_a_doubled_header_counts_as_none(page: TestClient, keys: Keys) -> None:
    headers = [("origin", HOME), ("origin", "http://evil.example"), ("x-csrf-token", keys.csrf)]
    assert page.post("/say", headers=headers).status_code == 403


def test_other_verbs_are_guarded_like_a_post(page: TestClient) -> None:
    for verb in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        assert page.request(verb, "/say").status_code == 403


def test_every_answer_carries_the_headers_that_make_it_safe(page: TestClient) -> None:
    for path, status in (("/", 200), ("/nowhere", 404)):
        answer = page.get(path, headers={"origin": "http://evil.example"})
        assert answer.status_code == status
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert not [name for name in answer.headers if name.startswith("access-control")]
    page.cookies.clear()
    assert "content-security-policy" in page.get("/heard").headers


def test_the_keys_outlive_a_restart_and_are_for_their_owner(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text("{}")
    file.chmod(0o666)  # what lies there already must not lend its permissions
    keys = Keys.kept_in(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 or os.name == "nt"
    assert Keys.kept_in(file) == keys
    assert keys.csrf not in keys.token
    assert keys.token not in keys.csrf + keys.cookie + keys.ticket
    file.write_text('{"token": "short"}')
    assert Keys.kept_in(file) not in (keys, Keys("short"))


@pytest.mark.skipif(os.name == "nt", reason="files have no such permissions there")
def test_a_token_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    keys = Keys.kept_in(file)
    file.chmod(0o644)
    fresh = Keys.kept_in(file)
    assert fresh != keys
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Keys.kept_in(file) == fresh


def test_a_token_that_cannot_be_kept_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="The page's token cannot be kept in "):
        Keys.kept_in(tmp_path / "no" / "keys.json")
