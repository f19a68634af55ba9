// A client process of a round: the shipping remote device under a random workload.
//
// The program belongs to its SimHost and dies with it; what it reports goes to the Judge, which
// outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "base/sim.h"
#include "bnbd/remote.h"
#include "tests/sim/device_run.h"
#include "tests/sim/judge.h"
#include "tests/sim/plan.h"
#include "vhca/soft_device.h"

namespace braid::sim {

class ClientProgram : public base::sim::SimProgram {
 public:
  ClientProgram(base::sim::SimHost& host, const Plan& plan, size_t client, Judge& judge,
                uint64_t seed);

  /// kVerify: read every device from end to end, once; kClose: close everything.
  void set_activity(Activity activity);
  /// All devices are open and nothing is under way.
  bool at_rest() const;
  bool verified() const;
  bool closed() const { return closed_; }
  /// At rest: are all permits of the session back?
  void check_permits();
  std::string explain() const;

 private:
  struct OpenDevice {
    std::unique_ptr<DeviceRun> run;
    bnbd::RemoteDevice* remote = nullptr;  // the run's, once open
  };
  base::Task<void> main();
  base::Task<void> open_session();
  base::Task<void> open_device(OpenDevice& its);
  base::Task<void> close_all();
  uint64_t retry_delay_ns() { return context_->random.between(20, 200) * base::kMillisecond; }

  const Plan& plan_;
  const ClientPlan& me_;
  Judge& judge_;
  bool ready_ = false;
  bool closed_ = false;
  std::string last_refusal_ = "nothing tried yet";

  std::unique_ptr<base::Reactor> reactor_;
  std::unique_ptr<vhca::Device> device_;
  std::unique_ptr<bnbd::RemoteSession> session_;
  std::optional<WorkContext> context_;
  std::vector<OpenDevice> devices_;
  // Last: a killed process ends its tasks before what they use.
  base::Task<void> main_task_;
  base::Task<void> close_task_;
};

}  // namespace braid::sim
