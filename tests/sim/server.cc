#include "tests/sim/server.h"

#include <fmt/format.h>

#include "tests/sim/checkers/stamp.h"

namespace braid::sim {

using base::Reactor;

namespace {

bnbd::ExportServerOptions export_options(const Plan& plan, std::vector<Reactor*> reactors) {
  bnbd::ExportServerOptions options;
  options.root = kExportRoot;
  for (const DevicePlan& device : plan.devices) {
    if (!device.memory) continue;
    bnbd::NamedExport named;
    named.name = device.name;
    named.size_bytes = device.sectors * kSectorBytes;
    options.named.push_back(named);
  }
  options.transport.listen = {plan.server_ip, kServerPort};
  options.transport.reactors = std::move(reactors);
  options.transport.queue_depth = plan.queue_depth;
  options.transport.max_io_bytes = plan.max_io_bytes;
  return options;
}

}  // namespace

ServerProgram::ServerProgram(base::sim::SimHost& host, const Plan& plan) {
  std::vector<Reactor*> borrowed;
  for (size_t i = 0; i < plan.server_reactors; ++i) {
    const Reactor::Options options{.name = fmt::format("reactor{}", i)};
    reactors_.push_back(std::move(*Reactor::create(host, options)));
    host.drive(*reactors_.back());
    borrowed.push_back(reactors_.back().get());
  }
  const vhca::SimDeviceOptions device{.name = "sim0", .ip = plan.server_ip};
  device_ = std::move(*vhca::create_sim_device(host, *reactors_[0], device));
  server_ = std::move(*bnbd::ExportServer::create(*device_, export_options(plan, borrowed)));
}

void ServerProgram::stop() {
  reactors_[0]->post([this] {
    stopping_ = stop_task();
    stopping_.start();
  });
}

base::Task<void> ServerProgram::stop_task() {
  const base::Status status = co_await server_->stop();
  stopped_ = status.ok();
}

}  // namespace braid::sim
