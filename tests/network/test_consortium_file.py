"""The consortium file: one agreement has one identity, its plan keeps its promise, nothing hostile gets through."""

import base64
import copy
import json
import random
import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import relaydp as rd
from relaydp._toml import line_of
from relaydp.algorithm import ALGORITHMS
from relaydp.cli.main import app
from relaydp.engine.loop import run
from relaydp.errors import InputError, PrivacyError
from relaydp.network.consortium.agreed_plan import longest_wait, network_algorithms, verified
from relaydp.network.consortium.file import (
    Agreed,
    draw_up,
    epsilon_of,
    facts_of,
    local_problem,
    make_consortium,
    plan_of,
    read_consortium,
    read_own_records,
    whole_problem,
    write_consortium,
)
from relaydp.network.consortium.identity import fingerprint, keygen
from relaydp.network.consortium.toml import to_toml
from relaydp.oracle.randomness import Simulated
from relaydp.planning.tuning import choose_steps
from relaydp.privacy import epsilon_exact
from relaydp.privacy.sensitivity import sensitivity as clipped_sensitivity
from relaydp.problem import build_again

DATA = rd.load_data("breast-cancer")
NAMES, SIZES = ("north", "south", "east"), (150, 170, 136)
FUZZ = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    return {name: keygen(folder / name, name) for name in NAMES}


@pytest.fixture
def tables(keys):
    return copy.deepcopy(tables_for(keys))


def tables_for(keys):
    ends = [[float(low), float(high)] for low, high in zip(*DATA.ranges, strict=True)]
    return {
        "version": 1,
        "name": "north-sea",
        "problem": {
            "loss": "logistic",
            "classes": [-1, 1],
            "columns": list(DATA.columns),
            "label": "diagnosis",
            "l2": 0.01,
            "ranges": ends,
        },
        "privacy": {"epsilon": 2.0, "delta": 1e-4},
        "run": {"algorithm": "recal", "walk": "random", "walk_seed": 7, "start": "south", "patience": 90},
        "network": {"edges": [["north", "south"], ["south", "east"]]},
        "parties": [
            {
                "name": name,
                "address": f"relay.{name}.example:7443",
                "records": size,
                "fingerprint": keys[name].fingerprint,
                "certificate": keys[name].certificate_pem.decode(),
            }
            for name, size in zip(NAMES, SIZES, strict=True)
        ],
    }


@pytest.fixture(scope="module")
def planned(keys):
    return draw_up(make_consortium(tables_for(keys)), activations=4)


def shares(order=slice(None)):
    """Everybody's records."""
    X, y, ends = DATA.X[order], DATA.y[order], np.cumsum(SIZES)
    rows = [slice(end - size, end) for size, end in zip(SIZES, ends, strict=True)]
    return [rd.Records(X[part], y[part], columns=DATA.columns) for part in rows]


def with_changes(tables, changes):
    """The tables with values put in or, for None, taken out: {"run.walk": "tour", "parties.1.records": 3}."""
    for place, value in changes.items():
        *way, last = [int(word) if word.isdigit() else word for word in place.split(".")]
        at = tables
        for word in way:
            at = at[word]
        if value is None:
            del at[last]
        else:
            at[last] = value
    return tables


def as_text(tables):
    """TOML without comments, by another hand than the writer's: inline wherever that is allowed."""

    def value(part):
        if isinstance(part, dict):
            return "{" + ", ".join(f"{json.dumps(key)} = {value(each)}" for key, each in part.items()) + "}"
        if isinstance(part, list):
            return "[" + ", ".join(map(value, part)) + "]"
        if isinstance(part, bool):
            return str(part).lower()
        return json.dumps(part) if isinstance(part, str) else repr(part)

    return "\n".join(f"{json.dumps(key)} = {value(part)}" for key, part in tables.items())


def read_text(tmp_path, text):
    file = tmp_path / "agreed.toml"
    file.write_text(text)
    return read_consortium(file)


# -- one agreement, one identity


SHAPES = {
    "as it is": {},
    "rounds": {"run.algorithm": "nids", "run.walk": None},
    "texts": {"problem.classes": ["no", "yes", "per\u00adhaps \U0001f600 \"'\\\x7f"], "problem.loss": "softmax"},
    "truth": {"problem.classes": [True, False]},
    "nameless": {"problem.columns": None, "problem.label": None, "problem.features": 30},
    "odd names": {"problem.columns": ["a b", "c\td", "\u00e9\u4e2d\n"], "problem.ranges": [0, 1], "problem.l1": 1e-300},
    "numbers": {"problem.loss": "least-squares", "problem.classes": None, "problem.label_bound": 3},
    "huber": {"problem.loss": "huber", "problem.classes": None, "problem.threshold": 0.1, "problem.intercept": True},
}


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES.keys())
def test_what_is_written_reads_back_as_the_same_agreement(tables, tmp_path, changes):
    made = make_consortium(with_changes(tables, changes))
    write_consortium(tmp_path / "agreed.toml", made)
    read = read_consortium(tmp_path / "agreed.toml")
    assert read.identity == made.identity and len(read.identity) == 32
    assert read.tables() == made.tables() and read.parties == made.parties and read.problem == made.problem
    assert read.graph == made.graph and read.start == 1


def test_a_plan_reads_back_to_the_last_bit(planned, tmp_path):
    write_consortium(tmp_path / "agreed.toml", planned)
    read = read_consortium(tmp_path / "agreed.toml")
    assert read.identity == planned.identity
    assert np.array_equal(read.plan.scales, planned.plan.scales) and read.plan.steps == planned.plan.steps


def test_identity_is_the_hash_of_canonical_json(planned):
    """Recomputed as somebody without this library would."""
    import hashlib

    text = json.dumps(tomllib.loads(to_toml(planned)), sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).digest() == planned.identity


