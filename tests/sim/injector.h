// Injector: does faults to a running round, one after the other and some at once, and counts those
// that had an effect.
//
// Kinds are dealt from a shuffled deck, so that each comes once before any comes twice. Most are
// aimed: they wait for a client to submit a request, and strike within the time that it takes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/sim.h"
#include "tests/sim/board.h"
#include "tests/sim/faults.h"
#include "tests/sim/plan.h"
#include "vhca/device_faults.h"

namespace braid::sim {

/// For what is written of faults.
inline double milliseconds(uint64_t ns) {
  return static_cast<double>(ns) / static_cast<double>(base::kMillisecond);
}

/// What the injector may do to processes and machines; the round does it.
class Victims {
 public:
  virtual ~Victims() = default;
  virtual base::sim::SimHost* server(size_t index) = 0;  // null while it is down
  virtual base::sim::SimHost* client(size_t index) = 0;  // null while it is down
  virtual base::sim::SimDisk* disk(size_t device) = 0;   // null for a memory device
  virtual void kill_server(size_t index, bool power) = 0;
  virtual void start_server(size_t index) = 0;
  virtual void kill_client(size_t index, bool power) = 0;
  virtual void start_client(size_t index) = 0;
  virtual void disk_may_fail(size_t device, bool on) = 0;
  /// With the next failure, until a flush has ended well behind it.
  virtual void marks_may_fail(size_t device) = 0;
  virtual void disk_may_fill(size_t device, bool on) = 0;
  virtual void disk_may_lie(size_t device, bool on) = 0;
  /// The operator of its server, which runs.
  virtual void operator_closes(size_t device) = 0;
  virtual void operator_closes_session(size_t server, size_t client) = 0;
  /// The operator of a server that runs makes the device's file as large, in use or not.
  /// `hit`: it was done, in use.
  virtual void resize(size_t device, uint64_t sectors, std::function<void()> hit) = 0;
  /// As large as it was planned, by somebody who asks no server.
  virtual void restore_size(size_t device) = 0;
  /// The same of what is not open anywhere, as its server is down. False: not now.
  virtual bool resize_away(size_t device, uint64_t sectors) = 0;
  /// Another file, empty, takes the name of the device's. Its server is down.
  virtual void replace_file(size_t device) = 0;
  /// Those of all clients, or of all but one. The server runs.
  virtual void set_keys(size_t server, std::optional<size_t> without) = 0;
  /// Something of an adapter of a server, or of a client, that runs. `hit`: there was something.
  virtual void fail_adapter(bool of_server, size_t index, vhca::DeviceFault fault, uint64_t which,
                            std::function<void()> hit) = 0;
  /// Some client is making its path to the server again, or opening its devices there.
  virtual bool reconnecting_to(size_t server) = 0;
  /// Requests under way.
  virtual size_t requests_at(size_t server) const = 0;
  virtual size_t requests_of(size_t client) const = 0;
  virtual size_t requests_between(size_t client, size_t server) const = 0;
  /// The server has been silent for kSilenceNoticedNs: who was able to must have noticed, of those
  /// clients whose requests were under way as that began. Who waits for nothing asks seldom.
  virtual void check_silence_noticed(size_t server, const std::vector<size_t>& waiting) = 0;
};

/// Clients that were on time notice a silent server within this (docs/trs.md: 600 ms, plus what may
/// make a reactor late).
inline constexpr uint64_t kSilenceNoticedNs = base::kSecond;
inline constexpr uint64_t kLastWordsNs = 5 * base::kMillisecond;  // answers that were on the way

/// About what a path takes to come back, with its devices: from the first connection on.
inline constexpr uint64_t kReconnectNs = 800 * base::kMicrosecond;

class Injector {
 public:
  Injector(base::sim::SimWorld& world, const Plan& plan, Board& board, Victims& victims,
           base::Logger log);

