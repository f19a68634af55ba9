// Devices that are mapped on several reactors. A stand-in for the kernel submits on each of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <span>

#include "base/await.h"
#include "base/reactor.h"
#include "cli/test_node.h"

namespace braid::cli {
namespace {

using base::Errc;
using base::Result;
using base::Task;
using bnbd::BlockOp;
using nlohmann::json;
using KernelPtr = std::unique_ptr<bnbd::KernelDevice>;

constexpr uint32_t kBlockBytes = 4096;
constexpr unsigned kBlocksEach = 32;  // that a reactor writes, and reads

/// Blocks first, first + step ... on one of a device's reactors, a request at a time. A block holds
/// its own number.
class Strand {
 public:
  Strand(base::Reactor& home, const bnbd::BlockQueue& queue, const bnbd::Region& region,
         size_t slot)
      : home_(home),
        ended_(home),
        queue_(queue),
        words_(reinterpret_cast<uint64_t*>(region.data() + slot * kBlockBytes),
               kBlockBytes / sizeof(uint64_t)) {
    request_.length_bytes = kBlockBytes;
    request_.buffer = {&region, region.data() + slot * kBlockBytes};
    request_.context = this;
    request_.done = [](bnbd::BlockRequest& done, Errc how) {
      static_cast<Strand*>(done.context)->step(how);
    };
  }
  void start(BlockOp op, uint64_t first, uint64_t step) {
    status.reset();
    request_.op = op;
    block_ = first;
    step_ = step;
    left_ = kBlocksEach;
    queue_.reactor->post([this] { submit(); });
  }
  Task<void> wait() {
    while (!status) co_await ended_.wait();
  }
  uint64_t wrong = 0;          // blocks
  std::optional<Errc> status;  // of the last request; at home

 private:
  void submit() {
    std::fill(words_.begin(), words_.end(), request_.op == BlockOp::kWrite ? block_ : ~0ULL);
    request_.offset_bytes = block_ * kBlockBytes;
    queue_.device->submit(request_);
  }
  void step(Errc how) {
    if (request_.op == BlockOp::kRead && how == Errc::kOk)
      wrong +=
          static_cast<size_t>(std::count(words_.begin(), words_.end(), block_)) != words_.size();
    block_ += step_;
    if (how == Errc::kOk && --left_ > 0) return submit();
    home_.post([this, how] {
      status = how;
      ended_.notify_all();
    });
  }

  base::Reactor& home_;
  base::Signal ended_;
  const bnbd::BlockQueue queue_;
  const std::span<uint64_t> words_;
  bnbd::BlockRequest request_;
  uint64_t block_ = 0, step_ = 0, left_ = 0;
};

/// As a kernel: what it has sent has ended before it lets go of the device.
class OneKernel : public IdleKernelDevice {
 public:
  OneKernel(base::Reactor& home, std::vector<bnbd::BlockQueue> queues,
            std::unique_ptr<bnbd::Region> region)
      : region_(std::move(region)) {
    for (size_t i = 0; i < queues.size(); ++i)
      strands.push_back(std::make_unique<Strand>(home, queues[i], *region_, i));
  }
  void start(BlockOp op, size_t shift) {
    for (size_t i = 0; i < strands.size(); ++i)
      strands[i]->start(op, (i + shift) % strands.size(), strands.size());
  }
  Task<void> wait() {
    for (const auto& strand : strands) co_await strand->wait();
  }
  Task<Result<bnbd::Detached>> detach(bnbd::DetachMode) override {
    for (const auto& strand : strands) {
      co_await strand->wait();
      EXPECT_EQ(*strand->status, end);
    }
    co_return bnbd::Detached();
  }
  Errc end = Errc::kOk;                          // of all it has sent
  std::vector<std::unique_ptr<Strand>> strands;  // one a reactor

