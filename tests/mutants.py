"""The table of mutants: bugs that would break the promise, planted one at a time, and the check that must notice.

    python tests/mutants.py              all rows, and first that every check passes where nothing is planted
    python tests/mutants.py kernel walk  the rows whose names contain one of these words
    python tests/mutants.py --list       what there is

A row changes a few words of the source, in a copy of the package, where Numba's machine code and everything else is
made anew. Its check is a command that runs on this copy: the audit, as the command line runs it by default, or a fast
test. A check that ends with 1 has noticed. The next bug that somebody finds is a row here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "relaydp"
COMPILED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relaydp" / "tests"  # by XLA, for tests
CAUGHT, SURVIVED = 1, 0  # what a check ends with

# The audit with less than its default effort: its first layer as always, its second with few runs.
AUDIT = ["-m", "relaydp", "audit", "--runs", "400", "--json"]
CHECKS: dict[str, list[str]] = {
    "audit": AUDIT,
    "audit of a simulation": [*AUDIT, "--seed", "0"],
    "audit of a lap that prepares": [*AUDIT, "--algorithm", "relay-gradient"],
    "audit of its simulation": [*AUDIT, "--algorithm", "relay-gradient", "--seed", "0"],
    "audit of a coalition": [*AUDIT, "--algorithm", "relay-gradient", "--agents", "4", "--collusion", "1"],
    "audit of objective": [*AUDIT, "--algorithm", "d-admm", "--mechanism", "objective"],
}


def test(name: str) -> str:
    """A fast test as a check."""
    CHECKS[name] = ["-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", str(ROOT / "tests" / name)]
    return name


ONCE = test("oracle/test_oracle.py::test_whoever_asks_more_than_once_a_turn_is_refused")
INIT = test("oracle/test_oracle.py::test_init_may_not_ask")
UNSEEN = test("oracle/test_oracle.py::test_a_step_sees_no_noise")
SHUT = test("oracle/test_oracle.py::test_the_gradient_oracles_are_shut_under_noise_in_the_objective")
KAPPA = test("oracle/test_oracle.py::test_a_minimiser_with_less_kappa_than_was_priced_is_no_number")
NO_OBJECTIVE = test("oracle/test_oracle.py::test_secret_noise_goes_into_no_objective")
REFUSED = test("privacy/test_objective.py::test_a_private_run_is_refused_before_a_record_is_touched")
LONG = test("oracle/test_oracle.py::test_a_long_relay_has_the_noise_it_is_charged_for_to_its_last_chunk")
LATTICE = test("oracle/test_oracle.py::test_secret_turns_have_the_scales_of_the_lattice")
NOBODY = test("oracle/test_oracle.py::test_where_nobody_acts_the_answer_is_0")
DECLARED = test("problem/test_classes.py::test_classes_found_in_the_records_are_refused_in_a_private_run")
WIDTH = test("data/test_width.py::test_a_width_found_in_the_records_is_refused_in_a_private_run")
FROM_1 = test("data/test_data.py::test_one_index_0_moves_nobodys_columns")
DEALT = test("problem/test_partition.py::test_a_split_that_may_look_at_the_records_is_refused_in_a_private_run")
HELD = test("problem/test_partition.py::test_a_split_that_is_none_is_refused_in_every_run")
PRIOR = test("problem/test_partition.py::test_a_prior_of_the_private_records_is_refused")
ALONE = test("oracle/test_oracle.py::test_alone_an_agent_releases_a_clipped_mean_with_the_noise_that_is_charged")
RULE = test("auditing/test_audit.py::test_the_rules_clip_is_enforced_and_charged")
FIRST = test("engine/test_preparation.py::test_a_first_release_has_the_noise_that_is_asked_for_and_none_without")
PRICE = test("engine/test_preparation.py::test_it_is_charged_like_a_gradient_and_first")
MOMENTS = test("problem/test_coordinates.py::test_moments_are_means_over_each_agents_records")
THERE = test("problem/test_coordinates.py::test_gradients_are_those_of_the_records_in_these_coordinates")
UP = test("problem/test_coordinates.py::test_norms_are_rounded_up")
PREPARED = test(
    "engine/test_preparation.py::test_a_private_first_release_is_what_was_priced_and_all_that_coordinates_are_made_of"
)
PARTS = test("engine/test_sums.py::test_messages_tell_whole_laps_and_nothing_of_one_agent")
SUMMED = test("engine/test_sums.py::test_a_gradient_alone_is_not_answered_where_only_sums_are_seen")
ROUNDED = test("engine/test_sums.py::test_rounding_to_the_lattice_is_paid_for_whoever_colludes")
OWN = test("engine/test_sums.py::test_an_algorithm_of_ones_own_has_no_promise_about_sums")
FEW = test("privacy/test_trust.py::test_a_lap_of_a_quorum_was_opened_too")
BELIEVED = test("privacy/test_trust.py::test_noise_that_is_not_left_of_a_lap_cannot_be_charged_for")
RECORD = test(
    "oracle/test_statistics.py::test_one_record_moves_an_agents_release_by_no_more_than_is_charged_and_nearly_so_much"
)
EVERY = test("oracle/test_statistics.py::test_every_number_has_the_noise_that_is_charged_and_no_two_runs_the_same")
SHUT_TOO = test("oracle/test_statistics.py::test_only_a_run_whose_noise_is_for_statistics_answers_with_them")
ASLEEP = test("oracle/test_statistics.py::test_where_nobody_acts_nothing_is_told")
PURPOSES = test("oracle/test_oracle.py::test_a_seed_repeats_a_simulation_and_each_purpose_has_a_key_of_its_own")
ROUNDED_UP = test("privacy/test_secret.py::test_scales_are_rounded_up_and_by_a_hair")
FAIR = test("privacy/test_secret.py::test_a_die_is_fair")
CANCEL = test("privacy/test_masks.py::test_masks_of_all_members_cancel_and_of_no_others")
OTHER_WORDS = test("privacy/test_masks.py::test_another_question_gives_other_words")
OTHER_CLAIM = test("privacy/test_masks.py::test_two_parties_with_other_members_in_mind_do_not_cancel")
ANSWERED = test("privacy/test_masks.py::test_the_same_question_gets_the_same_words_and_another_none")
FEWER = test("privacy/test_masks.py::test_what_no_party_contributes_to")
STORED = test("privacy/test_masks.py::test_nothing_leaves_before_it_is_stored")
APART = test("privacy/test_masks.py::test_the_chance_of_falling_apart_is_at_most_what_is_proven")


@dataclass(frozen=True)
class Mutant:
    """In `file`, `old` (which occurs once) becomes `new`."""

    name: str
    file: str  # under src/relaydp
    old: str
    new: str
    check: str  # of CHECKS

    def plant(self, package: Path) -> None:
        path = package / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: {self.old!r} occurs {text.count(self.old)} times in {self.file}; needed once."
            )
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


SECRET = "return release_secret_traced(value, scale, now.draws)"
KEYED = "return release(value, scale, now.key)"
SPREAD = "return release_secret_traced(value, spread, draws)"
LENGTHS = "up * length * jnp.sqrt(left)"
ANSWER = "return charged(privatise(agent_records.gradient(now.holder, y, clip)) + terms.ridge_gradient(y))"
DRAWN = "draws=_secret_noise(plan, np.asarray(part.acts), c * chunk)"
ADDED = "share_secret_traced(value, now.unit, now.draws, agents)"
AVERAGED = "(lambda g: g * jnp.minimum(1.0, clip / jnp.linalg.norm(g)))(agent_records.gradient(now.holder, y, None))"
REUSED = """flat = draws.reshape(-1, dim)
    return flat[np.arange(len(flat)) % 12].reshape(draws.shape)"""
FROM_WALK = (
    "draws=(np.random.default_rng(source.walk_seed).normal(size=(*part.acts.shape, plan.facts.dim)) * 2.0**40"
    " * np.asarray(part.acts)[..., None]).astype(np.int64)"
)

MUTANTS = [
    # agents that are seen in sums only
    Mutant(
        "shares for n instead of h - t", "privacy/trust.py", "self.quorum - self.collusion", "self.parties",
        "audit of a coalition",
    ),
    Mutant(
        "one agent's share is missing", "oracle/oracle.py", ADDED,
        ADDED.replace("now.draws", "jnp.where(now.holder == 0, 0, now.draws)"), "audit of a coalition",
    ),
    Mutant(
        "shares x 0.95", "oracle/oracle.py", ADDED, ADDED.replace("now.draws", "now.draws * 95 // 100"),
        "audit of a coalition",
    ),
    Mutant(
        "no share in the lap that prepares", "oracle/moments.py", "share_secret_traced(mean, step, draws, len(mean))",
        "share_secret_traced(mean, step, draws * 0, len(mean))", "audit of a coalition",
    ),
    Mutant(
        "the lap that prepares in a finer unit", "engine/preparation.py", "plan.lattices[0].step",
        "plan.lattices[0].step / 4", "audit of a coalition",
    ),
    Mutant(
        "later laps in the first one's unit", "planning/run_plan.py", "[lattice.step for lattice in self.lattices]",
        "[self.lattices[0].step for lattice in self.lattices]", "audit of a coalition",
    ),
    Mutant("rounding of sums is free", "planning/run_plan.py", "more.max(axis=1, keepdims=True)", "1.0", ROUNDED),
    Mutant("sums of a stranger's algorithm", "engine/solver.py", "        _check_shares(plan)\n", "", OWN),
    Mutant("a quorum's sum is not checked", "privacy/ledger.py", ">= trust.quorum", "== trust.parties", FEW),
    Mutant(
        "parts of sums are kept", "algorithm/relay_gradient.py", "Collection(new_x, mean)",
        "Collection(new_x, new_total.astype(x.dtype))", PARTS,
    ),
    Mutant(
        "a gradient alone is answered", "oracle/oracle.py", "if parties is not None:\n        raise",
        "if False:\n        raise", SUMMED,
    ),
    Mutant(
        "a ledger believes its scales", "privacy/ledger.py", "over = np.flatnonzero(mine[\"scale\"] > left",
        "over = np.flatnonzero(mine[\"scale\"] > np.inf * left", BELIEVED,
    ),
    # noise
    Mutant("noise x 0.8", "oracle/oracle.py", SECRET, SECRET.replace("scale", "0.8 * scale"), "audit"),
    Mutant("noise x 0.95", "oracle/oracle.py", SECRET, SECRET.replace("scale", "0.95 * scale"), "audit"),
    Mutant(
        "a simulation's noise x 0.8", "oracle/oracle.py", KEYED, KEYED.replace("scale", "0.8 * scale"),
        "audit of a simulation",
    ),
    Mutant(
        "a simulation's noise x 0.95", "oracle/oracle.py", KEYED, KEYED.replace("scale", "0.95 * scale"),
        "audit of a simulation",
    ),
    Mutant(
        "no noise at one hop in 50", "oracle/oracle.py", SECRET,
        SECRET.replace("now.draws", "jnp.where(now.hop % 50 == 49, 0, now.draws)"), "audit",
    ),
    Mutant("no noise from the fifth chunk on", "engine/loop.py", DRAWN, f"{DRAWN} * (c < 4)", LONG),
    Mutant(
        "scales not stretched", "engine/loop.py", "plan.lattice_scales() if on_lattice else plan.scales", "plan.scales",
        LATTICE,
    ),
    Mutant("noise reused every 12 hops", "oracle/randomness.py", "return draws", REUSED, "audit"),
    Mutant(
        "objective noise x 0.8", "oracle/oracle.py", "p + perturbation(", "p + 0.8 * perturbation(",
        "audit of objective",
    ),
    Mutant(
        "objective noise of another length", "privacy/mechanism.py",
        "jax.random.gamma(far, float(shape[-1])", "jax.random.gamma(far, float(shape[-1]) - 0.5", "audit of objective",
    ),
    Mutant(
        "objective noise the same at every hop", "oracle/oracle.py", "now.scale, now.key)\n\n        def covered",
        "now.scale, jax.random.key(0))\n\n        def covered", "audit of objective",
    ),
    Mutant(
        "objective noise from no key", "privacy/mechanism.py", "    if key is None:\n        raise PrivacyError(\n",
        "    if key is None:\n        key = jax.random.key(0)\n    if False:\n        raise PrivacyError(\n",
        NO_OBJECTIVE,
    ),
    Mutant(
        "objective noise called private", "oracle/randomness.py", "if mechanism in SOUND:", "if mechanism in PRICED:",
        REFUSED,
    ),
    Mutant(
        "sampler scale x 0.8", "privacy/secret.py", "return _draw(int(count), r, L, os.urandom, READ)",
        "return np.rint(0.8 * _draw(int(count), r, L, os.urandom, READ)).astype(np.int64)", "audit",
    ),
    Mutant(
        "secret draws replaced by zeros", "oracle/randomness.py",
        "secret.draw_lattice(int(acts.sum()) * dim).reshape(-1, dim)", "0", "audit",
    ),
    Mutant(
        "scales on one lattice rounded down", "privacy/secret.py", "math.ceil(Fraction(scale) / unit)",
        "math.floor(Fraction(scale) / unit)", ROUNDED_UP,
    ),
    Mutant("a die whose sides are not alike", "privacy/lattice.py", "while shown >= sides:", "while False:", FAIR),
    # where it comes from
    Mutant(
        "one seed for two runs", "privacy/secret.py", "return _draw(int(count), r, L, os.urandom, READ)",
        "return _draw(int(count), r, L, np.random.default_rng(0).bytes, READ)", "audit",
    ),
    Mutant("walk seed equals noise seed", "engine/loop.py", DRAWN, FROM_WALK, "audit"),
    Mutant(
        "solve and solve_alone share a key", "oracle/randomness.py", "WALK, NOISE, ALONE = 0, 1, 2",
        "WALK, NOISE, ALONE = 0, 1, 1", PURPOSES,
    ),
    Mutant(
        "a step sees the noise", "oracle/oracle.py", "turn._replace(key=None, draws=None)", "turn", UNSEEN,
    ),
    # what it is added to
    Mutant(
        "clip after averaging", "oracle/oracle.py", ANSWER,
        ANSWER.replace("agent_records.gradient(now.holder, y, clip)", AVERAGED), "audit",
    ),
    Mutant(
        "data-dependent step", "oracle/oracle.py", ANSWER,
        ANSWER.replace("privatise", "(1.0 + 0.2 * jnp.tanh(agent_records.y[0])) * privatise"), "audit",
    ),
    Mutant(
        "data-dependent plan", "planning/planner.py",
        "facts = problem.public_facts() if kind in PRICED else problem.measured_facts()",
        "facts = __import__('dataclasses').replace(problem.measured_facts(), public=kind in PRICED)", "audit",
    ),
    Mutant(
        "sensitivity without the 2", "privacy/sensitivity.py", "bound = 2.0 * np.asarray", "bound = np.asarray", "audit"
    ),
    Mutant(
        "fused kernel clips to 2c", "problem/kernels/gradient.py", "clip_slopes(z, norm, j, rows, clip)\n        for",
        "clip_slopes(z, norm, j, rows, 2.0 * clip)\n        for", "audit",
    ),
    Mutant(
        "fused kernel leaves last rows unclipped", "problem/kernels/gradient.py",
        "clip_slopes(z, norm, j, rows, clip)\n        for",
        "clip_slopes(z, norm, j, whole, clip)\n        for", "audit",
    ),
    Mutant(
        "norm capped before clipping", "problem/problem.py", "norm=column(norm),",
        "norm=column(np.minimum(norm, 1.0)),", "audit",
    ),
    # the clip that the rule for accuracy chooses, below the bound
    Mutant(
        "rule: the bound is enforced, not its clip", "engine/loop.py", "placed(plan.clip),",
        "placed(problem.gradient_bound()),", RULE,
    ),
    Mutant(
        "rule: sensitivity of its clip, gradients of the bound", "planning/planner.py",
        "noise, ratio, first, trust)\n    plan = Plan(",
        "noise, ratio, first, trust)\n    facts = _facts(problem, kind)\n    plan = Plan(", RULE,
    ),
    Mutant(
        "rule: sensitivity of half its clip", "planning/planner.py",
        "return calibrate_gradient(wanted.rho, facts, T, ratio, choice.outlook, first, trust)",
        "facts = __import__('dataclasses').replace(facts, clip=0.5 * facts.clip)\n        "
        "return calibrate_gradient(wanted.rho, facts, T, ratio, choice.outlook, first, trust)", RULE,
    ),
    # the oracle
    Mutant("oracle asked twice", "oracle/oracle.py", "if self._asked:", "if False:", ONCE),
    Mutant(
        "oracle asked in a loop", "oracle/oracle.py",
        "return any(trace == get_opaque_trace_state() for trace in self._traces)", "return True", ONCE,
    ),
    Mutant(
        "init may ask", "oracle/oracle.py", "return _Closed() if turn is None else Once()", "return Once()", INIT
    ),
    Mutant("gradients unnoised under objective", "oracle/oracle.py", "if variant == OBJECTIVE:", "if False:", SHUT),
    Mutant(
        "objective: less kappa than was priced", "oracle/oracle.py", "fine = kappa >= now.kappa * (1.0 - LESS)",
        "fine = jnp.ones_like(kappa, bool)", KAPPA,
    ),
    Mutant(
        "oracle answers where nobody acts", "oracle/oracle.py",
        "return jnp.where(now.acts if answer.ndim == 1 else now.acts[:, None], answer, 0.0)", "return answer", NOBODY,
    ),
    # training alone
    Mutant(
        "solve_alone clips at 10c", "engine/solving_alone.py", "clip = placed(facts.clip) if noisy",
        "clip = placed(10.0 * facts.clip) if noisy", ALONE,
    ),
    Mutant(
        "solve_alone's noise x 0.8", "engine/solving_alone.py", "steps, placed(scales), key, draws, start)\n    return",
        "steps, placed(0.8 * scales), key, draws, start)\n    return", ALONE,
    ),
    # the first lap of a run that prepares
    Mutant("first release: noise x 0.8", "oracle/moments.py", SPREAD, SPREAD.replace("spread", "0.8 * spread"), FIRST),
    Mutant(
        "a simulation's first release: noise x 0.8", "oracle/moments.py", "jnp.broadcast_to(spread, value.shape)",
        "jnp.broadcast_to(0.8 * spread, value.shape)", RULE,
    ),
    Mutant("first release: twice the value", "oracle/moments.py", "value = unit *", "value = 2.0 * unit *", FIRST),
    Mutant(
        "first release: shares count twice", "problem/agent_records.py", "bound * jnp.sum(told",
        "2.0 * bound * jnp.sum(told", MOMENTS,
    ),
    Mutant(
        "first release: as dear as any other, and charged less", "planning/calibration.py",
        "np.concatenate([[first], ", "np.concatenate([[4.0 * first], ", PRICE,
    ),
    Mutant(
        "each alone: a first release without noise", "engine/solving_alone.py",
        "drawn = draw_gradient_noise(", "drawn = 0 * draw_gradient_noise(", PREPARED,
    ),
    Mutant(
        "each alone: first noise x 0.5", "engine/solving_alone.py",
        "placed(facts.clip), placed(scales[0]))", "placed(facts.clip), placed(0.5 * scales[0]))", PREPARED,
    ),
    Mutant(
        "each alone: half the bound", "engine/solving_alone.py",
        "First(placed(problem.features_bound()", "First(placed(0.5 * problem.features_bound()", PREPARED,
    ),
    Mutant(
        "each alone: coordinates of what was not released", "engine/preparation.py",
        "jax.vmap(find)(unit * released,", "jax.vmap(find)(agent_records.moments(bound),", PREPARED,
    ),
    Mutant(
        "each alone: new coordinates, old lengths", "engine/solving_alone.py",
        "agent_records, change, scales = prepared.of(agent_records)",
        "agent_records, change, scales = agent_records.with_norm(agent_records.norm, prepared.coordinates)", PREPARED,
    ),
    Mutant(
        "each alone: a promise for fewer numbers", "engine/solving_alone.py",
        "return 2 * self.facts.dim + 3 if self.prepares else self.facts.dim", "return 1", PREPARED,
    ),
    Mutant(
        "first release: the same draws in every run", "engine/preparation.py",
        "return draw_gradient_noise(everyone, numbers_of(problem))",
        "return np.random.default_rng(0).normal(0, 2.0**40, (len(everyone), numbers_of(problem))).astype(np.int64)",
        PREPARED,
    ),
    Mutant(
        "first release: not stretched for the lattice", "engine/preparation.py",
        "plan.lattice_scales() if secret else plan.scales", "plan.scales", PREPARED,
    ),
    Mutant(
        "first release: a promise for fewer numbers", "planning/run_plan.py",
        "return 2 * self.facts.dim + 3 if self.preparing else self.facts.dim", "return self.facts.dim", PREPARED,
    ),
    Mutant(
        "new coordinates: rounding as in the old", "planning/calibration.py", "None if first is None else KEPT)",
        "None)", PRICE,
    ),
    Mutant(
        "a simulation's first noise is that of its first hop", "engine/preparation.py",
        "key = jax.random.fold_in(key, KEY)", "key = jax.random.fold_in(key, 0)", "audit of its simulation",
    ),
    Mutant(
        "first noise again in the first gradients", "engine/loop.py",
        f"part = part._replace({DRAWN})",
        "part = part._replace(draws=(lambda drawn: np.concatenate([np.asarray(draws)[:, : drawn.shape[1]], "
        "drawn[len(draws) :]]) if draws is not None else drawn)(draw_gradient_noise(np.asarray(part.acts), "
        "problem.dim)))", "audit of a lap that prepares",
    ),
    Mutant("new coordinates, old lengths", "problem/agent_records.py", LENGTHS, "self.norm", THERE),
    Mutant("new coordinates, lengths not rounded up", "problem/agent_records.py", LENGTHS, LENGTHS[5:], UP),
    # masks
    Mutant("masks: added by both", "privacy/masks.py", "if other > keys.me:", "if True:", CANCEL),
    Mutant(
        "masks: the same for another attempt", "privacy/masks.py", "epoch, lap, attempt, count) + listed",
        "epoch, lap, 0, count) + listed", OTHER_WORDS,
    ),
    Mutant(
        "masks: the same for other members", "privacy/masks.py", "epoch, lap, attempt, count) + listed",
        "epoch, lap, attempt, count)", OTHER_CLAIM,
    ),
    Mutant(
        "masks: two answers for two models", "privacy/masks.py", "len(chosen), *chosen) + x).digest()",
        "len(chosen), *chosen)).digest()", ANSWERED,
    ),
    Mutant(
        "masks: a second answer to an earlier attempt", "privacy/masks.py", "number > self._last.number:",
        "number != self._last.number:", ANSWERED,
    ),
    Mutant("masks: a sum over too few", "privacy/masks.py", "if len(chosen) < self._quorum:", "if False:", FEWER),
    Mutant("masks: words that are not stored", "privacy/masks.py", "self._keep(self._last)", "pass", STORED),
    Mutant(
        "masks: nobody lost in the chance to fall apart", "privacy/masks.py", "range(max(0, k - lost), min(k, t) + 1)",
        "range(k, min(k, t) + 1)", APART,
    ),
    # sufficient statistics
    Mutant(
        "statistics: off the diagonal counted once", "privacy/statistics.py",
        "return math.sqrt(2.0) * (record**2", "return (record**2", RECORD,
    ),
    Mutant(
        "statistics: off the diagonal twice as long", "oracle/statistics.py",
        "columns, 1.0, ROOT2)\n    return", "columns, 1.0, 2.0)\n    return", RECORD,
    ),
    Mutant(
        "statistics: labels not cut off", "problem/agent_records.py", "y = jnp.clip(y, -label, label)", "y = 1.0 * y",
        RECORD,
    ),
    Mutant(
        "statistics: two parts, the price of one", "privacy/statistics.py", " + (ratio * label) ** 2 / 2.0)", ")",
        RECORD,
    ),
    Mutant(
        "statistics: no noise on the vector", "oracle/oracle.py",
        "own = from_numbers(privatise(numbers), units, own[1].shape[0])",
        "own = (from_numbers(privatise(numbers), units, own[1].shape[0])[0], own[1])", EVERY,
    ),
    Mutant(
        "statistics: no noise", "oracle/oracle.py", "from_numbers(privatise(numbers), units",
        "from_numbers(numbers, units", EVERY,
    ),
    Mutant(
        "statistics: one draw for all numbers", "engine/loop.py", DRAWN,
        f"{DRAWN}[..., :1].repeat(plan.drawn, axis=-1)", EVERY,
    ),
    Mutant(
        "statistics for whoever asks", "oracle/oracle.py", "if variant is not None or (noisy and units is None):",
        "if False:", SHUT_TOO,
    ),
    Mutant(
        "gradients with the noise of statistics", "oracle/oracle.py", "    if shut:\n", "    if False:\n", SHUT_TOO
    ),
    Mutant(
        "statistics where nobody acts", "oracle/oracle.py",
        "jax.tree.map(lambda part: jnp.where(now.acts, part, 0.0), told)", "told", ASLEEP,
    ),
    # what is public
    Mutant("classes from the records", "problem/problem.py", "if self.found:", "if False:", DECLARED),
    Mutant("features from the records", "problem/problem.py", "if self.data.width_found:", "if False:", WIDTH),
    Mutant("an index 0 moves columns", "data/formats.py", "zero_based=False", 'zero_based="auto"', FROM_1),
    Mutant("split by labels", "problem/problem.py", "if self.dealt:", "if False:", DEALT),
    Mutant(
        "split by a function that wraps ours", "problem/partition.py",
        "(isinstance(agents, _Ours) and not agents.looks)", 'not getattr(agents, "looks", True)', DEALT,
    ),
    Mutant("split: a record held twice", "problem/partition.py", "if times.max() > 1", "if False", HELD),
    Mutant("split: sizes of more records", "problem/partition.py", "if total != records", "if False", HELD),
    Mutant(
        "prior of the private records", "problem/problem.py",
        "isinstance(prior, Problem) and self.data.same_as(prior.data)", "False", PRIOR,
    ),
]  # fmt: skip


def run_check(check: str, mutant: Mutant | None = None) -> tuple[int, str, float]:
    """(exit code, the last of what it said, seconds) on a copy of the package in which the mutant is planted."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        package = Path(folder) / "relaydp"
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            mutant.plant(package)
        settings = os.environ | {
            "PYTHONPATH": folder,
            "RELAYDP_COMPILED": "0",
            "JAX_COMPILATION_CACHE_DIR": str(COMPILED),
        }
        settings.pop("NUMBA_CACHE_DIR", None)  # machine code is kept beside its source, in the copy
        found = subprocess.run(
            [sys.executable, *CHECKS[check]], env=settings, cwd=ROOT, capture_output=True, text=True, check=False
        )
    return found.returncode, (found.stdout + found.stderr)[-2000:], time.perf_counter() - began


