// The peer of the block rows: fio's nbd engine on nbdkit's memory plugin over a unix socket.
//
// Main thread.
#pragma once

#include "bench/rounds.h"

namespace braid::bench {

/// Random 4 KiB reads at depth 1, IOPS. kNotFound without fio or nbdkit.
std::unique_ptr<Candidate> fio_on_nbdkit();

/// Takes the figures out of fio's JSON output; `cpu_ns` is fio's own. kIo naming what is missing.
base::Result<Sample> parse_fio(const std::string& text);

}  // namespace braid::bench
