"""What relaydp costs, as ratios: each beside a peer measured in the same run, in a process of its own.

    make bench                                   everything, into build/bench (an hour or so)
    python benchmarks/bench.py --quick           a few minutes
    python benchmarks/bench.py --only 'floor/*'  some cases; --list names them

Every case leaves a JSON file in OUT/cases and is not measured again unless --fresh is given, so an interrupted run goes
on where it stopped. OUT/bench.json and OUT/bench.md hold all cases there are, with the machine they were measured on.
docs/performance.md says what the ratios mean.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
LIMIT = 3600  # seconds a case may take

TITLES = {
    "floor": "One activation (RECAL, cyclic ring of 8, one run)",
    "batch": "Many runs at once",
    "trace": "The cost of a trace",
    "recompilation": "Programs compiled anew",
    "start-up": "Start-up",
    "network": "Large networks (RECAL, 22 coefficients, 1 to 4 records an agent)",
    "peers": "Other programs",
    "gpu": "Accelerator",
    "algorithm": "Every algorithm beside RECAL (seconds an activation, ring of 8)",
}


def output_of(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=HERE, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def machine() -> dict[str, Any]:
    """The facts that figures depend on."""
    import jax
    import numpy as np

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # type: ignore[index, call-overload]
    changed = output_of("git", "status", "--porcelain", "--untracked-files=no")
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load": [round(each, 1) for each in os.getloadavg()],
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "blas": f"{blas.get('name')} {blas.get('version')}",
        "device": jax.devices()[0].device_kind,
        "commit": (output_of("git", "rev-parse", "--short", "HEAD") or "unknown") + (" with edits" if changed else ""),
        "date": time.strftime("%Y-%m-%d"),
    }


def peak_mb() -> float:
    """The most memory this process has held, in MB (its children's too, where it only waits for them)."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(own / (2**20 if sys.platform == "darwin" else 2**10), 1)


def measure_here(name: str, options: Any) -> dict[str, Any]:
    """One case, in this process."""
    from cases import Skip, cases

    began = time.perf_counter()
    try:
        figures, note = cases(options)[name][0](options), ""
    except Skip as why:
        figures, note = [], str(why)
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
    seconds = round(time.perf_counter() - began, 2)
    return {
        "case": name,
        "figures": figures,
        "skipped": note,
        "peak_mb": peak_mb(),
        "children_mb": round(children, 1),
        "seconds": seconds,
    }


def measure(name: str, arguments: argparse.Namespace, apart: bool) -> dict[str, Any]:
    """One case, in a process of its own; with `apart`, each side's memory in one more."""

    def child(part: str) -> dict[str, Any]:
        command = [sys.executable, __file__, "--case", name, "--part", part]
        command += ["--quick"] * arguments.quick + ["--all"] * arguments.all
        command += ["--data", arguments.data] if arguments.data else []
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return {"case": name, "figures": [], "skipped": f"took over {LIMIT} s", "seconds": LIMIT}
        try:
            return json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, json.JSONDecodeError):
            tail = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            return {"case": name, "figures": [], "failed": tail}

    found = child("both")
    if apart and found.get("figures"):
        ours, beside = child("ours"), child("beside")
        found["peak_mb"] = ours.get("peak_mb")
        found["peak_mb_beside"] = beside.get("children_mb" if name.startswith("peers") else "peak_mb")
    if name.startswith("start-up"):  # it only waits for others
        found["peak_mb"] = found.get("children_mb")
    found["quick"] = arguments.quick
    return found


