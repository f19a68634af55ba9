#include "reach/hcas.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "reach/resolve.h"
#include "vhca/ibv_device.h"
#include "vhca/soft_device.h"

namespace braid::reach {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

namespace {

bool is_wildcard(const std::string& ip) {
  return ip == "0.0.0.0" || ip == "::";
}

Result<std::vector<std::string>> usable_rdma_devices() {
  BRAID_TRY(const std::vector<vhca::IbvDeviceInfo> all, vhca::list_ibv_devices());
  std::vector<std::string> names;
  std::string troubles;
  for (const vhca::IbvDeviceInfo& device : all) {
    if (device.trouble.empty()) {
      names.push_back(device.name);
    } else {
      troubles +=
          fmt::format("{}{}: {}", troubles.empty() ? "" : "; ", device.name, device.trouble);
    }
  }
  if (!names.empty()) return names;
  return make_error(Errc::kNotFound, "no RDMA device of this machine can be used{}{}",
                    troubles.empty() ? "" : ": ", troubles);
}

}  // namespace

RdmaMachine this_machine() {
  RdmaMachine machine;
  machine.usable = usable_rdma_devices;
  machine.device_with = [](const std::string& ip) { return vhca::ibv_device_with(ip); };
  machine.source_to = source_to;
  machine.open = [](base::Host& host, base::Reactor& reactor, const std::string& name,
                    const std::string& source) {
    vhca::IbvOptions options;
    options.source_ip = source;
    return vhca::create_ibv_device(host, reactor, name, options);
  };
  return machine;
}

Result<std::vector<std::string>> parse_devices(const std::string& text) {
  std::vector<std::string> names;
  if (text.empty()) return names;
  for (size_t from = 0; from <= text.size();) {
    const size_t comma = std::min(text.find(',', from), text.size());
    std::string name = text.substr(from, comma - from);
    from = comma + 1;
    if (name.empty())
      return make_error(Errc::kInvalid, "--device \"{}\": want NAME[,NAME...], see braid devices",
                        text);
    if (std::find(names.begin(), names.end(), name) != names.end())
      return make_error(Errc::kInvalid, "--device {}: {} is there twice", text, name);
    names.push_back(std::move(name));
  }
  for (const char* const alone : {kSoftDevice, kRdmaDevices})
    if (names.size() > 1 && std::find(names.begin(), names.end(), alone) != names.end())
      return make_error(Errc::kInvalid, "--device {}: {} stands alone", text, alone);
  return names;
}

Result<std::unique_ptr<Hcas>> Hcas::open(base::Host& host, base::Reactor& reactor,
                                         const HcaOptions& options, RdmaMachine machine) {
  std::unique_ptr<Hcas> hcas(new Hcas(host, reactor, options, std::move(machine)));
  BRAID_TRY(std::vector<std::string> names, parse_devices(options.device));
  if (names.empty() || names.front() == kSoftDevice) {
    const vhca::HostDeviceOptions soft{.listen_tcp = options.listen_tcp,
                                       .tcp_within_host = options.tcp_within_host};
    BRAID_TRY(auto device, vhca::create_host_device(host, reactor, soft));
    hcas->add(std::move(device));
    return hcas;
  }
  if (options.tcp_within_host)
    return make_error(Errc::kInvalid,
                      "--wire tcp is the software HCA's: it has no use with "
                      "--device {}",
                      options.device);
  if (names.front() == kRdmaDevices) {
    auto usable = hcas->machine_.usable();
    if (!usable.ok()) return usable.error().with("--device {}", options.device);
    names = std::move(*usable);
  }
  for (const std::string& name : names) {
    auto device = hcas->machine_.open(host, reactor, name, "");
    if (!device.ok()) return device.error().with("--device {}", options.device);
    hcas->add(std::move(*device));
  }
  hcas->names_ = std::move(names);
  return hcas;
}

/// What is bound to an address of an RDMA device is that device once more, which tells for both.
void Hcas::add(std::unique_ptr<vhca::Device> device) {
  listen_to(*device);
  devices_.push_back(std::move(device));
}

void Hcas::listen_to(vhca::Device& device) {
  const auto tell = [this](vhca::Device& down, uint8_t port) { tell_link_down(down, port); };
  events_.push_back(std::make_unique<DeviceEvents>(reactor_, device, tell));
}

/// What is bound to an address has the ports of the device whose name it has.
void Hcas::tell_link_down(const vhca::Device& device, uint8_t port) {
  if (!link_down_) return;
  std::vector<const vhca::Device*> adapter;
  const auto take_same = [&](const std::unique_ptr<vhca::Device>& other) {
    if (other && other->info().name == device.info().name) adapter.push_back(other.get());
  };
  for (const auto& own : devices_) take_same(own);
  for (const auto& [source, bound] : bound_) take_same(bound);
  link_down_(adapter, port);
}

std::string Hcas::text() const {
  if (names_.size() < 2) return devices_.front()->info().kind;
  return fmt::format("RDMA devices {}", fmt::join(names_, ", "));
}

Result<vhca::Device*> Hcas::for_path(const PathSpec& path) {
  return soft() ? soft_for(path) : rdma_for(path);
}

/// With the software HCA a source address is a device of its own.
Result<vhca::Device*> Hcas::soft_for(const PathSpec& path) {
  if (path.source.empty()) return &first();
  if (!tcp_within_host_ && host_.is_local_address(path.server.ip))
    return make_error(Errc::kInvalid,
                      "path {}: {} is an address of this machine, reached through shared memory, "
                      "which has no source address: leave out \"{}@\", or use --wire tcp",
                      path_text(path), path.server.ip, path.source);
  std::unique_ptr<vhca::Device>& device = bound_[path.source];
  if (!device) {
    const vhca::TcpDeviceOptions options{.name = "tcp." + path.source, .ip = path.source};
    auto created = vhca::create_tcp_device(host_, reactor_, options);
    if (!created.ok()) {
      bound_.erase(path.source);
      return created.error().with("path {}", path_text(path));
    }
    device = std::move(*created);
    listen_to(*device);
  }
  return device.get();
}

/// Of our devices, that which has the address.
Result<size_t> Hcas::index_with(const std::string& ip) const {
  BRAID_TRY(const std::string name, machine_.device_with(ip));
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found != names_.end()) return static_cast<size_t>(found - names_.begin());
  return make_error(Errc::kNotFound, "{} is an address of {}; this node uses {}", ip, name,
                    fmt::join(names_, ", "));
}

