"""`python -m relaydp`: the same as the `relaydp` command."""

from relaydp.cli.main import main

if __name__ == "__main__":
    main()
