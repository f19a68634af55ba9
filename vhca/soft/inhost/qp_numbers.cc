#include "vhca/soft/inhost/qp_numbers.h"

#include <utility>

#include "base/log.h"

namespace braid::vhca::soft::inhost {

namespace {

constexpr int kClaimsMax = 1000;  // most numbers of the host would have to be taken

}  // namespace

uint32_t QpNumbers::allocate() {
  for (int attempt = 0; attempt < kClaimsMax; ++attempt) {
    uint32_t number = 0;
    host_.random(std::as_writable_bytes(std::span(&number, 1)));
    number %= kQpNumbers;
    if (number <= 1) continue;  // management QPs
    auto claim = host_.listen_local(fmt::format("braid.qpn.{}", number));
    if (claim.ok()) {
      const std::lock_guard lock(mutex_);
      claims_.emplace(number, std::move(claim).value());
      return number;
    }
    if (claim.code() != base::Errc::kBusy && claim.code() != base::Errc::kExists) {
      host_.log().error("cannot claim a QP number: {}", claim.error().message());
      return 0;
    }
  }
  host_.log().error("cannot claim a QP number: {} in a row are taken", kClaimsMax);
  return 0;
}

void QpNumbers::release(uint32_t number) {
  const std::lock_guard lock(mutex_);
  const size_t released = claims_.erase(number);
  BRAID_ASSERT(released == 1);
}

}  // namespace braid::vhca::soft::inhost
