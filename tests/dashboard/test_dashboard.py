"""The dashboard as people see it: real requests in a real browser."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from legato.telemetry.advice import ADVICE
from tests.conftest import ServerFactory
from tests.dashboard.conftest import PHONE
from tests.support.raw import raw_post
from tests.support.server import LegatoProcess
from tests.support.waiting import wait_until

TABS = ("now", "measures", "history", "memory", "feel", "settings")
LANGUAGES = {"en": "en-GB", "es": "es-ES", "sv": "sv-SE"}
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
PARAGRAPH = "The river ran past the small house, and people came to talk about the weather and to hear the music. "


def complete(server: LegatoProcess, prompt: str, tokens: int, **more: Any) -> dict[str, Any]:
    """A whole answer."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}
    answer: dict[str, Any] = httpx.post(f"{server.url}/v1/completions", json=body, timeout=200).json()
    return answer


@contextmanager
def answering(server: LegatoProcess, prompt: str = "Once upon a time") -> Iterator[None]:
    """An answer goes on meanwhile, and is given up at the end, which the server has noticed then."""
    body = {"prompt": prompt, "max_tokens": 2000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=200) as response:
        lines = response.iter_lines()
        answer_id = json.loads(next(lines).removeprefix("data: "))["id"]

        def read() -> None:
            with suppress(httpx.HTTPError):  # the end of this function closes the connection
                for _ in lines:
                    pass

        threading.Thread(target=read, daemon=True).start()
        yield

    def running() -> list[str]:
        return [one["id"] for one in httpx.get(f"{server.url}/api/requests").json()["running"]]

    wait_until(lambda: answer_id not in running(), "the answer that was given up has ended")


@contextmanager
def set_policy(server: LegatoProcess, policy: str) -> Iterator[None]:
    """Another policy meanwhile."""
    httpx.patch(f"{server.url}/api/settings", json={"policy": policy}).raise_for_status()
    try:
        yield
    finally:
        httpx.patch(f"{server.url}/api/settings", json={"policy": "adaptive"}).raise_for_status()


# Now


def test_who_is_answered_is_shown_with_its_phases(home: LegatoProcess, visit: Any) -> None:
    page = visit().open(home.url)
    expect(page.locator(".sentence")).to_contain_text("Nobody is being answered")
    expect(page.locator("pre")).to_contain_text(f"{home.url}/v1/chat/completions")
    with answering(home):
        lane = page.locator(".lanes > li").first
        expect(lane).to_contain_text("Writing")
        # What it is depends on how busy this machine is; the words for each case have a test of their own.
        expect(page.locator(".sentence")).to_have_text(re.compile("One person is being answered|answer paused"))
        with raw_post(home, "/v1/completions", {"prompt": PARAGRAPH * 150, "max_tokens": 20}):
            expect(page.locator(".lanes > li", has_text="Reading")).to_have_count(1)
            expect(page.locator(".sentence")).to_contain_text("-token prompt is being read")
        with answering(home, "Dear diary,"):
            expect(page.locator(".lanes > li", has_text="Writing")).to_have_count(2)
    expect(page.locator(".lanes > li")).to_have_count(0)


