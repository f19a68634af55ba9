// What RDMA devices there are, and how one is opened.
#include <algorithm>
#include <cerrno>

#include "vhca/ibv/cm_channel.h"
#include "vhca/ibv/device.h"
#include "vhca/ibv/words.h"

namespace braid::vhca {

using base::Errc;
using base::Error;
using base::make_error;
using base::Result;
using base::Status;

namespace ibv {

Result<DeviceList> DeviceList::get(std::shared_ptr<const Library> library) {
  int count = 0;
  ibv_device** const list = library->verbs.get_device_list(&count);
  if (list == nullptr) return no_rdma_error(errno, "looking for RDMA devices");
  return DeviceList(std::move(library), list, static_cast<size_t>(std::max(count, 0)));
}

DeviceList::~DeviceList() {
  if (list_ != nullptr) library_->verbs.free_device_list(list_);
}

std::vector<IbvPortInfo> ports_of(const Library& library, ibv_context* context, int count) {
  std::vector<IbvPortInfo> ports;
  for (int number = 1; number <= count; ++number) {
    IbvPortInfo& port = ports.emplace_back();
    port.number = static_cast<uint8_t>(number);
    ibv_port_attr attr;
    if (library.query_port(context, port.number, attr) != 0) {
      port.state = "unknown";
      continue;
    }
    port.state = port_state_text(attr.state);
    port.link_layer = attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
    for (int i = 0; i < attr.gid_tbl_len; ++i) {
      Gid gid{};
      if (library.verbs.query_gid(context, port.number, i, &gid) != 0) continue;
      const std::string ip = gid_ip_text(gid);
      const auto known = std::find(port.addresses.begin(), port.addresses.end(), ip);
      // On InfiniBand GIDs are no IP addresses: their prefix is the subnet's.
      const bool ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
      if (ethernet && !ip.empty() && known == port.addresses.end()) port.addresses.push_back(ip);
    }
  }
  return ports;
}

namespace {

constexpr const char* kIwarpTrouble =
    "iWARP has no RDMA write with immediate data, which Braid needs";

std::string trouble_of(const std::vector<IbvPortInfo>& ports) {
  const auto active = [](const IbvPortInfo& port) { return port.state == "ACTIVE"; };
  if (ports.empty()) return "it has no port";
  if (std::none_of(ports.begin(), ports.end(), active)) {
    return fmt::format("port {} is {}{}", ports[0].number, ports[0].state,
                       ports.size() > 1 ? ", and no other is ACTIVE" : "");
  }
  const auto nowhere = [&](const IbvPortInfo& port) {
    return !active(port) || (port.link_layer == "Ethernet" && port.addresses.empty());
  };
  if (std::all_of(ports.begin(), ports.end(), nowhere)) {
    return "no active port has an IP address";
  }
  return {};
}

IbvDeviceInfo describe(const Library& library, ibv_device& device) {
  IbvDeviceInfo info;
  info.name = device.name;
  if (device.transport_type == IBV_TRANSPORT_IWARP) {
    info.kind = "iWARP";
    info.trouble = kIwarpTrouble;
    return info;
  }
  info.kind = "RDMA";
  ibv_context* const context = library.verbs.open_device(&device);
  if (context == nullptr) {
    info.trouble = verbs_error(errno, "it cannot be opened").message();
    return info;
  }
  ibv_device_attr attr{};
  if (const int err = library.verbs.query_device(context, &attr); err != 0) {
    info.trouble = verbs_error(err, "it cannot be queried").message();
  } else {
    info.ports = ports_of(library, context, attr.phys_port_cnt);
    const bool ethernet = !info.ports.empty() && info.ports[0].link_layer == "Ethernet";
    info.kind = ethernet ? "RoCE" : "InfiniBand";
    info.trouble = trouble_of(info.ports);
  }
  (void)library.verbs.close_device(context);
  return info;
}

}  // namespace
}  // namespace ibv

Result<std::vector<IbvDeviceInfo>> list_ibv_devices(const IbvOptions& options) {
  BRAID_TRY(auto library, ibv::Library::load(options));
  BRAID_TRY(const ibv::DeviceList list, ibv::DeviceList::get(library));
  std::vector<IbvDeviceInfo> all;
  for (ibv_device* const device : list.devices()) all.push_back(ibv::describe(*library, *device));
  return all;
}

namespace {

/// By binding to it: only the CM knows all addresses, those of IP over InfiniBand too.
Result<std::string> device_with(const std::shared_ptr<const ibv::Library>& library,
                                const std::string& ip) {
  BRAID_TRY(ibv::SocketAddress address, ibv::socket_address({ip, 0}));
  BRAID_TRY(const auto channel, ibv::CmChannel::create(library));
  BRAID_CHECK(channel->make_id());
  const bool bound = library->cm.bind_addr(channel->id(), address.get()) == 0;
  const ibv_context* const context = bound ? channel->id()->verbs : nullptr;
  if (context != nullptr) return std::string(context->device->name);
  return make_error(Errc::kNotFound, "no RDMA device of this machine has the address {}", ip);
}

Status check_source(const std::shared_ptr<const ibv::Library>& library, const std::string& source,
                    std::string_view device) {
  if (source.empty()) return base::ok_status();
  auto owner = device_with(library, source);
  if (!owner.ok()) return owner.error();
  if (*owner == device) return base::ok_status();
  return make_error(Errc::kInvalid, "{} is an address of {}, not of {}", source, *owner, device);
}

}  // namespace

Result<std::string> ibv_device_with(const std::string& ip, const IbvOptions& options) {
  BRAID_TRY(const auto library, ibv::Library::load(options));
  return device_with(library, ip);
}

Result<std::unique_ptr<Device>> create_ibv_device(base::Host& host, base::Reactor& control,
                                                  std::string_view name,
                                                  const IbvOptions& options) {
  BRAID_TRY(auto library, ibv::Library::load(options));
  BRAID_TRY(const ibv::DeviceList list, ibv::DeviceList::get(library));
  std::string names;
  for (ibv_device* const device : list.devices()) {
    if (name == device->name) {
      BRAID_CHECK(check_source(library, options.source_ip, name));
      return ibv::IbvDevice::create(host, control, library, *device, options);
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", device->name);
  }
  return make_error(Errc::kNotFound, "no RDMA device is called \"{}\"; there {}", name,
                    names.empty() ? "is none" : "are: " + names);
}

}  // namespace braid::vhca