 private:
  const std::unique_ptr<bnbd::Region> region_;
};

Result<std::unique_ptr<OneKernel>> make_kernel(base::Reactor& home, bnbd::BlockDevice& device) {
  std::vector<bnbd::BlockQueue> queues = device.queues();
  BRAID_TRY(auto region, device.create_region(queues.size() * kBlockBytes));
  return std::make_unique<OneKernel>(home, std::move(queues), std::move(region));
}

/// All reactors at once; each reads what another has written.
Task<Result<KernelPtr>> attach_using_each(base::Reactor& home, bnbd::BlockDevice& device,
                                          bnbd::KernelDeviceOptions) {
  BRAID_CO_TRY(auto kernel, make_kernel(home, device));
  kernel->start(BlockOp::kWrite, 0);
  co_await kernel->wait();
  kernel->start(BlockOp::kRead, 1);
  co_await kernel->wait();
  for (const auto& strand : kernel->strands) {
    EXPECT_EQ(*strand->status, Errc::kOk);
    EXPECT_EQ(strand->wrong, 0U);
  }
  co_return KernelPtr(std::move(kernel));
}

NodeOptions serving(bool tcp) {
  NodeOptions options;
  options.role = "server";
  options.tcp_within_host = tcp;
  options.serve.emplace();
  options.serve->listen = {"127.0.0.1", 0};
  options.serve->listen_tcp = tcp;
  options.serve->reactors = 2;
  options.serve->memory = {{"a", 1 << 20}, {"b", 1 << 20}, {"c", 1 << 20}};
  return options;
}

NodeOptions mapping(unsigned map_reactors) {
  NodeOptions options;
  options.role = "daemon";
  options.map_reactors = map_reactors;
  options.attach = attach_using_each;
  return options;
}

class NodeReactors : public testing::Test {
 protected:
  void SetUp() override { serve(serving(false)); }
  void serve(NodeOptions options) {
    server_ = start_node(std::move(options));
    ASSERT_NE(server_, nullptr);
    address_ = (*server_->call("status", json::object()))["server"]["listen"];
  }
  Result<json> try_map(Node& node, const std::string& name, const json& more) {
    json params{{"target", address_ + "/" + name}};
    params.update(more);
    return node.call("map", params);
  }
  json map(Node& node, const std::string& name, const json& more = json::object()) {
    auto mapped = try_map(node, name, more);
    EXPECT_TRUE(mapped.ok()) << mapped.error().message();
    return mapped.ok() ? *mapped : json();
  }
  std::unique_ptr<Node> server_;
  std::string address_;
};

class NodeReactorsWire : public NodeReactors, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override { serve(serving(GetParam())); }
};
INSTANTIATE_TEST_SUITE_P(Wires, NodeReactorsWire, testing::Bool(), [](const auto& tested) {
  return std::string(tested.param ? "tcp" : "in_host");
});

TEST_P(NodeReactorsWire, each_of_a_devices_reactors_carries_its_data_and_it_is_shown) {
  NodeOptions options = mapping(1);
  options.tcp_within_host = GetParam();
  const auto node = start_node(std::move(options));
  for (const unsigned count : {2U, 4U}) {
    const json device = map(*node, "a", {{"reactors", count}});
    EXPECT_EQ(device["reactors"], count);
    EXPECT_EQ(device["statistics"]["writes"], count * kBlocksEach);
    EXPECT_EQ(device["statistics"]["reads"], count * kBlocksEach);
    const json& sent = device["requests"]["sent_by_reactor"];
    ASSERT_EQ(sent.size(), count);
    for (const json& requests : sent) EXPECT_GE(requests, 2 * kBlocksEach);
    const json& by_reactor = device["session"]["by_reactor"];
    ASSERT_EQ(by_reactor.size(), count);
    for (const json& reactor : by_reactor) EXPECT_GE(reactor["writes"], kBlocksEach);
    EXPECT_TRUE(node->call("unmap", {{"name", "a"}}).ok());
  }
  EXPECT_TRUE(stop(*node, false).ok());
}

TEST_F(NodeReactors, devices_with_as_many_share_a_session_others_have_one_of_their_own) {
  const auto node = start_node(mapping(2));
  EXPECT_EQ(map(*node, "a")["reactors"], 2) << "as the node was told";
  map(*node, "b", {{"reactors", 2}});
  EXPECT_EQ(map(*node, "c", {{"reactors", 1}})["requests"]["sent_by_reactor"].size(), 1U);
  auto status = node->call("status", json::object());
  ASSERT_TRUE(status.ok());
  ASSERT_EQ((*status)["sessions"].size(), 2U);
  EXPECT_EQ((*status)["sessions"][0]["devices"], json({"a", "b"}));
  EXPECT_EQ((*status)["sessions"][1]["devices"], json({"c"}));
  const json path{{"action", "disconnect"}, {"session", address_}, {"path", "0"}};
  expect_refused(node->call("path", path), Errc::kInvalid, "numbers of reactors");
}

TEST_F(NodeReactors, guarded_reads_are_copied_in_a_session_of_their_own) {
  const auto node = start_node(mapping(1));
  const json plain = map(*node, "a");
  EXPECT_EQ(plain["guard_reads"], false);
  EXPECT_EQ(plain["statistics"]["copies"], 0U);
  const json guarded = map(*node, "b", {{"guard_reads", true}});
  EXPECT_EQ(guarded["guard_reads"], true);
  EXPECT_EQ(guarded["statistics"]["copies"], guarded["statistics"]["reads"]);
  EXPECT_EQ((*node->call("status", json::object()))["sessions"].size(), 2U);
  const json path{{"action", "disconnect"}, {"session", address_}, {"path", "0"}};
  expect_refused(node->call("path", path), Errc::kInvalid, "guards of reads");
  expect_refused(try_map(*node, "c", {{"guard_reads", "yes"}}), Errc::kInvalid, "true or false");
}

TEST_F(NodeReactors, more_than_processors_are_allowed_and_told) {
  NodeOptions options = mapping(1);
  options.processors = 2;
  const auto node = start_node(std::move(options));
  const std::string told = "it has 3 reactors, and this node may use 2 processors: they take turns";
  const json three = map(*node, "a", {{"reactors", 3}})["why"];
  EXPECT_EQ(std::count(three.begin(), three.end(), told), 1) << three;
  const json two = map(*node, "b", {{"reactors", 2}})["why"];
  EXPECT_EQ(two.dump().find("processors"), std::string::npos) << two;
}

TEST_F(NodeReactors, what_is_no_number_of_them_is_refused) {
  const auto node = start_node(mapping(1));
  for (const json& count : {json(0), json(17), json(-1), json("2"), json(1.5), json(nullptr)})
    expect_refused(try_map(*node, "a", {{"reactors", count}}), Errc::kInvalid, "1 to 16");
}

TEST_F(NodeReactors, more_than_a_server_has_permits_for_are_refused) {
  NodeOptions small = serving(false);
  small.serve->queue_depth = 8;
  serve(std::move(small));
  const auto node = start_node(mapping(1));
  const auto refused = try_map(*node, "a", {{"reactors", 16}});
  expect_refused(refused, Errc::kNotSupported,
                 "8 permits, too few for 16 reactors: it has them for ");
  const std::string& words = refused.error().message();
  const auto most = std::stoul(words.substr(words.rfind(' ')));
  EXPECT_EQ(map(*node, "a", {{"reactors", most}})["reactors"], most);
  EXPECT_EQ(try_map(*node, "b", {{"reactors", most + 1}}).code(), Errc::kNotSupported);
}

/// Requests that wait on each of four reactors for a server that has gone.
class NodeReactorsHeld : public NodeReactors {
 protected:
  void SetUp() override {
    NodeReactors::SetUp();
    NodeOptions options = mapping(4);
    options.attach = [this](base::Reactor& home, bnbd::BlockDevice& device,
                            const bnbd::KernelDeviceOptions&) {
      home_ = &home;
      return attach_idle(home, device);
    };
    node_ = start_node(std::move(options));
    map(*node_, "a");
    ASSERT_NE(kernel_, nullptr);
    ASSERT_TRUE(stop(*server_, true).ok());
    std::promise<void> begun;
    home_->post([&] {
      kernel_->end = Errc::kCanceled;
      kernel_->start(BlockOp::kWrite, 0);
      begun.set_value();
    });
    begun.get_future().wait();
  }
  Task<Result<KernelPtr>> attach_idle(base::Reactor& home, bnbd::BlockDevice& device) {
    BRAID_CO_TRY(auto kernel, make_kernel(home, device));
    kernel_ = kernel.get();
    co_return KernelPtr(std::move(kernel));
  }
  base::Reactor* home_ = nullptr;
  OneKernel* kernel_ = nullptr;
  std::unique_ptr<Node> node_;
};

TEST_F(NodeReactorsHeld, end_with_an_unmap_by_force) {
  const auto forced = node_->call("unmap", {{"name", "a"}, {"force", true}});
  EXPECT_TRUE(forced.ok()) << forced.error().message();
  EXPECT_EQ((*node_->call("status", json::object()))["sessions"].size(), 0U);
}

TEST_F(NodeReactorsHeld, end_with_their_node) {
  EXPECT_TRUE(stop(*node_, true).ok());
}

}  // namespace
}  // namespace braid::cli
