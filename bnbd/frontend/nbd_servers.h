// An NbdServer on each of a device's reactors, as one: connection c is served on reactor c mod R.
//
// Threads: the home reactor's, the first of the device's queues; it reaches the others by message.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bnbd/frontend/nbd_server.h"

namespace braid::bnbd {

class NbdServers {
 public:
  /// Takes connected stream sockets; each reactor gets `slots` requests of its own. Unless
  /// connections may be added, there are no more reactors in it than sockets. `device` outlives it,
  /// and what it was given is completed by then.
  static base::Task<base::Result<std::unique_ptr<NbdServers>>> create(
      base::Reactor& home, BlockDevice& device, NbdServerOptions options, unsigned slots,
      std::vector<UniqueFd> sockets);
  NbdServers(base::Reactor& home, BlockDevice& device) : home_(home), device_(device) {}
  ~NbdServers();
  NbdServers(const NbdServers&) = delete;
  NbdServers& operator=(const NbdServers&) = delete;

  /// One more connection, served by the reactor that has the fewest; closed if there is no room.
  void add(UniqueFd socket, bool structured, std::vector<std::byte> early);
  unsigned connections() const;
  unsigned connections_max() const;
  /// Whether add() would find room: as connections, or where one is leaving.
  bool has_room() const;

  // --- as NbdServer has them
  void take_no_more();
  void stop();
  void expect_end(bool expected);
  base::Task<void> drained();
  bool alive() const;
  KernelDeviceStatistics statistics() const;
  LatencyHistogram latency(LatencyKind kind) const;
  uint64_t device_bytes() const { return device_.info().size_bytes; }

  size_t reactors() const { return members_.size(); }
  /// Returns when each has heard of what the device told its reactors before.
  base::Task<void> caught_up();

 private:
  struct Member {
    base::Reactor* reactor = nullptr;
    NbdServer* server = nullptr;  // on that reactor; ours
  };
  template <typename Function>
  void on_each(Function function) {
    for (const Member& member : members_) {
      if (member.reactor == &home_) {
        function(*member.server);
      } else {
        member.reactor->post([server = member.server, function] { function(*server); });
      }
    }
  }

  unsigned load_of(size_t member) const;

  base::Reactor& home_;
  BlockDevice& device_;
  unsigned connections_max_ = 0;  // of each
  size_t next_ = 0;               // where to look first for the next connection
  std::vector<Member> members_;
};

}  // namespace braid::bnbd