def test_comments_order_and_spelling_do_not_change_the_identity(planned, tmp_path):
    tables = planned.tables()
    tables["network"]["edges"] = [["east", "south"], ["south", "north"], ["north", "south"]]
    tables["problem"]["classes"].reverse()
    draw = random.Random(0)

    def mixed(part):
        if isinstance(part, list):
            return [mixed(each) for each in part]
        if not isinstance(part, dict):
            return part
        items = list(part.items())
        draw.shuffle(items)
        return {key: mixed(each) for key, each in items}

    text = "# somebody's own words\n\n" + as_text(mixed(tables)) + "\n# and more\n"
    assert read_text(tmp_path, text).identity == planned.identity


def leaves(part, at=()):
    if isinstance(part, dict | list):
        for key, each in part.items() if isinstance(part, dict) else enumerate(part):
            yield from leaves(each, (*at, key))
    else:
        yield at, part


def test_every_changed_number_changes_the_identity(planned):
    tables, seen = planned.tables(), {planned.identity}
    numbers = [(at, x) for at, x in leaves(tables) if isinstance(x, int | float) and not isinstance(x, bool)]
    assert len(numbers) > 80
    skipped = {("version",), ("plan", "activations")}  # any other is refused
    for at, number in numbers:
        if at in skipped:
            continue
        other = number + 1 if isinstance(number, int) else float(np.nextafter(number, np.inf))
        place = ".".join(map(str, at))
        seen.add(make_consortium(with_changes(copy.deepcopy(tables), {place: other})).identity)
    assert len(seen) == len(numbers) - len(skipped) + 1


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "south-sea"},
        {"run.start": "north"},
        {"run.walk": "tour"},
        {"network.edges": [["north", "south"], ["north", "east"]]},
        {"problem.columns": sorted(DATA.columns)},
        {"problem.label": "outcome"},
        {"problem.intercept": True},
        {"parties.0.address": "relay.north.example:7444"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_changed_choice_changes_the_identity(tables, changes):
    before = make_consortium(copy.deepcopy(tables)).identity
    assert make_consortium(with_changes(tables, changes)).identity != before


def test_the_order_of_parties_is_agreed(tables):
    before = make_consortium(copy.deepcopy(tables)).identity
    tables["parties"].reverse()
    assert make_consortium(tables).identity != before


def test_a_failed_write_leaves_the_old_file(planned, tmp_path, monkeypatch):
    file = tmp_path / "agreed.toml"
    file.write_text("before")

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(InputError, match="no space left"):
        write_consortium(file, planned)
    assert file.read_text() == "before" and [each.name for each in tmp_path.iterdir()] == ["agreed.toml"]
    with pytest.raises(InputError, match="cannot be written"):
        write_consortium(tmp_path / "nowhere" / "agreed.toml", planned)


def test_what_cannot_be_read_back_is_not_written(planned, tmp_path):
    for changes, words in (({"patience": 0}, "patience = 0"), ({"epsilon": 2}, "does not read back")):
        with pytest.raises(InputError, match=words):
            write_consortium(tmp_path / "agreed.toml", replace(planned, **changes))
    for changes in ({"parties": planned.parties[:2]}, {"start": 3}):
        with pytest.raises(InputError, match="parties"):
            replace(planned, **changes)
    assert list(tmp_path.iterdir()) == []


# -- refusals


REFUSED = {
    "twice the name": ({"parties.1.name": "north"}, "same name, 'north'"),
    "upper case": ({"parties.1.name": "South"}, "a-z, 0-9 and -"),
    "long name": ({"name": "a" * 33}, "up to 32"),
    "no port": ({"parties.0.address": "relay.north.example"}, "must be host:port"),
    "large port": ({"parties.0.address": "relay.north.example:70000"}, "must be host:port"),
    "shared address": ({"parties.0.address": "relay.east.example:7443"}, "'north' and 'east' have the same address"),
    "no records": ({"parties.2.records": 0}, "records = 0 in party 3; it must be a number greater than or equal"),
    "text for a number": ({"parties.2.records": "136"}, "records = '136' in party 3; it must be a valid integer"),
    "short fingerprint": ({"parties.0.fingerprint": "sha256:00"}, "64 digits"),
    "other fingerprint": ({"parties.0.fingerprint": "sha256:" + "0" * 64}, "'north' has fingerprint sha256:"),
    "no certificate": ({"parties.0.certificate": "no PEM"}, "certificate of 'north'"),
    "unknown end": ({"network.edges": [["north", "south"], ["south", "west"]]}, "'west', which is not a party"),
    "itself": ({"network.edges": [["north", "north"]]}, "two different parties"),
    "apart": ({"network.edges": [["north", "south"]]}, "no path leads from north to east"),
    "no edges": ({"network.edges": []}, "must be pairs of names"),
    "algorithm": ({"run.algorithm": "recla"}, "Use one of: dgd"),
    "star": ({"run.algorithm": "afbs", "run.walk": None}, "cannot run in a consortium"),
    "argmin": ({"run.algorithm": "walkman"}, "cannot run in a consortium"),
    "two exchanges": ({"run.algorithm": "r-admm", "run.walk": None}, "cannot run in a consortium"),
    "probability": ({"run.algorithm": "tripd-dist", "run.walk": None}, "cannot run in a consortium"),
    "lazy": ({"run.walk": "lazy"}, "counts as a hop"),
    "no walk": ({"run.walk": None}, "must be one of: random, nonbacktracking, cyclic, tour"),
    "walk in rounds": ({"run.algorithm": "nids"}, "which has no walk"),
    "start": ({"run.start": "west"}, "start = 'west' is not a party"),
    "patience": ({"run.patience": 0}, "patience = 0"),
    "epsilon": ({"privacy.epsilon": 0.0}, "epsilon = 0.0 in \\[privacy\\]"),
    "delta": ({"privacy.delta": 1.0}, "delta = 1.0"),
    "tiny delta": ({"privacy.delta": 1e-12}, "delta = 1e-12"),
    "no bound": ({"problem.ranges": None}, "neither record_norm nor ranges"),
    "no slope": ({"problem.loss": "least-squares", "problem.classes": None}, "neither clip nor label_bound"),
    "three classes": ({"problem.classes": [0, 1, 2]}, "3 classes for the logistic loss; it needs two"),
    "no classes": ({"problem.classes": None}, "0 classes for the logistic loss"),
    "mixed classes": ({"problem.classes": [0, "1"]}, "all whole numbers below 2.53 or all texts"),
    "equal classes": ({"problem.classes": [1, 1]}, "different labels"),
    "classes of numbers": ({"problem.loss": "huber", "problem.threshold": 1.0}, "predicts numbers"),
    "another's option": ({"problem.threshold": 1.0}, "belongs to huber"),
    "huber": ({"problem.loss": "huber", "problem.classes": None}, "no threshold"),
    "ranges": ({"problem.ranges": [[0, 1]] * 29}, "29 ranges for 30 features"),
    "upside down": ({"problem.ranges": [1, 0]}, "low < high"),
    "both": ({"problem.features": 30}, "either columns"),
    "label among features": ({"problem.label": DATA.columns[3]}, "name of another column"),
    "no label": ({"problem.label": None}, "name of another column"),
    "column twice": ({"problem.columns": ["a", "a"]}, "each once"),
    "nan": ({"problem.l2": float("nan")}, "l2 = nan"),
    "inf": ({"problem.ranges": [0.0, float("inf")]}, "both finite"),
    "huge": ({"problem.record_norm": 10**400}, "record_norm"),
    "version": ({"version": 2}, "version 2; it must be 1"),
    "unknown key": ({"problem.clipp": 1.0}, "Did you mean 'clip'"),
    "unknown table": ({"plann": {}}, "Did you mean 'plan'"),
    "missing table": ({"privacy": None}, "the file has no 'privacy'"),
    "missing key": ({"parties.1.address": None}, "party 2 has no 'address'"),
    "no table": ({"run": 3}, "run = 3 in the file; it must be a table"),
    "one party": ({"parties": []}, "a list of two or more"),
}


@pytest.mark.parametrize("changes, words", REFUSED.values(), ids=REFUSED.keys())
def test_a_file_with_a_mistake_is_refused(tables, tmp_path, changes, words):
    with pytest.raises(InputError, match=words) as caught:
        read_text(tmp_path, as_text(with_changes(tables, changes)))
    assert "agreed.toml" in str(caught.value)


def test_a_mistake_is_shown_with_its_line(planned, tmp_path):
    lines = to_toml(planned).splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith(f"records = {SIZES[1]}"))
    lines[at] = "records = -1"
    with pytest.raises(InputError, match=rf"agreed.toml, line {at + 1}: records = -1 in party 2"):
        read_text(tmp_path, "\n".join(lines))


