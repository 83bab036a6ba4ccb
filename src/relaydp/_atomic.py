"""Folders that appear whole or not at all, and the two halves of a result folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relaydp.errors import InputError

PUBLISH, KEEP = "publish", "keep"  # what may be passed on, and what may not
RESULT = (f"{KEEP}/config.json", "config.json")  # in every result folder; the second in those of earlier versions


@contextmanager
def new_folder(target: Path, mark: str | tuple[str, ...], overwrite: bool) -> Iterator[Path]:
    """A place to write in, which becomes `target` when all is written.

    Only a folder that has the file `mark` (or one of them) in it, or nothing at all, is replaced.
    """
    marks = (mark,) if isinstance(mark, str) else mark
    if target.exists() and not overwrite:
        raise InputError(f"{target} exists already; choose another folder, or pass overwrite=True.")
    if target.exists() and not may_replace(target, marks):
        raise InputError(f"{target} has no {marks[0]} in it, so it is not overwritten; choose another folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield work
        if target.exists():
            shutil.rmtree(target)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def may_replace(folder: Path, marks: tuple[str, ...]) -> bool:
    """Whether a folder is empty or one of ours, which one of these files in it tells."""
    return folder.is_dir() and (any((folder / mark).is_file() for mark in marks) or not any(folder.iterdir()))


def halves(folder: Path) -> list[Path]:
    """Where a result's files lie: in publish/ and keep/, or in the folder itself where it has neither.

    The latter is a publish/ that was passed on, or a folder from before there were two halves.
    """
    return [part for part in (folder / PUBLISH, folder / KEEP) if part.is_dir()] or [folder]


def find_saved(folder: Path, name: str) -> Path | None:
    """A file of a result folder, in whichever half it is; None where there is none."""
    return next((part / name for part in halves(folder) if (part / name).is_file()), None)
