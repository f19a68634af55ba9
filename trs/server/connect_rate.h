// ConnectRate: how often one address may begin a path. Each costs the server a protection domain, a
// queue pair, completion queues and memory, long before its client has shown anything.
//
// A bucket for each address, kept as the time at which it is full again (GCRA). There are as many
// as are given a place; with more, that which is full soonest makes room.
//
// Thread: the home reactor.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/host.h"

namespace braid::trs::server {

class ConnectRate {
 public:
  // Honest clients that find nobody try ten times a second at most, and soon less often.
  static constexpr uint64_t kPerSecond = 200;
  static constexpr size_t kAddresses = 256;

  /// `at_once`: after a loss all sessions of a host come back, by several paths each.
  explicit ConnectRate(uint64_t at_once) : at_once_(std::max<uint64_t>(at_once, 1)) {}

  /// Whether a path may begin now; counts it if so. `address`: as of address_of().
  bool allow(const std::string& address, uint64_t now_ns) {
    Bucket& bucket = bucket_of(address);
    const uint64_t begin_ns = std::max(bucket.full_at_ns, now_ns);
    if (begin_ns - now_ns > (at_once_ - 1) * kIntervalNs) return false;
    bucket.full_at_ns = begin_ns + kIntervalNs;
    return true;
  }

 private:
  static constexpr uint64_t kIntervalNs = base::kSecond / kPerSecond;
  struct Bucket {
    std::string address;
    uint64_t full_at_ns = 0;
  };
  Bucket& bucket_of(const std::string& address) {
    Bucket* soonest = &buckets_.front();
    for (Bucket& each : buckets_) {
      if (each.address == address) return each;
      if (each.full_at_ns < soonest->full_at_ns) soonest = &each;
    }
    soonest->address = address;
    soonest->full_at_ns = 0;
    return *soonest;
  }
  const uint64_t at_once_;
  std::array<Bucket, kAddresses> buckets_;
};

}  // namespace braid::trs::server