def digits(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return ""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def as_markdown(report: dict[str, Any]) -> str:
    facts = report["machine"]
    lines = [
        "# Benchmarks",
        "",
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gb']} GB, device {facts['device']}; Python "
        f"{facts['python']}, JAX {facts['jax']}, NumPy {facts['numpy']} with {facts['blas']}; commit "
        f"{facts['commit']}, {facts['date']}, load {' '.join(map(str, facts['load']))} at the start. Memory: a "
        "process's peak.",
        "",
    ]
    for group, title in TITLES.items():
        held = [case for case in report["cases"] if case["case"].split("/")[0] == group]
        if not held:
            continue
        lines += [f"## {title}", ""]
        rows, notes = [], []
        for case in held:
            memory = digits(case.get("peak_mb"))
            if case.get("peak_mb_beside"):
                memory += f" / {digits(case['peak_mb_beside'])}"
            for row in case["figures"]:
                target = row["target"]
                set_up = digits(row.get("set_up"))
                cells = (row["figure"], digits(row["ours"]), digits(row["beside"]), row["unit"])
                rows.append((*cells, digits(row["ratio"]), target, memory, set_up))
            why = case.get("failed") or case.get("skipped")
            if why:
                notes.append(f"- {case['case']}: {'failed' if case.get('failed') else 'skipped'}: {why}")
        head = ["figure", "ours", "beside", "unit", "ratio", "target", "peak MB", "set-up s"]
        kept = [k for k, _ in enumerate(head) if k in (0, 1, 2, 3, 4, 6) or any(row[k] for row in rows)]
        if rows:
            lines += ["| " + " | ".join(head[k] for k in kept) + " |", "|" + "---|" * len(kept)]
            lines += ["| " + " | ".join(row[k] for k in kept) + " |" for row in rows]
            lines.append("")
        lines += [*notes, ""] if notes else []
    return "\n".join(lines).rstrip() + "\n"


def write_report(folder: Path, facts: dict[str, Any], order: list[str]) -> None:
    held = {}
    for file in sorted((folder / "cases").glob("*.json")):
        found = json.loads(file.read_text())
        held[found["case"]] = found
    ordered = [held[name] for name in order if name in held] + [held[name] for name in held if name not in order]
    report = {"machine": facts, "cases": ordered}
    (folder / "bench.json").write_text(json.dumps(report, indent=2) + "\n")
    (folder / "bench.md").write_text(as_markdown(report))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "bench", help="folder of the report")
    parser.add_argument("--only", metavar="PATTERN", action="append", help="cases to measure, such as 'floor/*'")
    parser.add_argument("--quick", action="store_true", help="fewer data sets and repeats: a few minutes")
    parser.add_argument("--all", action="store_true", help="also what is meant for another kind of machine")
    parser.add_argument("--fresh", action="store_true", help="measure again what has been measured")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--data", metavar="FOLDER", help="a folder of NAME.npz files (X, y, X_test, y_test)")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--part", default="both", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    from cases import Options, cases

    options = Options(arguments.quick, arguments.all, arguments.data, arguments.part)
    if arguments.case:
        print(json.dumps(measure_here(arguments.case, options)))
        return 0
    every = cases(options)
    wanted = [name for name in every if not arguments.only or any(fnmatch.fnmatch(name, p) for p in arguments.only)]
    if arguments.list:
        print("\n".join(wanted))
        return 0
    if not wanted:
        parser.error(f"no case is like {', '.join(arguments.only)}; --list names them")
    (arguments.out / "cases").mkdir(parents=True, exist_ok=True)
    facts, failed, began = machine(), 0, time.perf_counter()
    for k, name in enumerate(wanted, start=1):
        file = arguments.out / "cases" / f"{name.replace('/', '--')}.json"
        print(f"[{k}/{len(wanted)}] {name} ...", end=" ", flush=True)
        known = json.loads(file.read_text()) if file.exists() and not arguments.fresh else None
        if known is not None and known.get("quick") == arguments.quick and not known.get("failed"):
            print("measured before")
            continue
        found = measure(name, arguments, every[name][1])
        partial = file.with_suffix(".part")
        partial.write_text(json.dumps(found, indent=2) + "\n")
        partial.replace(file)
        failed += bool(found.get("failed"))
        ratios = ", ".join(digits(row["ratio"]) for row in found["figures"])
        print(found.get("failed") or found.get("skipped") or f"{ratios}   ({found['seconds']:.0f} s)", flush=True)
        write_report(arguments.out, facts, list(every))
    write_report(arguments.out, facts, list(every))
    print(f"{arguments.out / 'bench.md'} ({time.perf_counter() - began:.0f} s)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
