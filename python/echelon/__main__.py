# SPDX-License-Identifier: Apache-2.0
"""The program: python -m echelon, and the script `echelon` of the installed package."""
import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).parent / "bin" / "echelon"
    if not program.exists():
        sys.exit(f"{program}: not there; install the package with `pip install .`")
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()
