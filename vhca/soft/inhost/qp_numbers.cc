#include "vhca/soft/inhost/qp_numbers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"

namespace braid::vhca::soft::inhost {

namespace {

constexpr uint32_t kBlocks = 1U << 16;
constexpr int kClaimsMax = 1000;  // most blocks of the host would have to be taken

// A Feistel network of two halves of 12 bits. Who knows the key knows the order; nobody but the
// machine's own processes needs to.
constexpr uint32_t kHalfBits = 12;
constexpr uint32_t kHalfMask = (1U << kHalfBits) - 1;
constexpr uint32_t kRounds = 8;

uint64_t mix(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

uint32_t round_of(uint64_t key, uint32_t half, uint32_t round) {
  return static_cast<uint32_t>(mix(key ^ mix(uint64_t{round} << 32 | half))) & kHalfMask;
}

/// The same in all processes since the machine was started.
uint64_t key_of(const std::string& boot_id) {
  uint64_t key = 0;
  for (const char each : boot_id) key = mix(key + static_cast<unsigned char>(each) + 1);
  return key;
}

}  // namespace

uint32_t scatter_number(uint64_t key, uint32_t plain) {
  uint32_t high = plain >> kHalfBits;
  uint32_t low = plain & kHalfMask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    high = std::exchange(low, high ^ round_of(key, low, round));
  }
  return high << kHalfBits | low;
}

uint32_t gather_number(uint64_t key, uint32_t scattered) {
  uint32_t high = scattered >> kHalfBits;
  uint32_t low = scattered & kHalfMask;
  for (uint32_t round = kRounds; round-- > 0;) {
    low = std::exchange(high, low ^ round_of(key, high, round));
  }
  return high << kHalfBits | low;
}

QpNumbers::QpNumbers(base::Host& host) : host_(host), key_(key_of(host.boot_id())) {}

QpNumbers::Block* QpNumbers::claim_block() {
  for (int attempt = 0; attempt < kClaimsMax; ++attempt) {
    uint32_t index = 0;
    host_.random(std::as_writable_bytes(std::span(&index, 1)));
    index %= kBlocks;
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

/// The free one that was given out longest ago, or never.
uint32_t QpNumbers::take(Block& block) {
  for (;; ++block.next) {
    const uint32_t at = block.next % kBlockSize;
    if (block.used.test(at)) continue;
    const uint32_t number = scatter_number(key_, block.index * kBlockSize + at);
    if (number <= 1) continue;  // management QPs
    block.used.set(at);
    ++block.next;
    return number;
  }
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
  const uint32_t plain = gather_number(key_, number);
  const auto found = std::find_if(blocks_.begin(), blocks_.end(), [plain](const Block& block) {
    return block.index == plain / kBlockSize;
  });
  BRAID_ASSERT(found != blocks_.end() && found->used.test(plain % kBlockSize));
  found->used.reset(plain % kBlockSize);
}

}  // namespace braid::vhca::soft::inhost
