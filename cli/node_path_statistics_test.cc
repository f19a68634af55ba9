// What `path list` and `sessions` count, against what went by one of two paths.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/test_attach.h"
#include "cli/test_node.h"

namespace braid::cli {
namespace {

using nlohmann::json;

/// Of a path or a connection, at either end.
void expect_counts(const json& counts, bool all) {
  EXPECT_EQ(counts["reads"], all ? kReads : 0) << counts;
  EXPECT_EQ(counts["read_bytes"], all ? kReads * kReadBytes : 0) << counts;
  EXPECT_EQ(counts["writes"], all ? kWrites : 0) << counts;
  EXPECT_EQ(counts["write_bytes"], all ? kWrites * kWriteBytes : 0) << counts;
  EXPECT_EQ(counts["errors"], 0) << counts;
}

/// The answers that the histogram counts.
uint64_t expect_histogram(const json& counts) {
  const json& histogram = counts["latency_us"];
  EXPECT_EQ(histogram["counts"].size(), histogram["bounds"].size() + 1) << "the last has none";
  uint64_t all = 0;
  for (const json& count : histogram["counts"]) all += count.get<uint64_t>();
  for (size_t i = 0; i < histogram["bounds"].size(); ++i)
    EXPECT_EQ(histogram["bounds"][i], uint64_t{1} << i);
  return all;
}

TEST(NodePathStatistics, CountWhatWentByEachPathAtBothEnds) {
  NodeOptions serving;
  serving.role = "server";
  serving.serve.emplace();
  serving.serve->listen = {"127.0.0.1", 0};
  serving.serve->listen_further = {{"127.0.0.2", 0}};
  serving.serve->memory = {{"ram", 8 << 20}};
  const auto server = start_node(std::move(serving));
  ASSERT_NE(server, nullptr);
  NodeOptions mapping;
  mapping.role = "daemon";
  mapping.attach = attach_and_use;
  const auto daemon = start_node(std::move(mapping));
  ASSERT_NE(daemon, nullptr);
  const json at = (*server->call("status", json::object()))["server"]["endpoints"];
  auto mapped = daemon->call("map", {{"target", at[0].get<std::string>() + "/ram"}});
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();
  auto added = daemon->call("path", {{"action", "add"}, {"session", "ram"}, {"path", at[1]}});
  ASSERT_TRUE(added.ok()) << added.error().message();

  const json ours = (*added)["paths"];
  const json theirs =
      (*server->call("status", json::object()))["server"]["session_list"][0]["path_statistics"];
  ASSERT_EQ(ours.size(), 2u);
  ASSERT_EQ(theirs.size(), 2u);
  for (size_t path = 0; path < 2; ++path) {
    const bool used = path == 0;
    expect_counts(ours[path], used);
    expect_counts(theirs[path], used);
    EXPECT_EQ(expect_histogram(ours[path]), used ? kReads + kWrites : 0);
    EXPECT_EQ(ours[path]["p99_us"].is_null(), !used);
    EXPECT_LE(ours[path]["moved"], used ? kReads + kWrites : 0);
    EXPECT_EQ(ours[path]["moved"], ours[path]["connections"][1]["moved"]);
    ASSERT_EQ(ours[path]["connections"].size(), 2u);
    ASSERT_EQ(theirs[path]["connections"].size(), 2u);
    expect_counts(ours[path]["connections"][1], used);
    expect_counts(theirs[path]["connections"][1], used);
    EXPECT_EQ(expect_histogram(ours[path]["connections"][1]), used ? kReads + kWrites : 0);
  }
  EXPECT_TRUE(stop(*daemon, /*force=*/true).ok());
}

}  // namespace
}  // namespace braid::cli
