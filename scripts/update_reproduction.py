"""Write what `relaydp paper run --out FOLDER` found into docs/reproduction-*.md and docs/reproduction/.

    relaydp paper run --out paper
    python scripts/update_reproduction.py paper

Each part of a page between `<!-- NAME -->` and `<!-- end of NAME -->` is replaced by what the experiment shows; where
the folder lacks cells of an experiment, its part stays as it is.
"""

import re
import shutil
import sys
from pathlib import Path

from relaydp.paper import EXPERIMENTS, FULL
from relaydp.paper.experiment import Found, Picture
from relaydp.paper.page import markdown
from relaydp.paper.runner import read_cell

ROOT = Path(__file__).parent.parent
PAGES, FIGURES = sorted((ROOT / "docs").glob("reproduction-*.md")), ROOT / "docs" / "reproduction"


def main(folder: Path) -> None:
    texts = {page: page.read_text() for page in PAGES}
    FIGURES.mkdir(exist_ok=True)
    for name, experiment in EXPERIMENTS.items():
        cells = {cell.key: read_cell(folder, cell) for cell in experiment.cells(FULL)}
        missing = sum(kept is None for kept in cells.values())
        if missing:
            print(f"{name}: {missing} of {len(cells)} cells are missing; left as it is.")
            continue
        blocks = experiment.show(Found(FULL, cells), folder)
        for block in blocks:
            if isinstance(block, Picture):
                shutil.copy(folder / "figures" / f"{block.name}.png", FIGURES)
        part = "\n\n".join(line for block in blocks for line in markdown(block))
        part = part.replace("](figures/", "](reproduction/")
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        count = 0
        for page, text in texts.items():
            texts[page], here = re.subn(
                pattern, lambda found, part=part: f"{found[1]}\n{part}\n\n{found[2]}", text, flags=re.S
            )
            count += here
        if count != 1:
            sys.exit(f"docs/reproduction-*.md have {count} places for {name}; there must be one.")
    for page, text in texts.items():
        page.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
