// The least that an NBD server does: what the client, the socket and the kernel's copies take where
// nothing else costs anything.
//
// Main thread.
#pragma once

#include <memory>

#include "bench/peers/fio.h"
#include "bench/peers/nbdkit.h"

namespace braid::bench {

/// fio's nbd engine on a server of one thread which never sleeps while there is a client: memory,
/// the old handshake, simple replies, one client at a time, no checks. Reads go to the socket out
/// of the store.
std::unique_ptr<FioTarget> bare_nbd(Socket socket);

}  // namespace braid::bench
