// The settings of a context, from the words of braid_set() (capi/braid/braid.h). Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "bnbd/wire.h"
#include "reach/hcas.h"

namespace braid::capi {

inline constexpr uint32_t kQueueDepthMax = 4096;

struct Settings {
  // --- of what is opened from then on
  bnbd::wire::AccessMode access = bnbd::wire::AccessMode::kReadWrite;
  std::string key_file;
  uint64_t give_up_after_ns = base::kNever;
  uint64_t lost_after_ns = base::kNever;
  // --- of all calls from then on
  uint64_t poll_budget_ns = 50 * base::kMicrosecond;  // kNever: always spins
  // --- of the context: fixed once it has begun, by a device that it opened or a descriptor
  reach::HcaOptions hcas;
  uint32_t queue_depth = 256;
  std::string name;  // empty: HOST.PROGRAM.PID
  base::LogLevel log = base::LogLevel::kOff;
};

/// Changes one. kInvalid: no such name or value. kBusy: it is fixed, as `begun`; nothing changes.
base::Status set(Settings& settings, std::string_view name, std::string_view value, bool begun);

}  // namespace braid::capi
