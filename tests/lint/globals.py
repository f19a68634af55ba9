#!/usr/bin/env python3
"""Code that also runs in simulation has no globals: one process there stands for many.

Looked for in what was compiled, as nothing hides from a symbol table: variables in sections that
can be written to, thread-local ones, statics of functions and of classes. What only the loader
writes (tables of addresses, .data.rel.ro) is no variable.

    globals.py ROOT COMPILE-COMMANDS
"""

import json
import pathlib
import re
import subprocess
import sys

import simulated
import source

_WRITABLE = (".data", ".bss", ".tdata", ".tbss", "COM")
_READ_ONLY = (".data.rel.ro",)
# What compilers and their library add by themselves.
_COMPILERS = (
    "std::", "__odr_asan", "__gcov", "__llvm_", "__sancov", "DW.ref.", "__asan_",
    "__unnamed_",  # clang's: what it tells the address sanitizer of constants
)
_FILES_PER_CALL = 100


def variables_in(nm_text):
    """(object file, variable) of each that can be written to, from `nm -C -f sysv`."""
    file = None
    for line in nm_text.split("\n"):
        if line.startswith("Symbols from "):
            file = line[len("Symbols from ") :].rstrip(":")
        # A demangled name may have bars in it (operator||): the other fields are at the end.
        fields = [field.strip() for field in line.rsplit("|", 6)]
        if len(fields) != 7:
            continue
        name, section = fields[0], fields[6].lstrip("*")
        if not section.startswith(_WRITABLE) or section.startswith(_READ_ONLY):
            continue
        if name and name != section and not name.startswith(_COMPILERS):
            yield file, name


def problems_in(objects):
    """`objects`: {object file: its source}."""
    files = sorted(objects)
    for at in range(0, len(files), _FILES_PER_CALL):
        command = ["nm", "-C", "-f", "sysv", *files[at : at + _FILES_PER_CALL]]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        if at + 1 == len(files):  # nm names the file only if there are several.
            text = f"Symbols from {files[at]}:\n{text}"
        for file, name in variables_in(text):
            yield f"{objects[file]}: {name} is a global: simulated processes would share it"


def problems(root, compile_commands):
    objects, missing = {}, []
    for entry in json.loads(pathlib.Path(compile_commands).read_text()):
        paths = [path for path in source.sources_of(entry) if path.is_relative_to(root)]
        paths = [path.relative_to(root) for path in paths]
        judged = [path for path in paths if simulated.simulated(path)]
        if not judged:
            continue
        names = ", ".join(map(str, paths))
        if judged != paths:
            missing.append(f"{names}: compiled together, and only some of them run in simulation")
            continue
        output = re.search(r" -o (\S+)", entry["command"]).group(1)
        built = pathlib.Path(entry["directory"]) / output
        if built.exists():
            objects[str(built)] = names
        else:
            missing.append(f"{names}: was not built ({built} is missing)")
    return missing + list(problems_in(objects))


if __name__ == "__main__":
    sys.exit(source.report(problems(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]), "globals"))
