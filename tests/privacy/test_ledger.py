"""The ledger's kinds of release, its files, and `relaydp ledger`: what is refused, what is caught, what adds up."""

import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import relaydp.privacy.ledger as ledger_module
from relaydp.cli.main import app
from relaydp.errors import InputError, PrivacyError, RelayError
from relaydp.privacy import (
    Budget,
    Ledger,
    Release,
    epsilon_exact,
    epsilon_paper,
    epsilon_sampled,
    gaussian_scale,
    geometric,
    verify,
)
from relaydp.privacy.ledger import _digest, read_saved

KINDS = {
    "gaussian": {},
    "pure": {"kind": "pure", "epsilon": 0.5},
    "sampled": {"kind": "sampled", "sampling": 0.1},
}


def state(ledger):
    return json.dumps(ledger.to_json()), ledger.spent().tolist(), ledger.counts.tolist(), len(ledger)


def mixed():
    """Four agents: Gaussian, pure, both, and sampled."""
    ledger = Ledger(4, 1.0)
    kinds = ["gaussian", "pure", "gaussian", "sampled"]
    ledger.charge_many(range(4), range(4), 1.0, 4.0, kind=kinds, epsilon=[0, 0.3, 0, 0], sampling=[1, 1, 1, 0.2])
    ledger.charge(0, 4, 1.0, 3.0)
    ledger.charge(1, 5, 2.0, 9.0, kind="pure", epsilon=0.2)
    ledger.charge(2, 6, 2.0, 9.0, kind="pure", epsilon=0.2)
    ledger.charge(3, 7, 1.0, 5.0, kind="sampled", sampling=0.1)
    ledger.charge(3, 8, 1.0, 5.0)
    return ledger


# --- kinds


def test_each_kind_costs_what_it_says():
    ledger = Ledger(1, math.inf)
    assert ledger.charge(0, 0, 1.0, 2.0) == Release(0, 0, 1, 1.0, 2.0, 0.125)
    assert ledger.charge(0, 1, 1.0, 2.0, **KINDS["pure"]) == Release(0, 1, 2, 1.0, 2.0, 0.125, "pure", 0.5, 1.0)
    assert ledger.charge(0, 2, 1.0, 2.0, **KINDS["sampled"]) == Release(0, 2, 3, 1.0, 2.0, 0.125, "sampled", 0.0, 0.1)
    assert ledger.events(0) == list(ledger) and [event.kind for event in ledger] == ["gaussian", "pure", "sampled"]
    assert ledger.spent(0) == 0.375


@pytest.mark.parametrize("kind", KINDS)
def test_the_release_that_overspends_is_refused_and_the_history_stays_whole(kind):
    ledger = Ledger(2, [0.3, math.inf])
    ledger.charge(0, 0, 1.0, 2.0)
    ledger.charge(0, 1, 1.0, 2.0, **KINDS[kind])
    before = state(ledger)
    with pytest.raises(PrivacyError, match=r"agent 0 has spent rho=0.25 of 0.3.*pass the baton on"):
        ledger.charge(0, 2, 1.0, 2.0, **KINDS[kind])
    with pytest.raises(PrivacyError, match="Nothing was recorded"):
        ledger.charge_many([1, 0, 1], [2, 3, 4], 1.0, 2.0, **KINDS[kind])
    assert state(ledger) == before
    ledger.charge(1, 2, 1.0, 2.0, **KINDS[kind])  # and it goes on
    assert ledger.counts.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"kind": "pure"}, "must have epsilon= above 0"),
        ({"kind": "pure", "epsilon": math.inf}, "must have epsilon= above 0"),
        ({"kind": "pure", "epsilon": -0.1}, "must have epsilon= above 0"),
        ({"kind": "pure", "epsilon": 1e200}, "must have a finite rho"),
        ({"kind": "pure", "epsilon": "much"}, "must hold numbers"),
        ({"kind": "sampled", "sampling": None}, "must hold numbers|a probability"),
        ({"kind": "pure", "epsilon": 0.1, "sampling": 0.5}, "with kind='sampled' only"),
        ({"epsilon": 0.1}, "with kind='pure' only"),
        ({"sampling": 0.5}, "with kind='sampled' only"),
        ({"kind": "sampled", "sampling": 0.0}, "a probability"),
        ({"kind": "sampled", "sampling": 1.5}, "a probability"),
        ({"kind": "sampled", "sampling": math.nan}, "a probability"),
        ({"kind": "sampled", "sampling": 0.5, "epsilon": 1.0}, "with kind='pure' only"),
        ({"kind": "gausian"}, "Did you mean 'gaussian'"),
        ({"kind": 3}, "unknown kind of release"),
    ],
)
def test_a_release_that_is_not_of_its_kind_is_refused(wrong, words):
    ledger = mixed()
    before = state(ledger)
    with pytest.raises(RelayError, match=words):
        ledger.charge(0, 9, 0.1, 9.0, **wrong)
    with pytest.raises(RelayError, match=words):
        ledger.charge_many([0, 1], [9, 9], 0.1, 9.0, **wrong)
    assert state(ledger) == before


