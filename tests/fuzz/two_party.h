// For fuzz targets with two parties in a simulated world: one that ships, and one whose doings are
// the fuzzer's input. The input also says how time passes and what the network does.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/sim.h"
#include "tests/fuzz/numbers.h"

namespace braid::fuzz {

/// Says what does not hold before it ends the process.
inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// A message of the wire as bytes, alone or behind others.
template <typename T>
void append(std::vector<std::byte>& bytes, const T& more) {
  const auto plain = std::as_bytes(std::span(&more, 1));
  bytes.insert(bytes.end(), plain.begin(), plain.end());
}
inline void append(std::vector<std::byte>& bytes, const std::vector<std::byte>& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}
template <typename T>
std::vector<std::byte> to_bytes(const T& message) {
  std::vector<std::byte> bytes;
  append(bytes, message);
  return bytes;
}

/// Feature bits of any peer, also such as nobody knows yet.
inline uint32_t any_features(Numbers& numbers) {
  return numbers.next<uint8_t>() * 0x01010101u;
}

/// A machine with one port and one process on it.
template <typename Program, typename... Args>
Program* start(base::sim::SimWorld& world, const char* name, const char* ip, Args&&... args) {
  base::sim::SimMachine& machine = world.add_machine(name);
  world.fabric().add_port(machine, ip);
  base::sim::SimHost& host = machine.start_process(name);
  auto program = std::make_unique<Program>(host, std::forward<Args>(args)...);
  Program* const its = program.get();
  host.run(std::move(program));
  return its;
}

/// One step in time: from microseconds to seconds; not for ever, as each second is work.
inline void pass_time(base::sim::SimWorld& world, Numbers& numbers) {
  const bool long_ago = world.now_ns() > 30 * base::kSecond;
  const uint32_t log2_us = numbers.below(22) % (long_ago ? 14 : 22);
  world.run_for((base::kMicrosecond << log2_us) + numbers.next<uint8_t>() * 100ull);
}

/// One step of the network between the two.
inline void disturb(base::sim::SimWorld& world, Numbers& numbers, const std::string& one,
                    const std::string& other) {
  base::sim::SimFabric& fabric = world.fabric();
  const bool there = numbers.flag();
  const std::string& from = there ? one : other;
  const std::string& to = there ? other : one;
  const uint64_t later_ns = world.now_ns() + numbers.next<uint8_t>() * 10 * base::kMillisecond;
  switch (numbers.below(7)) {
    case 0:
      return fabric.set_black_hole(from, to, true);
    case 1:
      return fabric.set_lose_answers(from, to, true);
    case 2:
      return fabric.set_extra_delay(from, to, numbers.next<uint8_t>() * base::kMillisecond);
    case 3:
      return fabric.set_held_until(from, to, later_ns);
    case 4:
      return fabric.set_receive_missing(from, to, true);
    default:
      return fabric.heal_all();
  }
}

}  // namespace braid::fuzz
