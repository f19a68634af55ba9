#!/usr/bin/env python3
"""No co_await stands in the condition of an if, while, switch or for.

g++ 12 rewrites such a condition with a hidden variable, and in a loop or a branch puts it into the
wrong scope: the awaiter lives too long or is destroyed twice. The result gets a name first:

    if (!co_await f()) break;                                refused
    const bool came = co_await f();  if (!came) break;       right
    if (auto r = co_await f(); !r.ok()) co_return r.error(); right: it has a name
"""

import sys

import source
from co_await_temporaries import Tokens

_KEYWORDS = {"if", "while", "switch", "for"}


def _segments(tokens, opening):
    """The parts of a head in round brackets between its own semicolons: (first, last) each."""
    first = i = opening + 1
    found = []
    while i < tokens.match[opening]:
        if tokens.text[i] in {"(", "[", "{"} and i in tokens.match:
            i = tokens.match[i]
        elif tokens.text[i] == ";":
            found.append((first, i))
            first = i + 1
        i += 1
    return found + [(first, i)]


def _awaits(tokens, first, last):
    """Index of a co_await that belongs to first..last-1 itself, not to a lambda inside, or None."""
    i = first
    while i < last:
        if tokens.text[i] in {"co_await", "co_yield"}:
            return i
        if tokens.text[i] == "{" and tokens.is_block(i):  # the body of a lambda
            i = tokens.match.get(i, i)
        i += 1
    return None


def problems_in(path, text):
    tokens = Tokens(text)
    found = []
    for at, token in enumerate(tokens.text):
        if token not in _KEYWORDS:
            continue
        opening = at + 2 if tokens.text[at + 1 : at + 2] == ["constexpr"] else at + 1
        if opening not in tokens.match or tokens.text[opening] != "(":
            continue
        segments = _segments(tokens, opening)
        # What comes before a semicolon is a statement with a name; of a `for`, only its first part.
        conditions = segments[1:] if token == "for" else segments[-1:]
        for first, last in conditions:
            offence = _awaits(tokens, first, last)
            if offence is None:
                continue
            line = source.line_of(text, tokens.offset[offence])
            if not source.allowed(text, line, "co_await"):
                found.append(f"{path}:{line}: co_await in a condition: name its result before")
    return found


def problems(root):
    found = []
    for path in source.files(root, ".cc", ".h"):
        text = (root / path).read_text()
        if "co_await" in text or "co_yield" in text:
            found += problems_in(path, text)
    return found


if __name__ == "__main__":
    sys.exit(source.report(problems(source.root_argument()), "co_await conditions"))