def test_lines_of_lists_of_tables():
    text = '[[a]]\nx = 1\n[[a]]\nx = """\n[[a]]\n"""\n[a.b]\nx = 2\n[c]\nx = 3'
    assert [line_of(text, ("a", str(i), "x")) for i in (0, 1)] == [2, 4]
    assert line_of(text, ("a", "1", "b", "x")) == 8 and line_of(text, ("c", "x")) == 10


def test_a_nonsmooth_term_needs_a_method_that_takes_it(tables, monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "recal", replace(ALGORITHMS["recal"], takes_r=False))
    make_consortium(copy.deepcopy(tables))
    with pytest.raises(InputError, match="no theory"):
        make_consortium(with_changes(tables, {"problem.l1": 0.1}))


def certificate(name, *, days=(-1, 1), hosts=None, ca=False):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts or [name]]), critical=False)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(True, *[False] * 8), critical=True)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    "pem, words",
    [
        (certificate("east"), None),
        (certificate("east", days=(-2, -1)), "'east' is valid from"),
        (certificate("east", days=(1, 2)), "'east' is valid from"),
        (certificate("north"), "'east' is issued to 'north'"),
        (certificate("east", hosts=["north"]), "'east'"),
        (certificate("east", ca=True), "'east'"),
        (certificate("east") + certificate("east"), None),
    ],
    ids=["good", "expired", "not yet", "another's", "other host", "an authority", "two"],
)
def test_certificates_are_looked_at(tables, pem, words, request):
    two = request.node.callspec.id == "two"
    mark = fingerprint(pem[: pem.index("-----END")] + "-----END CERTIFICATE-----\n") if two else fingerprint(pem)
    changed = with_changes(tables, {"parties.2.certificate": pem, "parties.2.fingerprint": mark})
    if words is None and not two:
        assert make_consortium(changed).parties[2].fingerprint == mark
        return
    with pytest.raises(InputError, match=words or "exactly one"):
        make_consortium(changed)


def test_garbled_certificates_are_refused(tables):
    der = base64.b64decode("".join(tables["parties"][0]["certificate"].splitlines()[1:-1]))
    version = der.index(b"\xa0\x03\x02\x01\x02") + 4  # 37 there makes a version that there is not
    draw = random.Random(0)
    spots = [(version, 37), *((draw.randrange(len(der)), draw.randrange(1, 256)) for _ in range(100))]
    for at, change in spots:
        broken = der[:at] + bytes([der[at] ^ change]) + der[at + 1 :]
        body = base64.encodebytes(broken).decode()
        tables["parties"][0]["certificate"] = f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"
        with pytest.raises(InputError, match="certificate of 'north'"):
            make_consortium(tables)


def test_the_same_certificate_in_another_dress_is_the_same_agreement(tables):
    before = make_consortium(copy.deepcopy(tables)).identity
    tables["parties"][0]["certificate"] = "about it\r\n" + tables["parties"][0]["certificate"].replace("\n", "\r\n")
    assert make_consortium(tables).identity == before


# -- hostile files


def read_or_refuse(file, content):
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        assert len(read_consortium(file).identity) == 32
    except InputError as error:
        assert str(file) in str(error)


@FUZZ
@given(st.text() | st.binary())
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    read_or_refuse(tmp_path_factory.getbasetemp() / "fuzz.toml", content)


SCALARS = st.one_of(
    st.integers(), st.just(10**400), st.floats(), st.booleans(), st.text(max_size=6).filter(str.isprintable)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)


