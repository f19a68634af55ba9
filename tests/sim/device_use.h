// DeviceUse: one client's use of one device as long as a session lasts: opens it when the board
// says so, works on it, closes it, and so on.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "bnbd/remote.h"
#include "tests/sim/device_run.h"

namespace braid::sim {

class DeviceUse {
 public:
  DeviceUse(WorkContext& context, size_t device) : context_(context), device_(device) {}

  /// On the reactor. `made`: connections of the session, in all its life and at present.
  void begin(bnbd::RemoteSession& session, std::function<UntoldLosses::Ways()> made);
  /// Asks it to end; `leave_open`: the session's close() closes the device. Then drop().
  void end(bool leave_open);
  bool ended() const { return ended_; }
  /// Its session has closed: what filters do for requests still ends.
  base::Task<void> drained();
  void drop();

  void activity_changed();
  bool at_rest() const;
  bool verified() const;
  std::string explain() const;

 private:
  Wish wish() const { return context_.board.wish(context_.client, device_); }
  base::Task<void> live();
  base::Task<bool> open();
  base::Task<void> take_back();
  base::Task<base::Result<std::unique_ptr<bnbd::FilterStack>>> put_filters_on();
  base::Task<void> follow_size();
  Judge::Asked asked();
  base::Task<void> close();
  void prepare_to_close();
  bool must_close();
  uint64_t nap_ns() { return context_.random.between(20, 100) * base::kMillisecond; }
  const std::string& name() const { return context_.plan.devices[device_].name; }

  WorkContext& context_;
  const size_t device_;
  bnbd::RemoteSession* session_ = nullptr;
  std::function<UntoldLosses::Ways()> made_;
  Wish as_ = Wish::kNothing;  // while open
  uint64_t remaps_seen_ = 0;
  uint64_t contest_until_ns_ = 0;
  bool ending_ = false;
  bool leave_open_ = false;
  bool ended_ = true;
  bool size_changed_ = false;  // and the filters have not followed yet
  std::string last_refusal_ = "nothing tried yet";
  bnbd::RemoteDevice* remote_ = nullptr;  // the run's
  std::unique_ptr<DeviceRun> run_;        // while open
  base::Task<void> life_;                 // last: ends before what it uses
};

}  // namespace braid::sim
