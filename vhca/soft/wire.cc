#include "vhca/soft/wire.h"

#include <utility>

#include "vhca/soft/atomic.h"

namespace braid::vhca::soft {
namespace {

class BothFences final : public PeerFence {
 public:
  BothFences(std::unique_ptr<PeerFence> a, std::unique_ptr<PeerFence> b)
      : a_(std::move(a)), b_(std::move(b)) {}
  bool passed() override {
    if (a_ != nullptr && a_->passed()) a_.reset();
    if (b_ != nullptr && b_->passed()) b_.reset();
    return a_ == nullptr && b_ == nullptr;
  }
  std::string waits_for() const override {
    if (a_ != nullptr) return a_->waits_for();
    return b_ != nullptr ? b_->waits_for() : "nobody";
  }

 private:
  std::unique_ptr<PeerFence> a_;
  std::unique_ptr<PeerFence> b_;
};

}  // namespace

std::unique_ptr<PeerFence> both_fences(std::unique_ptr<PeerFence> a, std::unique_ptr<PeerFence> b) {
  if (a == nullptr) return b;
  if (b == nullptr) return a;
  return std::make_unique<BothFences>(std::move(a), std::move(b));
}

bool passes_soon(PeerFence& fence, unsigned looks) {
  for (unsigned i = 0; i < looks; ++i) {
    if (fence.passed()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  return false;
}

Wire::WordChange Wire::change_word(const Request& request, const MrView& mr, uint64_t& before) {
  (void)mr;
  before = apply_atomic(request, reinterpret_cast<std::byte*>(request.remote_address));
  return WordChange::kDone;
}

}  // namespace braid::vhca::soft