@pytest.mark.parametrize(
    ("news", "said"),
    [
        ([("gaps", [20, 30, 40], 0)], "smoothly."),
        ([("gaps", [20, 30, 40], 0), ("nothing", None, 2)], "smoothly."),
        ([("gaps", [20, 400, 40], 0)], "paused 0.4 s."),
        ([("gaps", [20, 400, 40], 0), ("gaps", [30], 4)], "smoothly."),
        ([("gaps", [20, 30, 40], 0), ("silent", 700, 1)], "paused 0.7 s."),
        ([("silent", 700, 0), ("gaps", [900], 1)], "paused 0.9 s."),
        ([("gaps", [20, 200, 40], 0)], "smoothly."),
    ],
    ids=["smooth", "late news", "a pause", "a pause long ago", "silence", "silence ended", "short for a reader"],
)
def test_only_a_pause_of_the_answer_is_called_one(
    home: LegatoProcess, visit: Any, news: list[tuple[str, Any, float]], said: str
) -> None:
    """What the page says of news that came at given seconds: late news are no pause."""
    page = visit().open(home.url)
    sentence = page.evaluate(
        """async (news) => {
            const [{ sentence }, { Track }, { createWords }, { createFormat }] = await Promise.all(
                ["views/now-sentence.js", "views/now-tracker.js", "words.js", "format.js"]
                    .map((one) => import(`/assets/${one}`)));
            let now = 1000;
            const request = {
                id: "one", phase: "decode", client: null, begun_at: now, answer_tokens: 1, gap_target_ms: 100,
            };
            const track = new Track(request, now);
            for (const [kind, value, at] of news) {
                now = 1000 + at;
                if (kind === "gaps") track.addGaps(value, now);
                if (kind === "silent") track.setSilent(value);
            }
            const store = { status: { state: "ready", gap_target_ms: 100 }, connection: "open", now: () => now };
            return sentence({ store, t: createWords("en"), format: createFormat("en") }, [track]).text;
        }""",
        news,
    )
    assert sentence.replace("\N{NO-BREAK SPACE}", " ").endswith(said)


def test_a_stall_is_marked_and_its_cause_is_right(home: LegatoProcess, visit: Any) -> None:
    page = visit().open(home.url)
    with set_policy(home, "whole"), answering(home):
        expect(page.locator(".lanes > li").first).to_contain_text("Writing")
        cause = f"{complete(home, 'A book. ' + PARAGRAPH * 30, 2)['usage']['prompt_tokens']} tokens"
        stalls = page.get_by_role("slider")

        def is_told() -> bool:
            """One of the stalls, from the latest on, is the book's: a busy machine has others too."""
            stalls.focus()
            page.keyboard.press("End")
            for _ in range(int(stalls.get_attribute("aria-valuemax") or 0)):
                page.keyboard.press("Enter")
                if cause in page.locator(".timeline-panel").inner_text():
                    return True
                page.keyboard.press("Escape")
                page.keyboard.press("ArrowLeft")
            return False

        wait_until(is_told, "the book's stall is marked and told")


def test_what_the_page_shows_is_what_the_api_says(home: LegatoProcess, visit: Any) -> None:
    page = visit().open(home.url)
    with answering(home), answering(home, "Dear diary,"):
        running = httpx.get(f"{home.url}/api/requests").json()["running"]
        expect(page.locator(".lanes > li")).to_have_count(len(running))
        status = httpx.get(f"{home.url}/api/status").json()
        expect(page.locator(".hero-figures")).to_contain_text(f"{status['running']} of {status['parallel']}")
    answer = complete(home, "What the page shows", 5)
    page.goto(f"{home.url}/#history/{answer['id']}")
    whole = answer["timings"]
    record = httpx.get(f"{home.url}/api/requests/{answer['id']}").json()
    expect(page.locator("#view-history")).to_contain_text(record["verdict"]["sentences"][0])
    assert record["request"]["timings"]["total_ms"] == whole["total_ms"]
    ended = sum(
        float(line.split()[-1])
        for line in httpx.get(f"{home.url}/metrics").text.splitlines()
        if line.startswith("legato_requests_total{")
    )
    page.goto(f"{home.url}/#history")
    expect(page.locator("#view-history tbody tr")).to_have_count(min(50, int(ended)))


# Settings


def test_what_is_set_takes_effect_at_once_and_is_said(home: LegatoProcess, visit: Any) -> None:
    page = visit().open(home.url, "settings")
    page.get_by_role("radio", name="Whole").check()
    wait_until(lambda: httpx.get(f"{home.url}/api/settings").json()["policy"] == "whole", "the policy is set")
    expect(page.locator("#view-settings")).to_contain_text("From now on")
    page.get_by_role("radio", name="Adaptive").check()
    wait_until(lambda: httpx.get(f"{home.url}/api/settings").json()["policy"] == "adaptive", "it is set back")


