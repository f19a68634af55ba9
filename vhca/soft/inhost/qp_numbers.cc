#include "vhca/soft/inhost/qp_numbers.h"

#include <algorithm>

#include "base/log.h"

namespace braid::vhca::soft::inhost {

namespace {
constexpr uint32_t kBlocks = 1U << 16;
constexpr int kClaimsMax = 1000;  // most blocks of the host would have to be taken
}  // namespace

uint32_t QpNumbers::random() {
  uint32_t value = 0;
  host_.random(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

QpNumbers::Block* QpNumbers::claim_block() {
  for (int attempt = 0; attempt < kClaimsMax; ++attempt) {
    const uint32_t index = 1 + random() % (kBlocks - 1);  // block 0 holds the management QPs
    auto claim = host_.listen_local(fmt::format("braid.qpn.{}", index));
    if (claim.ok()) {
      blocks_.push_back({.index = index, .claim = std::move(claim).value(), .used = {}});
      return &blocks_.back();
    }
    if (claim.code() != base::Errc::kBusy && claim.code() != base::Errc::kExists) {
      host_.log().error("cannot claim QP numbers: {}", claim.error().message());
      return nullptr;
    }
  }
  host_.log().error("cannot claim QP numbers: {} blocks in a row are taken", kClaimsMax);
  return nullptr;
}

uint32_t QpNumbers::take(Block& block) {
  uint32_t at = random() % kBlockSize;
  while (block.used.test(at)) at = (at + 1) % kBlockSize;
  block.used.set(at);
  return block.index * kBlockSize + at;
}

uint32_t QpNumbers::allocate() {
  const std::lock_guard lock(mutex_);
  // Half of a block stays free, so that a number is not used again soon.
  const auto has_room = [](const Block& block) { return block.used.count() < kBlockSize / 2; };
  const auto found = std::find_if(blocks_.begin(), blocks_.end(), has_room);
  Block* const block = found != blocks_.end() ? &*found : claim_block();
  return block == nullptr ? 0 : take(*block);
}

void QpNumbers::release(uint32_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(blocks_.begin(), blocks_.end(), [number](const Block& block) {
    return block.index == number / kBlockSize;
  });
  BRAID_ASSERT(found != blocks_.end() && found->used.test(number % kBlockSize));
  found->used.reset(number % kBlockSize);
}

}  // namespace braid::vhca::soft::inhost