def releases():
    scales, shares = st.floats(0.5, 20), st.floats(0.01, 1)
    return st.one_of(
        st.tuples(st.integers(0, 3), st.just("gaussian"), scales, st.just(0.0), st.just(1.0)),
        st.tuples(st.integers(0, 3), st.just("pure"), scales, st.floats(0.001, 1), st.just(1.0)),
        st.tuples(st.integers(0, 3), st.just("sampled"), scales, st.just(0.0), shares),
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(releases(), max_size=30))
def test_many_at_once_is_one_by_one_and_survives_a_file(rows):
    single, many = Ledger(4, 1e3), Ledger(4, 1e3)
    for hop, (agent, kind, scale, epsilon, sampling) in enumerate(rows):
        single.charge(agent, hop, 1.5, scale, kind=kind, epsilon=epsilon, sampling=sampling)
    agent, kind, scale, epsilon, sampling = zip(*rows, strict=True) if rows else ([],) * 5
    many.charge_many(agent, np.arange(len(rows)), 1.5, scale, kind=kind, epsilon=epsilon, sampling=sampling)
    assert single == many and single.spent().tolist() == many.spent().tolist()
    assert [event for agent in range(4) for event in many.events(agent)] == sorted(many, key=lambda e: e.agent)
    again = Ledger.from_json(json.loads(json.dumps(many.to_json(), allow_nan=False)))
    assert again == many and state(again) == state(many)
    for agent in range(4):
        rho = [e.epsilon**2 / 2 if e.kind == "pure" else (e.sensitivity / e.scale) ** 2 / 2 for e in many.events(agent)]
        assert many.spent(agent) == pytest.approx(math.fsum(rho))


# --- what they are worth


def test_each_mix_is_priced_in_its_way():
    ledger, delta = mixed(), 1e-5
    worth = ledger.by_agent(delta)
    assert [account for _, account in worth] == ["exact Gaussian", "basic", "zCDP", "PLD"]
    assert worth[0][0] == epsilon_exact(ledger.spent(0), delta)
    assert worth[1][0] == 0.5
    assert worth[2][0] == epsilon_paper(ledger.spent(2), delta)
    assert worth[3][0] == epsilon_sampled([4.0, 5.0, 5.0], [0.2, 0.1, 1.0], 1, delta)
    assert worth[3][0] < epsilon_exact(ledger.spent(3), delta)
    for agent in range(4):
        assert ledger.epsilon_of(agent, delta) == worth[agent][0]
    assert (ledger.epsilon(delta), ledger.account(delta)) == max(worth)
    assert ledger.epsilon_paper(delta) == epsilon_paper(ledger.rho, delta) >= ledger.epsilon(delta)
    with pytest.raises(PrivacyError, match="not in this ledger"):
        ledger.epsilon_of(4, delta)


