"""Data at the oracle: what the catalogue promises, what files give back, and what each bad file is told."""

import bz2
import csv
import functools
import gzip
import hashlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pyarrow import parquet
from sklearn.datasets import dump_svmlight_file

from relaydp.data import CATALOGUE, Records, catalogue_names, describe, fetch, load_data, loaders, read_table
from relaydp.errors import InputError

QUICK = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def originals():
    if not os.environ.get(fetch.VARIABLE):
        pytest.skip(f"{fetch.VARIABLE} is not set, so the published files are not here")


@pytest.fixture(params=CATALOGUE)
def entry(request):
    entry = CATALOGUE[request.param]
    if entry.files:
        request.getfixturevalue("originals")
    return entry


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and no $RELAYDP_DATA."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(fetch, "cache_folder", lambda: folder)
    monkeypatch.delenv(fetch.VARIABLE, raising=False)
    return folder


@pytest.fixture
def script():
    path = Path(__file__).parents[2] / "scripts" / "make_fashion_small.py"
    spec = importlib.util.spec_from_file_location("make_fashion_small", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The catalogue


@pytest.mark.sample(2)
def test_each_entry_loads_as_described(entry):
    data = load_data(entry.name)
    assert data.test is not None
    assert (len(data), len(data.test)) == entry.records
    assert (data.features, str(data.X.dtype), data.name) == (entry.features, entry.dtype, entry.name)
    expected = [-1, 1] if len(entry.classes) == 2 else list(range(len(entry.classes)))
    for part in (data, data.test):
        assert np.unique(part.y).tolist() == expected
        assert part.y.dtype == np.int8 and part.ranges == entry.ranges
    low, high = data.ranges
    assert (data.X >= np.asarray(low)).all() and (data.X <= np.asarray(high)).all()
    assert load_data(entry.name).digest() == data.digest()


def test_class_counts_are_the_published_ones(originals):
    positive = {name: int((load_data(name).y == 1).sum()) for name in ("ijcnn1", "mnist", "fashion", "cifar10")}
    assert positive == {"ijcnn1": 4_853, "mnist": 6_742, "fashion": 6_000, "cifar10": 5_000}


def test_first_class_is_minus_one(originals):
    data = load_data("mnist")
    ink = data.X.mean(axis=1)
    assert ink[data.y == -1].mean() > 1.5 * ink[data.y == 1].mean()  # a 0 has more ink than a 1


@pytest.mark.parametrize("name", CATALOGUE)
def test_facts_are_json_and_need_no_files(name, cache):
    facts = describe(name)
    assert json.loads(json.dumps(facts)) == facts
    home = CATALOGUE[name].home
    assert facts["available"] == (home or "needs download")


def test_facts_see_local_files(originals):
    assert {describe(name)["available"] for name in ("ijcnn1", "mnist", "fashion", "cifar10")} == {"local file"}


@pytest.mark.parametrize("alias", ["Digits", " digits ", "optdigits", "OPTDIGITS"])
def test_aliases_lead_to_their_entry(alias):
    assert describe(alias)["name"] == "digits"


def test_aliases_are_unambiguous():
    every = [alias for entry in CATALOGUE.values() for alias in (entry.name, *entry.aliases)]
    assert len(every) == len(set(every))
    for alias, name in {
        "mnist_01": "mnist",
        "fashion-mnist": "fashion",
        "cifar10 cat dog": "cifar10",
    }.items():
        assert describe(alias)["name"] == name


def test_unknown_name_gets_the_nearest():
    with pytest.raises(InputError, match="Did you mean 'digits'.*path"):
        load_data("digitz")
    with pytest.raises(InputError, match="Records"):
        load_data(np.eye(3))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="columns of a file"):
        load_data("digits", label="y")


def test_breast_cancer_columns_and_split():
    from sklearn.datasets import load_breast_cancer

    data = load_data("breast-cancer")
    assert data.columns == tuple(load_breast_cancer()["feature_names"])  # type: ignore[index]
    assert data.test is not None
    assert abs((data.y == 1).mean() - (data.test.y == 1).mean()) < 0.01


