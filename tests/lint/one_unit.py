#!/usr/bin/env python3
"""Names that a file keeps to itself are unique in its layer, and in the tests of its layer: sources
of a folder are compiled together (cmake/BraidUnity.cmake), and which ones changes with each new
file. All of a target's at once is the one that no later change can make worse.

    one_unit.py COMPILE-COMMANDS    of a preset of clang that compiles each source by itself
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import source

_TARGET = re.compile(r" -o CMakeFiles/((?:braid_)?\w+)\.dir/")


def targets(entries):
    """{target: (a command of it without its files, its folder, its C++ sources)} of layers."""
    found = collections.OrderedDict()
    for entry in entries:
        name = _TARGET.search(entry["command"])
        if not name or not entry["file"].endswith(".cc"):
            continue
        if name[1].startswith("braid_") or name[1].endswith("_test"):
            command = re.sub(r" -o .*", "", entry["command"])
            found.setdefault(name[1], (command, entry["directory"], []))[2].append(entry["file"])
    return {name: target for name, target in found.items() if len(target[2]) > 1}


def problems_of(name, target):
    command, folder, files = target
    with tempfile.NamedTemporaryFile("w", suffix=".cc") as unit:
        unit.writelines(f'#include "{file}"\n' for file in sorted(files))
        unit.flush()
        done = subprocess.run(
            f"{command} -w -fsyntax-only -ferror-limit=0 {unit.name}",
            shell=True,
            cwd=folder,
            capture_output=True,
            text=True,
        )
    errors = [line for line in done.stderr.split("\n") if " error: " in line]
    if done.returncode and not errors:
        errors = [done.stderr.strip()]
    return [f"{error} (with all of {name} in one compilation)" for error in errors]


def problems(entries):
    found = targets(entries)
    jobs = int(os.environ.get("BRAID_JOBS", os.cpu_count()))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for errors in pool.map(problems_of, found.keys(), found.values()):
            yield from errors


if __name__ == "__main__":
    listed = json.loads(pathlib.Path(sys.argv[1]).read_text())
    sys.exit(source.report(list(problems(listed)), "one unit"))
