"""Run the demo and write its figure and its table into docs/demo.png and README.md (`make docs`)."""

from pathlib import Path

from relaydp.cli.demo import demo

ROOT = Path(__file__).parent.parent
START, END = "<!-- demo table -->\n", "<!-- end of demo table -->"


def table(summary: dict) -> str:
    """The demo's rows in Markdown, as far as another run gives the same: medians of simulations."""
    lines = [
        "| | test accuracy | loss F | epsilon, exact | by the paper's formula | PLF | messages |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in summary["rows"]:
        accuracy = f"{row['accuracy']:.4f}"
        if "accuracy_median" in row:
            low, high = row["accuracy_min"], row["accuracy_max"]
            accuracy = f"{row['accuracy_median']:.4f} ({low:.4f} to {high:.4f})"
        epsilons = ["none" if row[k] is None else f"{row[k]:.3f}" for k in ("epsilon", "epsilon_paper")]
        cells = [row["who"], accuracy, f"{row['objective']:.4f}", *epsilons]
        lines.append("| " + " | ".join([*cells, str(row["plf"]), str(row["messages"])]) + " |")
    lines.append(
        f"\nMedians and ranges of simulations: the relay's over {summary['seeds']} seeds, alone over 8 agents and "
        f"{summary['alone_seeds']} seeds. Epsilon is that of a private run of the same plan, whose own accuracy the "
        "demo prints, too. Each private row is a release of its own: on your own records their costs would add up."
    )
    return "\n".join(lines)


def main() -> None:
    summary = demo(figure=ROOT / "docs" / "demo.png")
    readme = ROOT / "README.md"
    before, rest = readme.read_text().split(START)
    after = rest.split(END)[1]
    readme.write_text(f"{before}{START}{table(summary)}\n{END}{after}")


if __name__ == "__main__":
    main()
