// GET /metrics of nodes that answer, and of one that hangs.
#include "cli/metrics/metrics_server.h"

#include <gmock/gmock.h>

#include <thread>
#include <vector>

#include "cli/metrics/metrics_text.h"
#include "cli/metrics/test_http.h"
#include "cli/metrics/test_sample.h"
#include "cli/target.h"

namespace braid::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

uint16_t port_of(const MetricsServer& server) {
  const std::string url = server.url();
  EXPECT_THAT(url, StartsWith("http://127.0.0.1:"));
  EXPECT_TRUE(url.ends_with("/metrics")) << url;
  return static_cast<uint16_t>(std::stoul(url.substr(url.rfind(':') + 1)));
}

std::unique_ptr<MetricsServer> start_metrics(MetricsServer::Ask ask, uint64_t patience_ns) {
  MetricsOptions options;
  options.listen = {.ip = "127.0.0.1", .port = 0};
  options.patience_ns = patience_ns;
  auto server = MetricsServer::start(options, std::move(ask));
  EXPECT_TRUE(server.ok()) << server.error().message();
  return server.ok() ? std::move(*server) : nullptr;
}

TEST(MetricsServer, tells_what_the_node_counts) {
  const auto server = start_metrics([](auto done) { done(full_sample("a")); }, 60'000'000'000);
  const std::string answer = get(port_of(*server), "/metrics");
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(body_of(answer),
              HasSubstr("braid_device_reads_total{node=\"a\",device=\"disk\"} 40"));
  EXPECT_THAT(body_of(answer), HasSubstr("braid_process_threads{node=\"a\"} "));
  EXPECT_THAT(body_of(get(port_of(*server), "/")), HasSubstr("/metrics"));
  EXPECT_THAT(get(port_of(*server), "/x"), StartsWith("HTTP/1.1 404"));
}

TEST(MetricsServer, of_a_node_that_hangs_says_so_and_asks_it_a_few_times_only) {
  std::mutex mutex;
  std::vector<std::function<void(NodeSample)>> asked;
  const auto server = start_metrics(
      [&](auto done) {
        const std::lock_guard lock(mutex);
        asked.push_back(done);
      },
      1'000'000);
  for (int i = 0; i < 6; ++i) {
    const std::string answer = get(port_of(*server), "/metrics");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 503"));
    EXPECT_THAT(answer, HasSubstr("did not answer within"));
  }
  const std::lock_guard lock(mutex);
  EXPECT_EQ(asked.size(), 4u);
  for (const auto& late : asked) late(full_sample());
}

TEST(MetricsServer, answers_again_when_the_node_does) {
  std::function<void(NodeSample)> late;
  bool hangs = true;
  const auto server = start_metrics(
      [&](auto done) {
        if (hangs)
          late = done;
        else
          done(full_sample());
      },
      200'000'000);
  EXPECT_THAT(get(port_of(*server), "/metrics"), StartsWith("HTTP/1.1 503"));
  late(full_sample());
  hangs = false;
  EXPECT_THAT(get(port_of(*server), "/metrics"), StartsWith("HTTP/1.1 200"));
}

TEST(ParseMetrics, wants_an_ip_address) {
  auto good = parse_metrics("127.0.0.1", "--metrics");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->listen.port, kMetricsPort);
  EXPECT_EQ(parse_metrics("[::1]:80", "--metrics")->listen.port, 80);
  EXPECT_EQ(parse_metrics(":80", "--metrics")->listen.ip, "0.0.0.0");
  for (const char* text : {"host:80", "", "127.0.0.1:x", "127.0.0.1:99999"}) {
    auto bad = parse_metrics(text, "--metrics");
    ASSERT_FALSE(bad.ok()) << text;
    EXPECT_THAT(bad.error().message(), HasSubstr("--metrics")) << text;
  }
}

}  // namespace
}  // namespace braid::cli
