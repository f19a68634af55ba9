#!/usr/bin/env python3
"""Includes point down the layers only, and only to public headers. See "The layers" in README.md.

A header directly in a layer's folder is public; one in a sub-folder belongs to that layer alone.
What stands beside the layers (bench, tests) may include all; nothing includes it.
"""

import re
import sys

import source

BELOW = {
    "base": set(),
    "vhca": {"base"},
    "trs": {"base", "vhca"},
    "bnbd": {"base", "vhca", "trs"},
    "rmr": {"base", "vhca", "trs"},
    "brmr": {"base", "vhca", "trs", "bnbd", "rmr"},
    "reach": {"base", "vhca", "trs", "bnbd", "rmr", "brmr"},
    "cli": {"base", "vhca", "trs", "bnbd", "rmr", "brmr", "reach"},
    "capi": {"base", "vhca", "trs", "bnbd", "rmr", "brmr", "reach"},
}
BESIDE = {"bench", "tests"}

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.MULTILINE)


def why_not(path, target, quoted):
    """Why the file at `path` must not include `target`; None if it may."""
    here, there = path.parts[0], target.split("/")[0]
    known = BELOW.keys() | BESIDE
    if there not in known:
        return "quotes are for headers of the tree, by their path from its root" if quoted else None
    if not quoted:
        return "headers of this tree are included in quotes"
    if ".." in target.split("/"):
        return "paths go from the root of the tree"
    if here == there or here in BESIDE:
        return None
    if here not in BELOW:
        return f"{here}/ is no known layer"
    if there not in BELOW[here]:
        return f"{here} may not use {there}"
    if target.count("/") > 1:
        return f"headers in sub-folders are private to {there}"
    return None


def problems(root):
    found = []
    for path in source.files(root, ".cc", ".h"):
        text = (root / path).read_text()
        # Names of headers are strings, so only comments may be taken out before the search.
        code = source.code_only(text)
        for match in _INCLUDE.finditer(text):
            if code[match.start() : match.end()].lstrip()[:1] != "#":
                continue  # In a comment.
            reason = why_not(path, match.group(2), match.group(1) == '"')
            if not reason and match.group(1) == '"' and not (root / match.group(2)).is_file():
                reason = "there is no such header"
            line = source.line_of(text, match.start(2))
            if reason and not source.allowed(text, line, "include"):
                found.append(f"{path}:{line}: {match.group(2)}: {reason}")
    return found


if __name__ == "__main__":
    sys.exit(source.report(problems(source.root_argument()), "include direction"))
