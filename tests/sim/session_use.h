// SessionUse: one client's session to one server, and its devices: opened, used, closed, and opened
// anew when the board says so.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "bnbd/remote.h"
#include "tests/sim/device_use.h"
#include "vhca/device.h"

namespace braid::sim {

class SessionUse {
 public:
  /// `device`: of the process, and `second` if it has another port. `seed`: for its own stream of
  /// chance.
  /// `reactors`: of the process, the session's home first.
  SessionUse(base::sim::SimHost& host, std::vector<base::Reactor*> reactors, vhca::Device& device,
             vhca::Device* second, Judge& judge, Board& board, const Plan& plan, size_t client,
             size_t server, uint32_t features, uint64_t seed);

  void set_activity(Activity activity);
  bool at_rest() const;
  bool verified() const;
  bool closed() const { return closed_; }
  /// The path is being made, or its devices are being opened again.
  bool reconnecting() const;
  bool connected() const;
  size_t server() const { return server_; }
  /// At rest: are all permits of the session back?
  void check_permits();
  void check_no_path_lost();
  std::string explain() const;

 private:
  base::Task<void> live();
  base::Task<void> open();
  base::Task<void> close();
  base::Task<void> take_path();
  UntoldLosses::Ways made() const;
  bool must_close();
  uint64_t nap_ns() { return context_.random.between(20, 200) * base::kMillisecond; }

  WorkContext context_;
  const std::vector<base::Reactor*> reactors_;
  vhca::Device& device_;
  vhca::Device* const second_device_;  // or null
  const size_t server_;
  const uint32_t features_;
  uint64_t paths_taken_seen_ = 0;
  uint64_t made_by_removed_ = 0;  // connections of paths that are no more
  uint64_t remaps_seen_ = 0;
  bool closed_ = false;
  std::string last_refusal_ = "nothing tried yet";
  std::unique_ptr<bnbd::RemoteSession> session_;
  std::vector<std::unique_ptr<DeviceUse>> uses_;
  base::Task<void> life_;  // last: ends before what it uses
};

}  // namespace braid::sim
