"""The report in a real browser: opened as a file, clicked, tabbed through, saved from; in silence, with no network.

Skipped where there is no Chromium, unless CI is set: there it must be.
"""

import csv
import io
import json
import os
import shutil
from pathlib import Path

import pytest

import relaydp as rd
from relaydp.auditing.campaigns import campaign, few, fresh_runs
from relaydp.report.page import make_page, write_page
from relaydp.report.sources import read_sources

FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run"
).split()


@pytest.fixture(scope="module")
def browser():
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((found for name in names if (found := shutil.which(name))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if program is None or sync_playwright is None:
        lack = "playwright" if sync_playwright is None else f"none of {', '.join(names)}"
        if os.environ.get("CI"):
            pytest.fail(f"the report must be tried in a browser here, and {lack} is not installed.")
        pytest.skip(f"{lack} is not installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A page about a real run of 8 agents and 2,400 activations, one without privacy, a comparison and an attack."""
    place = tmp_path_factory.mktemp("page")
    problem = rd.logistic(rd.load_data("breast-cancer"), agents=8, l2=1e-2, record_norm=2.0)
    budget = rd.Budget(2.0, 1e-5)
    run = rd.solve(problem, rd.ring(8), budget=budget, walk="cyclic", activations=300, progress=False)
    assert run.hops == 2400 and len(run.ledger) == 2400
    run.save(place / "private")
    rd.solve(problem, rd.ring(8), walk="cyclic", activations=300, progress=False).save(place / "open")
    found = rd.compare(problem, rd.ring(8), ["recal", "dgd", "nids"], seeds=range(2), activations=6)
    found.save(place / "compared")
    small = rd.logistic(few(rd.load_data("fashion-small"), 2), agents=2, l2=1e-2)
    campaign(fresh_runs(small, mechanisms=["none"], activations=2)).save(place / "attacked")
    sources = read_sources([place / name for name in ("private", "open", "compared", "attacked")])
    size = write_page(place / "report.html", make_page(sources))
    assert size < 3_000_000
    return (place / "report.html").as_uri()


@pytest.fixture
def visit(browser, address):
    """visit(...) opens the page; afterwards nothing may have been complained of, and nothing asked for."""
    contexts, wrong = [], []

    def go(**options):
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, "accept_downloads": True, **options}
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(("file:", "data:", "blob:")) else wrong.append(asked.url),
        )
        page.goto(address)
        return page

    yield go
    for context in contexts:
        context.close()
    assert wrong == []


def hop(page):
    return int(page.locator("#player-0 input[type=range]").input_value())


def wait_past(page, place):
    """Until the player has moved on; the page forbids eval, so that wait_for_function cannot be used."""
    for _ in range(200):
        if hop(page) > place:
            return
        page.wait_for_timeout(50)
    pytest.fail(f"the player is still at {hop(page)}")


def test_the_baton_plays_pauses_and_steps(visit):
    page = visit()
    player, play = page.locator("#player-0"), page.locator("#player-0 button.main")
    said = page.locator("#said")
    assert hop(page) == 0
    play.click()
    wait_past(page, 2)
    assert play.inner_text() == "Pause" and said.inner_text() == ""  # silent while it plays
    play.click()
    stopped = hop(page)
    page.wait_for_timeout(400)
    assert hop(page) == stopped and f"Hop {stopped} of 2,400" in said.inner_text()
    player.locator(".stage").focus()
    page.keyboard.press("ArrowRight")
    assert hop(page) == stopped + 1 and f"Hop {stopped + 1} of" in player.locator(".where").inner_text()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert hop(page) == stopped - 1
    page.keyboard.press("End")
    assert hop(page) == 2400
    assert "agent 0 holds the baton. It has used its records 300 times and has spent epsilon 2." in said.inner_text()
    assert player.locator(".stage .small").all_text_contents()[:2] == ["300×", "ε 2.000"]
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    wait_past(page, 0)
    page.keyboard.press("Space")
    stopped = hop(page)
    page.wait_for_timeout(300)
    assert hop(page) == stopped
    player.locator("input[type=range]").focus()
    page.keyboard.press("ArrowRight")  # the slider's own key, once and not twice
    assert hop(page) == stopped + 1
    player.get_by_label("One forward").click()
    assert hop(page) == stopped + 2


def column(page, place):
    return page.locator(f"table[data-table=comparison] tbody tr > :nth-child({place + 1})").all_inner_texts()


def test_a_table_is_sorted_by_click_and_by_key(visit):
    page = visit()
    heads = page.locator("table[data-table=comparison] thead th")
    assert heads.nth(1).get_attribute("aria-sort") == "ascending"
    ranked = column(page, 0)
    heads.nth(1).locator("button").click()
    assert column(page, 0) == ranked[::-1] and heads.nth(1).get_attribute("aria-sort") == "descending"
    heads.nth(0).locator("button").focus()
    page.keyboard.press("Enter")
    assert column(page, 0) == sorted(ranked) and heads.nth(0).get_attribute("aria-sort") == "ascending"
    assert heads.nth(1).get_attribute("aria-sort") is None
    page.keyboard.press("Enter")
    assert column(page, 0) == sorted(ranked, reverse=True)


def test_the_theme_follows_the_system_and_the_switch(visit):
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = visit(color_scheme="light"), visit(color_scheme="dark")
    colours = light.evaluate(ground), dark.evaluate(ground)
    assert colours[0] != colours[1]
    line = "getComputedStyle(document.querySelector('#chart-convergence .drawing path')).stroke"
    before = light.evaluate(line)
    light.locator("#switch-theme").click()
    assert light.evaluate(ground) == colours[1] and light.evaluate(line) != before
    light.locator("#switch-theme").click()
    assert light.evaluate(ground) == colours[0]


def test_everything_can_be_reached_by_tab_in_order_and_the_focus_is_seen(visit):
    page = visit()
    wanted = page.evaluate(
        """() => [...document.querySelectorAll("a[href], button, select, input, summary, [tabindex='0']")]
             .filter((e) => e.checkVisibility()).map((e, k) => { e.dataset.place = k; return k; })"""
    )
    found = []
    for _ in wanted:
        page.keyboard.press("Tab")
        place, outline = page.evaluate(
            "() => [document.activeElement.dataset.place, getComputedStyle(document.activeElement).outlineStyle]"
        )
        found.append(int(place))
        assert outline != "none", page.evaluate("document.activeElement.outerHTML")
    assert found == wanted and len(wanted) > 40


def saved(page, click):
    with page.expect_download() as waiting:
        click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def test_plots_tables_and_certificate_can_be_saved_from_the_page(visit):
    page = visit()
    chart = page.locator("#chart-convergence")
    name, content = saved(page, chart.locator("[data-save=csv]").click)
    rows = list(csv.reader(io.StringIO(content.decode())))
    assert name == "convergence.csv" and {row[0] for row in rows[1:]} == {"private", "open"}
    name, content = saved(page, chart.locator("[data-save=svg]").click)
    text = content.decode()
    assert name == "convergence.svg" and text.startswith("<svg") and "var(" not in text and "currentColor" not in text
    assert text.index("<rect") < text.index("<path")  # its ground lies below everything
    name, content = saved(page, chart.locator("[data-save=png]").click)
    assert name == "convergence.png" and content.startswith(b"\x89PNG") and len(content) > 5000
    name, content = saved(page, page.locator("#player-0 [data-save=csv]").click)
    assert content.decode().splitlines()[:2] == ["hop,holder,next holder,used its records", "1,0,1,1"]
    name, content = saved(page, page.locator("[data-certificate=certificate-0] button").click)
    assert name == "private-certificate.json" and json.loads(content)["private"] is True
    name, content = saved(page, page.locator("[data-table-tools=compared] button").click)
    assert name == "compared-comparison.csv" and content.decode().startswith("Algorithm,Excess objective")


def test_axes_lines_and_tables_follow_the_choices(visit):
    page = visit()
    chart = page.locator("#chart-convergence")
    drawn = chart.locator(".drawing")
    assert "objective, F(x)" in drawn.get_attribute("aria-label") and "open ends at" in drawn.get_attribute(
        "aria-label"
    )
    chart.locator("select").nth(0).select_option("accuracy")
    chart.locator("select").nth(1).select_option("epsilon")
    label = drawn.get_attribute("aria-label")
    assert "accuracy against epsilon spent" in label and "open" not in label  # it has no epsilon
    chart.locator("details.numbers summary").click()
    chart.locator("details.numbers tbody tr").first.wait_for()
    assert chart.locator("details.numbers tbody tr").count() > 100
    chart.locator(".legend button", has_text="private").click()
    assert "private" not in drawn.get_attribute("aria-label")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_need_not_scroll_sideways(visit, theme):
    page = visit(viewport={"width": 360, "height": 740}, color_scheme=theme, reduced_motion="reduce")
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    sizes = page.evaluate("[...document.querySelectorAll('.drawing svg')].map((e) => e.getBoundingClientRect().width)")
    assert len(sizes) == 4 and all(200 < width <= 336 for width in sizes)


def test_words_numbers_and_certificate_are_there_without_scripts(visit):
    page = visit(java_script_enabled=False)
    text = page.locator("main").inner_text()
    assert "8 agents on the graph ring(8) trained one logistic regression model together" in text
    assert "No epsilon stands behind this run. No noise was added." in text
    assert page.locator(".tile").first.inner_text().split() == ["Epsilon", "2", "delta", "1e-5,", "exact"]
    assert "A guarantee stands behind this run" in text and "What is not protected" in text
    assert page.locator("table[data-table=spending] tbody tr").count() == 8
    assert page.locator(".gallery img").count() > 0 and "This page contains training records" in text