def test_many_pure_releases_are_cheaper_by_zcdp():
    ledger = Ledger(1, math.inf)
    ledger.charge_many(0, np.arange(1000), 1.0, 1.0, kind="pure", epsilon=0.01)
    assert ledger.account(1e-5) == "zCDP" and ledger.epsilon(1e-5) == epsilon_paper(ledger.rho, 1e-5) < 10
    assert ledger.account(1e-300) == "basic" and ledger.epsilon(1e-300) == pytest.approx(10)


def test_the_exact_formula_would_promise_too_much_for_a_pure_release():
    # A coin with e^1 to 1: delta(epsilon) = e/(1 + e) (1 - e^(epsilon - 1)), so at delta 0.4 epsilon is about 0.2.
    truth = 1 + math.log(1 - 0.4 * (1 + math.e) / math.e)
    ledger = Ledger(1, math.inf)
    ledger.charge(0, 0, 1.0, 1.0, kind="pure", epsilon=1.0)
    assert epsilon_exact(ledger.rho, 0.4) < truth < ledger.epsilon(0.4)


def test_sampling_everybody_is_no_sampling():
    ledger, plain = Ledger(1, math.inf), Ledger(1, math.inf)
    ledger.charge_many(0, np.arange(9), 1.0, 4.0, kind="sampled", sampling=1.0)
    plain.charge_many(0, np.arange(9), 1.0, 4.0)
    assert ledger.account(1e-5) == "exact Gaussian" and ledger.epsilon(1e-5) == plain.epsilon(1e-5)
    assert ledger != plain


def test_nothing_released_costs_nothing():
    ledger = Ledger(2, 1.0)
    assert ledger.epsilon(1e-5) == ledger.epsilon_of(1, 1e-5) == 0
    ledger.charge(0, 0, 0.0, 1.0, kind="sampled", sampling=0.5)  # a query that no record moves
    assert ledger.epsilon(1e-5) == 0


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(releases(), min_size=1, max_size=6), releases(), st.floats(-7, -2).map(lambda x: 10.0**x))
def test_more_releases_cost_more_and_more_delta_less(rows, extra, delta):
    ledger = Ledger(4, math.inf)
    for agent, kind, scale, epsilon, sampling in rows:
        ledger.charge(agent, 0, 1.5, scale, kind=kind, epsilon=epsilon, sampling=sampling)
    before = ledger.epsilon(delta)
    assert ledger.epsilon(min(0.9, 3 * delta)) <= before * (1 + 2e-4) + 1e-9
    agent, kind, scale, epsilon, sampling = extra
    ledger.charge(agent, 1, 1.5, scale, kind=kind, epsilon=epsilon, sampling=sampling)
    # A pure release may turn an agent from zCDP or exact to something looser, never to something smaller ...
    # ... except that a first sampled one turns Gaussian + pure from the zCDP bound to the tighter PLD.
    if kind != "sampled":
        assert ledger.epsilon(delta) >= before * (1 - 2e-4) - 1e-9


def test_a_million_releases_of_all_kinds():
    agents, releases = 100, 1_000_000
    ledger = Ledger(agents, math.inf)
    who, what = np.random.default_rng(0).integers(0, [[agents], [3]], (2, releases))
    ledger.charge_many(
        who,
        np.arange(releases),
        0.1,
        1.0,
        kind=np.array(["gaussian", "pure", "sampled"])[what],
        epsilon=np.where(what == 1, 0.1, 0.0),
        sampling=np.where(what == 2, 0.5, 1.0),
    )
    assert len(ledger) == releases and ledger.counts.tolist() == np.bincount(who).tolist()
    assert ledger.spent() == pytest.approx(ledger.counts * 0.005, rel=1e-11)


def test_a_hundred_thousand_single_charges():
    ledger = Ledger(10, math.inf)
    for hop in range(100_000):
        ledger.charge(hop % 10, hop, 0.1, 1.0)
    assert ledger.counts.tolist() == [10_000] * 10 and len(ledger) == 100_000
    assert ledger.spent() == pytest.approx([50.0] * 10, rel=1e-11)


# --- files


