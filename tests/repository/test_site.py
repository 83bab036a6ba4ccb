"""The documentation site: it builds without a warning, its links lead somewhere, and it needs nobody else's server."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import site_hooks  # noqa: E402

LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"), ("object", "data")}
WORDS = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "preconnect", "dns-prefetch", "manifest"}


class Page(HTMLParser):
    """What a page of the site names: anchors, links, and what a browser loads to show it."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loads, self.text = set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.loads += [given[name] for kind, name in LOADED if tag == kind and name in given]
        if tag == "link" and WORDS & set(given.get("rel", "").split()):
            self.loads.append(given["href"])
        if "srcset" in given:
            self.loads += [part.split()[0] for part in given["srcset"].split(",")]

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "site"
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--site-dir",
        folder,
    ]  # --quiet would hide warnings from --strict, too
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}


def is_foreign(address):
    return bool(urlsplit(address).scheme or urlsplit(address).netloc)


def place(page, address, site):
    """The file that an address on a page means."""
    path = unquote(urlsplit(address).path)
    if not path:
        return page
    target = site / path.lstrip("/") if path.startswith("/") else page.parent / path
    return (target / "index.html" if target.is_dir() else target).resolve()


def test_every_page_of_docs_is_in_the_navigation(site):
    listed = re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1])
    assert len(listed) == len(set(listed))
    assert set(listed) == {path.name for path in (ROOT / "docs").glob("*.md")} | set(site_hooks.GUESTS)
    for name in listed:
        assert (site / name).with_suffix(".html").is_file()


def test_links_anchors_and_files_are_all_there(site, pages):
    count = 0
    for path, page in pages.items():
        for address in [*page.links, *page.loads]:
            if is_foreign(address) or (path.name == "404.html" and address.startswith("/")):
                continue
            target = place(path, address, site)
            assert target.is_file(), f"{path.name} names {address}"
            anchor = unquote(urlsplit(address).fragment)
            if anchor and target.suffix == ".html":
                # the theme's own script makes these two
                assert anchor in pages[target].anchors or anchor.startswith("__"), f"{path.name} names {address}"
            count += 1
    assert count > 1000


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for path, page in pages.items():
        foreign = [address for address in page.loads if is_foreign(address) and not address.startswith("data:")]
        assert not foreign, f"{path.name} loads {foreign}"
        assert "fonts.googleapis" not in path.read_text()
    for style in site.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import\s+)['\"]?([^'\")\s]+)", style.read_text()):
            assert not is_foreign(address) or address.startswith("data:"), f"{style.name} loads {address[:80]}"


def test_links_to_other_sites_are_addresses(pages):
    for path, page in pages.items():
        for address in filter(is_foreign, page.links):
            parts = urlsplit(address)
            assert parts.scheme == "https" and re.fullmatch(r"[\w-]+(\.[\w-]+)+", parts.netloc), (
                f"{path.name}: {address}"
            )


def test_every_commands_help_is_on_its_page(site, pages):
    words = site_hooks.all_commands()
    assert {"relaydp", "relaydp run", "relaydp ledger verify", "relaydp agent reroute sign"} <= set(words)
    text = "".join(pages[site / "commands.html"].text)
    for command in words:
        assert site_hooks.help_of(command) in text, command
        assert command.replace(" ", "-") in pages[site / "commands.html"].anchors


def test_examples_and_notebooks_can_be_downloaded(site):
    for path in [*(ROOT / "examples").glob("*.py"), *(ROOT / "docs").glob("notebooks/*.ipynb")]:
        copy = site / path.relative_to(ROOT / "docs" if "notebooks" in path.parts else ROOT)
        assert copy.read_bytes() == path.read_bytes()


def test_examples_in_docstrings_are_code_and_no_quotations(site):
    text = (site / "api.html").read_text()
    assert "<blockquote" not in text and "```" not in text
    prompts = text.count("&gt;&gt;&gt; ")
    in_code = sum(part.count("&gt;&gt;&gt; ") for part in re.findall(r"<code>.*?</code>", text, re.S))
    assert prompts == in_code > 100


def test_arguments_answers_and_errors_are_tables(site, pages):
    """A docstring's sections are tables of the page, not paragraphs that begin with their names."""
    text = "".join(pages[site / "api.html"].text)
    for heading in ("Args:", "\nReturns: ", "\nRaises: ", "\nAttributes: "):
        assert heading not in text, heading
    parts = re.split(r'<h\d id="(relaydp[\w.]*)"', (site / "api.html").read_text())
    of = dict(zip(parts[1::2], parts[2::2], strict=True))
    for name, argument in (
        ("relaydp.logistic", "record_norm"),
        ("relaydp.cluster.solve_apart", "parts"),
        ("relaydp.prox.l1", "weight"),
        ("relaydp.privacy.rho_for", "conversion"),
    ):
        assert f"<code>{argument}</code>" in of[name].split("<tbody>")[1] and "<pre>" in of[name], name


def test_search_knows_every_page(site):
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].split("#")[0] for entry in index["docs"]}
    assert {path.name for path in site.glob("*.html")} - {"404.html"} <= found


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path):
    """--strict is what the other tests lean on."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("[there](nowhere.md), [here](#nothing)\n")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    kept = {name: settings[name] for name in ("site_name", "validation")}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump({**kept, "theme": "mkdocs"}))
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1 and "nowhere.md" in done.stderr and "#nothing" in done.stderr