@settings(FUZZ, max_examples=150)
@given(st.randoms(use_true_random=False), VALUES)
def test_any_value_anywhere_is_read_or_refused(planned, tmp_path_factory, draw, value):
    tables = planned.tables()
    at, last = tables, draw.choice(list(tables))
    while isinstance(at[last], dict | list) and at[last] and draw.random() < 0.8:
        at = at[last]
        last = draw.choice(list(at)) if isinstance(at, dict) else draw.randrange(len(at))
    at[last] = value
    read_or_refuse(tmp_path_factory.getbasetemp() / "fuzz.toml", as_text(tables))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\ufeff",
        b"\x00\xff" * 50,
        "a = " + "[" * 5000 + "]" * 5000,
        "[a" + ".b" * 5000 + "]",
        "a" + ".b" * 5000 + " = 1",
        "run" + ".b" * 5000 + " = 1",
        "version = " + "9" * 5000,
        "version = 0x" + "f" * 5000,
        "version = 1\nname = 0x" + "f" * 5000,
        "version = 1979-05-27",
        "version = 1\nparties = [[], [1]]",
        "[[plan]]",
    ],
    ids=range(13),
)
def test_hostile_files_are_refused(tmp_path, content):
    read_or_refuse(tmp_path / "hostile.toml", content)
    with pytest.raises(InputError):
        read_consortium(tmp_path / "hostile.toml")


def test_huge_numbers_in_a_whole_file_are_refused(planned, tmp_path):
    text = to_toml(planned)
    for key in ("records = 150", "epsilon = 2.0", "walk_seed = 7", "activations = 4", "l2 = 0.01", "classes = [-1, 1]"):
        name = key.split(" = ")[0]
        for value in ("0x" + "f" * 4000, "1e999", "-inf", "nan", "[]", "{}"):
            assert key in text
            with pytest.raises(InputError):
                read_text(tmp_path, text.replace(key, f"{name} = {value}", 1))


def test_what_is_no_file_is_refused(tmp_path, monkeypatch):
    for path in (tmp_path, tmp_path / "missing.toml"):
        with pytest.raises(InputError, match="cannot be read"):
            read_consortium(path)
    monkeypatch.setattr("relaydp.network.consortium.file.MOST_BYTES", 10)
    with pytest.raises(InputError, match="MiB"):
        read_text(tmp_path, "# more than ten bytes")


# -- plans


@pytest.mark.parametrize("changes", [*SHAPES.values(), {"problem.intercept": True, "problem.record_norm": 0.7}])
def test_facts_are_those_of_the_problem(tables, changes):
    made = make_consortium(with_changes(tables, changes))
    task, facts = made.problem, facts_of(made)
    rng = np.random.default_rng(0)
    label = np.asarray(task.classes) if task.classes else np.array([0.25, 0.5])
    everyone = [rd.Records(rng.random((size, task.width)), np.resize(label, size)) for size in SIZES]
    found = whole_problem(made, everyone).public_facts()
    assert (facts.agents, facts.dim, facts.modulus, facts.public) == (3, found.dim, found.modulus, found.public)
    assert np.array_equal(facts.sizes, found.sizes)
    np.testing.assert_allclose(facts.smoothness, found.smoothness, rtol=1e-14)  # NumPy's hypot, and Python's
    np.testing.assert_allclose(facts.clip, found.clip, rtol=1e-14)


def follow(consortium):
    """What the simulator makes of the agreed plan, with noise from the walk's seed."""
    problem, plan = whole_problem(consortium, shares()), plan_of(consortium)
    return problem, run(problem, consortium.graph, plan, np.zeros(problem.dim), Simulated(consortium.walk_seed), False)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "walk, schedule", [("random", {"ratio": 1.05}), ("nonbacktracking", {"ratio": 1.0}), ("tour", {})]
)
def test_the_simulator_follows_an_agreed_plan_as_solve_does(tables, tmp_path, walk, schedule):
    made = draw_up(make_consortium(with_changes(tables, {"run.walk": walk})), activations=4, **schedule)
    write_consortium(tmp_path / "agreed.toml", made)
    problem, outcome = follow(read_consortium(tmp_path / "agreed.toml"))
    result = rd.solve(
        problem,
        made.graph,
        "recal",
        budget=rd.Budget(made.epsilon, made.delta),
        activations=4,
        walk=walk,
        steps=made.plan.steps if schedule else "tuned",
        seed=made.walk_seed,
        start=made.start,
        trace=False,
        reference=False,
        **schedule,
    )
    assert outcome.status == result.status == "finished" and outcome.hops == result.hops
    assert np.array_equal(outcome.x, result.x)


def by_hand(consortium, activations):
    """A plan without any simulation: the paper's steps, equal shares of the budget: sigma = D sqrt(T / 2 rho)."""
    method, facts = ALGORITHMS[consortium.algorithm], facts_of(consortium)
    path = consortium.walk or "all"
    steps = choose_steps(method, "paper", facts, consortium.graph, path, activations, None).steps._asdict()
    sensitivity = clipped_sensitivity(facts.clip, facts.sizes, facts.dim)
    rho = rd.Budget(consortium.epsilon, consortium.delta).rho
    scales = np.tile(sensitivity * np.sqrt(activations / (2 * rho)), (activations, 1))
    numbers = {name: np.asarray(value).tolist() for name, value in steps.items()}
    return replace(consortium, plan=Agreed(activations, numbers, scales, sensitivity))


@pytest.mark.parametrize("algorithm", network_algorithms())
def test_every_algorithm_of_the_network_can_follow_agreed_numbers(tables, algorithm):
    relay = ALGORITHMS[algorithm].kind == "relay"
    made = make_consortium(with_changes(tables, {"run.algorithm": algorithm, "run.walk": "tour" if relay else None}))
    planned = by_hand(made, 3)
    plan = plan_of(planned)
    assert plan.activations == 3 and (plan.ledger.counts == 3).all() and plan.start == 1
    assert longest_wait(plan) == (1 if relay else 0)  # a tour of a path comes back through its middle
    spent = [epsilon_exact(sum((plan.sensitivity[i] / plan.scales[:, i]) ** 2 / 2), made.delta) for i in range(3)]
    assert np.allclose([epsilon_of(planned, i) for i in range(3)], spent, rtol=1e-9)
    assert np.allclose(spent, made.epsilon, rtol=1e-9)


