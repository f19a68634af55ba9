// What nodes tell by --metrics and by the call "sample", against what went by them.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/linux_test_folder.h"
#include "cli/metrics/metrics_text.h"
#include "cli/metrics/test_http.h"
#include "cli/test_attach.h"
#include "cli/test_node.h"

namespace braid::cli {
namespace {

using base::Errc;
using nlohmann::json;

NodeOptions with_metrics(const char* role) {
  NodeOptions options;
  options.role = role;
  options.metrics.emplace();
  options.metrics->listen = {.ip = "127.0.0.1", .port = 0};
  options.metrics->patience_ns = 60 * base::kSecond;
  return options;
}

std::string metrics_of(Node& node) {
  const json status = *node.call("status", json::object());
  const std::string url = status["metrics"];
  const auto port = static_cast<uint16_t>(std::stoul(url.substr(url.rfind(':') + 1)));
  return body_of(get(port, "/metrics"));
}

/// The values of all series of a family whose labels contain `label`.
std::vector<uint64_t> values_of(const std::string& text, const std::string& family,
                                const std::string& label) {
  std::vector<uint64_t> values;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(family + "{") && line.find(label) != std::string::npos)
      values.push_back(std::stoull(line.substr(line.rfind(' ') + 1)));
  return values;
}

uint64_t sum_of(const std::string& text, const std::string& family, const std::string& label) {
  uint64_t sum = 0;
  for (const uint64_t value : values_of(text, family, label)) sum += value;
  return sum;
}

struct Both {
  std::unique_ptr<Node> server, daemon;
};

Both start_both() {
  NodeOptions serving = with_metrics("server");
  serving.serve.emplace();
  serving.serve->listen = {"127.0.0.1", 0};
  serving.serve->memory = {{"ram", 8 << 20}};
  NodeOptions mapping = with_metrics("daemon");
  mapping.attach = attach_and_use;
  return {start_node(std::move(serving)), start_node(std::move(mapping))};
}

base::Result<json> map_ram(const Both& both, const std::string& name) {
  const json at = (*both.server->call("status", json::object()))["server"]["listen"];
  return both.daemon->call("map", {{"target", at.get<std::string>() + "/ram"},
                                   {"name", name},
                                   {"access", name == "ram" ? "rw" : "ro"}});
}

TEST(NodeMetrics, CountWhatWentByAtBothEnds) {
  const Both both = start_both();
  ASSERT_TRUE(both.server && both.daemon);
  EXPECT_EQ(values_of(metrics_of(*both.daemon), "braid_device_info", "").size(), 0u);
  auto mapped = map_ram(both, "ram");
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();

  const std::string ours = metrics_of(*both.daemon);
  const std::string device = "device=\"ram\"";
  EXPECT_EQ(sum_of(ours, "braid_device_reads_total", device), kReads) << ours;
  EXPECT_EQ(sum_of(ours, "braid_device_read_bytes_total", device), kReads * kReadBytes);
  EXPECT_EQ(sum_of(ours, "braid_device_writes_total", device), kWrites);
  EXPECT_EQ(sum_of(ours, "braid_device_written_bytes_total", device), kWrites * kWriteBytes);
  EXPECT_EQ(sum_of(ours, "braid_device_latency_seconds_count", "kind=\"read\""), kReads);
  EXPECT_EQ(sum_of(ours, "braid_device_latency_seconds_count", "kind=\"write\""), kWrites);
  EXPECT_EQ(sum_of(ours, "braid_device_state", "state=\"open\""), 1u);
  EXPECT_EQ(sum_of(ours, "braid_path_state", "state=\"connected\""), 1u);
  EXPECT_EQ(sum_of(ours, "braid_path_latency_seconds_count", "path="), kReads + kWrites);
  EXPECT_EQ(sum_of(ours, "braid_connection_reads_total", "connection=\"1\""), kReads);
  EXPECT_EQ(sum_of(ours, "braid_session_permits", "session=\"1\""), 128u);

  const std::string theirs = metrics_of(*both.server);
  EXPECT_EQ(sum_of(theirs, "braid_export_reads_total", "export=\"ram\""), kReads);
  EXPECT_EQ(sum_of(theirs, "braid_export_holders", "access=\"rw\""), 1u);
  EXPECT_EQ(sum_of(theirs, "braid_client_connection_reads_total", "connection=\"1\""), kReads);
  EXPECT_EQ(sum_of(theirs, "braid_client_devices", "client="), 1u);
  EXPECT_EQ(sum_of(theirs, "braid_server_sessions_opened_total", "node="), 1u);
  EXPECT_TRUE(stop(*both.daemon, /*force=*/true).ok());
}

/// A kernel whose disk is changed by somebody else between its write and its read.
base::Task<base::Result<std::unique_ptr<bnbd::KernelDevice>>> attach_and_damage(
    const std::string& file, base::Reactor& home, bnbd::BlockDevice& device) {
  using bnbd::BlockOp;
  BRAID_CO_TRY(const auto region, device.create_region(kReadBytes));
  EXPECT_EQ(co_await transfer(home, device, *region, BlockOp::kWrite, kReadBytes), Errc::kOk);
  EXPECT_EQ(co_await transfer(home, device, *region, BlockOp::kFlush, 0), Errc::kNoSpace);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary) << "damage";
  EXPECT_EQ(co_await transfer(home, device, *region, BlockOp::kRead, kReadBytes), Errc::kIo);
  co_return std::unique_ptr<bnbd::KernelDevice>(std::make_unique<IdleKernelDevice>());
}