Result<vhca::Device*> Hcas::rdma_for(const PathSpec& path) {
  if (!path.source.empty()) {
    auto index = index_with(path.source);
    if (!index.ok()) return index.error().with("path {}", path_text(path));
    return bound_to(names_[*index], path.source);
  }
  if (devices_.size() == 1) return &first();  // which finds the way by itself
  // Which of them has the way only the kernel's routes know.
  auto source = machine_.source_to(path.server.ip);
  if (!source.ok()) return source.error().with("path {}", path_text(path));
  auto index = index_with(*source);
  if (index.ok()) return devices_[*index].get();
  return make_error(index.code(),
                    "path {}: the way there leaves from {}, and {}: say from where, SOURCE@{}",
                    path_text(path), *source, index.error().message(), path_text(path));
}

/// Connects from that address only, as the device may have others.
Result<vhca::Device*> Hcas::bound_to(const std::string& name, const std::string& source) {
  std::unique_ptr<vhca::Device>& device = bound_[source];
  if (!device) {
    auto opened = machine_.open(host_, reactor_, name, source);
    if (!opened.ok()) {
      bound_.erase(source);
      return opened.error();
    }
    device = std::move(*opened);
  }
  return device.get();
}

Result<std::vector<trs::ServerEndpoint>> Hcas::endpoints(const std::vector<vhca::Address>& listen) {
  std::vector<trs::ServerEndpoint> endpoints;
  for (const vhca::Address& address : listen) {
    if (devices_.size() == 1) {
      endpoints.push_back({&first(), address});
    } else if (!is_wildcard(address.ip)) {
      BRAID_TRY(const size_t index, index_with(address.ip));
      endpoints.push_back({devices_[index].get(), address});
    } else if (address.port == 0) {
      return make_error(Errc::kInvalid,
                        "--listen {}: with several devices ({}) a free port would be another one "
                        "for each: name a port, or the addresses",
                        address_text(address), fmt::join(names_, ", "));
    } else {
      for (const auto& device : devices_) endpoints.push_back({device.get(), address});
    }
  }
  return endpoints;
}

}  // namespace braid::reach
