"""Where results go: what cannot be written is refused before anything is spent, and what was spent for is not lost."""

import errno
import json

import pytest
from typer.testing import CliRunner

from relaydp.cli.main import app
from relaydp.privacy import PrivacyAccount
from relaydp.result import Result, load_result

SMALL = ["--data", "breast-cancer", "--agents", "3", "--activations", "3", "--walk", "cyclic", "--epsilon", "1"]


def call(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="relaydp")


@pytest.fixture
def account(tmp_path):
    path = tmp_path / "visits.account"
    assert call("account", "new", path, "--epsilon", "5", "--delta", "1e-4").exit_code == 0
    return path


def spent(path):
    return PrivacyAccount.open(path).spent()


@pytest.mark.parametrize("place", ["n" * 300, "file/deeper", "/proc/none/deeper"])
def test_a_place_that_cannot_be_written_costs_nothing(account, tmp_path, place):
    (tmp_path / "file").write_text("")
    before = account.read_bytes()
    done = call("run", *SMALL, "--account", account, "--out", tmp_path / place if place[0] != "/" else place)
    assert done.exit_code == 2 and ("cannot be made" in done.stderr or "name too long" in done.stderr), done.stderr
    assert account.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "visits.account"]


def test_a_disk_that_is_full_afterwards_loses_no_result(account, tmp_path, monkeypatch):
    wanted, real = tmp_path / "kept", Result.save

    def save(self, folder, **options):
        if folder == wanted:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, folder, **options)

    monkeypatch.setattr(Result, "save", save)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = call("run", *SMALL, "--account", account, "--out", wanted, "--json")
    assert done.exit_code == 0 and "could not be written (No space left on device)" in done.stderr
    [spare] = tmp_path.glob("relaydp-*/kept")
    assert str(spare) in done.stderr and load_result(spare).epsilon == json.loads(done.stdout)["epsilon"]


@pytest.mark.parametrize("words", [["show"], ["rerun"], ["report"], ["ledger", "verify"], ["run"]], ids=" ".join)
def test_a_path_that_no_system_has_is_one_line(words):
    done = call(*words, "n" * 300)
    assert done.exit_code == 2 and done.stderr.startswith("error: ") and "Traceback" not in done.output


@pytest.mark.parametrize("words", [["demo"], ["plan", "--epsilon", "1"], ["compare"], ["attack"]], ids=" ".join)
def test_a_figure_that_cannot_be_drawn_is_refused_before_anything_runs(words, tmp_path, monkeypatch):
    monkeypatch.setattr("relaydp.data.load_data", lambda *_: pytest.fail("it went on"))
    done = call(*words, "--figure", tmp_path / "chart")
    assert done.exit_code == 2 and "must end in .png" in done.stderr, done.output


DAMAGE = {
    "a list for settings": ("config.json", lambda found: []),
    "no problem": ("config.json", lambda found: {**found, "problem": None}),
    "no graph": ("config.json", lambda found: {**found, "graph": None}),
    "solve is a text": ("config.json", lambda found: {**found, "solve": "x"}),
    "a forecast is a number": ("plan.json", lambda found: {**found, "expected_gain": -1}),
    "a mechanism is a number": ("summary.json", lambda found: {**found, "mechanism": -1}),
    "epsilon is a text": ("summary.json", lambda found: {**found, "epsilon": "x"}),
}


@pytest.mark.parametrize("name, change", DAMAGE.values(), ids=DAMAGE)
def test_a_folder_that_somebody_changed_is_refused_in_words(tmp_path, name, change):
    folder = tmp_path / "kept"
    assert call("run", *SMALL, "--out", folder, "--quiet").exit_code == 0
    for file in folder.rglob(name):
        file.write_text(json.dumps(change(json.loads(file.read_text()))))
    for words in (["show"], ["rerun", "--seed", "1"], ["ledger", "verify"], ["report", "--out", tmp_path / "o.html"]):
        done = call(*words, folder) if words[0] != "report" else call("report", folder, *words[1:])
        assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
        assert done.exit_code == 2 if words == ["show"] else done.exit_code in (0, 1, 2)
