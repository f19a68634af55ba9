// What the tests of nodes share: starting and stopping one in this process, asking it until
// something is so, and what refusals say; key files.
#pragma once

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/linux_test_folder.h"
#include "cli/node.h"

namespace braid::cli {

/// Under a name that no other test or process uses at the same time.
inline std::unique_ptr<Node> start_node(NodeOptions options) {
  static int number = 0;
  options.name = "test." + std::to_string(::getpid()) + ".node" + std::to_string(++number);
  auto node = Node::start(std::move(options));
  EXPECT_TRUE(node.ok()) << node.error().message();
  return node.ok() ? std::move(*node) : nullptr;
}

/// A kernel that takes a device and does nothing with it.
class IdleKernelDevice : public bnbd::KernelDevice {
 public:
  const std::string& path() const override { return path_; }
  bnbd::KernelDeviceKind kind() const override { return bnbd::KernelDeviceKind::kFuse; }
  const std::string& kind_text() const override { return path_; }
  bool alive() const override { return true; }
  bnbd::KernelDeviceStatistics statistics() const override { return {}; }
  uint64_t waits_at_most_ns() const override { return base::kNever; }
  base::Task<base::Status> follow_size() override { co_return base::ok_status(); }
  base::Task<base::Result<bnbd::Detached>> detach(bnbd::DetachMode) override {
    co_return bnbd::Detached();
  }

 private:
  const std::string path_ = "stand-in";
};

/// NodeOptions::attach for tests that are not about the kernel.
inline base::Task<base::Result<std::unique_ptr<bnbd::KernelDevice>>> attach_nothing(
    base::Reactor&, bnbd::BlockDevice&, bnbd::KernelDeviceOptions) {
  co_return std::unique_ptr<bnbd::KernelDevice>(std::make_unique<IdleKernelDevice>());
}

/// Asks until it is so; false if that takes longer than any machine needs.
template <typename Condition>
bool until(Condition condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

template <typename T>
void expect_refused(const base::Result<T>& answer, base::Errc code, const std::string& words) {
  ASSERT_FALSE(answer.ok()) << "not refused, but should have said: " << words;
  EXPECT_EQ(answer.code(), code) << answer.error().message();
  EXPECT_THAT(answer.error().message(), testing::HasSubstr(words));
}

/// Its path; `mode`: of the file.
inline std::string write_file(const base::ScratchFolder& folder, const std::string& name,
                              const std::string& text, mode_t mode = 0600) {
  std::ofstream(folder / name) << text;
  EXPECT_EQ(::chmod((folder / name).c_str(), mode), 0);
  return folder / name;
}

inline base::Status stop(Node& node, bool force) {
  auto outcome = std::make_shared<std::promise<base::Status>>();
  node.stop(force, [outcome](const base::Status& status) { outcome->set_value(status); });
  return outcome->get_future().get();
}

}  // namespace braid::cli
