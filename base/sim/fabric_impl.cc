#include "base/sim/fabric_impl.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/sim/channel.h"
#include "base/sim/host.h"
#include "base/sim/world.h"

namespace braid::base::sim {
namespace {

bool is_any(const std::string& ip) {
  return ip == "0.0.0.0" || ip == "::";
}

}  // namespace

std::unique_ptr<SimFabric> make_fabric(SimWorld& world) {
  return std::make_unique<FabricImpl>(world);
}

void process_died(SimFabric& fabric, SimHost& process, bool silent) {
  static_cast<FabricImpl&>(fabric).process_died(process, silent);
}

bool FabricPort::reachable() const {
  return up && machine->powered();
}

FabricListenerImpl::~FabricListenerImpl() {
  fabric_.remove_listener(*this);
}

// --- for devices

Result<std::unique_ptr<FabricListener>> FabricImpl::listen(SimHost& process,
                                                           const FabricAddress& address,
                                                           IncomingHandler& handler) {
  if (process.dead()) return make_error(Errc::kDead, "listen: the process has been killed");
  const FabricPort* const local = find_port(address.ip);
  if (!is_any(address.ip) && (local == nullptr || local->machine != &process.machine()))
    return make_error(Errc::kNotFound, "listen: machine {} has no port {}",
                      process.machine().name(), address.ip);
  FabricAddress chosen = address;
  if (chosen.port == 0) chosen.port = next_port_number_++;
  for (const FabricListenerImpl* other : listeners_) {
    const FabricAddress taken = other->address();
    if (&other->process.machine() == &process.machine() && taken.port == chosen.port &&
        (taken.ip == chosen.ip || is_any(taken.ip) || is_any(chosen.ip)))
      return make_error(Errc::kExists, "listen: {}:{} is in use", chosen.ip, chosen.port);
  }
  auto listener = std::make_unique<FabricListenerImpl>(*this, process, chosen, handler);
  listeners_.push_back(listener.get());
  return std::unique_ptr<FabricListener>(std::move(listener));
}

Result<std::unique_ptr<Channel>> FabricImpl::connect(SimHost& process, const std::string& local_ip,
                                                     const FabricAddress& peer, RetryBudget budget,
                                                     ChannelHandler& handler,
                                                     std::vector<std::byte> first_message) {
  if (process.dead()) return make_error(Errc::kDead, "connect: the process has been killed");
  FabricPort* const local = local_ip.empty() ? first_port(process) : find_port(local_ip);
  if (local == nullptr || local->machine != &process.machine())
    return make_error(Errc::kNotFound, "connect: machine {} has no port {}",
                      process.machine().name(), local_ip.empty() ? "at all" : local_ip);
  const FabricAddress from{local->ip, next_port_number_++};
  auto end = std::make_shared<ChannelEnd>(*this, process, *local, from, peer, budget, &handler);
  end->connect(find_port(peer.ip), std::move(first_message));
  return std::unique_ptr<Channel>(std::make_unique<ChannelImpl>(std::move(end)));
}

std::vector<std::string> FabricImpl::ports_of(const SimHost& process) const {
  std::vector<std::string> ips;
  for (const auto& port : ports_)
    if (port->machine == &process.machine()) ips.push_back(port->ip);
  return ips;
}

// --- for scenarios

void FabricImpl::add_port(SimMachine& machine, const std::string& ip) {
  BRAID_ASSERT(find_port(ip) == nullptr && !is_any(ip));
  ports_.push_back(std::make_unique<FabricPort>(FabricPort{ip, &machine, ports_.size()}));
}

void FabricImpl::set_port_up(const std::string& ip, bool up) {
  FabricPort* const found = find_port(ip);
  BRAID_ASSERT(found != nullptr);
  set_up(*found, up);
}

void FabricImpl::set_up(FabricPort& port, bool up) {
  if (std::exchange(port.up, up) == up) return;
  std::erase_if(port.watchers, [](const auto& each) { return each.expired(); });
  const auto watchers = port.watchers;
  for (const auto& each : watchers) {
    if (const auto callback = each.lock(); callback != nullptr) (*callback)(up);
  }
}

std::shared_ptr<void> FabricImpl::watch_port(const std::string& ip,
                                             std::function<void(bool up)> callback) {
  FabricPort* const found = find_port(ip);
  BRAID_ASSERT(found != nullptr);
  auto kept = std::make_shared<std::function<void(bool)>>(std::move(callback));
  found->watchers.push_back(kept);
  return kept;
}

void FabricImpl::set_black_hole(const std::string& from_ip, const std::string& to_ip, bool on) {
  path(from_ip, to_ip).black_hole = on;
}

void FabricImpl::set_lose_answers(const std::string& from_ip, const std::string& to_ip, bool on) {
  path(from_ip, to_ip).lose_answers = on;
}

void FabricImpl::set_extra_delay(const std::string& from_ip, const std::string& to_ip,
                                 uint64_t max_ns) {
  path(from_ip, to_ip).extra_delay_max_ns = max_ns;
}

void FabricImpl::set_rate(const std::string& from_ip, const std::string& to_ip,
                          uint64_t bytes_per_ms) {
  path(from_ip, to_ip).bytes_per_ms = bytes_per_ms;
}

void FabricImpl::set_held_until(const std::string& from_ip, const std::string& to_ip,
                                uint64_t until_ns) {
  path(from_ip, to_ip).held_until_ns = until_ns;
}

void FabricImpl::set_receive_missing(const std::string& from_ip, const std::string& to_ip,
                                     bool on) {
  path(from_ip, to_ip).receive_missing = on;
}

void FabricImpl::heal_all() {
  for (auto& from : paths_) {
    for (auto& path : from)
      if (path != nullptr) *path = {.hits = path->hits};
  }
  for (auto& port : ports_) set_up(*port, true);
}

// --- for channel ends

std::optional<uint64_t> FabricImpl::carry(FabricPort& from, FabricPort& to, size_t size_bytes) {
  // The far port is looked at on departure too: a message does not wait for a cable.
  if (!from.reachable() || !to.reachable()) {
    ++faults_.port_down;
    for (FabricPort* port : {&from, &to}) port->hits += !port->up;
    return std::nullopt;
  }
  const SimTiming& timing = world_.timing();
  uint64_t delay_ns = world_.random().between(timing.wire_min_ns, timing.wire_max_ns) +
                      size_bytes * kMicrosecond / timing.wire_bytes_per_us;
  if (PathFaults* const faulty = find_path(from, to)) {
    if (faulty->black_hole) {
      ++faulty->hits;
      const PathFaults* const back = find_path(to, from);
      const bool both = back != nullptr && back->black_hole;
      ++(both ? faults_.black_hole_both : faults_.black_hole_one_way);
      return std::nullopt;
    }
    if (faulty->extra_delay_max_ns != 0) {
      ++faults_.delayed;
      ++faulty->hits;
      delay_ns += world_.random().below(faulty->extra_delay_max_ns);
    }
    if (faulty->bytes_per_ms != 0) {
      ++faulty->hits;
      faulty->busy_until_ns = std::max(faulty->busy_until_ns, world_.now_ns()) +
                              size_bytes * kMillisecond / faulty->bytes_per_ms;
      delay_ns += faulty->busy_until_ns - world_.now_ns();
    }
    if (faulty->held_until_ns > world_.now_ns()) {
      ++faults_.held;
      ++faulty->hits;
      delay_ns += faulty->held_until_ns - world_.now_ns();
    }
  }
  return world_.now_ns() + delay_ns;
}

bool FabricImpl::loses_answer(const FabricPort& from, const FabricPort& to) {
  PathFaults* const faulty = find_path(from, to);
  if (faulty == nullptr || !faulty->lose_answers) return false;
  ++faulty->hits;
  ++faults_.lost_answer;
  return true;
}

bool FabricImpl::misses_receive(const FabricPort& from, const FabricPort& to) {
  PathFaults* const faulty = find_path(from, to);
  if (faulty == nullptr || !faulty->receive_missing) return false;
  ++faulty->hits;
  ++faults_.receive_missing;
  return true;
}

FabricListenerImpl* FabricImpl::find_listener(const FabricPort& port, uint16_t number) {
  for (FabricListenerImpl* listener : listeners_) {
    const FabricAddress address = listener->address();
    if (&listener->process.machine() == port.machine && address.port == number &&
        (address.ip == port.ip || is_any(address.ip)))
      return listener;
  }
  return nullptr;
}

FabricPort* FabricImpl::find_port(const std::string& ip) {
  for (auto& candidate : ports_)
    if (candidate->ip == ip) return candidate.get();
  return nullptr;
}

uint64_t FabricImpl::last_heard_ns(const std::string& at_ip, const std::string& from_ip) const {
  uint64_t last_ns = 0;
  for (const auto& [subject, end] : ends_)
    if (end->local().ip == at_ip && end->peer().ip == from_ip)
      last_ns = std::max(last_ns, end->last_heard_ns());
  return last_ns;
}

std::vector<std::string> FabricImpl::open_ends() const {
  std::vector<std::string> texts;
  for (const auto& [subject, end] : ends_) {
    if (end->broken()) continue;
    texts.push_back(fmt::format("{} of {}, to {}", end->process().name(),
                                end->process().machine().name(), end->peer_text()));
  }
  return texts;
}

void FabricImpl::enter(ChannelEnd& end) {
  ends_.emplace(end.subject(), &end);
}

void FabricImpl::leave(ChannelEnd& end) {
  ends_.erase(end.subject());
}

void FabricImpl::remove_listener(FabricListenerImpl& listener) {
  std::erase(listeners_, &listener);
}

void FabricImpl::process_died(SimHost& process, bool silent) {
  std::erase_if(listeners_, [&](const auto* listener) { return &listener->process == &process; });
  std::vector<std::shared_ptr<ChannelEnd>> its;
  for (const auto& [subject, end] : ends_)
    if (&end->process() == &process) its.push_back(end->shared_from_this());
  for (const auto& end : its) end->close(silent);
}

const FabricPort& FabricImpl::port(const std::string& ip) const {
  FabricPort* const found = const_cast<FabricImpl*>(this)->find_port(ip);
  BRAID_ASSERT(found != nullptr);
  return *found;
}

FabricImpl::PathFaults& FabricImpl::path(const std::string& from_ip, const std::string& to_ip) {
  const size_t from = port(from_ip).index;
  const size_t to = port(to_ip).index;
  if (paths_.size() <= from) paths_.resize(from + 1);
  if (paths_[from].size() <= to) paths_[from].resize(to + 1);
  std::unique_ptr<PathFaults>& path = paths_[from][to];
  if (path == nullptr) path = std::make_unique<PathFaults>();
  return *path;
}

FabricPort* FabricImpl::first_port(const SimHost& process) {
  for (auto& candidate : ports_)
    if (candidate->machine == &process.machine()) return candidate.get();
  return nullptr;
}

}  // namespace braid::base::sim
