// What a node and `braid` read from each other's sockets, and what a person types. The first byte
// chooses the parser. What is accepted obeys the rules that later code relies on.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bnbd/backends.h"
#include "cli/control.h"
#include "cli/json_rpc.h"
#include "cli/nbd_arguments.h"
#include "cli/serve_arguments.h"
#include "reach/hcas.h"
#include "reach/target.h"
#include "tests/fuzz/reached.h"

namespace {

using namespace braid::cli;
using namespace braid::reach;
using nlohmann::json;

braid::fuzz::Verdicts calls("call"), answers("answer"), statuses("status"), targets("target"),
    sizes("size"), durations("duration"), exports("NAME=SIZE"), devices("--device"),
    nodes("node among sockets"), nbd_targets("target of braid nbd");

void require(bool condition) {
  if (!condition) std::abort();
}

void fuzz_call(const std::string& text) {
  auto call = parse_call(text);
  if (!calls.count(call.ok())) return;
  auto params = parse_json(call->params);
  require(params.ok() && params->is_object());
  auto line = encode_call(call->id, call->method, *params);
  require(line.ok() && line->find('\n') == std::string::npos);
  auto again = parse_call(*line);
  require(again.ok() && again->id == call->id && again->method == call->method);
}

void fuzz_answer(const std::string& text) {
  auto answer = parse_answer(text, 1);
  if (!answers.count(answer.ok())) return;
  require(!encode_result(1, *answer).empty());
  if (!statuses.count(check_status(*answer).ok())) return;
  for (const json& device : answer->at("devices")) {
    require(device.at("name").is_string() && device.at("size_bytes").is_number_unsigned());
    require(check_device(device).ok());
  }
  for (const json& exported : answer->at("exports")) require(exported.at("open_by").is_string());
}

void fuzz_target(const std::string& text) {
  auto target = parse_target(text);
  if (!targets.count(target.ok())) return;
  require(!target->paths.empty() && !target->export_name.empty());
  for (const PathSpec& path : target->paths) {
    require(!path.server.ip.empty());
    // "ip:1234" is RTRS's spelling of the address 1234, "gid:" that of a GID.
    if (path.server.ip == "ip" || path.server.ip == "gid") return;
  }
  auto again = parse_target(paths_text(target->paths) + "/" + target->export_name);
  require(again.ok() && again->paths == target->paths && again->export_name == target->export_name);
}

void fuzz_nbd_target(const std::string& text) {
  auto target = parse_nbd_target(text);
  if (!nbd_targets.count(target.ok())) return;
  require(braid::bnbd::check_device_name(target->name).ok());
  if (!target->local) return require(parse_target(target->remote).ok());
  require(target->local->name == target->name);
  const bool file = target->local->kind == LocalNbdExport::Kind::kFile;
  require(file ? target->local->path.starts_with('/') : target->local->size_bytes % 4096 == 0);
}

void fuzz_size(const std::string& text) {
  auto size = parse_size(text);
  if (!sizes.count(size.ok())) return;
  require(*size >= 1 && *size <= uint64_t{1} << 62);
  require(!size_text(*size).empty());
}

void fuzz_duration(const std::string& text) {
  auto duration_ns = parse_duration(text);
  if (!durations.count(duration_ns.ok())) return;
  require(*duration_ns >= 1);
  require(!duration_text(*duration_ns).empty());
}

void fuzz_export(const std::string& text) {
  auto parsed = parse_synthetic({text, "ram=1M"}, braid::bnbd::NamedExport::Kind::kMemory);
  if (!exports.count(parsed.ok())) return;
  require(parsed->size() == 2 && parsed->back().name == "ram");
  const SyntheticExport& first = parsed->front();
  require(!first.name.empty() && first.name.find('=') == std::string::npos);
  require(text.starts_with(first.name + "="));
  require(first.size_bytes > 0 && first.size_bytes % 4096 == 0);
  require(first.size_bytes <= braid::bnbd::kMemoryDeviceBytesMax);
}

void fuzz_devices(const std::string& text) {
  auto names = parse_devices(text);
  if (!devices.count(names.ok())) return;
  std::string again;
  for (const std::string& name : *names) {
    require(!name.empty() && name.find(',') == std::string::npos);
    require(names->size() == 1 || (name != kSoftDevice && name != kRdmaDevices));
    require(std::count(names->begin(), names->end(), name) == 1);
    again += (again.empty() ? "" : ",") + name;
  }
  require(again == text);
}

void fuzz_sockets(const std::string& text) {
  std::istringstream sockets(text);
  const std::vector<std::string> names = nodes_among(sockets);
  if (!nodes.count(!names.empty())) return;
  require(std::is_sorted(names.begin(), names.end()));
  for (const std::string& name : names) {
    require(!name.empty() && name.size() < 108 && name.find('\n') == std::string::npos);
    require(text.find("@braid.control." + name) != std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  if (size_bytes == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
  switch (data[0] % 7) {
    case 0:
      fuzz_call(text);
      break;
    case 1:
      fuzz_answer(text);
      break;
    case 2:
      fuzz_target(text);
      fuzz_nbd_target(text);
      break;
    case 4:
      fuzz_export(text);
      break;
    case 5:
      fuzz_devices(text);
      break;
    case 6:
      fuzz_sockets(text);
      break;
    default:
      fuzz_size(text);
      fuzz_duration(text);
      break;
  }
  return 0;
}