def test_embedded_file_is_small_and_has_its_notice():
    assert loaders.FASHION_SMALL.stat().st_size < 1_500_000
    notice = loaders.FASHION_SMALL.with_name("LICENSE-fashion-mnist.txt").read_text(encoding="utf-8")
    assert "2017 Zalando SE" in notice and "Permission is hereby granted" in notice


def test_embedded_file_is_what_the_script_makes(originals, script):
    fresh = script.arrays()
    assert script.check(fresh) == ""
    assert script.check(fresh | {"y": -fresh["y"]}) == "y differ"
    full, small = loaders.fashion(), loaders.fashion_small()
    image = full.X[7].reshape(28, 28).astype(float)
    by_hand = [[image[2 * r : 2 * r + 2, 2 * c : 2 * c + 2].mean() for c in range(14)] for r in range(14)]
    assert np.array_equal(np.rint(by_hand), small.X[7].reshape(14, 14))
    assert np.array_equal(full.y, small.y) and np.array_equal(full.y_test, small.y_test)


def test_script_makes_the_same_bytes(script):
    contents = {"images_by_column": np.arange(24, dtype=np.uint8).reshape(2, 3, 4), "train": np.array(1)}
    assert script.packed(contents) == script.packed(contents)


def test_import_is_light():
    heavy = "'sklearn', 'pyarrow', 'pooch', 'scipy', 'jax', 'requests', 'matplotlib'"
    code = f"import sys, relaydp.data; print([name for name in ({heavy}) if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Records


