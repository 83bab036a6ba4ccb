"""The report: its numbers are the run's, its epsilons can be defended, and nothing that came in can break out."""

import base64
import csv
import dataclasses
import hashlib
import html.parser
import json
import re
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import relaydp as rd
from relaydp.auditing.campaigns import campaign, few, fresh_runs, load_attack
from relaydp.cli.main import app
from relaydp.engine.saved_comparison import load_comparison
from relaydp.engine.spending import agents_spending, epsilon_spent
from relaydp.errors import InputError
from relaydp.graph import route
from relaydp.oracle.randomness import WALK, key_for
from relaydp.privacy import Ledger, epsilon_exact
from relaydp.report import baton_path as travels_module
from relaydp.report.baton_path import layout, travels
from relaydp.report.charts import accuracy_by_epsilon, convergence, spending
from relaydp.report.page import SCRIPTS, asset, make_page
from relaydp.report.sources import read_sources
from relaydp.report.summary import tiles

ASSETS = Path(str(files("relaydp.report"))) / "assets"
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
# name -> arguments of solve: every way a path is recorded, and every way a promise is kept or not
CASES = {
    "private": {"budget": rd.Budget(2.0, 1e-5), "walk": "cyclic"},
    "simulation": {"budget": rd.Budget(2.0, 1e-5), "walk": "cyclic", "seed": 3},
    "open": {"walk": "tour", "seed": 3},
    "lazy": {"budget": rd.Budget(2.0, 1e-5), "walk": "lazy"},
    "published": {"budget": rd.Budget(2.0, 1e-5), "mechanism": "published", "walk": "cyclic"},
    "rounds": {"budget": rd.Budget(2.0, 1e-5), "algorithm": "nids"},
    "objective": {"budget": rd.Budget(2.0, 1e-5), "algorithm": "d-admm", "seed": 3},  # its releases are pure
    "open-rounds": {"algorithm": "d-admm"},
}


@pytest.fixture(scope="module")
def problem():
    return rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2, record_norm=2.0)


@pytest.fixture(scope="module")
def saved(problem, tmp_path_factory):
    """A folder of each case."""
    place = tmp_path_factory.mktemp("saved")
    for name, options in CASES.items():
        rd.solve(problem, rd.ring(4), activations=6, progress=False, **options).save(place / name)
    return place


@pytest.fixture(scope="module")
def compared(problem, tmp_path_factory):
    """One algorithm that runs, and one that refuses: noise on gradients does not cover an exact argmin."""
    options = {"mechanism": "gradient", "seeds": range(2), "activations": 6}
    found = rd.compare(problem, rd.ring(4), ["recal", "d-admm"], rd.Budget(2.0, 1e-5), **options)
    return found, found.save(tmp_path_factory.mktemp("compared") / "table")


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    small = rd.logistic(few(rd.load_data("fashion-small"), 3), agents=3, l2=1e-2)
    found = campaign(fresh_runs(small, mechanisms=["published"], budgets=[rd.Budget(1.0, 1e-5)], activations=2))
    return found, found.save(tmp_path_factory.mktemp("attacked") / "records")


def run_of(folder):
    return read_sources([folder]).runs[0]


def call(*args):
    return CliRunner().invoke(app, ["report", *map(str, args)], prog_name="relaydp")


