// Network interfaces of a test's own. Needs root, iproute2 and veth; tests skip without.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/linux/fd.h"

namespace braid::base {

/// False: the shell command failed. It runs in the network namespace of the calling thread.
inline bool run_command(const std::string& command) {
  return std::system((command + " 2>/dev/null").c_str()) == 0;  // NOLINT(cert-env33-c)
}

/// In the network namespace of the calling thread.
inline bool has_carrier(const std::string& interface) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return false;
  bool running = false;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    running = running || (interface == each->ifa_name && (each->ifa_flags & IFF_RUNNING) != 0);
  }
  ::freeifaddrs(first);
  return running;
}

/// The kernel tells of a carrier a moment after both ends are up: more than a second after, when
/// other links come and go. False, and a failed test: it has told nothing for 30 s.
inline bool wait_for_carrier(const std::string& interface) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!has_carrier(interface)) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << interface << " has no carrier after 30 s";
      return false;
    }
    ::sched_yield();
  }
  return true;
}

/// Runs `test` on a thread in a network namespace of its own, in which interfaces "near", of this
/// address, and "far" are the two ends of a cable that has its carrier; all is gone with the
/// thread. No address comes or goes but by what the test does. False: nothing ran, there can be no
/// such thing here.
inline bool with_cable(const std::string& address, const std::function<void()>& test) {
  bool there = false;
  std::thread([&] {
    there = ::unshare(CLONE_NEWNET) == 0 &&
            run_command(
                "ip link add near type veth peer name far && "
                "ip link set near addrgenmode none && ip link set far addrgenmode none && "
                "ip link set near up && ip link set far up && ip addr add " +
                address + " dev near") &&
            wait_for_carrier("near");
    if (there) test();
  }).join();
  return there;
}

inline constexpr const char* kNeedsCable =
    "needs root, iproute2 and veth: interfaces in a network namespace of its own";

/// Two network namespaces, as two machines have them, and a cable with its carrier between. A
/// thread goes to and fro; what it makes stays where it was made.
class TwoNetworks {
 public:
  static constexpr const char* kIp[2] = {"10.213.9.1", "10.213.9.2"};

  /// None: there can be no such thing here, which wants what a cable wants.
  static std::unique_ptr<TwoNetworks> create() {
    std::unique_ptr<TwoNetworks> made(new TwoNetworks);
    bool there = false;
    std::thread([&] { there = made->lay_cable(); }).join();
    return there ? std::move(made) : nullptr;
  }
  /// The calling thread is in this one (0 or 1) from now on.
  void enter(int side) const { go_to(there_[side]); }
  /// It is where the thread was that created these.
  void leave() const { go_to(home_); }

 private:
  TwoNetworks() : home_(present()) {}
  static Fd present() { return Fd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)); }
  static void go_to(const Fd& network) {
    if (::setns(network.fd(), CLONE_NEWNET) != 0) std::abort();
  }
  bool make(int side) {
    if (::unshare(CLONE_NEWNET) != 0) return false;
    there_[side] = present();
    return there_[side].valid();
  }
  static bool begin(const std::string& interface, int side) {
    return run_command("ip link set lo up && ip link set " + interface + " addrgenmode none && " +
                       "ip addr add " + kIp[side] + "/24 dev " + interface + " && ip link set " +
                       interface + " up");
  }
  bool lay_cable() {
    if (!home_.valid() || !make(1) || !make(0)) return false;
    const std::string other =
        "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(there_[1].fd());
    if (!run_command("ip link add near type veth peer name far netns " + other)) return false;
    if (!begin("near", 0)) return false;
    enter(1);
    if (!begin("far", 1) || !wait_for_carrier("far")) return false;
    enter(0);
    return wait_for_carrier("near");
  }

  const Fd home_;
  Fd there_[2];
};

}  // namespace braid::base
