"""A privacy account: one budget that many private runs are charged to.

Each run, and each fit of an estimator, keeps its own budget; runs over the same people add up, whatever their purpose.
An account adds them up and refuses a run that would overspend, before it reads a record. A simulation promises nothing,
so it is not charged.

What is added up is rho = mu^2 / 2, where a release is mu-GDP: neighbouring data sets are no easier to distinguish than
two unit Gaussians mu apart.

    gaussian   mu = sensitivity / scale, exactly
    pure       mu = 2 Phi^-1( e^epsilon_0 / (1 + e^epsilon_0) ). The trade-off curve of an epsilon_0-DP release lies on
               or above two lines that meet on the diagonal, at 1/(1 + e^epsilon_0); with this mu the Gaussian curve
               passes through the same three points and, being convex, lies below the lines (Dong, Roth and Su 2022).

A record may belong to another agent in another run, so a run costs what its worst agent spends. mu-GDP adds up as
sum mu^2, also when later runs, their budgets and their number are chosen after looking at earlier ones, as long as the
sum stays under a limit set beforehand (Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2023). The account's own
(epsilon, delta) is that limit.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri_exp

from relaydp.errors import InputError, PrivacyError, RelayError
from relaydp.privacy.accountant import epsilon_exact
from relaydp.privacy.budget import Budget, check_records
from relaydp.privacy.ledger import TOLERANCE, Ledger
from relaydp.privacy.proven import check_promise

PATIENCE = 60.0  # seconds to wait for another process's charge; one takes milliseconds
TABLES = (
    "CREATE TABLE account (epsilon REAL NOT NULL, delta REAL NOT NULL)",
    "CREATE TABLE fits (number INTEGER PRIMARY KEY, charged TEXT NOT NULL, what TEXT NOT NULL, rho REAL NOT NULL)",
)


class Overspent(PrivacyError):
    """A run would cost more than its account has left. It did not run, and nothing was charged."""


class Charge(NamedTuple):
    """One run, as it was charged to an account.

    Attributes:
        charged: When, UTC.
        what: What the run was, in a few words.
        rho: What it cost.
        epsilon: That of this run alone, at the account's delta.
    """

    charged: str  # when, UTC
    what: str
    rho: float
    epsilon: float  # of this run alone, at the account's delta


def price(ledger: Ledger) -> float:
    """rho of the worst agent, with every pure release replaced by a Gaussian that reveals at least as much.

    >>> ledger = Ledger(agents=2, limit_rho=math.inf)
    >>> _ = ledger.charge(agent=1, hop=0, sensitivity=1.0, scale=2.0)
    >>> price(ledger)
    0.125
    >>> _ = ledger.charge(agent=0, hop=1, sensitivity=1.0, scale=2.0, kind="pure", epsilon=1.0)
    >>> round(price(ledger), 4)  # epsilon_0^2 / 2 is 0.5: zCDP alone does not make it a Gaussian
    0.759
    """
    spent = [0.0] * ledger.agents
    for release in ledger:
        if release.kind == "sampled":
            raise PrivacyError(
                "the release is sampled, and an account adds up Gaussian and pure releases only. Use a Ledger."
            )
        spent[release.agent] += _pure_rho(release.epsilon) if release.kind == "pure" else release.rho
    return max(spent)


def _pure_rho(epsilon: float) -> float:
    """mu^2 / 2 of the Gaussian below an epsilon-DP release; Phi^-1 of e^x/(1 + e^x) by its complement's logarithm."""
    mu = -2.0 * float(ndtri_exp(-np.logaddexp(0.0, epsilon)))
    return mu * mu / 2


