// For tests of TRS between real processes, on the in-host wire.
#pragma once

#include <functional>
#include <memory>

#include "base/linux_host.h"
#include "base/log.h"
#include "base/reactor.h"
#include "vhca/soft_device.h"

namespace braid::trs::testing {

/// Host, reactor and device of this process; its thread turns the reactor by hand.
struct TestProcess {
  TestProcess() {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    host = std::move(*base::create_linux_host(options));
    reactor = std::move(*base::Reactor::create(*host, {}));
    device = std::move(*vhca::create_soft_device(*host, *reactor));
  }
  /// False if it did not come in a minute, which is more than a loaded machine takes.
  bool run_until(const std::function<bool()>& done) {
    constexpr uint64_t kPatienceNs = 60 * base::kSecond;
    const uint64_t deadline_ns = host->now_ns() + kPatienceNs;
    while (host->now_ns() < deadline_ns) {
      if (done()) return true;
      bool did = reactor->turn();
      if (second != nullptr) did |= second->turn();
      if (!did) host->yield();
    }
    return false;
  }
  std::unique_ptr<base::Host> host;
  std::unique_ptr<base::Reactor> reactor;
  std::unique_ptr<vhca::Device> device;
  base::Reactor* second = nullptr;  // a test's own, turned too while it is set
};

}  // namespace braid::trs::testing