def test_rounds_are_planned_and_followed_as_well(tables):
    made = make_consortium(with_changes(tables, {"run.algorithm": "nids", "run.walk": None}))
    planned = draw_up(made, activations=3)
    problem, outcome = follow(planned)
    budget, options = rd.Budget(made.epsilon, made.delta), {"seed": 7, "trace": False, "reference": False}
    result = rd.solve(problem, made.graph, "nids", budget=budget, activations=3, **options)
    assert outcome.status == "finished" and np.array_equal(outcome.x, result.x)


def test_planning_needs_no_record_and_no_luck(tables):
    made = make_consortium(tables)
    first, again = (draw_up(made, activations=4) for _ in range(2))
    assert first.identity == again.identity != made.identity
    with pytest.raises(InputError, match="no plan yet"):
        plan_of(made)


def test_more_noise_than_needed_is_accepted(planned):
    louder = replace(planned, plan=replace(planned.plan, scales=planned.plan.scales * 2))
    assert epsilon_of(louder, 0) < epsilon_of(planned, 0) <= planned.epsilon


def doctored(planned, **changes):
    return replace(planned, plan=replace(planned.plan, **changes))


@pytest.mark.parametrize("delta", [1 / max(SIZES), 0.3, 0.9])
def test_a_plan_at_a_delta_of_1_over_m_is_refused_by_everybody(planned, delta):
    with pytest.raises(PrivacyError, match=f"an agent with {max(SIZES)} records|must be from 1e-30 to 0.5"):
        plan_of(replace(planned, delta=delta))


def test_a_partys_limit_has_a_delta_of_its_own_by_default(planned):
    from inspect import signature

    from relaydp.cli.agent import serve
    from relaydp.network.records.public_plan import Settings

    assert signature(serve).parameters["max_delta"].default == Settings.max_delta == 1e-5


def test_a_plan_with_too_little_noise_is_refused(planned):
    plan = planned.plan
    quieter = plan.scales.copy()
    quieter[2, 1] *= 1 - 1e-6
    cases = [
        doctored(planned, scales=plan.scales * (1 - 1e-8)),
        doctored(planned, scales=quieter),
        doctored(planned, scales=plan.scales * 1e-300),
        replace(planned, epsilon=planned.epsilon * (1 - 1e-6)),
        replace(planned, delta=planned.delta * 0.999),
    ]
    for case in cases:
        with pytest.raises(PrivacyError, match="too little noise"):
            plan_of(case)
    with pytest.raises(PrivacyError, match="too little noise for south"):
        plan_of(cases[1])


def test_a_plan_with_another_sensitivity_is_refused(planned):
    plan = planned.plan
    halved = plan.sensitivity * np.array([1.0, 1.0, 0.5])
    fewer = [replace(party, records=party.records - (party.name == "east")) for party in planned.parties]
    for case in (
        doctored(planned, sensitivity=halved, scales=plan.scales * np.array([1.0, 1.0, 0.5])),
        doctored(planned, sensitivity=plan.sensitivity * (1 + 1e-9)),
        doctored(planned, sensitivity=np.nextafter(plan.sensitivity, 0.0)),  # what rounding adds has to be paid for
        doctored(planned, sensitivity=2 * facts_of(planned).clip / facts_of(planned).sizes),
        replace(planned, parties=tuple(fewer)),
    ):
        with pytest.raises(PrivacyError, match="east has sensitivity|north has sensitivity"):
            plan_of(case)


def test_what_secret_noise_cannot_promise_is_refused_with_the_plan(planned):
    """Before anybody has touched a record, and not at the first release."""
    plan = planned.plan
    for case, says in (
        (replace(planned, delta=0.6), "with secret noise it must be from"),
        (replace(planned, epsilon=2000.0), "proof for secret noise goes up to"),
        (replace(planned, epsilon=1e-12), "the noise is exact enough for 0 of them"),
        (doctored(planned, scales=plan.scales * 1e12), "Plan for less noise"),
    ):
        with pytest.raises(PrivacyError, match=says):
            plan_of(case)


def test_a_plan_of_another_shape_is_refused(planned, tmp_path):
    plan = planned.plan
    steps = plan.steps
    for changes in (
        {"scales": plan.scales[:3]},
        {"scales": plan.scales[:, :2]},
        {"activations": 5},
        {"sensitivity": plan.sensitivity[:2]},
        {"steps": steps | {"alpha": steps["alpha"][:2]}},
        {"steps": steps | {"beta": [steps["beta"]] * 3}},
        {"steps": steps | {"beta": [steps["beta"]]}},
        {"steps": {"alpha": steps["alpha"], "beta": steps["beta"]}},
        {"steps": steps | {"delta": 1.0}},
        {"steps": steps | {"alpha": [1e6] * 3}},  # outside what the method's theory allows
        {"steps": steps | {"gamma": 1e6}},
        {"steps": {name: 1e308 for name in steps}},
    ):
        with pytest.raises(InputError):
            plan_of(doctored(planned, **changes))
    with pytest.raises(PrivacyError, match="not finite"):
        plan_of(doctored(planned, scales=plan.scales * np.nan))
    text = to_toml(planned).replace("activations = 4", "activations = 5")
    with pytest.raises(InputError, match=r"line \d+: .* 4 rows of 3 scales and 3 sensitivities; it must have 5 rows"):
        read_text(tmp_path, text)
    for value in ("0.0", "-1.0", "nan", '"1"'):
        with pytest.raises(InputError):
            read_text(tmp_path, to_toml(planned).replace(repr(float(plan.scales[1, 1])), value))


