// LaneStatistics: what one connection of a path has carried since the path was made. Written by the
// connection's reactor alone, read by any thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "trs/client.h"

namespace braid::trs::client {

/// One writer, any readers.
class Counter {
 public:
  void add(uint64_t amount) { value_.store(get() + amount, std::memory_order_relaxed); }
  void subtract(uint64_t amount) { value_.store(get() - amount, std::memory_order_relaxed); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct LaneStatistics {
  Counter reads, read_bytes, writes, write_bytes;
  Counter in_flight;
  Counter sent, received;
  Counter errors;
  Counter moved;
  Counter failed_over;  // requests that went by another path in the end
  std::array<Counter, ConnectionStatistics::kLatencyBuckets> latency;
  Counter latency_sum_ns;

  void count_latency(uint64_t ns) {
    const auto bucket = static_cast<size_t>(std::bit_width(ns / base::kMicrosecond));
    latency[std::min(bucket, latency.size() - 1)].add(1);
    latency_sum_ns.add(ns);
  }
  void add_to(ClientStatistics& sum) const {
    sum.reads += reads.get();
    sum.read_bytes += read_bytes.get();
    sum.writes += writes.get();
    sum.write_bytes += write_bytes.get();
    sum.messages_sent += sent.get();
    sum.messages_received += received.get();
  }
  ConnectionStatistics read() const {
    ConnectionStatistics out{reads.get(),     read_bytes.get(), writes.get(),  write_bytes.get(),
                             in_flight.get(), sent.get(),       received.get()};
    for (size_t i = 0; i < latency.size(); ++i) out.latency[i] = latency[i].get();
    out.latency_sum_ns = latency_sum_ns.get();
    out.errors = errors.get();
    out.moved = moved.get();
    return out;
  }
};

}  // namespace braid::trs::client
