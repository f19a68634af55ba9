#!/usr/bin/env python3
"""RoCE v2 traffic: captured into a pcap file, and read from one.

    rdma_packets.py capture FILE INTERFACE...  until SIGTERM or SIGINT; "ready" on stdout first
    rdma_packets.py show FILE                  one line a message of RC, and of the CM
    rdma_packets.py golden FILE FOLDER         writes each RTRS and RNBD message that differs in
                                               more than addresses, keys, permits and places

Only what a stock kernel's software RDMA (rxe) puts on a wire is understood: Ethernet, IPv4, UDP
port 4791, RC and the CM's datagrams. Lossless wires only: packets out of order end the message.
"""

import argparse
import collections
import dataclasses
import pathlib
import select
import signal
import socket
import struct

ROCE_PORT = 4791
CM_ATTRIBUTE = {
    0x0010: "REQ",
    0x0012: "REJ",
    0x0013: "REP",
    0x0014: "RTU",
    0x0015: "DREQ",
    0x0016: "DREP",
}
# Offset of the private data in a CM datagram, behind the 24 bytes of the MAD header; and, of a
# request, the 36 bytes that RDMA CM puts in front of the program's.
CM_PRIVATE = {"REQ": (140 + 36, 56), "REP": (36, 196), "REJ": (84, 148)}
# Where a REJ has its reason, and the reason of one that the program itself gave.
REJ_REASON, REJ_BY_PROGRAM = 10, 28
# Who connects in kernel_capture as no kernel would: what it is told counts, what it says does not.
NO_KERNEL = "10.12.0.1"
# What has no data of the program.
CM_ONLY = ("RTU", "DREQ", "DREP", "REJ of the CM")
SEND, WRITE = "SEND", "WRITE"
# Opcodes of RC (InfiniBand Architecture 9.2.1):
# (operation, starts, ends, has RETH, has ImmDt, has IETH)
RC = {
    0x00: (SEND, 1, 0, 0, 0, 0),
    0x01: (SEND, 0, 0, 0, 0, 0),
    0x02: (SEND, 0, 1, 0, 0, 0),
    0x03: (SEND, 0, 1, 0, 1, 0),
    0x04: (SEND, 1, 1, 0, 0, 0),
    0x05: (SEND, 1, 1, 0, 1, 0),
    0x06: (WRITE, 1, 0, 1, 0, 0),
    0x07: (WRITE, 0, 0, 0, 0, 0),
    0x08: (WRITE, 0, 1, 0, 0, 0),
    0x09: (WRITE, 0, 1, 0, 1, 0),
    0x0A: (WRITE, 1, 1, 1, 0, 0),
    0x0B: (WRITE, 1, 1, 1, 1, 0),
    0x16: (SEND, 0, 1, 0, 0, 1),
    0x17: (SEND, 1, 1, 0, 0, 1),
}


@dataclasses.dataclass
class Message:
    """What one side told the other with one work request, or with one datagram of the CM."""

    source: str
    kind: str  # "SEND", "WRITE", "REQ", ...
    qp: int
    data: bytes = b""
    address: int = 0
    rkey: int = 0
    imm: int | None = None
    invalidates: int | None = None

    def text(self):
        words = [f"{self.source:>10} {self.kind:5} qp {self.qp:#x}"]
        if self.imm is not None:
            words.append(f"imm {self.imm:#010x}")
        if self.invalidates is not None:
            words.append(f"invalidates {self.invalidates:#x}")
        if self.kind == WRITE:
            words.append(f"to {self.address:#x} rkey {self.rkey:#x}")
        words.append(f"{len(self.data)} bytes {self.data[-64:].hex()}")
        return "  ".join(words)


def listening(interface):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
    sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE, which Python has no name for
    sock.bind((interface, 0))
    return sock


