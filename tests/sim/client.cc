#include "tests/sim/client.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/checkers/permits.h"
#include "tests/sim/server.h"

namespace braid::sim {

using base::Reactor;

ClientProgram::ClientProgram(base::sim::SimHost& host, const Plan& plan, size_t client,
                             Judge& judge, uint64_t seed)
    : plan_(plan), me_(plan.clients[client]), judge_(judge) {
  const Reactor::Options options{.name = "home"};
  reactor_ = std::move(*Reactor::create(host, options));
  const vhca::SimDeviceOptions device{.name = "sim0", .ip = me_.ip};
  device_ = std::move(*vhca::create_sim_device(host, *reactor_, device));
  context_.emplace(WorkContext{host, *reactor_, judge, plan, client, base::sim::SimRandom(seed)});
  for (size_t i = 0; i < plan.devices.size(); ++i) {
    const DevicePlan& its = plan.devices[i];
    const bool reads = its.reader == client;
    if (its.writer == client || reads)
      devices_.push_back({std::make_unique<DeviceRun>(*context_, i, !reads)});
  }
  host.drive(*reactor_);
  main_task_ = main();
  main_task_.start();
}

base::Task<void> ClientProgram::main() {
  co_await open_session();
  for (OpenDevice& its : devices_) co_await open_device(its);
  ready_ = true;
}

base::Task<void> ClientProgram::open_session() {
  for (;;) {
    bnbd::RemoteSessionOptions options;
    options.transport.session_name = me_.name;
    options.transport.server = {plan_.server_ip, kServerPort};
    options.transport.reactors = {reactor_.get()};
    options.transport.reconnect.delay_max_ns = me_.reconnect_max_ns;
    options.copy_pool_bytes = 512 << 10;
    auto session = co_await bnbd::RemoteSession::open(*device_, options);
    if (session.ok()) {
      session_ = std::move(*session);
      co_return;
    }
    last_refusal_ = session.error().message();
    co_await reactor_->sleep_ns(retry_delay_ns());
  }
}

base::Task<void> ClientProgram::open_device(OpenDevice& its) {
  for (;;) {
    bnbd::RemoteDeviceOptions options;
    options.name = plan_.devices[its.run->device()].name;
    options.mode =
        its.run->writes() ? bnbd::wire::AccessMode::kReadWrite : bnbd::wire::AccessMode::kReadOnly;
    options.queue_depth = me_.device_queue_depth;
    auto device = co_await session_->open_device(options);
    if (device.ok()) {
      its.remote = device->get();
      const base::Status status = its.run->opened(std::move(*device));
      if (!status.ok())
        judge_.violations().add("{}: no region: {}", me_.name, status.error().message());
      co_return;
    }
    last_refusal_ = device.error().message();
    co_await reactor_->sleep_ns(retry_delay_ns());
  }
}

void ClientProgram::set_activity(Activity activity) {
  context_->activity = activity;
  reactor_->post([this] {
    if (context_->activity == Activity::kClose) {
      close_task_ = close_all();
      close_task_.start();
    }
    for (OpenDevice& its : devices_) its.run->activity_changed();
  });
}

base::Task<void> ClientProgram::close_all() {
  for (OpenDevice& its : devices_)
    if (its.remote != nullptr) co_await its.remote->close();
  devices_.clear();
  co_await session_->close();
  session_.reset();
  closed_ = true;
}

bool ClientProgram::at_rest() const {
  return ready_ && std::all_of(devices_.begin(), devices_.end(),
                               [](const OpenDevice& its) { return its.run->idle(); });
}

bool ClientProgram::verified() const {
  return ready_ && std::all_of(devices_.begin(), devices_.end(),
                               [](const OpenDevice& its) { return its.run->verified(); });
}

void ClientProgram::check_permits() {
  const trs::ClientStatistics statistics = session_->statistics();
  if (statistics.in_flight != 0 || statistics.held != 0)
    judge_.violations().add("{}: {} requests in flight and {} held at rest", me_.name,
                            statistics.in_flight, statistics.held);
  check_permits_at_rest(judge_.violations(), me_.name, statistics.permits, statistics.permits_free);
}

std::string ClientProgram::explain() const {
  if (session_ == nullptr) return fmt::format("{}: no session: {}", me_.name, last_refusal_);
  std::string text = fmt::format("{}: {}", me_.name, session_->explain());
  if (!ready_) text += fmt::format("; opening: {}", last_refusal_);
  for (const OpenDevice& its : devices_)
    if (its.remote != nullptr) text += fmt::format("; {}", its.remote->explain());
  return text;
}

}  // namespace braid::sim
