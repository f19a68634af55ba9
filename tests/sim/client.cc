#include "tests/sim/client.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/server.h"
#include "vhca/soft_device.h"

namespace braid::sim {

using base::Reactor;

namespace {

constexpr uint32_t kSequenced = 1 << 2;  // the feature bit, docs/trs-wire.md

bool uses_server(const Plan& plan, size_t client, size_t server) {
  return std::any_of(plan.devices.begin(), plan.devices.end(), [&](const DevicePlan& device) {
    return device.server == server && device.used_by(client);
  });
}

}  // namespace

ClientProgram::ClientProgram(base::sim::SimHost& host, const Plan& plan, size_t client,
                             uint32_t features, Judge& judge, Board& board, uint64_t seed) {
  const ClientPlan& me = plan.clients[client];
  for (size_t i = 0; i < me.reactors; ++i) {
    const Reactor::Options options{.name = fmt::format("reactor{}", i)};
    reactors_.push_back(std::move(*Reactor::create(host, options)));
    host.drive(*reactors_.back());
  }
  base::sim::SimRandom seeds(seed);
  for (size_t server = 0; server < plan.servers.size(); ++server) {
    if (!uses_server(plan, client, server)) continue;
    const ServerPlan& to = plan.servers[server];
    // Paths whose requests bear no numbers do not keep all promises (docs/trs.md).
    const bool numbered = (features & to.features & kSequenced) != 0;
    vhca::Device* const second =
        me.second_ip.empty() || !numbered ? nullptr : &device(host, me.second_ip, to.second_tcp);
    sessions_.push_back(std::make_unique<SessionUse>(
        host, reactors_for(me, to), device(host, me.ip, to.tcp), second, judge, board, plan, client,
        server, features, seeds.next()));
  }
}

/// Of the next session: its home first. Each needs a permit, besides the one for admin requests.
std::vector<Reactor*> ClientProgram::reactors_for(const ClientPlan& me,
                                                  const ServerPlan& server) const {
  const size_t home = sessions_.size() % reactors_.size();
  const size_t count = std::min<size_t>(reactors_.size(), server.queue_depth - 1);
  std::vector<Reactor*> all;
  for (size_t i = 0; i < (me.spread ? count : 1); ++i)
    all.push_back(reactors_[(home + i) % reactors_.size()].get());
  return all;
}

vhca::Device& ClientProgram::device(base::sim::SimHost& host, const std::string& ip, bool tcp) {
  std::unique_ptr<vhca::Device>& its = devices_[{ip, tcp}];
  if (its == nullptr) its = make_device(host, *reactors_[0], ip, tcp);
  return *its;
}

void ClientProgram::set_activity(Activity activity) {
  for (auto& session : sessions_) session->set_activity(activity);
}

bool ClientProgram::at_rest() const {
  return std::all_of(sessions_.begin(), sessions_.end(),
                     [](const auto& session) { return session->at_rest(); });
}

bool ClientProgram::verified() const {
  return std::all_of(sessions_.begin(), sessions_.end(),
                     [](const auto& session) { return session->verified(); });
}

bool ClientProgram::closed() const {
  return std::all_of(sessions_.begin(), sessions_.end(),
                     [](const auto& session) { return session->closed(); });
}

bool ClientProgram::reconnecting_to(size_t server) const {
  return std::any_of(sessions_.begin(), sessions_.end(), [server](const auto& session) {
    return session->server() == server && session->reconnecting();
  });
}

bool ClientProgram::connected_to(size_t server) const {
  return std::any_of(sessions_.begin(), sessions_.end(), [server](const auto& session) {
    return session->server() == server && session->connected();
  });
}

void ClientProgram::fail_adapter(vhca::DeviceFault fault, uint64_t which,
                                 std::function<void()> hit) {
  reactors_[0]->post([this, fault, which, hit = std::move(hit)] {
    std::vector<vhca::Device*> devices;
    for (const auto& [port, its] : devices_) devices.push_back(its.get());
    if (!devices.empty() && strike_one(devices, fault, which)) hit();
  });
}

void ClientProgram::check_permits() {
  for (auto& session : sessions_) session->check_permits();
}

std::string ClientProgram::explain() const {
  std::string text;
  for (const auto& session : sessions_) text += session->explain() + ". ";
  return text;
}

}  // namespace braid::sim