def old(ledger):
    """The file as version 1 wrote it."""
    saved = ledger.to_json()
    names = ("agent", "hop", "activation", "sensitivity", "scale", "rho")
    columns = {name: saved["releases"][name] for name in names}
    return {"agents": saved["agents"], "limit_rho": saved["limit_rho"], "releases": columns}


def planned(agents=3, rounds=4, budget=None, ratio=1.0):
    """A run as the engine charges it: everybody spends the whole budget."""
    budget = budget or Budget(1, 1e-5)
    ledger = Ledger(agents, budget.rho)
    sensitivity = 0.1 * np.arange(1, agents + 1)
    scales = gaussian_scale(sensitivity[None, :], geometric(budget.rho, rounds, ratio)[:, None])
    who, when = np.tile(np.arange(agents), rounds), np.repeat(np.arange(rounds), agents)
    ledger.charge_many(who, when, sensitivity[who], scales.ravel())
    return ledger


def test_files_of_the_first_version_are_all_gaussian():
    ledger = planned()
    saved = json.loads(json.dumps(old(ledger)))
    assert Ledger.from_json(saved) == ledger
    assert verify(saved, 1e-5).holds
    with pytest.raises(PrivacyError, match="version 4.*Update relaydp"):
        Ledger.from_json({**ledger.to_json(), "version": 4})
    assert ledger.to_json()["version"] == 2


def drop(saved, row):
    for column in saved["releases"].values():
        del column[row]


def swap(saved, one, other):
    for column in saved["releases"].values():
        column[one], column[other] = column[other], column[one]


def put(name, row, value):
    return lambda saved: saved["releases"][name].__setitem__(row, value)


def weaken(saved):
    """More noise than was added, and the rho that goes with it."""
    columns = saved["releases"]
    columns["scale"][0] *= 2
    columns["rho"][0] = (columns["sensitivity"][0] / columns["scale"][0]) ** 2 / 2


TAMPERED = {
    "first dropped": lambda saved: drop(saved, 0),
    "middle dropped": lambda saved: drop(saved, 5),
    "scale edited": put("scale", 4, 9.9),
    "rho edited": put("rho", 4, 1e-9),
    "sensitivity edited": put("sensitivity", 4, 0.01),
    "agent edited": put("agent", 4, 0),
    "agent beyond": put("agent", 4, 7),
    "activation edited": put("activation", 4, 1),
    "neighbours swapped": lambda saved: swap(saved, 3, 6),
    "reversed": lambda saved: [column.reverse() for column in saved["releases"].values()],
    "limit lowered": lambda saved: saved["limit_rho"].__setitem__(1, 1e-3),
    "no noise": put("scale", 4, 0.0),
    "not a number": put("scale", 4, math.nan),
}
# What the columns alone cannot show, and the digest does.
SEALED = {
    "last dropped": lambda saved: drop(saved, -1),
    "scale and rho edited": weaken,
    "limit raised": lambda saved: saved["limit_rho"].__setitem__(1, 9.9),
    "kind edited": lambda saved: (put("kind", 4, "sampled")(saved), put("sampling", 4, 0.01)(saved)),
}


def test_a_whole_ledger_holds():
    found = verify(planned(ratio=1.1).to_json(), 1e-5)
    assert found.holds and found.reasons == () and found.epsilon == pytest.approx(1)
    for check in found.agents:
        assert check.releases == 4 and check.rho == pytest.approx(check.limit_rho)
        assert check.epsilon <= check.epsilon_pld <= check.epsilon * 1.001 and check.epsilon_rdp > check.epsilon
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["holds"] is True


@pytest.mark.parametrize("name", TAMPERED)
@pytest.mark.parametrize("version", [1, 2])
def test_a_tampered_file_does_not_hold(name, version):
    saved = planned().to_json() if version == 2 else old(planned())
    TAMPERED[name](saved)
    found = verify(saved, 1e-5)
    assert not found.holds and found.epsilon is None
    if version == 2 and not name.startswith("not a"):  # the columns alone give it away
        saved["digest"] = _digest(read_saved(saved)[0].limit, read_saved(saved)[1], None)
        assert not verify(saved, 1e-5).holds
    if name not in ("neighbours swapped", "reversed"):
        with pytest.raises(PrivacyError):
            Ledger.from_json(saved)


