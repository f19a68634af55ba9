#include "vhca/soft/wire.h"

#include "vhca/soft/atomic.h"

namespace braid::vhca::soft {

Wire::WordChange Wire::change_word(const Request& request, const MrView& mr, uint64_t& before) {
  (void)mr;
  before = apply_atomic(request, reinterpret_cast<std::byte*>(request.remote_address));
  return WordChange::kDone;
}

}  // namespace braid::vhca::soft
