#include "cli/metrics/metrics_server.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <future>

#include "cli/metrics/http.h"
#include "cli/metrics/metrics_text.h"
#include "cli/resolve.h"
#include "cli/target.h"

namespace braid::cli {

using base::Errc;
using base::make_error;
using base::Result;

Result<MetricsOptions> parse_metrics(const std::string& text, const std::string& option) {
  auto address = parse_address(text, kMetricsPort);
  if (!address.ok()) return address.error().with("{}", option);
  if (!is_ip(address->ip))
    return make_error(Errc::kInvalid, "{} \"{}\": want an IP address, IP[:PORT], as 127.0.0.1:{}",
                      option, text, kMetricsPort);
  MetricsOptions options;
  options.listen = std::move(*address);
  return options;
}

namespace {

// Prometheus' text format, as its clients ask for it.
constexpr const char* kTextFormat = "text/plain; version=0.0.4; charset=utf-8";
// Answers that the node still owes. One that hangs is not asked again and again.
constexpr unsigned kOwedMax = 4;

class NodesServer final : public MetricsServer {
 public:
  NodesServer(const MetricsOptions& options, Ask ask) : options_(options), ask_(std::move(ask)) {}

  base::Status listen() {
    HttpOptions http;
    http.listen = options_.listen;
    http.patience_ns = options_.patience_ns + 5'000'000'000;
    BRAID_TRY(http_,
              HttpServer::start(http, [this](const std::string& path) { return get(path); }));
    return {};
  }
  std::string url() const override {
    return "http://" + address_text(http_->address()) + "/metrics";
  }

 private:
  HttpAnswer get(const std::string& path) {
    if (path == "/metrics") return metrics();
    if (path == "/") return {200, "A node of Braid. Its metrics are at /metrics.\n"};
    return {404, "Nothing is there. This node's metrics are at /metrics.\n"};
  }

  HttpAnswer metrics() {
    // Both are shared with the node, which may answer when nobody waits any more.
    if (owed_->load() >= kOwedMax) return hangs();
    ++*owed_;
    auto promise = std::make_shared<std::promise<NodeSample>>();
    std::future<NodeSample> answer = promise->get_future();
    ask_([promise, owed = owed_](NodeSample sample) {
      --*owed;
      promise->set_value(std::move(sample));
    });
    if (answer.wait_for(std::chrono::nanoseconds(options_.patience_ns)) !=
        std::future_status::ready)
      return hangs();
    NodeSample sample = answer.get();
    sample.process = sample_process();
    return {200, metrics_text({&sample, 1}), kTextFormat};
  }

  HttpAnswer hangs() const {
    return {503, fmt::format("The node did not answer within {}: it hangs, or is overloaded.\n",
                             duration_text(options_.patience_ns))};
  }

  const MetricsOptions options_;
  const Ask ask_;
  const std::shared_ptr<std::atomic<unsigned>> owed_ = std::make_shared<std::atomic<unsigned>>(0);
  std::unique_ptr<HttpServer> http_;  // its threads use the others: it goes first
};

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const MetricsOptions& options,
                                                            Ask ask) {
  auto server = std::make_unique<NodesServer>(options, std::move(ask));
  auto listening = server->listen();
  if (!listening.ok()) return listening.error().with("metrics");
  return std::unique_ptr<MetricsServer>(std::move(server));
}

}  // namespace braid::cli