def test_how_much_is_remembered_is_set_there(home: LegatoProcess, visit: Any) -> None:
    page = visit().open(home.url, "settings")
    memory = page.get_by_label("Memory, MiB")
    expect(memory).not_to_have_value("")
    memory.fill("77")
    page.keyboard.press("Enter")
    wait_until(lambda: httpx.get(f"{home.url}/api/settings").json()["cache_memory_mib"] == 77, "the budget is set")
    expect(page.locator("#view-settings")).to_contain_text("From now on at most")
    expect(page.get_by_label("Disk, MiB")).to_be_disabled()


def test_a_chat_shows_its_own_phases(home: LegatoProcess, visit: Any) -> None:
    page = visit().open(home.url, "feel")
    page.locator("#view-feel textarea").first.fill(f"Say hello to {HOSTILE}")
    page.keyboard.press("Enter")
    expect(page.locator("#view-feel .chat-log")).to_contain_text(HOSTILE)
    # Its answer may be long: it is stopped as soon as a few words are there.
    wait_until(lambda: len(page.locator(".chat-log .message-text").last.inner_text()) > 20, "it answers")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#view-feel")).to_contain_text("first token after")
    assert page.locator("#view-feel img, #view-feel script").count() == 0


# Everybody


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    home: LegatoProcess, visit: Any, axe_script: str, language: str, scheme: str
) -> None:
    request_id = complete(home, "Once", 3)["id"]
    page = visit(color_scheme=scheme, locale=LANGUAGES[language], bypass_csp=True).open(home.url)
    assert page.locator("html").get_attribute("lang") == language
    page.evaluate(axe_script)
    for tab in (*TABS, f"history/{request_id}"):
        page.goto(f"{home.url}/#{tab}")
        page.wait_for_timeout(300)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        bad = [
            (violation["id"], [node["html"] for node in violation["nodes"]][:3])
            for violation in found
            if violation["impact"] in ("serious", "critical")
        ]
        assert bad == [], tab


def test_all_languages_say_everything(home: LegatoProcess, visit: Any) -> None:
    page = visit().open(home.url)
    keys = page.evaluate(
        """async () => {
            const keysOf = (words, path = "") => Object.entries(words).flatMap(([key, value]) =>
                typeof value === "string" ? [path + key] : keysOf(value, `${path}${key}.`));
            const found = {};
            for (const language of ["en", "es", "sv"]) {
                const module = await import(`/assets/languages/${language}.js`);
                found[language] = keysOf(module.default ?? Object.values(module)[0]).sort();
            }
            return found;
        }"""
    )
    plurals = (".zero", ".one", ".two", ".few", ".many", ".other")
    alike = {
        language: {key.removesuffix(next((p for p in plurals if key.endswith(p)), "")) for key in some}
        for language, some in keys.items()
    }
    assert len(alike["en"]) > 100
    assert alike["en"] == alike["es"] == alike["sv"]
    advice = page.evaluate("async () => (await import('/assets/languages/en.js')).default.request")
    assert {code: advice[f"advice_{code}"] for code in ADVICE} == ADVICE, "the page's advice is the server's"


@pytest.mark.parametrize(("language", "gist"), [("es", "La mayor parte del tiempo"), ("sv", "Den mesta tiden")])
def test_what_a_wait_was_is_said_in_each_language(home: LegatoProcess, visit: Any, language: str, gist: str) -> None:
    answer = complete(home, f"What it was in {language}", 5)
    page = visit(locale=LANGUAGES[language]).open(home.url, "history")
    expect(page.locator("#view-history tbody tr").first.locator(".verdict")).to_contain_text(gist)
    page.goto(f"{home.url}/#history/{answer['id']}")
    expect(page.locator("#view-history .sentence")).to_contain_text(gist)
    page.locator("#view-history summary").first.click()
    said = httpx.get(f"{home.url}/api/requests/{answer['id']}").json()["verdict"]["sentences"][0]
    expect(page.locator("#view-history details [lang=en]").first).to_contain_text(said)


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_fits_on_a_phone(home: LegatoProcess, visit: Any, language: str) -> None:
    page = visit(viewport=PHONE, locale=LANGUAGES[language]).open(home.url)
    request_id = complete(home, "Once", 3)["id"]
    for tab in (*TABS, f"history/{request_id}"):
        page.goto(f"{home.url}/#{tab}")
        page.wait_for_timeout(300)
        too_wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert too_wide <= 0, tab


