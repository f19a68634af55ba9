// Network interfaces of a test's own. Needs root, iproute2 and veth; tests skip without.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

namespace braid::base {

/// False: the shell command failed. It runs in the network namespace of the calling thread.
inline bool run_command(const std::string& command) {
  return std::system((command + " 2>/dev/null").c_str()) == 0;  // NOLINT(cert-env33-c)
}

/// Runs `test` on a thread in a network namespace of its own, in which interfaces "near", of this
/// address, and "far" are the two ends of a cable; all is gone with the thread. No address comes or
/// goes but by what the test does. False: nothing ran, there can be no such thing here.
inline bool with_cable(const std::string& address, const std::function<void()>& test) {
  bool there = false;
  std::thread([&] {
    there = ::unshare(CLONE_NEWNET) == 0 &&
            run_command(
                "ip link add near type veth peer name far && "
                "ip link set near addrgenmode none && ip link set far addrgenmode none && "
                "ip link set near up && ip link set far up && ip addr add " +
                address + " dev near");
    if (there) test();
  }).join();
  return there;
}

inline constexpr const char* kNeedsCable =
    "needs root, iproute2 and veth: interfaces in a network namespace of its own";

}  // namespace braid::base
