#!/usr/bin/env python3
"""The files that a build compiles, each once, those first that have most to compile.

usage: units.py COMPILE_COMMANDS
"""

import json
import os
import pathlib
import sys


def weight(path):
    """Lines of a file and of the sources that it is made of."""
    lines = pathlib.Path(path).read_text().splitlines()
    parts = [line.split('"')[1] for line in lines if line.startswith("#include \"/")]
    return len(lines) + sum(len(pathlib.Path(part).read_text().splitlines()) for part in parts)


def run(database):
    files = {entry["file"] for entry in json.loads(pathlib.Path(database).read_text())}
    files = filter(os.path.exists, files)  # what a build makes first is not there
    for path in sorted(files, key=weight, reverse=True):
        print(path)


if __name__ == "__main__":
    run(sys.argv[1])
