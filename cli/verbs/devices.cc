// `braid devices`: what a node can carry its data by, and why something cannot be used. And
// --device, which chooses.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/node.h"
#include "cli/table.h"
#include "cli/target.h"
#include "cli/verbs/verbs.h"
#include "vhca/ibv_device.h"

namespace braid::cli {

using nlohmann::json;

namespace {

constexpr const char* kSoftKind = "software HCA: processes of this host, by shared memory";

json to_json(const vhca::IbvDeviceInfo& device) {
  json ports = json::array();
  for (const vhca::IbvPortInfo& port : device.ports) {
    ports.push_back({{"number", port.number},
                     {"state", port.state},
                     {"link_layer", port.link_layer},
                     {"addresses", port.addresses}});
  }
  return {{"name", device.name},
          {"kind", device.kind},
          {"ports", std::move(ports)},
          {"usable", device.trouble.empty()},
          {"trouble", device.trouble}};
}

std::string state_text(const vhca::IbvDeviceInfo& device) {
  std::string text;
  for (const vhca::IbvPortInfo& port : device.ports)
    text += (text.empty() ? "" : ", ") + port.state;
  return text;
}

std::string addresses_text(const vhca::IbvDeviceInfo& device) {
  std::string text;
  for (const vhca::IbvPortInfo& port : device.ports)
    for (const std::string& address : port.addresses) text += (text.empty() ? "" : " ") + address;
  return text;
}

void devices(const Context& context) {
  auto rdma = vhca::list_ibv_devices();
  const std::vector<vhca::IbvDeviceInfo> found =
      rdma.ok() ? *rdma : std::vector<vhca::IbvDeviceInfo>();
  const std::string none =
      rdma.ok() ? (found.empty() ? "this machine has no RDMA device" : "") : rdma.error().message();
  if (context.json) {
    json all = json::array();
    all.push_back({{"name", kSoftDevice},
                   {"kind", kSoftKind},
                   {"ports", json::array()},
                   {"usable", true},
                   {"trouble", ""}});
    for (const vhca::IbvDeviceInfo& device : found) all.push_back(to_json(device));
    return print_json({{"devices", std::move(all)}, {"rdma_trouble", none}});
  }
  Table table({"DEVICE", "KIND", "PORT", "ADDRESSES", "USABLE"});
  table.row({kSoftDevice, kSoftKind, "", "", "yes (the default)"});
  for (const vhca::IbvDeviceInfo& device : found)
    table.row({device.name, device.kind, state_text(device), addresses_text(device),
               device.trouble.empty() ? "yes" : "no: " + device.trouble});
  std::cout << table.text();
  if (!none.empty()) std::cout << "no RDMA device: " << printable(none) << "\n";
  std::cout << std::flush;
}

}  // namespace

CLI::Option* add_device_option(CLI::App& app, Context& context) {
  return app.add_option(
      "--device", context.device,
      "carry data by this device, or by several: NAME[,NAME...] (see braid devices); "
      "rdma: by all RDMA devices. Default: the software HCA");
}

void add_poll_option(CLI::App& app, Context& context) {
  app.add_option("--poll-budget", context.poll_budget,
                 "how long its threads look for work before they sleep, 50us if this is not given; "
                 "while an answer is owed to them up to 20 times as long, or 1 ms: longer answers "
                 "sooner and takes more of a processor. 0: they sleep at once; "
                 "never: each takes a processor to itself")
      ->check([](const std::string& text) {
        const auto budget = parse_poll_budget(text);
        return budget.ok() ? std::string() : budget.error().message();
      });
}

void add_devices(CLI::App& app, Context& context) {
  CLI::App* verb =
      app.add_subcommand("devices", "the RDMA devices of this machine, and why one cannot be used");
  verb->footer("Examples:\n  braid devices\n  braid devices --json");
  verb->callback([&context] { devices(context); });
}

}  // namespace braid::cli