def test_the_keyboard_is_enough(home: LegatoProcess, visit: Any) -> None:
    page = visit().open(home.url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id"))
    assert {f"tab-{tab}" for tab in TABS} | {"language", "theme"} <= seen
    page.locator("#tab-measures").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#view-measures")).to_be_visible()
    expect(page).to_have_title("Measures · Legato")


def test_hostile_names_and_prompts_do_nothing(serve: ServerFactory, visit: Any) -> None:
    server = serve("smollm2", "--ctx", "512", "--alias", HOSTILE, "--api-key", f"{HOSTILE}=key", "--cache-scope", "off")
    visitor = visit()
    visitor.page.goto(server.url)
    visitor.page.fill("#login-key", "key")
    visitor.page.keyboard.press("Enter")
    page = visitor.page
    expect(page.locator("#model")).to_have_text(HOSTILE)
    body = {"prompt": HOSTILE, "max_tokens": 5}
    httpx.post(f"{server.url}/v1/completions", json=body, headers={"authorization": "Bearer key"}, timeout=60)
    for tab in TABS:
        page.goto(f"{server.url}/#{tab}")
        page.wait_for_timeout(300)
        assert page.locator("main img, main script").count() == 0
    page.goto(f"{server.url}/#history")
    expect(page.locator("#view-history")).to_contain_text(HOSTILE)
    visitor.complaints = [one for one in visitor.complaints if "401" not in one]


def test_a_key_is_asked_for_and_kept_nowhere(serve: ServerFactory, visit: Any) -> None:
    server = serve("smollm2", "--ctx", "512", "--api-key", "ana=sesame", "--cache-scope", "off")
    visitor = visit()
    page = visitor.page
    page.goto(server.url)
    expect(page.locator("#login-key")).to_be_visible()
    assert visitor.complaints == [], "nothing was asked that would be refused"
    page.fill("#login-key", "wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not known")
    page.fill("#login-key", "sesame")
    page.keyboard.press("Enter")
    expect(page.locator("#connection")).to_have_attribute("data-state", "open")
    kept = page.evaluate("JSON.stringify([location.href, {...localStorage}, {...sessionStorage}, document.cookie])")
    assert "sesame" not in kept
    page.click("#logout")
    expect(page.locator("#login-key")).to_be_visible()
    visitor.complaints = [one for one in visitor.complaints if "401" not in one]


def test_a_lost_server_is_said_and_its_return_is_noticed(serve: ServerFactory, visit: Any) -> None:
    server = serve("smollm2", "--ctx", "512", "--cache-scope", "off")
    visitor = visit()
    page = visitor.open(server.url)
    server.terminate()
    server.wait_ended(timeout_s=20)
    expect(page.locator("#connection")).to_have_attribute("data-state", "lost")
    server.start()
    server.wait_ready()
    expect(page.locator("#connection")).to_have_attribute("data-state", "open")
    complete(server, "Back", 2)
    page.goto(f"{server.url}/#history")
    expect(page.locator("#view-history tbody tr")).to_have_count(1)
    visitor.complaints = [one for one in visitor.complaints if "ERR_" not in one]


def test_it_weighs_little(home: LegatoProcess, visit: Any) -> None:
    visitor = visit()
    sizes: list[int] = []
    visitor.page.on("response", lambda response: sizes.append(int(response.headers.get("content-length", "0"))))
    visitor.open(home.url)
    assert 50_000 < sum(sizes) < 1_500_000
