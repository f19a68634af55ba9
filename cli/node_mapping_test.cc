// Mappings that are given up while the kernel gets its device: what attaches reads from a server
// that has gone, as the kernel does. A stand-in for the kernel: the moment is hard to meet with it.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/await.h"
#include "base/reactor.h"
#include "cli/test_node.h"

namespace braid::cli {
namespace {

using base::Errc;
using base::Result;
using base::Status;
using base::Task;
using nlohmann::json;

/// What the test and the attaching share.
struct Attaching {
  std::promise<void> begun;
  std::atomic<bool> server_gone{false};
  std::atomic<int> detached{0};
};

class StandIn : public bnbd::KernelDevice {
 public:
  explicit StandIn(std::shared_ptr<Attaching> attaching) : attaching_(std::move(attaching)) {}
  const std::string& path() const override { return path_; }
  bnbd::KernelDeviceKind kind() const override { return bnbd::KernelDeviceKind::kFuse; }
  const std::string& kind_text() const override { return path_; }
  bool alive() const override { return true; }
  bnbd::KernelDeviceStatistics statistics() const override { return {}; }
  uint64_t waits_at_most_ns() const override { return base::kNever; }
  Task<base::Status> follow_size() override { co_return base::ok_status(); }
  Task<Result<bnbd::Detached>> detach(bnbd::DetachMode mode) override {
    EXPECT_EQ(mode, bnbd::DetachMode::kForce);
    ++attaching_->detached;
    co_return bnbd::Detached();
  }

 private:
  const std::shared_ptr<Attaching> attaching_;
  const std::string path_ = "stand-in";
};

/// Ends well whatever the read gives: so does the kernel.
Task<Result<std::unique_ptr<bnbd::KernelDevice>>> attach_reading(
    std::shared_ptr<Attaching> attaching, base::Reactor& reactor, bnbd::BlockDevice& device) {
  attaching->begun.set_value();
  while (!attaching->server_gone) co_await reactor.sleep_ns(base::kMillisecond);
  BRAID_CO_TRY(const auto region, device.create_region(4096));
  base::Signal answered(reactor);
  bnbd::BlockRequest read;
  bool done = false;
  read.length_bytes = region->size();
  read.buffer = {region.get(), region->data()};
  std::pair<bool*, base::Signal*> end{&done, &answered};
  read.context = &end;
  read.done = [](bnbd::BlockRequest& request, Errc) {
    const auto& [flag, signal] = *static_cast<std::pair<bool*, base::Signal*>*>(request.context);
    *flag = true;
    signal->notify_all();
  };
  device.submit(read);
  while (!done) co_await answered.wait();
  co_return std::unique_ptr<bnbd::KernelDevice>(std::make_unique<StandIn>(attaching));
}

class NodeMapping : public testing::Test {
 protected:
  void SetUp() override {
    NodeOptions server;
    server.role = "server";
    server.serve.emplace();
    server.serve->listen = {"127.0.0.1", 0};
    server.serve->memory = {{"ram", 8 << 20}};
    server_ = start_node(std::move(server));
    ASSERT_NE(server_, nullptr);
    NodeOptions daemon;
    daemon.role = "daemon";
    daemon.attach = [attaching = attaching_](base::Reactor& reactor, bnbd::BlockDevice& device,
                                             const bnbd::KernelDeviceOptions&) {
      return attach_reading(attaching, reactor, device);
    };
    daemon_ = start_node(std::move(daemon));
    ASSERT_NE(daemon_, nullptr);
    begin();
  }
  /// Maps, as far as a read that nobody answers.
  void begin() {
    const json status = *server_->call("status", json::object());
    const json params{{"target", status["server"]["listen"].get<std::string>() + "/ram"}};
    mapped_ = std::async(std::launch::async,
                         [this, params] { return daemon_->call("map", params).code(); });
    attaching_->begun.get_future().wait();
    ASSERT_TRUE(stop(*server_, true).ok());
    attaching_->server_gone = true;
  }
  Result<json> unmap(bool force) {
    return daemon_->call("unmap", {{"name", "ram"}, {"force", force}});
  }
  void expect_nothing_left() {
    EXPECT_EQ(mapped_.get(), Errc::kCanceled);
    EXPECT_EQ(attaching_->detached, 1) << "the kernel keeps a device that nobody knows of";
    EXPECT_EQ((*daemon_->call("status", json::object()))["devices"].size(), 0U);
  }

  const std::shared_ptr<Attaching> attaching_ = std::make_shared<Attaching>();
  std::unique_ptr<Node> server_;
  std::unique_ptr<Node> daemon_;
  std::future<Errc> mapped_;
};

TEST_F(NodeMapping, IsGivenUpByForce) {
  const auto polite = unmap(/*force=*/false);
  EXPECT_EQ(polite.code(), Errc::kBusy);
  EXPECT_NE(polite.error().message().find("--force"), std::string::npos);
  const auto forced = unmap(/*force=*/true);
  EXPECT_TRUE(forced.ok()) << forced.error().message();
  expect_nothing_left();
}

TEST_F(NodeMapping, IsGivenUpWhenTheNodeEnds) {
  const Status stopped = stop(*daemon_, /*force=*/false);
  EXPECT_TRUE(stopped.ok()) << stopped.error().message();
  expect_nothing_left();
}

}  // namespace
}  // namespace braid::cli