@pytest.mark.parametrize("name", SEALED)
def test_the_digest_shows_what_the_columns_cannot(name):
    saved = planned().to_json()
    SEALED[name](saved)
    assert "digest" in verify(saved, 1e-5).reasons[0]
    with pytest.raises(PrivacyError, match="cut, reordered or edited"):
        Ledger.from_json(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda saved: saved.pop("releases"),
        lambda saved: saved.pop("digest"),
        lambda saved: saved["releases"].pop("kind"),
        lambda saved: saved["releases"]["scale"].pop(),
        lambda saved: saved["releases"].__setitem__("scale", "many"),
        lambda saved: put("scale", 0, "2.0")(saved),
        lambda saved: put("hop", 0, 0.5)(saved),
        lambda saved: saved.__setitem__("agents", -1),
        lambda saved: saved.__setitem__("limit_rho", 3),
    ],
)
def test_what_is_no_ledger_is_refused(change):
    saved = planned().to_json()
    change(saved)
    for call in (lambda: Ledger.from_json(saved), lambda: verify(saved, 1e-5)):
        with pytest.raises(PrivacyError):
            call()


def test_an_unknown_kind_is_refused():
    saved = planned().to_json()
    put("kind", 0, "laplace")(saved)
    with pytest.raises(InputError, match="unknown kind of release 'laplace'"):
        verify(saved, 1e-5)


def test_verify_needs_a_delta_that_dp_accounting_resolves():
    with pytest.raises(PrivacyError, match="at least 1e-10"):
        verify(planned().to_json(), 1e-12)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(releases(), max_size=12), st.floats(-8, -2).map(lambda x: 10.0**x))
def test_whatever_was_charged_verifies(rows, delta):
    ledger = Ledger(4, math.inf)
    for hop, (agent, kind, scale, epsilon, sampling) in enumerate(rows):
        ledger.charge(agent, hop, 1.5, scale, kind=kind, epsilon=epsilon, sampling=sampling)
    found = verify(ledger.to_json(), delta)
    assert found.holds, found.reasons
    assert found.epsilon == ledger.epsilon(delta)


def test_many_different_releases_are_put_together_for_most_agents():
    ledger, rounds = Ledger(3, math.inf), 300
    who, when = np.tile(np.arange(3), rounds), np.repeat(np.arange(rounds), 3)
    scale = np.geomspace(60, 20, rounds)[when] * (1 + 0.2 * who)
    what = np.array(["gaussian", "gaussian", "sampled"])[who]
    ledger.charge_many(who, when, 1.0, scale, kind=what, sampling=np.where(who == 2, 0.2, 1.0))
    found = verify(ledger.to_json(), 1e-6)
    assert found.holds, found.reasons
    assert [check.account for check in found.agents] == ["exact Gaussian", "exact Gaussian", "PLD"]


@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_an_accountant_that_errs_is_found_out(monkeypatch, factor):
    saved = planned().to_json()
    monkeypatch.setattr(ledger_module, "epsilon_exact", lambda rho, delta: factor * epsilon_exact(rho, delta))
    found = verify(saved, 1e-5)
    assert not found.holds and "dp-accounting's 1.00" in found.reasons[0]


# --- the command


def call(command, *args):
    words = [command] if command == "show" else ["ledger", command]
    return CliRunner().invoke(app, [*words, *map(str, args)], prog_name="relaydp")


def write(path, content):
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def folder(tmp_path):
    """The files of a result that `ledger` reads."""
    write(tmp_path / "ledger.json", planned().to_json())
    write(tmp_path / "config.json", {"solve": {"budget": {"epsilon": 1.0, "delta": 1e-5}}})
    summary = {"epsilon": 1.0, "delta": 1e-5, "status": "finished", "mechanism": "gradient"}
    write(tmp_path / "summary.json", summary)
    return tmp_path


