#!/usr/bin/env python3
"""usage: top_on_terminal.py BRAID NODE: `braid top` on a terminal, as a person has it: it takes
another screen, shows the node's things, fits a terminal that changes its size, pauses, sorts, and
ends by q, Ctrl-C and SIGTERM with the terminal as it was."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

LIMIT_S = 60


class Top:
    def __init__(self, braid, node, columns=100, rows=20, environment=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(environment or {})
            os.execv(braid, [braid, "--control", node, "top", "--interval", "100ms"])
        self.before = termios.tcgetattr(self.fd)
        self.seen = ""
        self.resize(columns, rows)

    def resize(self, columns, rows):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def read(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # its end
                return False
            self.seen += data.decode(errors="replace")
            return bool(data)
        return True

    def wait_for(self, what, since=0):
        end = time.monotonic() + LIMIT_S
        while what not in self.seen[since:]:
            if not self.read(1) or time.monotonic() > end:
                sys.exit(f"never showed {what!r}, but: {self.seen[-2000:]!r}")
        return len(self.seen)

    def forget(self):
        self.seen = ""

    def ends(self, how):
        """Reads to the end; the terminal has to be as it was before."""
        end = time.monotonic() + LIMIT_S
        after = None
        while True:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                break
            self.read(0.05)
            if time.monotonic() > end:
                sys.exit(f"{how} did not end it")
        while select.select([self.fd], [], [], 0)[0] and self.read(0):
            pass
        after = termios.tcgetattr(self.fd)
        if os.waitstatus_to_exitcode(status) != 0:
            sys.exit(f"after {how} its exit status was {status}: {self.seen[-500:]!r}")
        if "\x1b[?1049l" not in self.seen or "\x1b[?25h" not in self.seen:
            sys.exit(f"after {how} the terminal is left on the other screen: {self.seen[-200:]!r}")
        if after[3] != self.before[3]:
            sys.exit(f"after {how} the terminal is left raw")
        os.close(self.fd)


def last_page(text):
    return text.rsplit("\x1b[H", 1)[-1]


def main():
    braid, node = sys.argv[1:]
    top = Top(braid, node)
    top.wait_for("\x1b[?1049h")
    top.wait_for("ram")
    top.wait_for("by bytes")
    top.press("s")
    top.wait_for("by operations")
    top.press("p")
    top.wait_for("PAUSED")
    top.press("p")
    top.forget()
    top.resize(40, 6)
    top.wait_for("\x1b[H")
    top.wait_for("\x1b[J")
    top.forget()
    top.wait_for("\x1b[J")
    top.forget()
    top.wait_for("\x1b[J")
    page = last_page(top.seen).split("\x1b[J")[0]
    lines = page.split("\r\n")
    if len(lines) > 6:
        sys.exit(f"{len(lines)} lines on a terminal of six: {page!r}")
    top.press("q")
    top.ends("q")

    top = Top(braid, node, environment={"NO_COLOR": "1"})
    top.wait_for("ram")
    if "\x1b[31m" in top.seen or "\x1b[1m" in top.seen or "\x1b[7m" in top.seen:
        sys.exit("NO_COLOR was given, and there is color")
    top.press("\x03")
    top.ends("Ctrl-C")

    top = Top(braid, node)
    top.wait_for("\x1b[7m")
    os.kill(top.pid, signal.SIGTERM)
    top.ends("SIGTERM")


if __name__ == "__main__":
    main()
