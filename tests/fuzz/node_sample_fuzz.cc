// What `braid metrics` and `braid top` get from a node: the JSON of a sample. What is accepted goes
// once through all that is made of samples: whole lines of metrics, tables without escapes.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/json_rpc.h"
#include "cli/metrics/metrics_text.h"
#include "cli/metrics/sample.h"
#include "cli/top/looks.h"
#include "cli/top/screen.h"
#include "tests/fuzz/reached.h"

namespace {

using namespace braid::cli;
using nlohmann::json;

braid::fuzz::Verdicts samples("sample");
braid::fuzz::Reached devices("a device with latencies"), filters("a filter"),
    paths("a path with connections"), clients("a client with a path"), exports("an export"),
    doors("an NBD server");

void require(bool condition) {
  if (!condition) std::abort();
}

void count(const NodeSample& sample) {
  for (const DeviceSample& device : sample.devices) {
    devices.count(count_of(device.latency[0]) > 0);
    filters.count(!device.filters.empty());
  }
  for (const SessionSample& session : sample.sessions)
    for (const PathSample& path : session.paths) paths.count(path.connections.size() > 1);
  for (const ClientSample& client : sample.clients) clients.count(!client.paths.empty());
  exports.count(!sample.exports.empty());
  doors.count(sample.nbd.serves);
}

void check_metrics(const NodeSample& sample) {
  std::istringstream lines(metrics_text({&sample, 1}));
  for (std::string line; std::getline(lines, line);) {
    require(line.starts_with("# HELP braid_") || line.starts_with("# TYPE braid_") ||
            line.starts_with("braid_"));
    for (const char c : line) require(static_cast<unsigned char>(c) >= 0x20);
  }
}

void check_top(const NodeSample& sample) {
  Looks looks;
  for (int i = 0; i < 2; ++i) {
    const TopView view = looks.take({sample}, {}, TopOrder::kBytes);
    const std::string page = screen_text(view, {.color = false});
    require(page.find('\x1b') == std::string::npos);
    require(batch_text(view).find('\x1b') == std::string::npos);
    require(to_json(view).is_object());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto parsed = parse_json({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) return 0;
  auto sample = sample_of(*parsed);
  if (!samples.count(sample.ok())) return 0;
  count(*sample);
  auto again = sample_of(to_json_of(*sample));
  require(again.ok() && to_json_of(*again) == to_json_of(*sample));
  check_metrics(*sample);
  check_top(*sample);
  return 0;
}