def test_verify_a_folder_or_its_file(folder):
    for file in (folder, folder / "ledger.json"):
        done = call("verify", file)
        assert done.exit_code == 0, done.output
        assert "holds" in done.stdout and "exact Gaussian" in done.stdout and "1e-05" in done.stdout
    found = json.loads(call("verify", folder, "--json").stdout)
    assert found["holds"] is True and found["epsilon"] == pytest.approx(1) and len(found["agents"]) == 3
    other = json.loads(call("verify", folder, "--json", "--delta", "1e-6").stdout)
    assert other["delta"] == 1e-6 and other["epsilon"] > 1 and other["holds"] is True


@pytest.mark.parametrize("name", [*TAMPERED, *SEALED])
def test_verify_catches_every_edit(folder, name):
    saved = planned().to_json()
    (TAMPERED | SEALED)[name](saved)
    write(folder / "ledger.json", saved)
    done = call("verify", folder)
    assert done.exit_code == 1, done.output
    assert "does not hold" in done.stderr and "digest" in done.stderr
    found = json.loads(call("verify", folder, "--json").stdout)
    assert found["holds"] is False and found["reasons"]


@pytest.mark.parametrize("name", ["last dropped", "scale and rho edited"])
def test_a_new_digest_still_does_not_fit_the_summary(folder, name):
    saved = planned(agents=1).to_json()
    SEALED[name](saved)
    saved["digest"] = _digest(read_saved(saved)[0].limit, read_saved(saved)[1], None)
    write(folder / "ledger.json", saved)
    done = call("verify", folder)
    assert done.exit_code == 1 and "summary.json says epsilon 1" in done.stderr
    summary = json.loads((folder / "summary.json").read_text())
    write(folder / "summary.json", {**summary, "status": "interrupted"})  # which claims its whole plan
    assert call("verify", folder).exit_code == 0


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"epsilon": 0.1}, "certificate.json says epsilon 0.1; here"),
        ({"epsilon": "little"}, "which is no number"),
        ({"delta": 1e-12}, "certificate.json says delta 1e-12, and summary.json 1e-05"),
        ({"promise": "(0.1, 1e-05)-differential privacy"}, "certificate.json says promise"),
        ({"ledger_sha256": "0" * 64}, "certificate.json names the ledger"),
    ],
)
def test_verify_catches_an_edit_of_the_certificate(folder, edit, words):
    """It is what people pass on."""
    summary = {**json.loads((folder / "summary.json").read_text()), "guarantee": "(1, 1e-05)-differential privacy"}
    write(folder / "summary.json", summary)
    mine = {"private": True, "epsilon": 1.0, "delta": 1e-5, "promise": summary["guarantee"]}
    mine["ledger_sha256"] = json.loads((folder / "ledger.json").read_text())["digest"]
    write(folder / "certificate.json", mine)
    assert call("verify", folder).exit_code == 0 == call("verify", folder, "--delta", "1e-6").exit_code
    write(folder / "certificate.json", {**mine, **edit})
    done = call("verify", folder)
    assert done.exit_code == 1 and words in done.stderr


def test_the_published_mechanism_adds_up_to_no_guarantee(folder):
    write(folder / "summary.json", {"epsilon": None, "delta": 1e-5, "status": "finished", "mechanism": "published"})
    done = call("verify", folder)
    assert done.exit_code == 0 and "No guarantee" in done.stdout


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "1e-05.\n"),
        (
            {"summary": {"epsilon": 1.0, "delta": 1e-5, "status": "finished", "simulation": True}},
            "Simulation: no promise",
        ),
        ({"config": {"solve": {"budget": {"epsilon": 1.0, "delta": 1e-5}, "seed": 0}}}, "Simulation: no promise"),
        ({"certificate": {"private": False}}, "Simulation: no promise"),
        ({"ledger": {**planned().to_json(), "run": "simulation"}}, "Simulation: no promise"),
        ({"ledger": {**planned().to_json(), "run": ["odd"]}}, "1e-05.\n"),
        ({"summary": {}}, "Nothing here says where the noise came from"),
    ],
    ids=["private", "summary", "seed", "certificate", "ledger", "odd", "silent"],
)
def test_one_file_that_says_simulation_is_enough(folder, files, words):
    for name, content in files.items():
        write(folder / f"{name}.json", content)
    done = call("verify", folder)
    assert done.exit_code == 0 and words in done.stdout, done.output
    assert words in call("show", folder).stdout or words == "1e-05.\n"


