// Memory of braid_alloc() that is in use: any device of the context may use that of any other.
// Found out when memory is to go, by a look at all slots, so that a request costs nothing for it.
#include "capi/context.h"

using braid::base::Errc;
using braid::base::make_error;
using braid::base::Status;
using braid::capi::Request;

/// Whether nothing under way uses the memory that begins at `memory`; null: any of the owner's, and
/// then its own requests do not count, as they end before it goes. Calls that wait for one request
/// are over.
Status braid_context::unused(const braid_device& owner, const void* memory) const {
  if (!engine_ || engine_->in_flight == 0) return {};
  unsigned count = 0;
  const braid_device* user = nullptr;
  for (const Request& request : engine_->requests) {
    const std::byte* const buffer = request.operation.buffer.address;
    if (!request.under_way() || buffer == nullptr) continue;
    if (memory == nullptr && request.device == &owner) continue;
    if (!regions.touches(owner, memory, buffer, request.operation.length_bytes)) continue;
    ++count;
    user = request.device;
  }
  if (count == 0) return {};
  return make_error(Errc::kBusy,
                    "{}: its memory{} is in use by {} request{} under way, {}for {}; want their "
                    "completions first: braid_poll(), or braid_give_up() and that if its server is "
                    "away; or close that device first",
                    owner.target, memory != nullptr ? fmt::format(" at {}", memory) : "", count,
                    count == 1 ? "" : "s", count == 1 ? "" : "one of them ", user->target);
}

Status braid_context::deallocate(const braid_device& owner, const void* memory) {
  BRAID_CHECK(unused(owner, memory));
  if (regions.remove(owner, memory)) return {};
  return make_error(Errc::kInvalid,
                    "{}: it has no memory that begins at {}; want what braid_alloc() gave",
                    owner.target, memory);
}
