#include "tests/sim/judge.h"

#include <algorithm>
#include <utility>

namespace braid::sim {

using base::Errc;

namespace {

const char* name_of(OpKind kind) {
  switch (kind) {
    case OpKind::kRead:
      return "read";
    case OpKind::kWrite:
      return "write";
    case OpKind::kZero:
      return "zero";
    case OpKind::kFlush:
      break;
  }
  return "flush";
}

}  // namespace

Judge::Judge(base::sim::SimWorld& world, const Plan& plan, base::Logger log)
    : world_(world), log_(std::move(log)) {
  for (size_t i = 0; i < plan.devices.size(); ++i) {
    Device device;
    device.history = std::make_unique<DeviceHistory>(violations_, i + 1, plan.devices[i].sectors);
    devices_.push_back(std::move(device));
  }
}

uint64_t Judge::begin(size_t client, size_t device, const OpDescription& what) {
  const uint64_t id = ++ids_;
  completions_.posted(id);
  running_.push_back(
      {id, client, device, what, world_.now_ns(), calm_, devices_[device].disk_may_fail});
  history(device).begin(id, what);
  log_.debug("client {} device {} #{} {} {}+{}{}{}", client, device + 1, id, name_of(what.kind),
             what.first_sector, what.sectors, what.durable ? " fua" : "",
             what.preflush ? " preflush" : "");
  return id;
}

Judge::Operation Judge::take(uint64_t id) {
  const auto found = std::find_if(running_.begin(), running_.end(),
                                  [id](const Operation& op) { return op.id == id; });
  if (found == running_.end()) return {};
  const Operation op = *found;
  *found = running_.back();
  running_.pop_back();
  return op;
}

void Judge::end(uint64_t id, Errc status, std::span<const std::byte> read_data) {
  world_.note(id);
  world_.note(static_cast<uint64_t>(status));
  completions_.completed(id);
  log_.debug("#{} ends: {}", id, base::to_string(status));
  const Operation op = take(id);
  if (op.id == 0) return;  // a second completion: reported already
  check_latency(op);
  const bool succeeded = status == Errc::kOk;
  if (!succeeded) {
    ++failed_;
    if (!op.may_fail && !history(op.device).may_report_loss(id))
      violations_.add("device {}: operation {} failed with {}, and nothing that happened allows it",
                      op.device + 1, id, base::to_string(status));
  }
  history(op.device).end(id, succeeded, read_data, op.may_fail);
}

void Judge::check_latency(const Operation& op) {
  const uint64_t latency_ns = world_.now_ns() - op.begin_ns;
  if (op.calm && latency_ns > kCalmLatencyMaxNs)
    violations_.add("device {}: operation {} took {} ms while no fault was active", op.device + 1,
                    op.id, latency_ns / base::kMillisecond);
}

void Judge::client_dies(size_t client) {
  for (size_t i = 0; i < running_.size();) {
    if (running_[i].client != client) {
      ++i;
      continue;
    }
    const Operation op = take(running_[i].id);
    completions_.died(op.id);
    if (op.what.kind == OpKind::kRead) {
      history(op.device).end(op.id, false, {});
    } else {
      devices_[op.device].orphans.push_back(op.id);
    }
  }
}

void Judge::writer_returned(size_t device) {
  for (const uint64_t id : std::exchange(devices_[device].orphans, {}))
    history(device).end(id, false, {});
  history(device).writer_restarted();
}

void Judge::explain_failures(size_t device) {
  for (Operation& op : running_)
    if (op.device == device) op.may_fail = true;
}

void Judge::server_lost_power() {
  for (Device& device : devices_) device.history->power_loss();
}

void Judge::disk_may_fail(size_t device, bool on) {
  devices_[device].disk_may_fail = on;
  if (on) explain_failures(device);
}

}  // namespace braid::sim
