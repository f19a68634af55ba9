// A server process of a round: the shipping export server on a simulated machine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "base/sim.h"
#include "bnbd/server.h"
#include "tests/sim/checkers/violations.h"
#include "tests/sim/plan.h"
#include "vhca/device_faults.h"
#include "vhca/soft_device.h"

namespace braid::sim {

inline constexpr uint16_t kServerPort = 1234;
inline constexpr char kExportRoot[] = "/exports";

/// On the simulated network of QPs, or on TCP streams of the simulated host.
std::unique_ptr<vhca::Device> make_device(base::sim::SimHost& host, base::Reactor& control,
                                          const std::string& ip, bool tcp);

/// Of these devices one that can: tells whether there was any.
bool strike_one(const std::vector<vhca::Device*>& devices, vhca::DeviceFault fault, uint64_t which);

class ServerProgram : public base::sim::SimProgram {
 public:
  /// `features`: what it offers, see trs::ServerOptions.
  ServerProgram(base::sim::SimHost& host, const Plan& plan, size_t server, uint32_t features);

  /// Ends all sessions; for the end of a round.
  void stop();
  bool stopped() const { return stopped_; }
  /// What its operator does to a client that hangs.
  void force_close(const bnbd::ForceClose& what);
  /// `ended`: whether it was done; not called if this process dies before. One at a time.
  void resize(const std::string& name, uint64_t size_bytes, std::function<void(bool)> ended);
  /// Of all clients, or of all but one.
  void set_keys(const Plan& plan, std::optional<size_t> without);
  /// A fault of one of its adapters; `hit` if there was something that it could strike.
  void fail_adapter(vhca::DeviceFault fault, uint64_t which, std::function<void()> hit);
  /// No client of ours breaks the protocol.
  void check_no_breach(Violations& violations) const;
  /// So many sessions, and nobody else who holds a device.
  void check_at_rest(Violations& violations, size_t sessions) const;

 private:
  base::Task<void> stop_task();
  base::Task<void> resize_task(std::string name, uint64_t size_bytes,
                               std::function<void(bool)> ended);

  const std::string name_;
  const bool asks_for_keys_;
  std::vector<std::unique_ptr<base::Reactor>> reactors_;
  std::unique_ptr<vhca::Device> device_;
  std::unique_ptr<vhca::Device> second_device_;
  std::unique_ptr<bnbd::ExportServer> server_;
  bool stopped_ = false;
  // Last: they end before what they use.
  base::Task<void> resizing_;
  base::Task<void> stopping_;
};

}  // namespace braid::sim