def test_the_second_accountant_agrees(planned, monkeypatch):
    found = verified(planned, plan_of(planned))
    assert found.holds and found.epsilon <= planned.epsilon
    monkeypatch.setattr(
        "relaydp.network.consortium.agreed_plan.verify", lambda *_: replace(found, reasons=("it does not.",))
    )
    with pytest.raises(PrivacyError, match="it does not"):
        verified(planned, plan_of(planned))


def test_the_longest_wait_is_counted(planned):
    acts = plan_of(planned).route.acts.astype(int)
    assert longest_wait(plan_of(planned)) == max(len(run) for run in "".join(map(str, acts)).split("1"))


# -- records


def test_local_problems_are_parts_of_the_whole(planned):
    whole = whole_problem(planned, shares())
    x = np.linspace(-1, 1, whole.dim)
    assert whole.agents == 3 and whole.split.sizes.tolist() == list(SIZES)
    parts = [local_problem(planned, i, records) for i, records in enumerate(shares())]
    for i, part in enumerate(parts):
        assert part.agents == 1 and part.public_facts().clip == facts_of(planned).clip
        np.testing.assert_allclose(part.objective(x), whole.alone(i).objective(x), rtol=1e-13)
    assert np.isclose(np.mean([part.objective(x) for part in parts]), whole.objective(x), rtol=1e-13)


def test_bounds_that_records_bring_along_do_not_count(tables):
    made = make_consortium(with_changes(tables, {"problem.ranges": None, "problem.record_norm": 1.0}))
    mine = shares()[0]
    brought = rd.Records(mine.X, mine.y, columns=mine.columns, ranges=DATA.ranges)
    assert local_problem(made, 0, brought).ranges is None


def test_a_party_with_one_class_takes_part(tables):
    made = make_consortium(tables)
    everyone = shares(np.argsort(DATA.y, kind="stable"))  # north has the first class only
    assert len(np.unique(everyone[0].y)) == 1
    mine = local_problem(made, 0, everyone[0])
    assert mine.classes.tolist() == [-1, 1] and set(mine.encode_labels(everyone[0].y)) == {-1.0}
    assert whole_problem(made, everyone).classes.tolist() == [-1, 1]
    with pytest.raises(InputError, match="one class"):
        rd.logistic(everyone[0], agents=1)


def test_records_that_were_not_agreed_on_are_refused(planned):
    mine = shares()[0]
    turned = tuple(reversed(DATA.columns))
    for records, words in (
        (rd.Records(mine.X[:-1], mine.y[:-1]), "149 records, and north-sea agreed on 150 for north"),
        (rd.Records(mine.X[:, :-1], mine.y), "29 features"),
        (rd.Records(mine.X, mine.y, columns=turned), "'worst fractal dimension' where 'mean radius' was agreed"),
        (rd.Records(mine.X, mine.y * 2), "not one of the classes"),
        (rd.Records(mine.X, mine.y.astype(str)), "not one of the classes"),
    ):
        with pytest.raises(InputError, match=words):
            local_problem(planned, 0, records)
    with pytest.raises(InputError, match="2 parties"):
        whole_problem(planned, shares()[:2])


def write_table(path, names, columns):
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = pa.table([pa.array(column) for column in columns], names=names)
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        mark = "\t" if path.suffix == ".tsv" else ","
        csv.write_csv(table, path, csv.WriteOptions(delimiter=mark))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_own_records_are_picked_by_name(planned, tmp_path, suffix):
    mine = shares()[1]
    names = [*DATA.columns, "diagnosis", "ward", "gaps"]
    columns = [*mine.X.T, mine.y, ["a ward"] * len(mine), [None] * len(mine)]
    order = np.random.default_rng(0).permutation(len(names))
    path = write_table(tmp_path / f"own{suffix}", [names[k] for k in order], [columns[k] for k in order])
    read = read_own_records(planned, path)
    assert read.columns == DATA.columns and np.array_equal(read.X, mine.X) and np.array_equal(read.y, mine.y)
    assert local_problem(planned, 1, read).dim == 30


def test_own_records_without_an_agreed_column_are_refused(planned, tmp_path):
    mine = shares()[0]
    names = [*DATA.columns[:-1], "worst fractal dimensions", "diagnosis"]
    path = write_table(tmp_path / "own.csv", names, [*mine.X.T, mine.y])
    with pytest.raises(InputError, match="Did you mean 'worst fractal dimensions'"):
        read_own_records(planned, path)
    path.write_text(path.read_text().replace('"worst fractal dimensions"', '"mean radius"'))
    with pytest.raises(InputError, match="more than one column 'mean radius'"):
        read_own_records(planned, path)
    for name, content in (("own.npz", b""), ("none.csv", None), ("bad.parquet", b"PAR1 no"), ("own.csv.gz", b"no")):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=name):
            read_own_records(planned, tmp_path / name)


def test_own_records_without_names(tables, tmp_path):
    made = make_consortium(
        with_changes(tables, {"problem.columns": None, "problem.features": 4, "problem.label": None} | ONE_RANGE)
    )
    (tmp_path / "own.svm").write_text("1 1:0.5 3:1\n-1 2:0.25\n")  # no record has feature 4
    read = read_own_records(made, tmp_path / "own.svm")
    assert read.X.tolist() == [[0.5, 0, 1, 0], [0, 0.25, 0, 0]] and read.y.tolist() == [1, -1]
    for name, index in (("wide.svm", 5), ("moved.svm", 0)):
        (tmp_path / name).write_text(f"1 1:0.5\n1 {index}:0.5\n")
        with pytest.raises(InputError, match=f"index {index} in line 2; indices must be from 1 to 4"):
            read_own_records(made, tmp_path / name)
    np.savez(tmp_path / "own.npz", X=np.eye(4), y=np.array([1, -1, 1, -1]))
    assert read_own_records(made, tmp_path / "own.npz").X.shape == (4, 4)
    np.savez(tmp_path / "narrow.npz", X=np.eye(3), y=np.array([1, -1, 1]))
    (tmp_path / "own.csv").write_text("a,b,c,d,label\n1,2,3,4,1\n")
    assert read_own_records(made, tmp_path / "own.csv").columns == ("a", "b", "c", "d")
    (tmp_path / "open.csv").write_text('a,b,c,d,label\n1,2,3,4,"1\n1,2,3,4,1\n')
    with pytest.raises(InputError, match="a quote that is not closed in row 1"):
        read_own_records(made, tmp_path / "open.csv")
    with pytest.raises(InputError, match="3 features; 4 were agreed on"):
        read_own_records(made, tmp_path / "narrow.npz")