TEST(NodeMetrics, TellWhatFiltersDid) {
  const base::ScratchFolder folder;
  folder.make_file("disk", 1 << 20);
  NodeOptions serving;
  serving.role = "server";
  serving.serve.emplace();
  serving.serve->root = folder.path();
  serving.serve->listen = {"127.0.0.1", 0};
  const auto server = start_node(std::move(serving));
  NodeOptions mapping = with_metrics("daemon");
  mapping.attach = [file = folder / "disk"](base::Reactor& home, bnbd::BlockDevice& device,
                                            const bnbd::KernelDeviceOptions&) {
    return attach_and_damage(file, home, device);
  };
  const auto daemon = start_node(std::move(mapping));
  ASSERT_TRUE(server && daemon);
  const json at = (*server->call("status", json::object()))["server"]["listen"];
  auto mapped = daemon->call(
      "map", {{"target", at.get<std::string>() + "/disk"},
              {"filters", {"checksum", "delay:read=1us", "error:flush,errno=ENOSPC"}}});
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();

  const std::string text = metrics_of(*daemon);
  EXPECT_EQ(sum_of(text, "braid_filter_requests_total", "filter=\"0\""), 3u) << text;
  EXPECT_EQ(sum_of(text, "braid_filter_blocks_total", "result=\"mismatched\""), 1u);
  EXPECT_EQ(sum_of(text, "braid_filter_failed_total", "filter=\"0\""), 1u) << "the wrong read";
  EXPECT_EQ(sum_of(text, "braid_filter_held_total", "filter=\"1\""), 1u);
  EXPECT_EQ(sum_of(text, "braid_filter_failed_total", "filter=\"2\""), 1u) << "the flush";
  EXPECT_EQ(sum_of(text, "braid_filter_info", "spec=\"delay:read=1us\""), 1u);
  EXPECT_EQ(sum_of(text, "braid_device_errors_total", "device=\"disk\""), 0u);
  EXPECT_TRUE(stop(*daemon, /*force=*/true).ok());
}

TEST(NodeMetrics, OfADeviceBeginAnewWhenItIsMappedAnew) {
  const Both both = start_both();
  ASSERT_TRUE(both.server && both.daemon);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(map_ram(both, "ram").ok());
    EXPECT_EQ(sum_of(metrics_of(*both.daemon), "braid_device_reads_total", "ram"), kReads) << i;
    ASSERT_TRUE(both.daemon->call("unmap", {{"name", "ram"}}).ok());
  }
  EXPECT_EQ(values_of(metrics_of(*both.daemon), "braid_device_reads_total", "").size(), 0u);
  EXPECT_EQ(sum_of(metrics_of(*both.server), "braid_export_reads_total", "ram"), 2 * kReads);
}

