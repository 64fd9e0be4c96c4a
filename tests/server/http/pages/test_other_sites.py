"""Pages of other sites, in a real Chromium, against a server on their visitor's machine."""

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.browser import launch_browser, new_page
from support.models import FakeModel
from support.serving import RunningServer, serve

POSTS = (
    "/v1/caption",
    "/v1/caption:stream",
    "/api/generate",
    "/api/chat",
    "/v1/chat/completions",
    "/v1/responses",
)
GETS = ("/", "/v1/model", "/v1/models", "/api/tags", "/openapi.json", "/docs", "/page.js")
JSON = '{"image": "aGk=", "images": ["aGk="]}'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """All names that end in .test mean this machine, as those of an attacker's name server may."""
    with launch_browser("--host-resolver-rules=MAP *.test 127.0.0.1") as started:
        yield started


@pytest.fixture(scope="module")
def demo() -> Iterator[RunningServer]:
    """A server as `captioner demo` starts it."""
    with serve(FakeModel(), http_port=0, http_hosts="localhost", decode_workers=1) as running:
        yield running


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of another site, without a page."""

    class Empty(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>elsewhere</title>")

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://elsewhere.test:{server.server_port}/"
        server.shutdown()


def attempted(demo: RunningServer) -> tuple[float, float]:
    """Images that were looked at, and calls that were refused as those of another site."""
    outcomes = ("ok", "not_an_image", "internal", "cancelled")
    images = sum(demo.metric("images_total", outcome=outcome) for outcome in outcomes)
    return images, demo.metric("refused_calls_total", reason="foreign_origin")


def call_all(page: Any, base: str, mode: str) -> list[list[Any]]:
    """What `fetch` of a page gets from every address: its status and text, or an error."""
    return page.evaluate(
        """async ([base, gets, posts, body, mode]) => {
            const told = [];
            const call = async (path, method, more) => {
                try {
                    const answer = await fetch(base + path, { method, mode, ...more });
                    told.push([method + " " + path, answer.status, await answer.text()]);
                } catch (error) { told.push([method + " " + path, 0, ""]); }
            };
            for (const path of gets) await call(path, "GET", {});
            for (const path of posts)
                for (const type of ["text/plain", "application/x-www-form-urlencoded"])
                    await call(path, "POST", { headers: { "Content-Type": type }, body });
            return told;
        }""",
        [base, GETS, POSTS, JSON, mode],
    )


def test_another_site_reads_nothing_and_makes_nothing_work(
    browser: Any, demo: RunningServer, site: str
) -> None:
    page, base = new_page(browser), demo.server.http_url
    page.goto(site)
    before, refused = attempted(demo)
    told = call_all(page, base, "no-cors") + call_all(page, base, "cors")
    assert {(status, text) for _, status, text in told} == {(0, "")}
    page.evaluate(
        """([base, posts, body]) => {
            const blob = new Blob([body], { type: "text/plain" });
            for (const path of posts) navigator.sendBeacon(base + path, blob);
        }""",
        [base, POSTS, JSON],
    )
    for path in POSTS:
        page.goto(site)
        with page.expect_navigation():
            page.evaluate(
                """([action]) => {
                    const form = document.createElement("form");
                    Object.assign(form, { method: "post", enctype: "text/plain", action });
                    const field = document.createElement("input");
                    Object.assign(field, { name: '{"image": "aGk=", "x', value: '": 1}' });
                    form.append(field);
                    document.body.append(form);
                    form.submit();
                }""",
                [base + path],
            )
        assert "may not call this server" in page.content()
    images, refusals = attempted(demo)
    assert images == before and refusals - refused >= 3 * len(POSTS)
    page.context.close()


def test_another_site_cannot_put_the_page_into_a_frame(browser: Any, demo: RunningServer, site: str) -> None:
    page = new_page(browser)
    page.goto(site)
    page.evaluate(
        """(base) => new Promise((done) => {
            const frame = document.createElement("iframe");
            frame.onload = done;
            frame.src = base;
            document.body.append(frame);
        })""",
        demo.server.http_url,
    )
    [frame] = page.main_frame.child_frames
    assert not frame.url.startswith(demo.server.http_url)  # the browser shows an error of its own
    page.context.close()


def test_another_site_can_neither_show_nor_run_what_is_answered(
    browser: Any, demo: RunningServer, site: str
) -> None:
    page, base = new_page(browser), demo.server.http_url
    loads = """(places) => Promise.all(places.map(([tag, address]) => new Promise((done) => {
            const part = document.createElement(tag);
            part.onload = () => done(true);
            part.onerror = () => done(false);
            Object.assign(part, tag === "link" ? { rel: "stylesheet", href: address } : { src: address });
            document.head.append(part);
        })))"""
    places = [
        ["img", "/examples/cat.jpg"],
        ["script", "/page.js"],
        ["script", "/v1/model"],
        ["link", "/page.css"],
    ]
    addresses = [[tag, base + path] for tag, path in places]
    page.goto(site)
    assert not any(page.evaluate(loads, addresses))
    own = new_page(browser)
    own.goto(base)
    assert own.evaluate(loads, addresses[:1]) == [True]
    own.context.close()
    page.context.close()


def test_a_page_whose_name_is_rebound_reads_nothing(browser: Any, demo: RunningServer) -> None:
    page = new_page(browser)
    rebound = demo.server.http_url.replace("127.0.0.1", "rebound.test")
    before = attempted(demo)[0]
    page.goto(rebound)  # the port and the protocol are those of the server, so all of this is one origin
    assert "is not called by that name" in page.content()
    told = call_all(page, rebound, "same-origin")
    assert {status for _, status, _ in told} == {403}
    assert attempted(demo)[0] == before
    page.context.close()


def test_the_page_itself_works_under_the_names_of_this_machine(browser: Any, demo: RunningServer) -> None:
    page = new_page(browser)
    for name in ("127.0.0.1", "localhost"):
        base = demo.server.http_url.replace("127.0.0.1", name)
        page.goto(base)
        assert {status for call, status, _ in call_all(page, base, "same-origin") if "GET" in call} == {200}
    page.context.close()