def test_records_cannot_be_changed():
    X, y, group = np.eye(3), np.array([0, 1, 0]), np.array(["a", "b", "a"])
    data = Records(X, y, groups={"ward": group})
    before = data.digest()
    X[0, 0], y[0], group[0] = 9.0, 9, "z"
    assert data.digest() == before
    with pytest.raises(AttributeError):
        data.X = X  # type: ignore[misc]
    for array in (data.X, data.y, data.groups["ward"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
    with pytest.raises(TypeError):
        data.groups["ward"] = group  # type: ignore[index]


# Files: what is written comes back

numbers = hnp.arrays(
    np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(-1e9, 1e9, width=32)
)


def labels(X, seed):
    return np.random.RandomState(seed).choice([-1, 1], len(X))


def write_csv(path, X, y, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, delimiter=delimiter)
        out.writerow([*(f"f{i}" for i in range(X.shape[1])), "label"])
        out.writerows([*map(repr, map(float, row)), int(label)] for row, label in zip(X, y, strict=True))


def write_parquet(path, X, y):
    columns = {f"f{i}": X[:, i] for i in range(X.shape[1])}
    parquet.write_table(pa.table({"label": y, **columns}), path)


def write_libsvm(path, X, y):
    dump_svmlight_file(X, y, str(path), zero_based=False)


WRITERS = {
    "a.csv": write_csv,
    "a.tsv": functools.partial(write_csv, delimiter="\t"),
    "a.parquet": write_parquet,
    "a.npz": lambda path, X, y: np.savez(path, X=X, y=y),
}


@pytest.mark.parametrize("name", WRITERS)
@QUICK
@given(X=numbers, seed=st.integers(0, 99))
def test_round_trip(tmp_path, name, X, seed):
    y = labels(X, seed)
    WRITERS[name](tmp_path / name, X, y)
    data = load_data(tmp_path / name)
    assert np.array_equal(data.X, X) and np.array_equal(data.y, y)
    assert data.y.dtype == np.int64 and data.name == "a"


@QUICK
@given(X=numbers, seed=st.integers(0, 99))
def test_round_trip_libsvm(tmp_path, X, seed):
    X[0, -1] = 1.0  # the width of a sparse file is its last index in use, where none is declared
    X = np.array([[float(f"{value:.16g}") for value in row] for row in X])  # the digits the writer keeps
    y = labels(X, seed)
    write_libsvm(tmp_path / "a.svm", X, y)
    data = load_data(str(tmp_path / "a.svm"))
    assert np.array_equal(data.X, X) and np.array_equal(data.y, y) and data.width_found
    wider = load_data(tmp_path / "a.svm", features=X.shape[1] + 2)
    assert np.array_equal(wider.X, np.pad(X, ((0, 0), (0, 2)))) and not wider.width_found


@pytest.mark.parametrize("pack", [gzip, bz2], ids=["gz", "bz2"])
@pytest.mark.parametrize("name", ["a.csv", "a.libsvm"])
def test_compressed_files_read_alike(tmp_path, pack, name):
    X = np.array([[1.0, 2.0], [3.0, 4.5]])
    plain = tmp_path / name
    (write_csv if name == "a.csv" else write_libsvm)(plain, X, np.array([1, -1]))
    packed = tmp_path / f"{name}.{'gz' if pack is gzip else 'bz2'}"
    packed.write_bytes(pack.compress(plain.read_bytes()))
    assert read_table(packed).digest() == read_table(plain).digest()


def test_number_types_are_kept(tmp_path):
    X = np.arange(6, dtype=np.uint8).reshape(3, 2)
    np.savez(tmp_path / "a.npz", X=X, y=np.array([0, 1, 0]), X_test=X[:1], y_test=np.array([1]))
    data = read_table(tmp_path / "a.npz")
    assert data.X.dtype == np.uint8 and data.test is not None and len(data.test) == 1
    write_parquet(tmp_path / "a.parquet", X, np.array([0.0, 1.0, 0.0]))
    data = read_table(tmp_path / "a.parquet")
    assert data.X.dtype == np.uint8 and data.y.dtype == np.int64


def test_columns_groups_and_labels(tmp_path):
    path = tmp_path / "visits.csv"
    path.write_text('Class,age,ward,note\nyes,41,north,"a, ""b"""\nno,67.5,south,c\n', encoding="utf-8")
    data = read_table(path, groups="ward", drop=["note"], ranges=(0, 120))
    assert data.columns == ("age",) and data.y.tolist() == ["yes", "no"] and data.ranges == (0, 120)
    assert data.groups["ward"].tolist() == ["north", "south"]
    path.write_text("a,b,c\n1,2,0\n3,4,1\n")
    assert read_table(path).columns == ("a", "b")  # the last column is the label
    assert read_table(path, label="a").columns == ("b", "c")


def test_parquet_categories_are_text_labels(tmp_path):
    table = pa.table({"x": [1.5, 2.5], "label": pa.array(["a", "b"]).dictionary_encode()})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet").y.tolist() == ["a", "b"]


# Files: what each bad one is told

BAD_TABLES = {
    "text column": (
        "a,ward,label\n1,2,0\n1,north,1\n",
        {},
        "'ward' holds 'north' in row 2.*groups=.*drop=.*label=",
    ),
    "empty cell": ("a,label\n1,0\n,1\n", {}, "'a' holds nothing in row 2"),
    "nan": ("a,label\n1,0\n2,1\nnan,1\n", {}, "'a' holds nothing in row 3"),
    "infinite": ("a,label\ninf,0\n2,1\n", {}, "'a' holds inf in row 1"),
    "no label": ("a,label\n1,x\n2,\n", {}, "'label' holds nothing in row 2"),
    "column of gaps": ("a,b,label\n1,,0\n2,,1\n", {}, "'b' holds nothing in row 1"),
    "no group": ("a,ward,label\n1,n,0\n2,,1\n", {"groups": "ward"}, "'ward' holds nothing in row 2"),
    "date": ("a,day,label\n1,2020-01-01,0\n", {}, "'day' holds '2020-01-01' in row 1"),
    "unknown label": ("age,label\n1,0\n", {"label": "lable"}, "unknown column 'lable' in .*Did you mean 'label'"),
    "unknown group": ("age,label\n1,0\n", {"groups": "agee"}, "Did you mean 'age'"),
    "unknown drop": ("age,label\n1,0\n", {"drop": ["agee"]}, "Did you mean 'age'"),
    "two uses": ("a,b,label\n1,2,0\n", {"groups": "b", "drop": "b"}, "'b' is used as groups and as drop"),
    "label grouped": ("a,label\n1,0\n", {"label": "a", "groups": "a"}, "'a' is used as label and as groups"),
    "two labels": ("a,label,y\n1,0,0\n", {}, "'label', 'y'.*Pass label="),
    "no features": ("label\n1\n", {}, "no features left"),
    "nothing left": ("a,b\n1,2\n", {"drop": ["a", "b"]}, "no column left"),
    "twice": ("a,a,label\n1,2,0\n", {}, "more than one column 'a'"),
    "ragged": ("a,b,label\n1,2,0\n1,2\n", {}, "could not be read as CSV.*3 columns"),
    "header only": ("a,b,label\n", {}, "no rows"),
    "no header": ("1,2,0\n3,4,1\n", {}, "Add a header row"),
    "empty": ("", {}, "empty"),
    "blank": ("\n\n", {}, "."),
}


@pytest.mark.parametrize("text, options, said", BAD_TABLES.values(), ids=BAD_TABLES.keys())
def test_bad_tables(tmp_path, text, options, said):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=f"(?s){said}"):
        load_data(path, **options)


def test_late_text_in_a_long_column_is_found(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,label\n" + "12345,1\n" * 200_000 + "oops,0\n")
    with pytest.raises(InputError, match="'a' holds 'oops' in row 200001"):
        read_table(path)


BAD_LIBSVM = {
    "word": ("1 1:2\n-1 2:x\n", "'-1 2:x' in row 2"),
    "label": ("1 1:2\n\nyes 1:2\n", "'yes 1:2' in row 3"),
    "no pair": ("1 12\n", "in row 1"),
    "order": ("1 3:1 2:1\n", "rising"),
    "nan": ("1 1:2\n1 1:nan\n", "'feature 1' holds nan in row 2"),
    "wide": ("1 999999999:1\n-1 1:1\n", "4 GiB"),
    "nothing": ("# only a comment\n", "no records"),
    "index 0": ("1 1:2\n-1 0:1 2:1\n", "index 0 in line 2; indices must be from 1 to .* Correct that line.$"),
    "below 0": ("1 1:2\n-1 -3:1 2:1\n", "index -3 in line 2"),
    "huge": (f"1 1:2\n-1 2:1 {2**70}:1\n", f"index {2**70} in line 2"),
}


@pytest.mark.parametrize("text, said", BAD_LIBSVM.values(), ids=BAD_LIBSVM.keys())
def test_bad_libsvm(tmp_path, text, said):
    (tmp_path / "a.svm").write_text(text)
    with pytest.raises(InputError, match=said):
        read_table(tmp_path / "a.svm")


def test_one_index_0_moves_nobodys_columns(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("1 1:0.1 2:0.9\n" * 5 + "1 0:0.5\n")
    for features in (None, 3):
        with pytest.raises(InputError, match="index 0 in line 6"):
            read_table(path, features=features)


def test_an_index_beyond_the_declared_number(tmp_path):
    path = tmp_path / "a.svm"
    for index in (4, 5, 2**40):
        path.write_text(f"1 1:0.1 3:0.9\n\n-1 2:1 {index}:1\n")
        with pytest.raises(InputError, match=f"index {index} in line 3; indices must be from 1 to 3.*declare more"):
            read_table(path, features=3)


@pytest.mark.parametrize("name", WRITERS)
def test_a_declared_number_of_features_is_checked(tmp_path, name):
    X = np.arange(6.0).reshape(3, 2)
    WRITERS[name](tmp_path / name, X, np.array([0, 1, 0]))
    data = load_data(tmp_path / name, features=2)
    assert data.features == 2 and not data.width_found and not load_data(tmp_path / name).width_found
    with pytest.raises(InputError, match="a has 2 features, and features=3"):
        load_data(tmp_path / name, features=3)
    for wrong in (0, -1, True, 2.0, "2"):
        with pytest.raises(InputError, match="features=.*; it must be a whole number"):
            load_data(tmp_path / name, features=wrong)


def test_a_declared_number_of_features_of_the_catalogue():
    assert load_data("fashion-small", features=196).features == 196
    with pytest.raises(InputError, match="fashion-small has 196 features, and features=3"):
        load_data("fashion-small", features=3)


PLACES = {"first": '"{},{},{}', "middle": '{},"{},{}', "last": '{},{},"{}'}  # of the quote in a row
CLOSED = {"first": '{}",{},{}', "middle": '{},{}",{}', "last": '{},{},{}"'}


@pytest.mark.parametrize("rows", [200, 200_000], ids=["short", "long"])
@pytest.mark.parametrize("end", [None, "next", "late", "another"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("delimiter", [",", "\t"], ids=["csv", "tsv"])
def test_a_quote_that_is_not_closed_in_its_line_is_refused(tmp_path, place, end, rows, delimiter):
    """Else the records up to the next quote would be part of one value."""
    path = tmp_path / ("a.csv" if delimiter == "," else "a.tsv")
    lines = ["ward,note,label", *(f"n,x,{i % 2}" for i in range(rows))]
    lines[50] = PLACES[place].format("n", "x", 0)
    if end is not None:  # closed in a later line, or taken for closed by the quotes of another value
        lines[51 if end == "next" else rows - 20] = (
            "n,x,1".replace("x", '"x"') if end == "another" else CLOSED[place].format("n", "x", 1)
        )
    path.write_text("\n".join(lines).replace(",", delimiter) + "\n")
    for options in ({"groups": ["ward", "note"]}, {"drop": ["ward", "note"]}, {}):
        with pytest.raises(
            InputError, match=r"not closed in row 50 \(line 51\).*Close the quote, or write line breaks"
        ):
            read_table(path, **options)


def test_quotes_elsewhere(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbf"a","the ""b"" of, it",label\r\n\r\n"1","2",0\r\n3,4,"1"')
    data = read_table(path)
    assert data.X.tolist() == [[1, 2], [3, 4]] and data.columns == ("a", 'the "b" of, it') and data.y.tolist() == [0, 1]
    path.write_text('a,ward,label\n1,5" pipe,0\n2,"say ""no"", twice",1\n')
    assert read_table(path, groups="ward").groups["ward"].tolist() == ['5" pipe', 'say "no", twice']
    path.write_text('a,"ward,label\n1,n,0\n')
    with pytest.raises(InputError, match="not closed in the header"):
        read_table(path)
    path.write_text('a,ward,label\n\n1,n,0\n\n2,"n"",1\n')
    with pytest.raises(InputError, match=r"row 2 \(line 5\)"):
        read_table(path)


def test_group_values_are_told_apart_or_refused(tmp_path):
    path, ids = tmp_path / "a.csv", [2**53, 2**53 + 1, 2**53 + 2]
    lines = ["a,ward,label", *(f"0.5,{ids[i % 3]},{i % 2}" for i in range(9))]
    path.write_text("\n".join(lines))
    assert len(np.unique(read_table(path, groups="ward").groups["ward"])) == 3
    lines[4] = f"0.5,{ids[0]}.0,1"
    path.write_text("\n".join(lines))
    for groups in (["ward"], []):  # kept apart while it is read, or named by agents= later
        with pytest.raises(InputError, match=r"group column 'ward': value 9\S* is a float of 2\^53 or more"):
            read_table(path, groups=groups).with_group("ward")
    path.write_text("a,ward,label\n0.5,1.0,0\n1,2,1\n")  # one 1.0 makes no other name of 2
    for groups in (["ward"], []):
        assert read_table(path, groups=groups).with_group("ward").groups["ward"].tolist() == [1, 2]


def test_text_that_is_not_utf_8_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,ward,label\n1,n\xff,0\n2,s,1\n")
    with pytest.raises(InputError, match="'ward' has bytes that are not UTF-8 text"):
        read_table(path, groups="ward")
    assert len(read_table(path, drop="ward")) == 2
    path.write_text("a,größe,label\n1,2,0\n2,3,1\n", encoding="latin-1")
    with pytest.raises(InputError, match=r"a\.csv is not text in UTF-8.*'gr.*Save it again as UTF-8"):
        read_table(path)
    for kind in ("utf-16", "utf-16-be"):  # what some spreadsheets call Unicode
        path.write_text("\ufeff" * (kind != "utf-16") + "a,b,label\n1,2,0\n2,3,1\n", encoding=kind)
        with pytest.raises(InputError, match="text in UTF-16.*Save it again as UTF-8"):
            read_table(path)


@pytest.mark.parametrize("before", ["", "\ufeff", "\n"], ids=["plain", "mark", "empty-line"])
def test_semicolons_with_decimal_commas_are_told_apart_from_ragged_rows(tmp_path, before):
    """What spreadsheets write where the decimal sign is a comma."""
    path = tmp_path / "a.csv"
    path.write_text(f"{before}a;b;label\n1,5;2,5;0\n2,5;3,5;1\n", encoding="utf-8")
    with pytest.raises(InputError, match="semicolons between its columns.*points in the numbers"):
        read_table(path)


def test_times_and_dates_are_the_text_that_was_written(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,at,day,label\n1,12:00,2020-01-01,1:30\n2,13:00:05,2020-01-02 10:00,2:30\n")
    data = read_table(path, groups=["at", "day"])
    assert data.groups["at"].tolist() == ["12:00", "13:00:05"] and data.y.tolist() == ["1:30", "2:30"]
    assert data.groups["day"].tolist() == ["2020-01-01", "2020-01-02 10:00"]
    path.write_text("a,at,label\n1,12:00,0\n2,,1\n")
    with pytest.raises(InputError, match="'at' holds nothing in row 2"):
        read_table(path, groups="at")


LISTS = {
    "truth values": [[True, False], [False, True]],
    "one number among them": [[True, False], [0, True]],
    "whole numbers": [[1, 0], [0, 1]],
    "bytes": [np.array([1, 0], np.uint8), np.array([0, 1], np.uint8)],
    "fractions": [[1.0, 0.0], [0.0, 1.0]],
}


@pytest.mark.parametrize("X", LISTS.values(), ids=LISTS.keys())
def test_what_has_no_type_becomes_float64(X):
    data = Records(X, [0, 1])
    assert data.X.dtype == np.float64 and np.array_equal(data.X, np.eye(2) if X[1][0] == 0 else 0)
    assert Records(np.eye(2, dtype=bool), [0, 1]).X.dtype == bool  # declared


def test_lists_that_are_no_features():
    for X, said in (
        ([["1", 2]], "must hold numbers"),
        ([[1, None]], "must hold numbers"),
        ([[1, 2], [3]], "same length"),
    ):
        with pytest.raises(InputError, match=said):
            Records(X, np.zeros(len(X)))


NAMES = ["a.csv", "a.csv.gz", "a.tsv", "a.parquet", "a.svm", "a.svm.bz2", "a.bz2", "a.npz"]


@pytest.mark.parametrize("name", NAMES)
def test_garbled_files(tmp_path, name):
    path = tmp_path / name
    for bytes_ in (
        b"",
        b"\x1f\x8b\x08\x00garbage",
        b"PK\x03\x04" + bytes(40),
        b"BZh9\xff\xfe",
        bytes(range(256)),
    ):
        path.write_bytes(bytes_)
        with pytest.raises(InputError, match=f"{name}"):
            read_table(path)


@pytest.mark.parametrize("name", ["a.parquet", "a.npz", "a.csv.gz"])
def test_truncated_files(tmp_path, name):
    X, y = np.arange(4000.0).reshape(2000, 2), np.ones(2000)
    if name == "a.csv.gz":
        write_csv(tmp_path / "a.csv", X, y)
        whole = gzip.compress((tmp_path / "a.csv").read_bytes())
    else:
        WRITERS[name](tmp_path / name, X, y)
        whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="could not be read"):
        read_table(tmp_path / name)


def test_bad_npz(tmp_path):
    path = tmp_path / "a.npz"
    for arrays, said in (
        ({"X": np.eye(2)}, "not y"),
        ({"X": np.eye(2), "y": np.ones(2), "X_test": np.eye(2)}, "not y_test"),
        ({"X": np.eye(2), "y": np.array([{}, {}], dtype=object)}, "could not be read"),
        ({"X": np.array([[1.0, np.nan]]), "y": np.ones(1)}, r"X\[0, 1\] is nan"),
        (
            {"X": np.array([[1.0, -1e200]]), "y": np.ones(1)},
            r"X\[0, 1\] is -1e.200; all numbers must be finite, 1e.60 at",
        ),
        ({"X": np.eye(2), "y": np.array([0.5, 1e200])}, r"y\[1\] is 1e.200"),
        ({"X": np.ones((2, 2, 2)), "y": np.ones(2)}, "two axes"),
        ({"X": np.eye(2), "y": np.ones(3)}, r"y has shape \(3,\)"),
    ):
        np.savez(path, **arrays)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=said):
            read_table(path)
    with path.open("wb") as file:
        np.save(file, np.eye(2))
    with pytest.raises(InputError, match="single array"):
        read_table(path)


def test_paths_that_lead_nowhere(tmp_path):
    for source in (tmp_path / "a.csv", "./nowhere.csv", "nowhere.parquet"):
        with pytest.raises(InputError, match="does not exist"):
            load_data(source)
    with pytest.raises(InputError, match="suffix"):
        load_data(tmp_path / "a.xlsx")
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        load_data(tmp_path / "a.csv")
    write_libsvm(tmp_path / "a.svm", np.eye(2), np.ones(2))
    with pytest.raises(InputError, match="no named columns"):
        load_data(tmp_path / "a.svm", drop="x")


# Originals: found, refused, downloaded


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A web server on this machine: (folder it serves, base URL, list of paths asked for)."""
    folder, asked = tmp_path / "served", []
    folder.mkdir()
    monkeypatch.setenv("NO_PROXY", "*")

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            asked.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))) as web:
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield folder, f"http://127.0.0.1:{web.server_address[1]}/", asked
        web.shutdown()
        thread.join()


def test_offline_error_says_what_to_put_where(cache, monkeypatch):
    import pooch

    def unreachable(*_, **__):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(pooch, "retrieve", unreachable)
    for name in ("ijcnn1", "mnist", "fashion", "cifar10"):
        with pytest.raises(InputError) as caught:
            load_data(name)
        text = str(caught.value)
        assert "no route to host" in text and str(cache) in text and fetch.VARIABLE in text
        for original in CATALOGUE[name].files:
            assert original.path in text and original.sha256 in text and original.urls[0] in text
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_download_happens_once(cache, server):
    folder, base, asked = server
    (folder / "x.gz").write_bytes(b"published")
    original = fetch.Original("set/x.gz", (base + "gone.gz", base + "x.gz"), sha256(b"published"))
    # The first address has nothing, so the second is asked.
    for _ in range(2):
        assert fetch.find([original]) == [cache / "set/x.gz"]
    assert asked.count("/x.gz") == 1
    assert [path.name for path in cache.rglob("*") if path.is_file()] == ["x.gz"]


def test_wrong_download_is_not_kept(cache, server):
    folder, base, _ = server
    (folder / "x.gz").write_bytes(b"something else")
    with pytest.raises(InputError, match="(?s)hash.*set/x.gz"):
        fetch.find([fetch.Original("set/x.gz", (base + "x.gz",), sha256(b"published"))])
    assert list(cache.rglob("*")) == []


def test_wrong_file_is_refused_and_left_alone(cache, tmp_path, monkeypatch):
    original = fetch.Original("x.gz", ("http://127.0.0.1:9/x.gz",), sha256(b"published"))
    monkeypatch.setenv(fetch.VARIABLE, str(tmp_path))
    (tmp_path / "x.gz").write_bytes(b"tampered")
    with pytest.raises(InputError, match=f"not the published x.gz.*{sha256(b'tampered')}.*not changed"):
        fetch.find([original])
    assert (tmp_path / "x.gz").read_bytes() == b"tampered"
    (tmp_path / "x.gz").write_bytes(b"published")  # another size: looked at again
    assert fetch.find([original]) == [tmp_path / "x.gz"]


def test_corrupt_copy_of_a_real_set_is_refused(cache, tmp_path, monkeypatch):
    monkeypatch.setenv(fetch.VARIABLE, str(tmp_path))
    for original in fetch.CIFAR10 + fetch.IJCNN1 + fetch.MNIST:
        (tmp_path / original.path).parent.mkdir(exist_ok=True)
        (tmp_path / original.path).write_bytes(b"\x1f\x8bgarbled")
    for name in ("cifar10", "ijcnn1", "mnist"):
        with pytest.raises(InputError, match="is not the published"):
            load_data(name)


def test_data_folder_must_exist(monkeypatch, tmp_path):
    monkeypatch.setenv(fetch.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="not a folder"):
        load_data("mnist")


def test_files_are_hashed_once_a_process(cache, tmp_path, monkeypatch):
    monkeypatch.setenv(fetch.VARIABLE, str(tmp_path))
    (tmp_path / "once.gz").write_bytes(b"published")
    original = fetch.Original("once.gz", ("http://127.0.0.1:9/",), sha256(b"published"))
    fetch.find([original])
    before = fetch._fault.cache_info().misses
    fetch.find([original])
    assert fetch._fault.cache_info().misses == before


def test_libsvm_text_is_recognised_by_its_records(cache, server):
    folder, base, _ = server
    text = b"-1 1:0.5 22:1\n1 3:0.0 22:0.25\n"
    (folder / "z.bz2").write_bytes(bz2.compress(text.replace(b"-1 ", b"-1.0 ").replace(b"3:0.0 ", b""), 1))
    (folder / "same.bz2").write_bytes(bz2.compress(text))
    digest = fetch.records_digest(folder / "same.bz2")
    good = fetch.Original("z.bz2", (base + "z.bz2",), sha256(b"other archive"), (fetch.records_digest, digest))
    assert fetch.find([good]) == [cache / "z.bz2"]
    bad = fetch.Original("w.bz2", (base + "z.bz2",), sha256(b"x"), (fetch.records_digest, sha256(b"y")))
    with pytest.raises(InputError, match="contents differ"):
        fetch.find([bad])
    assert not (cache / "w.bz2").exists()


def test_cats_and_dogs_come_from_one_archive(cache, server, monkeypatch):
    folder, base, asked = server
    records = np.random.RandomState(0).randint(0, 256, (30, fetch.CIFAR_RECORD)).astype(np.uint8)
    records[:, 0] = np.arange(30) % 10
    with tarfile.open(folder / "c.tar.gz", "w:gz") as tar:
        for name, part in (("one.bin", records[:20]), ("two.bin", records[20:])):
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = part.nbytes
            tar.addfile(info, io.BytesIO(part.tobytes()))
    monkeypatch.setattr(fetch, "CIFAR_ARCHIVE_SHA256", sha256((folder / "c.tar.gz").read_bytes()))

    def original(path, part, batch):
        kept = part[np.isin(part[:, 0], (3, 5))].tobytes()
        return fetch.Original(path, (base + "c.tar.gz",), "", (fetch.bytes_digest, sha256(kept)), (batch,))

    wanted = (original("a.bin.gz", records[:20], "one.bin"), original("b.bin.gz", records[20:], "two.bin"))
    monkeypatch.setattr(fetch, "CIFAR10", wanted)
    X, y, X_test, y_test = loaders.cifar10()
    assert (X.shape, y.tolist(), y_test.tolist()) == ((4, 3072), [-1, 1, -1, 1], [-1, 1])
    assert np.array_equal(X_test[0], records[23, 1:])
    assert asked.count("/c.tar.gz") == 1
    # The archive put in place by hand serves as well.
    for file in cache.iterdir():
        file.unlink()
    (cache / "c.tar.gz").write_bytes((folder / "c.tar.gz").read_bytes())
    assert len(fetch.find(wanted)) == 2 and asked.count("/c.tar.gz") == 1
    assert (cache / "c.tar.gz").exists()


def test_names_are_in_the_promised_order():
    assert catalogue_names() == (
        "fashion-small",
        "breast-cancer",
        "digits",
        "ijcnn1",
        "mnist",
        "fashion",
        "cifar10",
    )


@pytest.mark.parametrize("first", ["0.1,0.2,1", "0.1,NA,1", "0.1,,1", "0.1,0.2,true", "n,1,0.5", "0.6,0.3,yes"])
def test_a_first_record_never_passes_for_a_header(first, tmp_path):
    """Not with some words among its numbers, either: it would name the columns, and choose the label's."""
    path = tmp_path / "bare.csv"
    path.write_text(first + "\n0.3,0.4,0\n0.5,0.6,1\n")
    with pytest.raises(InputError, match="instead of a column name"):
        read_table(path)
