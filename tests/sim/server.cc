#include "tests/sim/server.h"

#include <fmt/format.h>

#include <utility>

#include "tests/sim/checkers/stamp.h"

namespace braid::sim {

using base::Reactor;

namespace {

std::shared_ptr<const trs::KeyRing> keys_of(const Plan& plan, std::optional<size_t> without) {
  auto keys = std::make_shared<trs::KeyRing>();
  for (size_t i = 0; i < plan.clients.size(); ++i)
    if (i != without) BRAID_ASSERT(keys->add(key_of(plan.clients[i].name)).ok());
  return keys;
}

bnbd::ExportServerOptions export_options(const Plan& plan, size_t server,
                                         std::vector<Reactor*> reactors, vhca::Device& second,
                                         uint32_t features) {
  const ServerPlan& me = plan.servers[server];
  bnbd::ExportServerOptions options;
  options.root = kExportRoot;
  options.direct = me.direct;
  for (const DevicePlan& device : plan.devices) {
    if (!device.memory || device.server != server) continue;
    bnbd::NamedExport named;
    named.name = device.name;
    named.size_bytes = device.sectors * kSectorBytes;
    options.named.push_back(named);
  }
  options.transport.listen = {me.ip, kServerPort};
  options.transport.endpoints = {{&second, {me.second_ip, kServerPort}}};
  options.transport.reactors = std::move(reactors);
  options.transport.features = features;
  options.transport.queue_depth = me.queue_depth;
  options.transport.max_io_bytes = me.max_io_bytes;
  if (me.asks_for_keys()) options.transport.keys = keys_of(plan, std::nullopt);
  options.transport.guard = me.guard();
  return options;
}

}  // namespace

std::unique_ptr<vhca::Device> make_device(base::sim::SimHost& host, Reactor& control,
                                          const std::string& ip, bool tcp) {
  if (tcp) {
    const vhca::TcpDeviceOptions options{.name = "tcp " + ip, .ip = ip};
    return std::move(*vhca::create_tcp_device(host, control, options));
  }
  const vhca::SimDeviceOptions options{.name = "sim " + ip, .ip = ip, .registrations_max = 2048};
  return std::move(*vhca::create_sim_device(host, control, options));
}

bool strike_one(const std::vector<vhca::Device*>& devices, vhca::DeviceFault fault,
                uint64_t which) {
  const uint64_t first = which % devices.size();
  for (size_t i = 0; i < devices.size(); ++i) {
    vhca::Device& device = *devices[(first + i) % devices.size()];
    if (*vhca::inject_device_fault(device, fault, which / devices.size())) return true;
  }
  return false;
}

ServerProgram::ServerProgram(base::sim::SimHost& host, const Plan& plan, size_t server,
                             uint32_t features)
    : name_(plan.servers[server].name), asks_for_keys_(plan.servers[server].asks_for_keys()) {
  const ServerPlan& me = plan.servers[server];
  std::vector<Reactor*> borrowed;
  for (size_t i = 0; i < me.reactors; ++i) {
    const Reactor::Options options{.name = fmt::format("reactor{}", i)};
    reactors_.push_back(std::move(*Reactor::create(host, options)));
    host.drive(*reactors_.back());
    borrowed.push_back(reactors_.back().get());
  }
  device_ = make_device(host, *reactors_[0], me.ip, me.tcp);
  second_device_ = make_device(host, *reactors_[0], me.second_ip, me.second_tcp);
  server_ = std::move(*bnbd::ExportServer::create(
      *device_, export_options(plan, server, borrowed, *second_device_, features)));
}

void ServerProgram::stop() {
  reactors_[0]->post([this] {
    stopping_ = stop_task();
    stopping_.start();
  });
}

void ServerProgram::force_close(const bnbd::ForceClose& what) {
  reactors_[0]->post([this, what] { (void)server_->force_close(what); });
}

void ServerProgram::resize(const std::string& name, uint64_t size_bytes,
                           std::function<void(bool)> ended) {
  reactors_[0]->post([this, name, size_bytes, ended = std::move(ended)] {
    resizing_ = resize_task(name, size_bytes, ended);
    resizing_.start();
  });
}

void ServerProgram::set_keys(const Plan& plan, std::optional<size_t> without) {
  reactors_[0]->post(
      [this, keys = keys_of(plan, without)] { BRAID_ASSERT(server_->set_keys(keys).ok()); });
}

void ServerProgram::fail_adapter(vhca::DeviceFault fault, uint64_t which,
                                 std::function<void()> hit) {
  reactors_[0]->post([this, fault, which, hit = std::move(hit)] {
    if (strike_one({device_.get(), second_device_.get()}, fault, which)) hit();
  });
}

void ServerProgram::check_no_breach(Violations& violations) const {
  for (const auto& [what, count] : server_->transport_statistics().breaches)
    violations.add("{}: a client broke the protocol {} times: {}", name_, count, what);
}

void ServerProgram::check_at_rest(Violations& violations, size_t sessions) const {
  if (server_->sessions().size() != sessions)
    violations.add("{}: {} sessions at rest, where {} clients have one", name_,
                   server_->sessions().size(), sessions);
  for (const bnbd::SessionStatus& session : server_->session_statuses()) {
    const std::string key = asks_for_keys_ ? session.name : "";
    if (session.key != key)
      violations.add("{}: session {} is here with key \"{}\", where \"{}\" is right", name_,
                     session.name, session.key, key);
  }
  size_t holders = 0;
  for (const bnbd::ExportStatus& its : server_->exports()) holders += its.holders.size();
  if (sessions == 0 && holders != 0)
    violations.add("{}: {} devices are held by nobody's sessions", name_, holders);
}

base::Task<void> ServerProgram::resize_task(std::string name, uint64_t size_bytes,
                                            std::function<void(bool)> ended) {
  const base::Result<uint64_t> size = co_await server_->resize(name, size_bytes, true);
  ended(size.ok());
}

base::Task<void> ServerProgram::stop_task() {
  const base::Status status = co_await server_->stop();
  stopped_ = status.ok();
}

}  // namespace braid::sim
