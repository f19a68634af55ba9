// `braid metrics`: what the nodes of this host count, as Prometheus' text; and --metrics of those
// that are to tell it by HTTP.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/metrics/metrics_text.h"
#include "cli/metrics/options.h"
#include "cli/metrics/sample.h"
#include "cli/verbs/sampled.h"
#include "cli/verbs/verbs.h"

namespace braid::cli {

using nlohmann::json;

void add_metrics_option(CLI::App& app, Context& context) {
  app.add_option("--metrics", context.metrics,
                 "IP[:PORT] at which Prometheus finds this node's metrics, by HTTP and without a "
                 "key (default: nowhere; port " +
                     std::to_string(kMetricsPort) + ")")
      ->check([](const std::string& text) {
        auto parsed = parse_metrics(text, "--metrics");
        return parsed.ok() ? std::string() : parsed.error().message();
      });
}

void print_metrics_url(const json& status) {
  if (const json url = member(status, "metrics"); url.is_string())
    std::cout << "metrics: " << text_of(url) << "\n" << std::flush;
}

namespace {

constexpr int kPatienceMs = 5'000;

void metrics(Context& context) {
  auto sampled = sample_nodes(context, kPatienceMs);
  if (!sampled.ok()) return report(context, sampled.error());
  // What is there is told; a collector must not take it for all.
  if (!sampled->silent.empty()) context.exit_code = kFailed;
  if (context.json) {
    json all = json::array();
    for (const NodeSample& node : sampled->nodes) all.push_back(to_json_of(node));
    return print_json({{"nodes", all}, {"silent", silent_json(sampled->silent)}});
  }
  std::cout << metrics_text(sampled->nodes) << std::flush;
  for (const base::Error& why : sampled->silent)
    std::cerr << "braid: " << text_of(why.message()) << "\n";
}

}  // namespace

void add_metrics(CLI::App& app, Context& context) {
  CLI::App* verb = app.add_subcommand(
      "metrics", "what the nodes of this host count, in Prometheus' text format, once");
  verb->footer(
      "Examples:\n"
      "  braid metrics\n"
      "  braid metrics >/var/lib/prometheus/node-exporter/.braid &&\n"
      "    mv /var/lib/prometheus/node-exporter/.braid "
      "/var/lib/prometheus/node-exporter/braid.prom\n"
      "See also: braidd --metrics 127.0.0.1, for Prometheus itself to ask.");
  verb->callback([&context] { metrics(context); });
}

}  // namespace braid::cli