def test_show(folder):
    ledger = Ledger(2, [0.5, math.inf])
    ledger.charge(0, 0, 1.0, 2.0)
    write(folder / "ledger.json", ledger.to_json())
    text = call("show", folder)
    assert text.exit_code == 0 and "0.375" in text.stdout and "epsilon" in text.stdout
    found = json.loads(call("show", folder, "--json").stdout)
    assert found["delta"] == 1e-5 and found["plf"] == 1
    first, second = found["agents"]
    assert first["left_rho"] == 0.375 and first["epsilon"] == epsilon_exact(0.125, 1e-5) and first["releases"] == 1
    assert second["limit_rho"] is None and second["left_rho"] is None and second["epsilon"] == 0


def test_show_without_a_delta_shows_rho(tmp_path):
    write(tmp_path / "my.json", mixed().to_json())
    done = call("show", tmp_path / "my.json")
    assert done.exit_code == 0 and "pass --delta" in done.stdout
    found = json.loads(call("show", tmp_path / "my.json", "--json").stdout)
    assert found["delta"] is None and found["agents"][0]["epsilon"] is None
    found = json.loads(call("show", tmp_path / "my.json", "--json", "--delta", "1e-5").stdout)
    assert [row["account"] for row in found["agents"]] == ["exact Gaussian", "basic", "zCDP", "PLD"]


def test_unreadable_files_are_exit_code_2(tmp_path, folder):
    (tmp_path / "alone").mkdir()
    alone = write(tmp_path / "alone" / "saved.json", mixed().to_json())
    cases = {
        "Pass --delta": ("verify", alone),
        "does not exist": ("verify", tmp_path / "nowhere.json"),
        "no JSON object": ("verify", write(tmp_path / "list.json", [1, 2]), "--delta", "1e-5"),
        "not a saved ledger": ("verify", write(tmp_path / "empty.json", {}), "--delta", "1e-5"),
        "holds no ledger.json": ("verify", tmp_path / "alone"),
        "is not a result folder": ("show", tmp_path / "alone"),
        "strictly between": ("verify", folder, "--delta", "2"),
    }
    for words, command in cases.items():
        done = call(*command)
        assert done.exit_code == 2 and words in done.stderr and "Traceback" not in done.output, words
    (tmp_path / "bad.json").write_text("{")
    assert call("show", tmp_path / "bad.json").exit_code == 2


def test_help():
    for command in ("verify", "show"):
        assert call(command, "--help").exit_code == 0
    assert "Exit codes" in call("verify", "--help").stdout


def test_a_pickle_has_nothing_of_memory_that_was_used_before(monkeypatch):
    """A ledger has room for more rows than it has. What was in that memory may have been noise."""

    class Used:
        """NumPy, whose empty arrays are not empty."""

        def __getattr__(self, name):
            return getattr(np, name)

        def empty(self, shape, dtype=float):
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            return np.frombuffer(bytearray(b"\xab" * size), dtype).reshape(shape)

    monkeypatch.setattr(ledger_module, "np", Used())
    ledger = Ledger(2, np.inf)
    for hop in range(40):
        ledger.charge(hop % 2, hop, 1.0, 2.0)
    ledger.charge_many([0, 1] * 30, range(40, 100), 1.0, 2.0)
    assert b"\xab" * 4 not in pickle.dumps(ledger)
    assert pickle.loads(pickle.dumps(ledger)) == ledger
