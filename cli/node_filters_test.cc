// Filters of mapped devices as a node has them: parameters, status, what a kernel's request meets,
// and an unmap by force that nothing holds up.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/await.h"
#include "base/reactor.h"
#include "cli/test_node.h"

namespace braid::cli {
namespace {

using base::Errc;
using base::Result;
using base::Task;
using nlohmann::json;

/// A kernel that writes a block, reads it, and leaves a write behind that waits for a long time.
struct Kernel {
  Errc written = Errc::kInvalid, read = Errc::kInvalid;
  std::atomic<int> ended{0};
  bnbd::BlockRequest left;
  std::vector<std::byte> memory = std::vector<std::byte>(4096);
};

Task<Errc> request(base::Reactor& reactor, bnbd::BlockDevice& device, bnbd::BlockOp op,
                   std::byte* memory) {
  struct Ended {
    explicit Ended(base::Reactor& of) : signal(of) {}
    base::Signal signal;
    std::optional<Errc> status;
  } end(reactor);
  bnbd::BlockRequest request;
  request.op = op;
  request.length_bytes = 4096;
  request.buffer.address = memory;
  request.context = &end;
  request.done = [](bnbd::BlockRequest& of, Errc status) {
    static_cast<Ended*>(of.context)->status = status;
    static_cast<Ended*>(of.context)->signal.notify_all();
  };
  device.submit(request);
  while (!end.status) co_await end.signal.wait();
  co_return *end.status;
}

Task<Result<std::unique_ptr<bnbd::KernelDevice>>> attach_using(std::shared_ptr<Kernel> kernel,
                                                               base::Reactor& reactor,
                                                               bnbd::BlockDevice& device) {
  kernel->written = co_await request(reactor, device, bnbd::BlockOp::kWrite, kernel->memory.data());
  kernel->read = co_await request(reactor, device, bnbd::BlockOp::kRead, kernel->memory.data());
  kernel->left.op = bnbd::BlockOp::kFlush;
  kernel->left.context = kernel.get();
  kernel->left.done = [](bnbd::BlockRequest& of, Errc) {
    ++static_cast<Kernel*>(of.context)->ended;
  };
  device.submit(kernel->left);
  co_return std::unique_ptr<bnbd::KernelDevice>(std::make_unique<IdleKernelDevice>());
}

class NodeFilters : public testing::Test {
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
    daemon.attach = [kernel = kernel_](base::Reactor& reactor, bnbd::BlockDevice& device,
                                       const bnbd::KernelDeviceOptions&) {
      return attach_using(kernel, reactor, device);
    };
    daemon_ = start_node(std::move(daemon));
    ASSERT_NE(daemon_, nullptr);
  }
  Result<json> map(const json& filters, const std::string& access = "rw") {
    const json status = *server_->call("status", json::object());
    return daemon_->call("map", {{"target", status["server"]["listen"].get<std::string>() + "/ram"},
                                 {"access", access},
                                 {"filters", filters},
                                 {"reactors", 2}});
  }

  const std::shared_ptr<Kernel> kernel_ = std::make_shared<Kernel>();
  std::unique_ptr<Node> server_;
  std::unique_ptr<Node> daemon_;
};

TEST_F(NodeFilters, AreInThePathAndInTheStatus) {
  const auto mapped = map({"checksum", "delay:flush=1h", "error:read,count=1,errno=ENOMEM"});
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();
  EXPECT_EQ(kernel_->written, Errc::kOk);
  EXPECT_EQ(kernel_->read, Errc::kNoMemory);
  const json device = (*daemon_->call("status", json::object()))["devices"][0];
  EXPECT_EQ(device["filters"],
            json({"checksum", "delay:flush=1h", "error:read,count=1,errno=ENOMEM"}));
  const json& counted = device["filter_statistics"];
  EXPECT_EQ(counted[0]["requests"], 3U);
  EXPECT_EQ(counted[0]["memory_bytes"], 1U << 20);
  EXPECT_EQ(counted[1]["holding"], 1U);
  EXPECT_EQ(counted[2]["failed"], 1U);
  EXPECT_THAT(device["why"].dump(), testing::HasSubstr("the filter 'delay:flush=1h' holds 1"));
  EXPECT_THAT(device["why"].dump(), testing::HasSubstr("has failed 1 of"));

  EXPECT_EQ(kernel_->ended, 0);
  const auto gone = daemon_->call("unmap", {{"name", "ram"}, {"force", true}});
  EXPECT_TRUE(gone.ok()) << gone.error().message();
  EXPECT_EQ(kernel_->ended, 1) << "an hour's delay";
}

TEST_F(NodeFilters, AreRefusedInWords) {
  expect_refused(map("checksum"), Errc::kInvalid,
                 "parameter \"filters\" must be a list of strings");
  expect_refused(map({1, 2}), Errc::kInvalid, "must be a list of strings");
  expect_refused(map({"tee:x"}), Errc::kInvalid, "filter \"tee:x\": want delay:");
  expect_refused(map(std::vector<std::string>(17, "checksum")), Errc::kInvalid, "16 are the most");
  expect_refused(map({"checksum"}, "migration"), Errc::kInvalid, "taken for damage");
  EXPECT_EQ((*daemon_->call("status", json::object()))["devices"].size(), 0U);
}

}  // namespace
}  // namespace braid::cli
