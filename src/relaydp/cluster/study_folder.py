"""The folder of a study: a part for each finished task, and one Parquet table of them all.

FOLDER/study.json             which study this is: digests of its tasks, files and loss, and the versions it ran with
FOLDER/parts/TASK.parquet     written whole as a task finishes; a study can be resumed from these
FOLDER/results.parquet        all parts in the order of the study, whatever order they finished in
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaydp.cluster.study import Study
from relaydp.cluster.study_tasks import OwnLoss, StudyTask
from relaydp.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

ABOUT, PARTS, RESULTS = "study.json", "parts", "results.parquet"
FILES = (("data", "source"), ("graph", "kind"), ("graph", "file"), ("run", "prior"))  # settings that may name a file
TEXTS = "task data loss agents_asked graph algorithm walk mechanism status loss_used model_sha256 host error".split()
COUNTS = "activations_asked seed agents plf messages".split()
ORDER = (
    "task data loss agents_asked graph algorithm walk activations_asked mechanism epsilon_asked delta_asked seed "
    "status loss_used agents epsilon_planned rho delta plf messages objective excess relative_error accuracy "
    "model_sha256 seconds host error"
).split()


def schema() -> pa.Schema:
    """One row per run: its coordinates, its results, and what its plan would cost; null if there is no proof.

    The runs themselves have seeds. They are simulations, and no row has a guarantee.
    """
    import pyarrow as pa

    kinds = {name: pa.string() for name in TEXTS} | {name: pa.int64() for name in COUNTS}
    return pa.schema([(name, kinds.get(name, pa.float64())) for name in ORDER])


def make_part(study: Study, task: StudyTask, columns: dict[str, list[Any]]) -> pa.Table:
    """A task's columns together with its coordinates."""
    import pyarrow as pa

    rows = len(task.seeds)
    fixed = {"task": task.id, **study.cases[task.case].coordinates}
    full = columns | {name: [value] * rows for name, value in fixed.items()}
    return pa.table({name: full[name] for name in ORDER}, schema=schema())


class Folder:
    """A study's folder. `check_folder` checks whether it may be used; `begin` makes it, or resumes it."""

    def __init__(self, path: Path, study: Study, about: dict[str, Any]) -> None:
        self.path, self.study, self.about = path, study, about

    def begin(self, overwrite: bool = False) -> None:
        if overwrite:
            for name in (PARTS, RESULTS):
                _remove(self.path / name)
        (self.path / PARTS).mkdir(parents=True, exist_ok=True)
        draft = self.path / f"{ABOUT}.draft"
        draft.write_text(json.dumps(self.about, indent=1) + "\n")
        draft.replace(self.path / ABOUT)

    def part(self, task: StudyTask) -> Path:
        return self.path / PARTS / f"{task.id}.parquet"

    def keep(self, task: StudyTask, columns: dict[str, list[Any]]) -> None:
        _write(make_part(self.study, task, columns), self.part(task))

    def read(self, task: StudyTask) -> pa.Table | None:
        """A finished task's rows; None if there are none or the file is damaged; they are then computed again."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            found = pq.ParquetFile(self.part(task)).read()
        except (OSError, pa.ArrowInvalid):
            return None
        same = found.schema.equals(schema()) and found["seed"].to_pylist() == list(task.seeds)
        return found if same else None

    def is_done(self, task: StudyTask) -> bool:
        found = self.read(task)
        return found is not None and "failed" not in found["status"].to_pylist()

    def merge(self, tasks: Sequence[StudyTask]) -> pa.Table:
        """Build results.parquet anew from the parts, in study order."""
        import pyarrow as pa

        parts = [part for task in tasks if (part := self.read(task)) is not None]
        table = pa.concat_tables(parts) if parts else schema().empty_table()
        _write(table, self.path / RESULTS)
        return table


def check_folder(
    path: Path, study: Study, loss: OwnLoss | None = None, *, resume: bool = False, overwrite: bool = False
) -> Folder:
    """The folder for a study's results, before anything is written. Refuses to mix two studies in one table."""
    about = _about(study, loss)
    if path.exists() and not path.is_dir():
        raise InputError(f"--out {path} is a file; the study's results need a folder. Choose another path.")
    if (path / ABOUT).is_file():
        if resume:
            _check_same(path, about)
        elif not overwrite:
            raise InputError(
                f"--out {path} holds a study already; pass --resume to continue it, --overwrite to start again, or "
                "choose another folder."
            )
    elif path.exists() and any(path.iterdir()):
        raise InputError(f"--out {path} holds other files and no study; choose a new folder.")
    elif resume:
        raise InputError(f"--resume was given, and {path} holds no study; leave --resume out to start one.")
    return Folder(path, study, about)


def _about(study: Study, loss: OwnLoss | None) -> dict[str, Any]:
    sources = {str(case.tables[table][key]) for case in study.cases for table, key in FILES if case.tables[table][key]}
    return {
        "name": study.name,
        "digest": study.digest,
        "files": {name: _sha256(Path(name)) for name in sorted(sources) if Path(name).is_file()},
        "loss": None if loss is None else hashlib.sha256(repr(loss).encode()).hexdigest(),
        "versions": _versions(),
    }


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _check_same(path: Path, about: dict[str, Any]) -> None:
    try:
        kept = json.loads((path / ABOUT).read_text())
        digest, versions, files, loss = (kept[name] for name in ("digest", "versions", "files", "loss"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path / ABOUT} is damaged ({error}); pass --overwrite, or choose another folder.") from None
    cure = "pass --overwrite to start again, or choose another folder with --out."
    if digest != about["digest"]:
        raise InputError(
            f"the study file asks for other runs than those in {path} (cases, seeds, block or shards changed); restore "
            f"it to resume, or {cure}"
        )
    other = sorted(name for name in files.keys() | about["files"].keys() if files.get(name) != about["files"].get(name))
    if other or loss != about["loss"]:
        what = f"{other[0]} is not the file" if other else "the loss is not the one"
        raise InputError(f"{what} that {path} was started with; restore it to resume, or {cure}")
    changed = [
        f"{name} {versions.get(name)} -> {now}" for name, now in about["versions"].items() if versions.get(name) != now
    ]
    if changed:
        raise InputError(
            f"{path} was started with other versions ({', '.join(changed)}), whose numbers may differ; {cure}"
        )


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("relaydp", "jax", "jaxlib", "numpy")}


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _write(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    draft = path.with_name(f"{path.name}.draft")
    pq.write_table(table, draft)
    with open(draft, "rb") as whole:
        os.fsync(whole.fileno())
    draft.replace(path)