class Reader(html.parser.HTMLParser):
    """A page as a browser takes it apart: elements, attributes, and the text of each script."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.scripts, self.words, self.inside = [], [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


# ---------------------------------------------------------------- what had been spent


def some_ledger(kinds, seed):
    rng = np.random.default_rng(seed)
    ledger = Ledger(3, np.inf)
    for hop in range(40):
        kind = str(rng.choice(kinds))
        extra = {"kind": "pure", "epsilon": float(rng.uniform(0.01, 0.3))} if kind == "pure" else {}
        ledger.charge(int(rng.integers(3)), hop, 1.0, float(rng.uniform(3.0, 9.0)), **extra)
    return ledger


@pytest.mark.parametrize("kinds", [["gaussian"], ["pure"], ["gaussian", "pure"]], ids="-".join)
def test_spending_is_the_ledgers_own_epsilon_of_every_prefix(kinds):
    """Oracle: a ledger with the releases of that prefix and no others."""
    ledger = some_ledger(kinds, seed=len(kinds))
    everything = list(ledger)
    for agent, mine in enumerate(agents_spending(ledger, 1e-5)):
        for hop, epsilon in zip(mine.hop, mine.epsilon, strict=True):
            prefix = Ledger(3, np.inf)
            for release in everything:
                if release.hop <= hop:
                    extra = {} if release.kind == "gaussian" else {"kind": "pure", "epsilon": release.epsilon}
                    prefix.charge(release.agent, release.hop, release.sensitivity, release.scale, **extra)
            assert np.isclose(epsilon, prefix.epsilon_of(agent, 1e-5), rtol=1e-12)


def test_very_many_sums_are_rounded_up_and_the_last_is_exact(monkeypatch):
    ledger = some_ledger(["gaussian"], seed=7)
    exact = np.concatenate([mine.epsilon for mine in agents_spending(ledger, 1e-5)])
    monkeypatch.setattr("relaydp.engine.spending.MOST_SUMS", 6)
    rough = np.concatenate([mine.epsilon for mine in agents_spending(ledger, 1e-5)])
    assert (rough >= exact).all() and (rough > exact).any()
    assert rough.max() == exact.max() == epsilon_exact(ledger.rho, 1e-5)


@pytest.mark.parametrize("name", ["private", "lazy", "rounds"])
def test_spending_ends_at_what_the_certificate_says(saved, name):
    run = run_of(saved / name)
    said = [row["epsilon"] for row in run.certificate["agents"]]
    assert np.allclose([mine.epsilon[-1] for mine in run.spending], said)
    assert np.isclose(run.spent[-1], run.result.epsilon) and run.spent[0] == 0.0
    assert np.all(np.diff(run.spent) >= 0)
    chart = spending(run)
    assert [one.columns["epsilon"][-1] for one in chart.series] == pytest.approx(said)
    assert all(rule.y == 2.0 for rule in chart.rules) and len(chart.rules) == 1


@pytest.mark.parametrize("name", ["open", "published", "open-rounds", "simulation", "objective"])
def test_without_a_guarantee_no_epsilon_is_on_the_page(saved, name):
    run = run_of(saved / name)
    assert epsilon_spent(run.result) is None and run.spending is None
    assert "epsilon" not in convergence([run]).series[0].columns
    assert accuracy_by_epsilon([run]) is None and spending(run) is None
    page = Reader(make_page(read_sources([saved / name])))
    data = json.loads(page.scripts[0])
    assert all("epsilon" not in one["columns"] for chart in data["charts"].values() for one in chart["series"])
    assert all(path["spent"] is None for path in data["travels"].values())
    shown = re.findall(r"[Ee]psilon (\d[\d.]*)", page.text)
    if name in ("simulation", "objective"):
        return
    assert "No epsilon stands behind this run." in page.text
    assert shown in ([], ["2"])  # at most the budget that was asked for, among the settings


def test_a_simulation_says_that_it_is_one_wherever_an_epsilon_could_be_looked_for(saved):
    run = run_of(saved / "simulation")
    first, second, *_ = tiles(run)
    assert (first.name, first.value) == ("Simulation", "no promise")
    assert second.name == "Epsilon planned" and "of a private run of this plan" in second.note
    page = Reader(make_page(read_sources([saved / "simulation"])))
    assert page.text.count("Simulation: no promise") == 4  # on top, in the story, on the certificate and its promise
    # what it would cost is named with "a private run of this plan", and among the settings as the budget asked for
    assert (
        len(re.findall(r"[Ee]psilon 2\b", page.text)) == page.text.count("private run of this plan costs epsilon 2") + 1
    )
    assert "is protected" not in page.text and "stands behind this run" not in page.text
    assert "relaydp rerun simulation seed" not in page.text and "seed 3" in page.text


def test_a_simulation_of_noise_in_the_objective_says_what_its_proof_is_about(saved):
    assert "of this plan in real numbers" in tiles(run_of(saved / "objective"))[1].note
    page = Reader(make_page(read_sources([saved / "objective"])))
    assert page.text.count("Simulation: no promise") == 4
    assert "to which alone the proof of noise in the objective applies" in page.text
    assert "private run of" not in page.text and "is protected" not in page.text


def test_a_private_page_names_no_seed_and_offers_no_repetition(saved):
    page = Reader(make_page(read_sources([saved / "private"])))
    settings = dict(read_sources([saved / "private"]).runs[0].result.config["solve"])
    assert "seed" not in settings and str(settings["walk_seed"]) not in page.text
    assert "relaydp rerun private --seed 0" in page.text and "cannot be repeated" in page.text
    assert re.findall(r"\bseed\b", page.text) == ["seed"]  # of the simulation that is offered
    assert "measured without noise" in page.text and "report --public makes one without them" in page.text


def test_a_public_page_holds_no_measurement(saved, tmp_path):
    """What it is made from is publish/ alone: a page of the same run without a keep/ is the same page."""
    sources = read_sources([saved / "private"], public=True)
    page, result = make_page(sources), rd.load_result(saved / "private")
    assert sources.measured is False and sources.runs[0].label == "private"
    alone = shutil.copytree(saved / "private" / "publish", tmp_path / "private")
    assert make_page(read_sources([alone])) == make_page(read_sources([alone], public=True)) == page
    said = Reader(page)
    assert f"{100 * result.accuracy:.1f} %" not in said.text and "objective of" not in said.text
    assert "convergence" not in json.loads(said.scripts[0])["charts"] and "All on this page is covered" in said.text
    assert "cost epsilon 2 (exact Gaussian accounting)" in said.text and "seconds" not in said.text
    assert {"chart-spending-0"} == set(json.loads(said.scripts[0])["charts"])


@pytest.mark.parametrize("name", ["simulation", "open", "published"])
def test_without_a_promise_there_is_no_public_page(saved, compared, name, tmp_path):
    done = call(saved / name, "--public", "--out", tmp_path / "page.html")
    assert done.exit_code == 2 and "needs a promise" in done.stderr and not (tmp_path / "page.html").exists()
    done = call(saved / "private", compared[1], "--public", "--out", tmp_path / "page.html")
    assert done.exit_code == 2 and "measured on records without noise" in done.stderr


def test_the_paper_is_not_shown_against_epsilon_but_the_open_run_is_a_level(saved):
    runs = [run_of(saved / name) for name in ("private", "open", "published")]
    chart = accuracy_by_epsilon(runs)
    assert [one.label for one in chart.series] == ["private"]
    baselines = {
        value for run in runs[:2] for value in (run.result.baselines.majority, run.result.baselines.without_privacy)
    }
    assert [rule.y for rule in chart.rules if rule.label == "open, no privacy"] == [runs[1].result.accuracy]
    assert {rule.y for rule in chart.rules} <= {runs[1].result.accuracy, *baselines}
    assert chart.notes == ["published is not shown: it has no epsilon."]


# ---------------------------------------------------------------- the path


@pytest.mark.parametrize("name", CASES)
def test_the_path_counts_what_the_run_counted(saved, name):
    run = run_of(saved / name)
    path = travels(run)
    counts = path.counts()
    assert counts.max() == run.result.plf
    if run.result.ledger is not None:
        assert counts.tolist() == run.result.ledger.counts.tolist()
    if len(path.holder) and name in ("private", "open", "published"):
        assert path.holder[:-1].tolist() == run.result.transcript.sender.tolist()
        assert path.holder[1:].tolist() == run.result.transcript.receiver.tolist()


def test_a_path_without_a_ledger_is_the_route_laid_out_anew(saved, problem):
    """Oracle: the route from seed and graph, which the path was never told."""
    run = run_of(saved / "open")
    way = route(rd.ring(4), "tour", 6, key=key_for(3, WALK))
    path = travels(run)
    assert path.holder[:-1].tolist() == way.holder.tolist() and path.acts.tolist() == way.acts.tolist()


def test_what_the_page_plays_can_be_read_back(saved):
    path = travels(run_of(saved / "lazy"))
    sent = json.loads(json.dumps(path.to_json()))
    assert list(base64.b64decode(sent["holder"])) == path.holder.tolist()
    assert sent["hop"] == path.hop.tolist() and sent["acts"] is None
    open_path = travels(run_of(saved / "open"))
    bits = np.unpackbits(np.frombuffer(base64.b64decode(open_path.to_json()["holder"]), np.uint8))
    assert len(bits) == 8 * (len(open_path.hop) + 1)


def test_long_paths_and_large_graphs_are_cut_and_say_so(saved, monkeypatch):
    run = run_of(saved / "private")
    monkeypatch.setattr(travels_module, "MOST_FRAMES", 10)
    path = travels(run)
    assert len(path.hop) == 10 and len(path.holder) == 11
    assert path.notes == ["Only the first 10 of 24 hops can be played."]
    monkeypatch.setattr(travels_module, "MOST_AGENTS", 3)
    assert "4 agents" in travels(run)
    assert "is not shown" in Reader(make_page(read_sources([saved / "private"]))).text


@pytest.mark.parametrize("graph", [rd.ring(7), rd.star(9), rd.grid(3, 4), rd.complete(5), rd.path(2), rd.ring(80)])
def test_a_layout_is_always_the_same_and_nobody_stands_on_another(graph):
    x, y = layout(graph.agents, graph.edges.tolist())
    assert (x, y) == layout(graph.agents, graph.edges.tolist())
    points = np.array([x, y]).T
    assert points.min() >= 0 and points.max() <= 1
    apart = np.linalg.norm(points[:, None] - points[None], axis=2) + 9 * np.eye(len(points))
    assert apart.min() > 0.2 / graph.agents


# ---------------------------------------------------------------- the page


def test_names_cannot_break_out(saved, tmp_path):
    folder = tmp_path / "<b>bold"
    result = rd.load_result(saved / "private")
    config = json.loads(json.dumps(result.config))
    config["problem"]["data"] = EVIL
    dataclasses.replace(result, config=config, graph=EVIL).save(folder)
    page = Reader(make_page(read_sources([folder]), title=EVIL))
    assert len(page.scripts) == 4 and len([tag for tag, _ in page.elements if tag == "script"]) == 4
    assert not any("onerror" in attributes for _, attributes in page.elements)
    assert page.text.count(EVIL) >= 3  # as words
    assert "certificate-0" in json.loads(page.scripts[0])["certificates"]


def test_only_our_scripts_may_run_and_nothing_may_be_fetched(saved, compared, attacked):
    text = make_page(read_sources([saved / "private", saved / "open", compared[1], attacked[1]]))
    page = Reader(text)
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';") and "unsafe-eval" not in policy
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    present = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in page.scripts[1:]}
    assert allowed == present and len(present) == len(SCRIPTS) == 3
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,")), (tag, attributes)
    ours = asset("page.css") + asset("page.js")
    assert "@import" not in ours and "url(http" not in ours and "fetch(" not in ours


@pytest.mark.parametrize("names", [["private"], ["private", "open", "rounds"]], ids=["one", "several"])
def test_headings_are_in_order_and_ids_are_used_once(saved, compared, attacked, names):
    page = Reader(make_page(read_sources([*(saved / name for name in names), compared[1], attacked[1]])))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(attributes.get("alt") for tag, attributes in page.elements if tag == "img")


def test_the_story_and_the_tiles_tell_the_runs_numbers(saved):
    page = Reader(make_page(read_sources([saved / "private"])))
    result = rd.load_result(saved / "private")
    assert f"{100 * result.accuracy:.1f} %" in page.text and "456 records of breast-cancer" in page.text
    assert "cost epsilon 2 (exact Gaussian accounting)" in page.text and "24 hops along a cyclic walk" in page.text
    assert result.guarantee[1:] in page.text  # the promise, in the certificate


@pytest.mark.parametrize("whom", [{}, {"collusion": 1}, {"trust": "curator"}], ids=["nobody", "masked", "curator"])
def test_the_story_says_whom_the_promise_is_against(problem, whom, tmp_path):
    asked = {"budget": rd.Budget(2.0, 1e-5), "activations": 3, "progress": False}
    result = rd.solve(problem, rd.ring(4), **asked, **whom)
    page = Reader(make_page(read_sources([result.save(tmp_path / "run")])))
    assert page.text.count(f"against {result.trust.against}") == 2  # in the story, and in the certificate
    assert ("other agents included" in page.text) == (not whom)


def test_colours_can_be_told_from_their_ground():
    """WCAG 2: text 4.5, lines 3, in both themes."""
    pairs = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}, #\w{6})\);", asset("page.css")))
    assert len(pairs) > 20

    def light(colour):
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    def contrast(a, b):
        low, high = sorted((light(a), light(b)))
        return (high + 0.05) / (low + 0.05)

    needed = [(ink, ground, 4.5) for ink in ("ink", "soft", "accent") for ground in ("ground", "surface", "sunken")]
    needed += [("warn", "warn-ground", 4.5), ("warn", "sunken", 4.5), ("ink", "accent-ground", 4.5)]
    needed += [("surface", "accent", 4.5), ("baton", "surface", 4.5), ("ink", "tank", 4.5), ("baton", "sunken", 3.0)]
    needed += [(f"c{k}", "surface", 3.0) for k in range(8)] + [("edge", "edge", 1.0)]
    for ink, ground, least in needed:
        for theme in (0, 1):
            got = contrast(pairs[ink].split(", ")[theme], pairs[ground].split(", ")[theme])
            assert got >= least, f"{ink} on {ground} has {got:.2f}"


def test_the_libraries_are_the_ones_we_say():
    rows = re.findall(
        r"^\| `([\w.]+)` \| `\S+` \| ([\d.]+) \| .* \| `(\w{64})` \|$", (ASSETS / "README.md").read_text(), re.M
    )
    assert {name for name, _, _ in rows} == {name for name in SCRIPTS.values() if name != "page.js"}
    for name, version, digest in rows:
        content = (ASSETS / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest and f"v{version}" in content[:200].decode()
    assert all("Permission to use" in path.read_text() for path in ASSETS.glob("LICENSE-*.txt"))
    assert len(list(ASSETS.glob("LICENSE-*.txt"))) == len(rows)


# ---------------------------------------------------------------- comparisons and attacks, kept


def test_a_comparison_comes_back_as_it_was(compared):
    found, folder = compared
    again = load_comparison(folder)
    assert again.rows == json.loads(json.dumps(found.rows)) and again.budget == found.budget
    assert again.about == json.loads(json.dumps(found.about)) and again.about["seeds"] == [0, 1]
    for name, result in found.results.items():
        for part in dataclasses.fields(result.trace):
            assert np.array_equal(
                getattr(again.traces[name], part.name), getattr(result.trace, part.name), equal_nan=True
            )
        assert epsilon_spent(result) is None  # it is a simulation
        planned = again.spent[name]
        assert planned == epsilon_spent(result, planned=True)
        assert planned[0] == 0 and planned[-1] == pytest.approx(result.epsilon_planned)
    assert list(again.traces) == ["recal"]
    page = Reader(make_page(read_sources([folder])))
    assert "are simulations: no promise" in page.text
    kept = json.loads((folder / "comparison.json").read_text())
    assert kept["simulation"] is True and not any("epsilon" in trace for trace in kept["traces"].values())
    assert "1 could not run as asked" in page.text and "d-admm : mechanism='gradient' is not defined here" in page.text


def test_a_comparison_of_an_earlier_version_is_read(compared, tmp_path):
    """It had no word on simulations, and called what was planned epsilon."""
    found, folder = compared
    old = json.loads((folder / "comparison.json").read_text())
    del old["simulation"]
    for trace in old["traces"].values():
        trace["epsilon"] = trace.pop("epsilon_planned")
    (tmp_path / "comparison.json").write_text(json.dumps(old))
    again = load_comparison(tmp_path)
    assert again.spent == load_comparison(folder).spent and again.about == json.loads(json.dumps(found.about))


def test_an_attack_comes_back_as_it_was_and_says_that_it_holds_records(attacked):
    found, folder = attacked
    again = load_attack(folder)
    assert again.summary == json.loads(json.dumps(found.summary())) and again.title == found.title
    for (label, images), (kept, others) in zip(found.images(), again.images, strict=True):
        assert label == kept and np.array_equal(images, others)
    assert "training records" in json.loads((folder / "attack.json").read_text())["contains"]
    assert "training records" in (folder / "CONTAINS-RECORDS.txt").read_text()
    page = Reader(make_page(read_sources([folder])))
    assert page.text.count("training records") >= 2
    pictures = [attributes for tag, attributes in page.elements if tag == "img"]
    assert len(pictures) == sum(len(images) for _, images in again.images)


def test_pictures_on_the_page_are_the_saved_ones(attacked):
    import matplotlib.image

    folder = attacked[1]
    page = Reader(make_page(read_sources([folder])))
    sources = [attributes["src"] for tag, attributes in page.elements if tag == "img"]
    images = [image for _, row in load_attack(folder).images for image in row]
    for source, image in zip(sources, images, strict=True):
        shown = matplotlib.image.imread(__import__("io").BytesIO(base64.b64decode(source.partition(",")[2])))
        assert np.abs(shown - np.clip(image[:, :, 0], 0, 1)).max() <= 0.5 / 255 + 1e-6


@pytest.mark.parametrize("kind", ["comparison", "attack"])
def test_folders_are_written_whole_and_only_ours_are_replaced(kind, compared, attacked, tmp_path, monkeypatch):
    found = compared[0] if kind == "comparison" else attacked[0]
    place = found.save(tmp_path / "kept")
    with pytest.raises(InputError, match="exists already"):
        found.save(place)
    (other := tmp_path / "other").mkdir()
    (other / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="not overwritten"):
        found.save(other, overwrite=True)
    before = (place / f"{kind}.json").read_bytes()
    monkeypatch.setattr(json, "dumps", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        found.save(place, overwrite=True)
    monkeypatch.undo()
    assert (place / f"{kind}.json").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "other"]
    found.save(place, overwrite=True)


@pytest.mark.parametrize("load", [load_comparison, load_attack])
@pytest.mark.parametrize("content", ["", "[]", "{}", '{"comparison": "relaydp", "attack": "relaydp", "version": 99}'])
def test_damaged_files_are_refused(load, content, tmp_path):
    for name in ("comparison.json", "attack.json"):
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match="(we can|that can be) read"):
        load(tmp_path)


# ---------------------------------------------------------------- the command


def test_the_command_writes_a_page_and_files(saved, compared, attacked, tmp_path):
    sources = [saved / "private", compared[1], attacked[1]]
    out, folder = tmp_path / "page.html", tmp_path / "plots"
    done = call(*sources, "--out", out, "--files", folder, "--title", "Board & friends", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["bytes"] == out.stat().st_size < 3_000_000 and said["shows_records"] is True
    assert (said["runs"], said["comparisons"], said["attacks"]) == (1, 1, 1)
    assert "<h1>Board &amp; friends</h1>" in out.read_text()
    names = {path.name for path in folder.iterdir()}
    assert {Path(name).name for name in said["files"]} == names
    for stem in ("convergence", "accuracy-epsilon", "spending", "path", "comparison-curves"):
        assert {f"{stem}.png", f"{stem}.svg", f"{stem}.csv"} <= names
    assert {"comparison.csv", "attack.csv", "agents.csv", "attack-records.png", "relaydp-files.csv"} <= names
    with (folder / "convergence.csv").open() as file:
        rows, rules = [], []
        for row in csv.DictReader(file):
            (rules if "most frequent class" in row["series"] else rows).append(row)
    result = rd.load_result(saved / "private")
    trace = result.trace
    assert [float(rule["accuracy"]) for rule in rules] == [pytest.approx(result.baselines.majority)]
    assert np.allclose([float(row["accuracy"]) for row in rows], trace.accuracy)
    again = call(attacked[1], "--out", out, "--files", folder, "--overwrite", "--quiet")
    assert again.exit_code == 0 and again.stdout == "" and not (folder / "convergence.csv").exists()


BAD = {
    "missing": (lambda place, saved: [place / "nowhere"], "does not exist"),
    "file": (lambda place, saved: [saved / "private" / "publish" / "model.npz"], "is a file"),
    "empty": (lambda place, saved: [place], "has none of"),
    "exists": (lambda place, saved: [saved / "private", "--out", place / "page.html"], "exists already"),
    "not-ours": (
        lambda place, saved: [saved / "private", "--out", place / "page.html", "--overwrite"],
        "not a report of",
    ),
    "no-parent": (lambda place, saved: [saved / "private", "--out", place / "no" / "page.html"], "cannot be made"),
    "folder": (lambda place, saved: [saved / "private", "--out", place], "is a folder"),
    "files": (lambda place, saved: [saved / "private", "--out", place / "a.html", "--files", place], "exists already"),
    "files-other": (
        lambda place, saved: [saved / "private", "--out", place / "a.html", "--files", place, "--overwrite"],
        "does not replace it",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_done_is_refused_in_one_paragraph(case, saved, tmp_path):
    (tmp_path / "page.html").write_text("<p>my own page</p>")
    make, expected = BAD[case]
    done = call(*make(tmp_path, saved))
    assert done.exit_code == 2 and expected in done.stderr, done.output
    assert done.stderr.startswith("error: ") and len(done.stderr.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").read_text() == "<p>my own page</p>"


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("keep/trace.csv", None, "no trace.csv"),
        ("keep/summary.json", "{", "not a result folder we can read"),
        ("publish/summary.json", "{", "not a result folder we can read"),
        ("publish/certificate.json", "{}", "something else"),
        ("publish/certificate.json", None, "cannot be read"),
    ],
)
def test_damaged_results_are_refused(file, content, expected, saved, tmp_path):
    folder = rd.load_result(saved / "private").save(tmp_path / "run")
    (folder / file).unlink() if content is None else (folder / file).write_text(content)
    done = call(folder, "--out", tmp_path / "page.html")
    assert done.exit_code == 2 and expected in done.stderr and not (tmp_path / "page.html").exists()


def test_a_certificate_that_promises_more_than_the_ledger_is_refused(saved, tmp_path):
    folder = rd.load_result(saved / "private").save(tmp_path / "run")
    certificate = json.loads((folder / "publish" / "certificate.json").read_text())
    certificate["epsilon"] = 0.1
    (folder / "publish" / "certificate.json").write_text(json.dumps(certificate))
    done = call(folder, "--out", tmp_path / "page.html")
    assert done.exit_code == 2 and "epsilon=" in done.stderr


def test_runs_of_one_name_keep_apart(saved, tmp_path):
    rd.load_result(saved / "open").save(tmp_path / "private")
    labels = [run.label for run in read_sources([saved / "private", tmp_path / "private"]).runs]
    assert labels == ["private", "private (2)"]


@pytest.mark.parametrize("command", ["compare", "attack"])
def test_out_is_checked_before_anything_runs(command, tmp_path, monkeypatch):
    monkeypatch.setattr("relaydp.settings.config.read_config", lambda *_: pytest.fail("it ran"))
    monkeypatch.setattr("relaydp.cli.attack._fresh", lambda *_: pytest.fail("it ran"))
    (tmp_path / "mine.txt").write_text("mine")
    for extra, expected in (([], "exists already"), (["--overwrite"], "leaves it alone")):
        done = CliRunner().invoke(app, [command, "--out", str(tmp_path), *extra], prog_name="relaydp")
        assert done.exit_code == 2 and expected in done.stderr
    done = CliRunner().invoke(app, [command, "--overwrite"], prog_name="relaydp")
    assert done.exit_code == 2 and "--overwrite needs --out" in done.stderr