ONE_RANGE = {"problem.ranges": [0.0, 1.0]}


# -- classes of a problem


def test_listed_classes_are_found_ones_where_all_are_there():
    for maker in (rd.logistic, rd.softmax):
        found = maker(replace(DATA, classes=None), 3, l2=0.1)
        listed = maker(DATA, 3, l2=0.1, classes=[1, -1])
        x = np.linspace(-1, 1, found.dim)
        assert listed.classes.tolist() == found.classes.tolist() == [-1, 1]
        assert listed.objective(x) == found.objective(x)
        assert "classes" not in found.spec and listed.spec["classes"] == [-1, 1]
        again = build_again(json.loads(json.dumps(listed.spec)), DATA)
        assert again.classes.tolist() == [-1, 1] and again.objective(x) == listed.objective(x)


def test_a_class_that_nobody_shows_still_has_its_coefficients():
    data = rd.Records(np.eye(4), np.array(["b", "b", "c", "b"]))
    problem = rd.softmax(data, 2, classes=("c", "a", "b"))
    assert problem.dim == 12 and problem.encode_labels(data.y).tolist() == [1, 1, 2, 1]
    assert build_again(problem.spec, data).dim == 12
    assert problem.predict(np.zeros(12), np.eye(4)).tolist() == ["a"] * 4


@pytest.mark.parametrize(
    "maker, classes",
    [
        (rd.logistic, [0, 1, 2]),
        (rd.logistic, [0]),
        (rd.logistic, [1, 1]),
        (rd.logistic, [0, 2]),
        (rd.logistic, ["0", "1"]),
        (rd.logistic, [0, "1"]),
        (rd.logistic, "01"),
        (rd.logistic, 2),
        (rd.logistic, [[0], [1]]),
        (rd.logistic, [0.0, float("nan")]),
        (rd.softmax, [1]),
        (rd.softmax, []),
        (rd.softmax, [0, 2, 3]),
    ],
)
def test_classes_that_do_not_fit_are_refused(maker, classes):
    data = rd.Records(np.eye(4), np.array([0, 1, 0, 1]))
    with pytest.raises(InputError, match="classes"):
        maker(data, 2, classes=classes)


# -- the command


def call(command, *words):
    group = [] if command == "show" else ["consortium"]
    return CliRunner().invoke(app, [*group, command, *map(str, words)], prog_name="relaydp")


def facts(*words):
    result = call(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.fixture
def flags(keys, tmp_path):
    words = [
        "--epsilon",
        2,
        "--delta",
        1e-4,
        "--classes",
        "-1,1",
        "--label",
        "y",
        "--columns",
        "a,b",
        "--ranges",
        "0,1",
    ]
    for k, name in enumerate(NAMES):
        (tmp_path / f"{name}.pem").write_bytes(keys[name].certificate_pem)
        words += ["--party", f"{name}=127.0.0.1:{7000 + k},{SIZES[k]},{tmp_path / name}.pem"]
    return words


def test_new_plan_check_show(flags, tmp_path):
    file = tmp_path / "north-sea.toml"
    made = facts("new", file, *flags)
    assert made["name"] == "north-sea" and made["plan"] is None and made["run"]["walk"] == "tour"
    assert made["identity"] == read_consortium(file).identity.hex()
    refused = call("check", file)
    assert refused.exit_code == 2 and "no plan yet" in refused.stderr
    assert "none yet" in call("show", file).stdout

    planned = facts("plan", file, "--activations", 3)
    read = read_consortium(file)
    assert planned["identity"] == read.identity.hex() != made["identity"]
    assert planned["plan"]["activations"] == read.plan.activations == 3 and planned["predicted_excess"] > 0

    checked = facts("check", file)
    assert checked["holds"] and checked["identity"] == planned["identity"]
    for i, row in enumerate(checked["parties"]):
        assert row["name"] == NAMES[i] and row["epsilon"] == epsilon_of(read, i) <= 2.0
        assert abs(row["epsilon_pld"] - row["epsilon"]) < 1e-2
    shown = facts("show", file)
    assert shown["parties"][1]["fingerprint"] == read.parties[1].fingerprint and len(shown["edges"]) == 3

    for words in (("check", file), ("show", file)):
        result = call(*words)
        assert result.exit_code == 0 and planned["identity"] in result.stdout and "south" in result.stdout
    assert read.parties[2].fingerprint in call("show", file).stdout


def test_nothing_is_replaced_unasked(flags, tmp_path):
    file, other = tmp_path / "agreed.toml", tmp_path / "other.toml"
    assert call("new", file, *flags).exit_code == 0
    assert call("new", file, *flags).exit_code == 2 and call("new", file, *flags, "--overwrite").exit_code == 0
    result = call("plan", file, "--activations", 3)
    assert result.exit_code == 0 and "excess" in result.stdout and "identity" in result.stdout
    kept = file.read_bytes()
    again = call("plan", file, "--activations", 3, "--ratio", 1)
    assert again.exit_code == 2 and "--overwrite" in again.stderr and file.read_bytes() == kept
    other_plan = ("plan", file, "--activations", 3, "--ratio", 1)
    assert call(*other_plan, "--out", other).exit_code == 0 and file.read_bytes() == kept
    assert call(*other_plan, "--out", other).exit_code == 2
    assert call(*other_plan, "--overwrite").exit_code == 0
    assert file.read_bytes() == other.read_bytes() != kept


def test_check_refuses_a_doctored_plan(planned, tmp_path):
    file = tmp_path / "agreed.toml"
    quieter = doctored(planned, scales=planned.plan.scales * 0.9)
    write_consortium(file, quieter)
    for name in ("check", "show"):
        result = call(name, file)
        assert result.exit_code == 2 and "too little noise for" in result.stderr and "Traceback" not in result.output
    file.write_text("version = 1")
    assert call("check", file).exit_code == 2


def test_check_refuses_a_relay_that_would_give_up(planned, tmp_path):
    assert longest_wait(plan_of(planned)) > 1
    write_consortium(tmp_path / "agreed.toml", replace(planned, patience=1))
    result = call("check", tmp_path / "agreed.toml")
    assert result.exit_code == 2 and "Set patience" in result.stderr


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--graph", "path"], [["north", "south"], ["south", "east"]]),
        (["--graph", "star"], [["north", "south"], ["north", "east"]]),
        (["--graph", "complete"], [["north", "south"], ["north", "east"], ["south", "east"]]),
    ],
)
def test_new_knows_graphs(flags, tmp_path, words, expected):
    assert facts("new", tmp_path / "agreed.toml", *flags, *words)["edges"] == expected