def capture(file, interfaces):
    socks = [listening(each) for each in interfaces]
    going = True

    def stop(*_):
        nonlocal going
        going = False

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    with open(file, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        print("ready", flush=True)
        while going:
            for sock in select.select(socks, [], [], 0.2)[0]:
                packet = sock.recv(65535)
                out.write(struct.pack("<IIII", 0, 0, len(packet), len(packet)) + packet)


def packets(file):
    """(source address, RoCE packet without its checksum) of each."""
    data = pathlib.Path(file).read_bytes()
    at = 24
    while at + 16 <= len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        frame = data[at + 16 : at + 16 + length]
        at += 16 + length
        if len(frame) < 42 or frame[12:14] != b"\x08\x00" or frame[23] != 17:
            continue
        header = (frame[14] & 15) * 4
        udp = 14 + header
        if struct.unpack_from(">H", frame, udp + 2)[0] != ROCE_PORT:
            continue
        end = udp + struct.unpack_from(">H", frame, udp + 4)[0]
        yield socket.inet_ntoa(frame[26:30]), frame[udp + 8 : end - 4]


def cm_message(source, qp, body):
    # DETH, then the MAD.
    mad = body[8:]
    if len(mad) != 256 or mad[1] != 0x07:  # class: communication management
        return None
    attribute = struct.unpack_from(">H", mad, 16)[0]
    name = CM_ATTRIBUTE.get(attribute, f"CM {attribute:#x}")
    if name == "REJ" and struct.unpack_from(">H", mad, 24 + REJ_REASON)[0] != REJ_BY_PROGRAM:
        name = "REJ of the CM"
    data = b""
    if name in CM_PRIVATE:
        offset, size = CM_PRIVATE[name]
        data = mad[24 + offset : 24 + offset + size]
    return Message(source, name, qp, data)


def messages(file):
    open_messages = {}
    last_psn = {}
    for source, packet in packets(file):
        opcode, flags = packet[0], packet[1]
        pad = flags >> 4 & 3
        qp = struct.unpack_from(">I", packet, 4)[0] & 0xFFFFFF
        psn = struct.unpack_from(">I", packet, 8)[0] & 0xFFFFFF
        body = packet[12 : len(packet) - pad]
        if opcode == 0x64 and qp == 1:
            found = cm_message(source, qp, body)
            if found:
                yield found
            continue
        if opcode not in RC:
            continue
        key = (source, qp)
        if last_psn.get(key) == psn:
            continue  # Repeated.
        last_psn[key] = psn
        kind, starts, ends, reth, imm, ieth = RC[opcode]
        if starts:
            open_messages[key] = Message(source, kind, qp)
        message = open_messages.get(key)
        if message is None:
            continue
        if reth:
            message.address, message.rkey = struct.unpack_from(">QI", body)
            body = body[16:]
        if imm:
            message.imm = struct.unpack_from(">I", body)[0]
            body = body[4:]
        if ieth:
            message.invalidates = struct.unpack_from(">I", body)[0]
            body = body[4:]
        message.data += body
        if ends:
            yield open_messages.pop(key)


# --- RTRS and RNBD

RNBD = {
    0: "session_info",
    1: "session_info_answer",
    2: "open",
    3: "open_answer",
    4: "io",
    5: "close",
}
RNBD_IO = {
    0: "read",
    1: "write",
    2: "flush",
    3: "discard",
    4: "secure_erase",
    5: "write_zeroes",
}


class Names:
    """Names messages of one RTRS session of one path, by what was said before."""

    def __init__(self):
        self.chunks = []  # addresses
        self.chunk_bytes = 0
        self.asked = {}  # (client's address, rkey) -> name of the request whose answer goes there

    def of(self, message):
        data = message.data
        if message.kind == "REP":
            self.chunk_bytes = sum(struct.unpack_from("<II", data, 8))
        if message.kind in CM_PRIVATE:
            return {"REQ": "conn_req", "REP": "conn_rsp", "REJ": "conn_rej"}[message.kind]
        if message.imm is not None:
            return self.with_imm(message)
        if message.kind == SEND and message.invalidates is not None:
            return "invalidate"
        if message.kind == SEND and data[:2] == b"\0\0":
            return "info_req"
        if message.kind == SEND and data[:2] == b"\1\0":
            self.learn_chunks(data)
            return "info_rsp"
        if message.kind == WRITE:
            asked = self.asked.get((message.address, message.rkey))
            if asked == "session_info":
                return "session_info_answer"
            if asked == "open":
                return "open_answer"
            return f"data_of_{asked}" if asked else None
        return None

    def learn_chunks(self, data):
        count = struct.unpack_from("<H", data, 2)[0]
        regions = [struct.unpack_from("<QII", data, 8 + 16 * i) for i in range(count)]
        self.chunks = [
            address + offset
            for address, _, length in regions
            for offset in range(0, length, self.chunk_bytes)
        ]

    def with_imm(self, message):
        kind = message.imm >> 28
        if kind in (8, 9):
            return {8: "heartbeat", 9: "heartbeat_answer"}[kind]
        if kind in (1, 2):
            name = {1: "answer", 2: "answer_invalidated"}[kind]
            return f"{name}_with_rkey" if message.kind == SEND else name
        return self.request(message)

    def request(self, message):
        """The message stands at the end, the user header before it."""
        data = message.data
        base = max(chunk for chunk in self.chunks if chunk <= message.address)
        at = (message.imm & (self.chunk_bytes - 1)) - (message.address - base)
        user = struct.unpack_from("<H", data, at + 2)[0]
        header = data[at - user : at]
        name = RNBD[struct.unpack_from("<H", header)[0]]
        if name == "io":
            name += "_" + RNBD_IO[struct.unpack_from("<I", header, 16)[0] & 0xFF]
        if struct.unpack_from("<H", data, at)[0] == 3 and len(data) >= at + 24:
            address, rkey = struct.unpack_from("<QI", data, at + 8)
            self.asked[(address, rkey)] = name
        return name


def form(name, message):
    """What of a message is not of this run: all but addresses, keys, permits, places and ids."""
    data = message.data
    said = [name, message.kind, min(len(data), 4096), message.invalidates is None]
    if message.imm is not None:
        kind = message.imm >> 28
        said += [kind, message.imm >> 19 & 0x1FF if kind in (1, 2) else 0]
    if message.kind == "REQ":
        cid, _, again = struct.unpack_from("<HHH", data, 6)
        said += [cid > 0, again, data[44]]
    if message.kind == "REJ":
        said.append(data[4:6])  # the errno
    if name.startswith("io_"):
        # [data, user header, message]: a read's message is 8 bytes and 16 for each place.
        end = 4 if name != "io_read" else 24
        operation, length = struct.unpack_from("<II", data, len(data) - end - 32 + 16)
        said += [operation, min(length, 4096)]
    if name == "open":
        said.append(data[4])
    if name == "open_answer":
        said.append(data[16:])
    return tuple(said)


def write_golden(file, folder):
    """One message of each form as text, which trs/golden_test.cc and bnbd/wire_test.cc read: the
    first of a name is NAME.hex, then NAME.2.hex."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.hex"):
        old.unlink()
    names = collections.defaultdict(Names)  # of each cable, which is a path
    forms, count = set(), {}
    for message in messages(file):
        if message.source == NO_KERNEL or message.kind in CM_ONLY:
            continue
        name = names[message.source.rpartition(".")[0]].of(message)
        if name is None:
            raise SystemExit(f"a message that has no name: {message.text()}")
        if name.startswith("data_of_") or form(name, message) in forms:
            continue
        forms.add(form(name, message))
        count[name] = count.get(name, 0) + 1
        data = message.data[:56] if name in ("conn_rsp", "conn_rej") else message.data
        lines = [f"carried by {message.kind}"]
        if message.imm is not None:
            lines.append(f"imm {message.imm:#010x}")
        if message.invalidates is not None:
            lines.append(f"invalidates {message.invalidates:#010x}")
        lines.append(f"bytes {len(data)}")
        for at in range(0, len(data), 32):
            lines.append(data[at : at + 32].hex())
        number = "" if count[name] == 1 else f".{count[name]}"
        (folder / f"{name}{number}.hex").write_text("\n".join(lines) + "\n")
    print("\n".join(f"{name} {number}" for name, number in sorted(count.items())))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("capture")
    one.add_argument("file")
    one.add_argument("interfaces", nargs="+")
    one = verbs.add_parser("show")
    one.add_argument("file")
    one = verbs.add_parser("golden")
    one.add_argument("file")
    one.add_argument("folder")
    arguments = parser.parse_args()
    if arguments.verb == "capture":
        capture(arguments.file, arguments.interfaces)
    elif arguments.verb == "golden":
        write_golden(arguments.file, arguments.folder)
    else:
        for message in messages(arguments.file):
            print(message.text())


if __name__ == "__main__":
    main()
