#!/usr/bin/env python3
"""mutants.py BUG FROM TO: writes a source with one bug planted, for the explorer to find."""

import pathlib
import sys

BUGS = {
    # Checks one value, uses another.
    "double_fetch": (
        "    arrival.payload = {slot.payload, length};\n",
        "    arrival.payload = {slot.payload, slot.length.load(std::memory_order_relaxed)};\n",
    ),
    # The second arming looks like the first, which was signalled already.
    "same_generation": (
        "(armed_ & ~kArmModeMask) + (kArmModeMask + 1) +",
        "(kArmModeMask + 1) +",
    ),
    # The sender may see the receive before its length.
    "post_before_length": (
        "  view_.length_at(posted_).store(word, std::memory_order_relaxed);\n"
        "  view_.head().credit.posted.store(++posted_, std::memory_order_release);\n",
        "  view_.head().credit.posted.store(posted_ + 1, std::memory_order_release);\n"
        "  view_.length_at(posted_++).store(word, std::memory_order_relaxed);\n",
    ),
    # Nobody can tell that an entry is being written.
    "torn_entry": (
        "  entry.generation.store(generation - 1, std::memory_order_relaxed);\n",
        "",
    ),
}


def main(bug, source, target):
    right, wrong = BUGS[bug]
    text = pathlib.Path(source).read_text()
    if text.count(right) != 1:
        sys.exit(f"{source}: the place of the bug {bug} is not there once; plant it anew")
    pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(target).write_text(text.replace(right, wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
