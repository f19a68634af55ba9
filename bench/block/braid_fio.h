// fio on Braid, as the rows of the block suite measure it: fio's external engine on a remote
// device.
//
// Main thread.
#pragma once

#include <memory>

#include "bench/block/remote_server.h"
#include "bench/peers/fio.h"

namespace braid::bench {

enum class Backend : uint8_t {
  kMemory,
  kFile,  // on the disk beneath the scratch folder, past the kernel's cache
};

/// A server in a process of its own, and fio's engine "braid" (capi/fio) in fio's. Both spin and
/// sleep as `way` says. kNotFound: the engine was not built.
std::unique_ptr<FioTarget> braid_engine(const RemoteWay& way, Backend backend = Backend::kMemory,
                                        trs::ChunkGuard guard = trs::ChunkGuard::kNone);

}  // namespace braid::bench