def verdict(code: int) -> str:
    return {CAUGHT: "caught", SURVIVED: "SURVIVED"}.get(code, f"BROKEN (exit {code})")


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("words", nargs="*", help="rows whose names contain one of these")
    parser.add_argument("--list", action="store_true", help="what there is, and stop")
    parser.add_argument("--jobs", type=int, default=2, help="rows at a time")
    asked = parser.parse_args()
    rows = [row for row in MUTANTS if not asked.words or any(word in row.name for word in asked.words)]
    if asked.list:
        for row in rows:
            print(f"{row.name:42} {row.file:24} {row.check}")
        return 0
    bad = 0
    with ThreadPoolExecutor(asked.jobs) as pool:
        checks = sorted({row.check for row in rows})
        print(f"{'nothing planted':42} {'':10} check")
        for check, (code, said, seconds) in zip(checks, pool.map(run_check, checks), strict=True):
            fine = code == SURVIVED
            bad += not fine
            print(f"{'':42} {'passes' if fine else 'FAILS':10} {check} ({seconds:.0f} s)", flush=True)
            print(said if not fine else "", end="")
        print(f"{'mutant':42} {'':10} check")
        for row, (code, said, seconds) in zip(rows, pool.map(lambda row: run_check(row.check, row), rows), strict=True):
            bad += code != CAUGHT
            print(f"{row.name:42} {verdict(code):10} {row.check} ({seconds:.0f} s)", flush=True)
            print(said if code != CAUGHT else "", end="")
    print(f"{len(rows)} mutants, {bad} of them not caught" if bad else f"{len(rows)} mutants, all caught")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
