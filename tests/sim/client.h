// A client process of a round: the shipping remote devices under a random workload.
//
// The program belongs to its SimHost and dies with it; what it reports goes to the Judge, which
// outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/reactor.h"
#include "base/sim.h"
#include "tests/sim/session_use.h"
#include "vhca/device_faults.h"

namespace braid::sim {

class ClientProgram : public base::sim::SimProgram {
 public:
  /// `features`: what it offers, see trs::ClientOptions.
  ClientProgram(base::sim::SimHost& host, const Plan& plan, size_t client, uint32_t features,
                Judge& judge, Board& board, uint64_t seed);

  /// kVerify: read every device from end to end, once; kClose: close everything.
  void set_activity(Activity activity);
  /// All is open that should be, and nothing is under way.
  bool at_rest() const;
  bool verified() const;
  bool closed() const;
  bool reconnecting_to(size_t server) const;
  bool connected_to(size_t server) const;
  /// As ServerProgram's.
  void fail_adapter(vhca::DeviceFault fault, uint64_t which, std::function<void()> hit);
  /// At rest: are all permits of the sessions back?
  void check_permits();
  std::string explain() const;

 private:
  std::vector<std::unique_ptr<base::Reactor>> reactors_;
  std::vector<base::Reactor*> reactors_for(const ClientPlan& me, const ServerPlan& server) const;
  vhca::Device& device(base::sim::SimHost& host, const std::string& ip, bool tcp);

  std::map<std::pair<std::string, bool>, std::unique_ptr<vhca::Device>> devices_;  // ip, TCP
  std::vector<std::unique_ptr<SessionUse>> sessions_;
};

}  // namespace braid::sim