TEST(NodeMetrics, ComeBySampleInParts) {
  const Both both = start_both();
  ASSERT_TRUE(both.server && both.daemon);
  ASSERT_TRUE(map_ram(both, "ram").ok());
  auto all = sample_of(*both.daemon->call("sample", json::object()));
  ASSERT_TRUE(all.ok()) << all.error().message();
  ASSERT_EQ(all->devices.size(), 1u);
  EXPECT_EQ(all->more_from, 0u);
  EXPECT_EQ(all->sessions.size(), 1u);
  EXPECT_EQ(count_of(all->devices[0].latency[0]), kReads);
  EXPECT_GT(all->process.pid, 0u);
  auto rest = sample_of(*both.daemon->call("sample", {{"from", 1U}}));
  ASSERT_TRUE(rest.ok());
  EXPECT_EQ(rest->devices.size(), 0u);
  EXPECT_EQ(rest->sessions.size(), 0u) << "they are in the first part";
  expect_refused(both.daemon->call("sample", {{"from", "x"}}), Errc::kInvalid, "\"from\"");
  EXPECT_TRUE(stop(*both.daemon, /*force=*/true).ok());
}

TEST(NodeMetrics, OfMoreDevicesThanFitIntoOnePartAreAllThere) {
  constexpr uint64_t kDevices = kDevicesPerSample + 6;
  NodeOptions serving;
  serving.role = "server";
  serving.serve.emplace();
  serving.serve->listen = {"127.0.0.1", 0};
  for (uint64_t i = 0; i < kDevices; ++i)
    serving.serve->null.push_back({"n" + std::to_string(i), 1 << 20});
  const auto server = start_node(std::move(serving));
  NodeOptions mapping = with_metrics("daemon");
  mapping.attach = attach_nothing;
  const auto daemon = start_node(std::move(mapping));
  ASSERT_TRUE(server && daemon);
  const json status = *server->call("status", json::object());
  const std::string at = status["server"]["listen"];
  for (uint64_t i = 0; i < kDevices; ++i) {
    auto mapped = daemon->call("map", {{"target", at + "/n" + std::to_string(i)}});
    ASSERT_TRUE(mapped.ok()) << mapped.error().message();
  }
  EXPECT_EQ(values_of(metrics_of(*daemon), "braid_device_info", "").size(), kDevices);
  const std::string node = (*daemon->call("status", json::object()))["node"];
  auto first = sample_of(*daemon->call("sample", json::object()));
  ASSERT_TRUE(first.ok()) << first.error().message();
  EXPECT_EQ(first->devices.size(), kDevicesPerSample);
  EXPECT_EQ(first->more_from, kDevicesPerSample);
  auto all = ask_sample(node, 60'000, false);
  ASSERT_TRUE(all.ok()) << all.error().message();
  std::set<std::string> names;
  for (const DeviceSample& device : all->devices) names.insert(device.name);
  EXPECT_EQ(names.size(), kDevices);
  EXPECT_EQ(all->devices.size(), kDevices) << "one is there twice";
  EXPECT_TRUE(stop(*daemon, /*force=*/true).ok());
}

TEST(NodeMetrics, APortThatIsTakenEndsTheStart) {
  const auto first = start_node(with_metrics("daemon"));
  ASSERT_NE(first, nullptr);
  const std::string url = (*first->call("status", json::object()))["metrics"];
  NodeOptions options = with_metrics("daemon");
  options.name = "test." + std::to_string(::getpid()) + ".second";
  const size_t colon = url.rfind(':');
  options.metrics->listen.port = static_cast<uint16_t>(std::stoul(url.substr(colon + 1)));
  expect_refused(Node::start(std::move(options)), Errc::kExists, "another program listens at");
}

TEST(NodeMetrics, AreToldByNobodyUnlessAskedFor) {
  NodeOptions options;
  options.role = "daemon";
  const auto node = start_node(std::move(options));
  ASSERT_NE(node, nullptr);
  EXPECT_TRUE((*node->call("status", json::object()))["metrics"].is_null());
}

}  // namespace
}  // namespace braid::cli
