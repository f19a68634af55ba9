// The least that an NBD server does: what the client, the socket and the kernel's copies take where
// nothing else costs anything.
//
// Main thread.
#pragma once

#include <memory>

#include "bench/peers/fio.h"

namespace braid::bench {

/// fio's nbd engine, by a unix socket, on a server of one thread which never sleeps while there is
/// a client: memory, the old handshake, simple replies, one client at a time, no checks. Reads go
/// to the socket out of the store, up to four answers at a time, as Braid's server sends them. On
/// either CPU it yields each time that there is nothing.
std::unique_ptr<FioTarget> bare_nbd(Placement placement);

}  // namespace braid::bench
