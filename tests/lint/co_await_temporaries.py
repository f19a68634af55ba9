#!/usr/bin/env python3
"""No aggregate temporary shares a full expression with co_await.

g++ 12 destroys such a temporary twice (measured; clang 14 does not). What it does to each form:

    co_await f(Options{1});  co_await f({.a = 1});  co_await f(Options(1, 2));      twice
    g(Options{1}, co_await x);  Options v{co_await x};  co_await AggregateAwaiter{};  twice
    co_await f([name] { ... });   a lambda with a copy in its captures is an aggregate here  twice
    co_await f(Class{1});         a class with a constructor                          once
    Options o{1}; co_await f(o);  co_await f(std::move(o));                           once

The check does not know types, so it refuses every braced temporary and every lambda that captures
by copy in a full expression with co_await: give it a name first. Options(1, 2) it cannot tell from
a call; clang 14 does not compile that.
"""

import re
import sys

import source

_TOKEN = re.compile(r"[A-Za-z_]\w*|::|->|\[\[|\]\]|\"[^\"]*\"|\S")
_OPEN = {"(": ")", "[": "]", "{": "}", "[[": "]]"}
_CLOSE = set(_OPEN.values())
_BLOCK_BEFORE = {")", ";", "{", "}", "else", "do", "try", ":", "const", "noexcept", "mutable"}
_NAMED_SCOPE = {"namespace", "struct", "class", "enum", "union", "extern"}


class Tokens:
    def __init__(self, text):
        found = list(_TOKEN.finditer(source.code_only(text)))
        self.text = [match.group(0) for match in found]
        self.offset = [match.start() for match in found]
        self.match = {}  # Index of each opening token -> its closing one, and back.
        stack = []
        for i, token in enumerate(self.text):
            if token in _OPEN:
                stack.append(i)
            elif token in _CLOSE and stack:
                self.match[i] = stack[-1]
                self.match[stack.pop()] = i

    def __len__(self):
        return len(self.text)

    def lambda_intro(self, i):
        """Whether the [ at i opens the captures of a lambda rather than an index."""
        before = self.text[i - 1] if i else ";"
        keyword = before in {"return", "co_return", "co_await", "co_yield"}
        return keyword or not (re.match(r"[\w\"]", before) or before in {")", "]"})

    def statement_start(self, i):
        """Index of the first token of the statement, or list of arguments, that i stands in."""
        i -= 1
        while i >= 0 and self.text[i] not in {";", "{", "}", "(", "["}:
            i = self.match[i] if self.text[i] in {")", "]"} and i in self.match else i
            i -= 1
        return i + 1

    def is_block(self, i):
        """Whether the { at i opens a block, a scope or a lambda's body, not an initialiser."""
        if i == 0 or self.text[i - 1] in _BLOCK_BEFORE:
            return True
        if self.text[i - 1] == "]":
            return self.lambda_intro(self.match.get(i - 1, 0))
        head = self.text[self.statement_start(i) : i]
        if _NAMED_SCOPE.intersection(head):
            return True
        # `) -> Type {` and `) const -> Type {` open the body of a function or lambda.
        if "->" not in head or ")" not in head[: head.index("->")]:
            return False
        after_arrow = head[len(head) - head[::-1].index("->") :]
        return "=" not in after_arrow


def _copies(captures):
    """Whether a capture list, as tokens, takes anything but `this` and references."""
    depth, first = 0, True
    for token in captures:
        if first and depth == 0 and token not in {"&", "this", ","}:
            return True
        depth += (token in _OPEN) - (token in _CLOSE)
        first = token == "," and depth == 0
    return False


def _full_expression(tokens, at):
    """First and last index of the full expression around the co_await at `at`."""
    first = at - 1
    while first >= 0:
        token = tokens.text[first]
        if token == ";" or (token == "{" and tokens.is_block(first)):
            break
        if token == "}" and first in tokens.match and tokens.is_block(tokens.match[first]):
            if tokens.text[first + 1] not in {")", ","}:  # Else the body of a lambda argument.
                break
        if token in _CLOSE and first in tokens.match:
            first = tokens.match[first]
        elif token == "(" and tokens.text[first - 1] in {"if", "while", "for", "switch"}:
            break
        first -= 1
    last = at + 1
    depth = 0
    while last < len(tokens):
        token = tokens.text[last]
        if token in _OPEN and last in tokens.match:
            if token == "{" and depth <= 0 and tokens.is_block(last):
                break
            last = tokens.match[last]
        elif token == ";":
            break
        elif token in _CLOSE:
            depth -= 1
            if token == "}" and tokens.is_block(tokens.match.get(last, 0)):
                break
            opening = tokens.match.get(last, 0)
            if opening <= first:
                break
        last += 1
    return first + 1, last


def _offence(tokens, first, last):
    """Index and name of the first aggregate temporary among the tokens first..last-1, or None."""
    i = first
    while i < last:
        token = tokens.text[i]
        if token == "[" and tokens.lambda_intro(i) and i in tokens.match:
            close = tokens.match[i]
            if _copies(tokens.text[i + 1 : close]):
                return i, "a lambda that captures by copy"
            i = close
            while i + 1 < last and tokens.text[i] != "{":  # Past parameters to the body,
                i = tokens.match[i] if tokens.text[i] == "(" and i in tokens.match else i
                i += 1
            i = tokens.match.get(i, i)  # which is a function of its own.
        elif token == "{" and not tokens.is_block(i):
            return i, "a braced temporary"
        i += 1
    return None


def problems_in(path, text):
    tokens = Tokens(text)
    found = {}
    for at, token in enumerate(tokens.text):
        if token not in {"co_await", "co_yield"} or tokens.text[at - 1] == "operator":
            continue
        first, last = _full_expression(tokens, at)
        offence = _offence(tokens, first, last)
        if offence:
            line = source.line_of(text, tokens.offset[offence[0]])
            if not source.allowed(text, line, "co_await"):
                found[line] = f"{path}:{line}: {offence[1]} beside co_await: name it before"
    return list(found.values())


def problems(root):
    found = []
    for path in source.files(root, ".cc", ".h"):
        text = (root / path).read_text()
        if "co_await" in text or "co_yield" in text:
            found += problems_in(path, text)
    return found


if __name__ == "__main__":
    sys.exit(source.report(problems(source.root_argument()), "co_await temporaries"))