def test_new_takes_columns_from_a_header_or_only_their_number(flags, tmp_path):
    (tmp_path / "own.csv").write_text("age,y,dose\n7,1,2\n")
    words = [word for word in flags if word not in ("--columns", "a,b")]
    made = facts("new", tmp_path / "agreed.toml", *words, "--columns", tmp_path / "own.csv")
    assert made["problem"]["columns"] == ["age", "dose"]
    bare = [word for word in words if word not in ("--label", "y")]
    unnamed = facts("new", tmp_path / "number.toml", *bare, "--columns", 2)
    assert unnamed["problem"]["features"] == 2 and "columns" not in unnamed["problem"]
    for label, said in ((["--label", "yy"], "Did you mean 'y'"), ([], "needs --label")):
        result = call("new", tmp_path / "other.toml", *bare, *label, "--columns", tmp_path / "own.csv")
        assert result.exit_code == 2 and said in result.stderr


# what has no option: a line of the file that `new` writes, and the line that a party's author puts in its place
EDITS = {
    'walk = "tour"': 'walk = "random"',
    "walk_seed = 0": "walk_seed = 7",
    'start = "north"': 'start = "east"',
    "patience = 90": "patience = 200",
    "l1 = 0.0": "l1 = 0.001",
    "l2 = 0.0": "l2 = 0.05\nclip = 0.5",
    '  ["north", "south"],\n': "",
}


def test_what_new_has_no_option_for_is_one_edit_away(flags, tmp_path):
    file = tmp_path / "agreed.toml"
    before = facts("new", file, *flags)
    for old, new in EDITS.items():
        text = file.read_text()
        assert text.count(old) == 1, old
        file.write_text(text.replace(old, new))
    facts("plan", file, "--activations", 3)
    made = facts("check", file)
    assert made["holds"] and made["identity"] != before["identity"]
    assert made["run"] == {
        "algorithm": "recal", "walk": "random", "walk_seed": 7, "start": "east", "patience": 200,
    }  # fmt: skip
    assert {name: made["problem"][name] for name in ("l1", "l2", "clip")} == {"l1": 0.001, "l2": 0.05, "clip": 0.5}
    assert made["edges"] == [["north", "east"], ["south", "east"]]


@pytest.mark.parametrize(
    "old, new, expected",
    [
        ('walk = "tour"', 'walk = "lazy"', "may stay where it is"),
        ("l2 = 0.0", "l2 = -1.0", "l2 = -1.0"),
        ('start = "north"', 'start = "west"', "west"),
    ],
)
def test_an_edit_that_cannot_be_is_refused_with_its_line(flags, tmp_path, old, new, expected):
    file = tmp_path / "agreed.toml"
    assert call("new", file, *flags).exit_code == 0
    file.write_text(file.read_text().replace(old, new))
    result = call("plan", file)
    assert result.exit_code == 2 and f"{file}, line" in result.stderr and expected in result.stderr, result.output


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--graph", "rin"], "Did you mean 'ring'"),
        (["--party", "west=127.0.0.1:7009"], "needed NAME=HOST:PORT"),
        (["--party", "west=127.0.0.1:7009,3,nowhere.pem"], "cannot be read"),
        (["--ranges", "0,x"], "LOW,HIGH"),
        (["--columns", "nowhere.csv"], "nowhere.csv"),
        (["--algorithm", "recla"], "cannot run in a consortium"),
        (["--name", "North Sea"], "a-z, 0-9 and -"),
        (["--loss", "huber"], "predicts numbers"),
    ],
)
def test_new_refuses_with_reasons(flags, tmp_path, words, expected):
    result = call("new", tmp_path / "agreed.toml", *flags, *words)
    assert result.exit_code == 2 and expected in result.stderr, result.output
    assert not (tmp_path / "agreed.toml").exists()


def test_new_of_other_kinds(flags, tmp_path):
    plain = [word for word in flags if word not in ("--classes", "-1,1")]
    rounds = facts("new", tmp_path / "a.toml", *plain, "--algorithm", "nids", "--loss", "huber")
    assert "walk" not in rounds["run"] and rounds["problem"]["threshold"] == 1.0
    texts = facts("new", tmp_path / "b.toml", *plain, "--loss", "softmax", "--classes", "no, yes,maybe")
    assert texts["problem"]["classes"] == ["maybe", "no", "yes"]
    truth = facts("new", tmp_path / "c.toml", *plain, "--classes", "true,false", "--ranges", "0,5")
    lengths = facts("new", tmp_path / "d.toml", *plain, "--loss", "least-squares", "--label-bound", 30)
    assert lengths["problem"]["label_bound"] == 30.0
    assert truth["problem"]["classes"] == [False, True] and truth["problem"]["ranges"] == [[0, 1], [0, 5]]


def test_the_example_is_accepted():
    from pathlib import Path

    example = Path(__file__).parents[2] / "examples" / "consortium.toml"
    assert facts("check", example)["holds"]
    assert read_consortium(example).identity == make_consortium(tomllib.loads(example.read_text())).identity
