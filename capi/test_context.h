// What the tests of the C interface share: a context that is gone with the test, and waiting.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/linux_host.h"
#include "base/linux_test_folder.h"
#include "bnbd/test_server_thread.h"
#include "capi/braid/braid.h"

namespace braid::capi::test {

/// Asks until it is so; false if that takes longer than any machine needs.
template <typename Condition>
bool until(Condition condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

struct Free {
  void operator()(braid_context* context) const { EXPECT_EQ(::braid_free(context), 0); }
};
using Context = std::unique_ptr<braid_context, Free>;

inline Context new_context() {
  return Context(::braid_new());
}

/// Null, and a failure of the test, where it cannot be opened.
inline braid_device* open(const Context& context, const std::string& target) {
  braid_device* device = nullptr;
  EXPECT_EQ(::braid_open(context.get(), target.c_str(), &device), 0)
      << ::braid_error(context.get());
  return device;
}

inline struct braid_statistics statistics_of(braid_device* device) {
  struct braid_statistics counted {};
  counted.struct_bytes = sizeof counted;
  EXPECT_EQ(::braid_statistics(device, &counted), 0);
  return counted;
}

inline struct braid_info info_of(braid_device* device) {
  struct braid_info info {};
  info.struct_bytes = sizeof info;
  EXPECT_EQ(::braid_info(device, &info), 0);
  return info;
}

inline std::vector<char> pattern(size_t bytes, unsigned seed) {
  std::vector<char> all(bytes);
  for (size_t i = 0; i < bytes; ++i) all[i] = static_cast<char>((i / 512 * 31 + i + seed) % 251);
  return all;
}

/// A server of this process, with "ram" and "beside" of 8 MiB, and "disk.img" likewise, which it
/// has still when it comes again.
class WithServer : public testing::Test {
 protected:
  WithServer() {
    folder_.make_file("disk.img", 8 << 20);
    base::LinuxHostOptions quiet;
    quiet.log_sink = base::make_null_sink();
    host_ = std::move(base::create_linux_host(quiet)).value();
  }
  void serve(bnbd::test::Wire wire = bnbd::test::Wire::kInHost) {
    server_ = std::make_unique<bnbd::test::ServerThread>(*host_, folder_.path(), port_, 1, wire);
    port_ = server_->address().port;
  }
  std::string target(const std::string& name) const {
    return "127.0.0.1:" + std::to_string(port_) + "/" + name;
  }
  uint64_t sessions_opened() {
    return server_->ask<uint64_t>(
        [&] { return server_->server().transport_statistics().sessions_opened; });
  }
  std::vector<bnbd::SessionStatus> sessions() {
    return server_->ask<std::vector<bnbd::SessionStatus>>(
        [&] { return server_->server().session_statuses(); });
  }

  const base::ScratchFolder folder_{base::folder_on_disk()};
  std::unique_ptr<base::Host> host_;
  uint16_t port_ = 0;
  std::unique_ptr<bnbd::test::ServerThread> server_;
};

}  // namespace braid::capi::test