  /// Faults happen from now on.
  void start() {
    schedule_next();
    plan_errors_at_close();
  }
  /// No new ones; those that last are ended, what is down is started.
  void stop_and_heal();
  const FaultCounts& counts() const { return counts_; }
  /// A client submits a request.
  void request_begins(size_t client, size_t device);

 private:
  struct Target {
    size_t client = 0;
    size_t device = 0;
    size_t server = 0;
  };
  struct PathEnds {
    std::string client, server;  // addresses
  };
  void schedule_next();
  void fire(Target target);
  Target draw_target();
  FaultKind deal();
  bool drawn(FaultKind kind) const;
  void release(const std::string& key);
  /// False: this round has nothing that such a fault could hit.
  bool inject(FaultKind kind, const Target& target);
  void count(FaultKind kind) { ++counts_[static_cast<size_t>(kind)]; }
  /// Faults of one key do not overlap: they would end each other.
  bool begin(const std::string& key) { return lasting_.insert(key).second; }
  /// Does `end` some time later unless all is healed before. Counted if `effect` returns another
  /// value then than now.
  void for_a_while(FaultKind kind, const std::string& key, uint64_t duration_ns,
                   const std::function<void()>& end, const std::function<uint64_t()>& effect);
  bool network_fault(FaultKind kind, const Target& target);
  void lose_path(FaultKind kind, const std::string& from, const std::string& to, uint64_t for_ns);
  std::vector<PathEnds> all_paths(size_t client, size_t server) const;
  void cut_paths(FaultKind kind, const std::vector<PathEnds>& paths, uint64_t for_ns);
  bool late_messages(const Target& target);
  bool partition();
  bool stop_server(size_t server);
  bool stop_client(size_t client);
  uint64_t stop(base::sim::SimHost& host, const std::string& key);
  bool hang_reactor(const Target& target);
  bool kill_server(FaultKind kind, size_t server);
  bool kill_client(FaultKind kind, size_t client);
  bool kill_all();
  bool fail_adapter(FaultKind kind, const Target& target);
  void start_later(bool of_server, size_t index, uint64_t down_ms);
  void disk_error(size_t device, const std::string& key, uint64_t duration_ns, bool marks);
  void plan_errors_at_close();
  void fail_at_close(size_t device);
  bool disk_short(base::sim::SimDisk& disk, const std::string& key, uint64_t duration_ns);
  bool disk_lies(size_t device, const std::string& key, uint64_t duration_ns);
  bool disk_fault(FaultKind kind, size_t device);
  bool take_over(size_t device);
  bool take_away(size_t device);
  bool close_session(const Target& target);
  bool take_key(const Target& target);
  bool resize(size_t device);
  void resize_again(size_t device, std::function<void()> hit);
  bool resize_away(size_t device);
  uint64_t draw_sectors(size_t device);
  bool replace_file(size_t device);
  bool change_wishes(FaultKind kind, size_t client, size_t device);
  bool disturb_reconnect(size_t server);
  void connect_seen(const base::sim::FabricAddress& listener);
  void strike(size_t server);
  /// Beside a fault of some kinds that end paths, in some rounds: who makes one again is short.
  void add_shortage(FaultKind kind, const Target& target);
  void shorten_connect(const base::sim::FabricAddress& listener);
  void run_short(bool of_server, const Target& target);

  base::sim::SimWorld& world_;
  const Plan& plan_;
  Board& board_;
  Victims& victims_;
  base::sim::SimRandom random_;
  base::Logger log_;
  bool active_ = true;
  bool aiming_ = false;
  uint64_t shots_ = 0;
  std::set<std::string> lasting_;
  std::vector<FaultKind> deck_;
  std::optional<size_t> strike_at_;  // server: the next connection there is disturbed
  bool striking_ = false;
  base::sim::SimRandom shortages_;
  const bool runs_short_;
  struct ShortAt {
    Target target;
    bool of_server = false;
  };
  std::optional<ShortAt> short_at_;  // the next connection to its server
  FaultCounts counts_{};
};

}  // namespace braid::sim
