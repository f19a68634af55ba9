// Which permits one reactor's queue lends another: decisions only (docs/lent-permits.md).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace braid::trs::client {

inline constexpr uint32_t kLoanMax = 16;  // permits of one message

/// Permits on their way to another queue, each with what its chunk has counted to.
struct Loan {
  struct Item {
    uint32_t index = 0;
    uint32_t sequence = 0;
    uint32_t epoch = 0;
  };
  uint32_t count = 0;
  std::array<Item, kLoanMax> items{};
};

/// A queue as the decision sees it.
struct PermitHolding {
  uint32_t size = 0;     // permits, in use or free
  uint32_t free = 0;     // of them
  uint32_t waiting = 0;  // users that wait for one
};

/// What a queue of `share` permits never lends.
constexpr uint32_t kept_of(uint32_t share) {
  return std::max(1u, share / 8);
}

/// How many free permits go to one who is short, at once.
constexpr uint32_t spare(const PermitHolding& lender, uint32_t share) {
  const uint32_t kept = kept_of(share);
  if (lender.waiting > 0 || lender.size <= kept) return 0;
  return std::min({(lender.free + 1) / 2, lender.size - kept, kLoanMax});
}

/// Whether the next permit that comes back to a busy lender goes to the asker: the lender then
/// still has as many per waiting user.
constexpr bool owes(const PermitHolding& lender, const PermitHolding& asker, uint32_t share) {
  if (lender.size <= kept_of(share)) return false;
  const uint64_t here = uint64_t{lender.size} - 1;
  const uint64_t there = uint64_t{asker.size} + 1;
  return here * std::max(1u, asker.waiting) >= there * std::max(1u, lender.waiting);
}

}  // namespace braid::trs::client