class PrivacyAccount:
    """A budget that many private runs share.

    Pass it as `account=` to every `solve`, or estimator, over the same people. A run is charged before it reads a
    record and stays charged if it fails. One that would overspend is refused, and nothing is charged.
    `PrivacyAccount.open(path)` opens an existing file, with the budget in it. `relaydp account` makes and shows
    such files, and `relaydp run --account` charges them.

    `sklearn.base.clone` shares an account instead of copying it, so that the folds of `cross_val_score` all charge the
    same one.

    Formal guarantee. All models made with one account are together (epsilon, delta)-DP for every record (replace one),
    if which record takes part in which run does not depend on the records, and their noise is independent. It is: only
    private runs are charged, and those draw fresh noise from the operating system. The promise about all of them is
    against whoever each of them is against: with a run that trusts a curator, or believes that at most t collude, among
    them, it is against these readers or coalitions alone. `fits` says which runs these are.

    Args:
        epsilon: What all runs together may cost, at `delta`.
        delta: The chance that the promise about all runs fails.
        path: A file to keep the account in: processes share it, and it stays when they end. It is created if it does
            not exist. Default: None; the account is in this process and cannot be sent to another.
        allow_large_delta: As a Budget has it: the account's delta may be 1/m or more for agents with m records. It is
            not kept in the file. Default: False.

    Attributes:
        budget: The Budget that all runs share.
        path: The file, as an absolute path, or None.
        fits: What was charged, in order: a list with `charged` (when, UTC), `what`, `rho` and `epsilon` (of this run
            alone) of each.
        spent: epsilon so far, at the account's delta. Runs that were chosen by looking at earlier ones are covered by
            the account's whole epsilon, not by this smaller number.
        left: The largest epsilon that one more run at this delta can have. rho adds up and epsilon does not, so that
            `spent` and `left` together are more than the account's epsilon.

    Raises:
        PrivacyError: epsilon or delta cannot be promised, or the file has another budget or cannot be used. `charge`
            raises it for a run that would overspend, and pickling for an account without a file.
        InputError: The file is another kind of database.

    Example:
        >>> import relaydp as rd
        >>> account = rd.PrivacyAccount(epsilon=1.0, delta=1e-4)
        >>> account.spent, round(account.left, 6), account.fits
        (0.0, 1.0, [])
        >>> problem = rd.logistic(rd.load_data("breast-cancer"), agents=4, l2=1e-2)
        >>> result = rd.solve(problem, rd.ring(4), budget=rd.Budget(0.5, 1e-4), walk="cyclic", account=account)
        >>> round(account.spent, 4), round(account.left, 4), len(account.fits)
        (0.5, 0.8227, 1)
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        path: str | os.PathLike[str] | None = None,
        *,
        allow_large_delta: bool = False,
    ) -> None:
        self.budget = Budget(epsilon, delta, allow_large_delta=allow_large_delta)
        check_promise(self.budget.epsilon, self.budget.delta, dim=1, releases=1)  # otherwise it is useless
        self._limit = self.budget.rho
        self.path = None if path is None else Path(path).absolute()
        self._kept: list[tuple[str, str, float]] = []
        self._lock = threading.Lock()
        if self.path is not None:
            self._open_file(self.path)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, allow_large_delta: bool = False) -> PrivacyAccount:
        """Open the account in an existing file; none is created.

        Args:
            path: The account's file.
            allow_large_delta: As for a new account. Default: False.

        Returns:
            The account, with the budget in the file.

        Raises:
            PrivacyError: There is no file, it is not an account, or it was changed by hand.
        """
        file = Path(path).absolute()
        if not file.is_file():
            raise PrivacyError(
                f"there is no account in {path}; it must be a file made by `relaydp account new` or by PrivacyAccount. "
                "If there was one, restore it: only that file records what was spent."
            )
        try:
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", timeout=PATIENCE, uri=True)) as rows:
                found = rows.execute("SELECT epsilon, delta FROM account").fetchall()
        except sqlite3.Error as error:
            raise PrivacyError(
                f"{path} is not an account ({error}); it must be a file made by `relaydp account new`."
            ) from error
        if len(found) != 1:
            raise PrivacyError(
                f"the account in {path} has {len(found)} budgets; it must have one. The file was changed by hand: "
                "restore an earlier copy."
            )
        return cls(*found[0], path=file, allow_large_delta=allow_large_delta)

    # -- what was spent

    @property
    def fits(self) -> list[Charge]:
        """What was charged, in order."""
        delta = self.budget.delta
        return [Charge(when, what, rho, epsilon_exact(rho, delta)) for when, what, rho in self._rows()]

    @property
    def spent(self) -> float:
        """epsilon so far, at the account's delta. Runs that were chosen by looking at earlier ones are covered by the
        account's whole epsilon, not by this smaller number."""
        return epsilon_exact(_sum(self._rows()), self.budget.delta)

    @property
    def left(self) -> float:
        """The largest epsilon that one more run at this delta can have. rho adds up and epsilon does not, so that
        `spent` and `left` together are more than the account's epsilon."""
        return epsilon_exact(max(0.0, self._limit - _sum(self._rows())), self.budget.delta)

    # -- charging

    def charge(self, ledger: Ledger, what: str = "a run", sizes: ArrayLike | None = None) -> int:
        """Charge a run with these planned releases, or refuse it and change nothing.

        Args:
            ledger: A Ledger with every release of the run. A run costs what its worst agent spends.
            what: What the run is, in a few words.
            sizes: How many records each agent has: the account's delta is checked against them as a run's is. Default:
                not checked.

        Returns:
            The run's number, from 1.

        Raises:
            PrivacyError: The run would overspend, has a sampled release, delta is 1/m or more for an agent with m
                records, or the file cannot be used.
        """
        if sizes is not None:
            check_records(self.budget, sizes)
        rho = price(ledger)
        entry = (datetime.now(UTC).isoformat(timespec="seconds"), what, rho)
        if self.path is None:
            with self._lock:
                self._check(self._kept, rho)
                self._kept.append(entry)
                return len(self._kept)
        with self._transaction(self.path) as rows:
            before = _read(rows, self.path)
            self._check(before, rho)
            rows.execute("INSERT INTO fits (number, charged, what, rho) VALUES (?, ?, ?, ?)", (len(before) + 1, *entry))
        return len(before) + 1

    def _check(self, before: list[tuple[str, str, float]], rho: float) -> None:
        spent = _sum(before)
        if not spent + rho <= self._limit * (1 + TOLERANCE):
            epsilon, delta = self.budget.epsilon, self.budget.delta
            left = rounded_down(epsilon_exact(max(0.0, self._limit - spent), delta))
            smaller = f"Ask for epsilon={left:g} or less, or agree" if left else "Agree"
            raise Overspent(
                f"the account's budget is (epsilon {epsilon:g}, delta {delta:g}); {len(before)} run(s) have spent "
                f"epsilon {epsilon_exact(spent, delta):.4g} of it, and this run costs epsilon "
                f"{epsilon_exact(rho, delta):.4g} where {left:g} is left. It did not run. {smaller} on a larger "
                "account with those whose records these are."
            )

    def _rows(self) -> list[tuple[str, str, float]]:
        if self.path is None:
            with self._lock:
                return list(self._kept)
        with self._connection(self.path) as rows:
            return _read(rows, self.path)

    # -- the file

    def _open_file(self, path: Path) -> None:
        """Make the account's file, or check that the one there is an account with this budget."""
        asked = (self.budget.epsilon, self.budget.delta)
        with self._transaction(path, make=True) as rows:
            names = {name for (name,) in rows.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not names:
                for table in TABLES:
                    rows.execute(table)
                rows.execute("INSERT INTO account VALUES (?, ?)", asked)
            elif not {"account", "fits"} <= names:
                raise InputError(f"{path} is another kind of database; choose another path for the account.")
            found = rows.execute("SELECT epsilon, delta FROM account").fetchall()
            if found != [asked]:
                kept = ", ".join(f"epsilon {epsilon:g} and delta {delta:g}" for epsilon, delta in found) or "no budget"
                raise PrivacyError(
                    f"the account in {path} has {kept}; epsilon {asked[0]:g} and delta {asked[1]:g} were asked for. A "
                    "budget is not changed afterwards: pass the numbers of the file, or another path."
                )

    @contextmanager
    def _connection(self, path: Path, make: bool = False) -> Iterator[sqlite3.Connection]:
        """A new connection for every use: nothing is shared with a forked process. A missing file is never created
        again, because that would restore the whole budget."""
        try:
            address = f"{path.as_uri()}?mode={'rwc' if make else 'rw'}"
            with closing(sqlite3.connect(address, timeout=PATIENCE, isolation_level=None, uri=True)) as rows:
                yield rows
        except sqlite3.Error as error:
            raise PrivacyError(
                f"the account in {path} cannot be used ({error}), and without it nothing is run. It must be a file "
                "made by PrivacyAccount(path=...) in a folder that exists and has write permission."
            ) from error

    @contextmanager
    def _transaction(self, path: Path, make: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction, one process at a time: what was read is still true when the charge is written."""
        with self._connection(path, make) as rows:
            rows.execute("BEGIN IMMEDIATE")
            yield rows
            rows.execute("COMMIT")  # not reached after an error: closing rolls back

    # -- one account, however it is passed around

    def __sklearn_clone__(self) -> PrivacyAccount:
        return self

    def __copy__(self) -> PrivacyAccount:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivacyAccount:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            raise PrivacyError(
                "an account in memory cannot be pickled: every process would get a copy of the whole budget. Pass "
                "PrivacyAccount(path=...) to share it between processes (n_jobs); to save a fitted model, "
                "set_params(account=None) first."
            )
        return _reopen, (type(self), self.budget, self.path)

    def __repr__(self) -> str:
        where = "" if self.path is None else f", path={str(self.path)!r}"
        try:
            state = f"spent {self.spent:.4g} in {len(self._rows())} run(s)"
        except RelayError:  # repr must not raise
            state = "not readable"
        return f"PrivacyAccount(epsilon={self.budget.epsilon:g}, delta={self.budget.delta:g}{where}: {state})"


def _reopen(kind: type[PrivacyAccount], budget: Budget, path: Path) -> PrivacyAccount:
    """An account from a pickle: the file must exist; it is not created."""
    if not path.is_file():
        raise PrivacyError(
            f"the account's file {path} was removed, and with it the record of what was spent. Restore it."
        )
    return kind(budget.epsilon, budget.delta, path, allow_large_delta=budget.allow_large_delta)


def _read(rows: sqlite3.Connection, path: Path) -> list[tuple[str, str, float]]:
    """All charges of a file, in order. Refuses a charge that no run can have made, since it would give budget back."""
    found = rows.execute("SELECT number, charged, what, rho FROM fits ORDER BY number").fetchall()
    for k, (number, _, _, rho) in enumerate(found, start=1):
        if number != k or not isinstance(rho, float) or not 0.0 <= rho < math.inf:
            raise PrivacyError(
                f"the account in {path} has rho {rho!r} as charge {number} in place {k}; it must be 0 or more, and "
                "charges are numbered from 1 without a gap. The file was changed by hand, so what was spent is "
                "unknown: restore an earlier copy."
            )
    return [(when, what, rho) for _, when, what, rho in found]


def _sum(rows: list[tuple[str, str, float]]) -> float:
    return math.fsum(rho for _, _, rho in rows)


def rounded_down(epsilon: float) -> float:
    """Four digits of what is left, rounded down, so that a run with this epsilon is not refused.

    >>> rounded_down(0.26327), rounded_down(1.5 - 1e-12), rounded_down(0.0)
    (0.2632, 1.5, 0.0)
    """
    if epsilon == 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
    # all of a budget comes back from rho a rounding error below itself, which an account's tolerance allows
    return float(f"{math.floor(epsilon / unit * (1 + TOLERANCE / 10)) * unit:.4g}")
