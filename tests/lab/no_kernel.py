#!/usr/bin/env python3
"""For kernel_capture: connects to Linux's RTRS server as no kernel does, to be rejected for each
reason that a client can give it.

    no_kernel.py SERVER-IP
"""

import ctypes
import errno
import os
import struct
import sys

rdma = ctypes.CDLL("librdmacm.so.1", use_errno=True)
MAGIC, VERSION = 0x1BBD, 0x0200


def conn_req(cid, cid_num, session, paths, first, magic=MAGIC, version=VERSION):
    return struct.pack(
        "<HHHHHH16s16sB11x", 0, magic, version, cid, cid_num, 1, session, paths, first)


def end_at(server):
    hints = struct.pack("iiii", 0, 0, 2, 0x106) + bytes(112)  # IBV_QPT_RC, RDMA_PS_TCP
    place, end = ctypes.c_void_p(), ctypes.c_void_p()
    assert rdma.rdma_getaddrinfo(server, b"1234", hints, ctypes.byref(place)) == 0
    attributes = bytes(32) + struct.pack("IIIIIii", 1, 1, 1, 1, 0, 2, 0) + bytes(64)
    assert rdma.rdma_create_ep(ctypes.byref(end), place, None, attributes) == 0, ctypes.get_errno()
    rdma.rdma_freeaddrinfo(place)
    return end


def is_accepted(server, said):
    """The end, or None if it was rejected."""
    end = end_at(server)
    data = ctypes.create_string_buffer(said, len(said))
    # struct rdma_conn_param
    param = struct.pack("=QBBBBBBBxI4x", ctypes.addressof(data), len(said), 0, 0, 0, 7, 7, 0, 0)
    if rdma.rdma_connect(end, param) == 0:
        return end
    assert ctypes.get_errno() == errno.ECONNREFUSED, ctypes.get_errno()
    rdma.rdma_destroy_ep(end)
    return None


def main():
    server = sys.argv[1].encode()
    session, other, paths, unknown = (os.urandom(16) for _ in range(4))

    def refused(*said, **more):
        assert is_accepted(server, conn_req(*said, **more)) is None, (said, more)

    # ECONNRESET: what it cannot read, and numbers that it does not take.
    assert is_accepted(server, bytes(56)) is None
    refused(0, 2, session, paths, 1, magic=0x1234)
    refused(0, 2, session, paths, 1, version=0x0300)
    refused(0, 4097, session, paths, 1)
    refused(2, 2, session, paths, 1)
    # ENXIO: more of a session that there is none of.
    refused(0, 2, session, unknown, 0)
    held = is_accepted(server, conn_req(0, 2, session, paths, 1))
    assert held is not None
    # ECONNRESET: the same connection again, and another count of them.
    refused(0, 2, session, paths, 0)
    refused(1, 3, session, paths, 0)
    # EEXIST: another path of the session, between the same addresses.
    refused(0, 2, other, paths, 0)
    rdma.rdma_disconnect(held)
    rdma.rdma_destroy_ep(held)


if __name__ == "__main__":
    main()
