// SimHost: one process of a simulated world, as the Host that the shipping code sees.
//
// Differences from LinuxHost, all deliberate:
//   - start_thread, local sockets, open_process: kNotSupported. Worlds drive reactors: whoever
//   makes
//     a Reactor on a SimHost calls drive() for it once.
//   - execute() runs its work as a later event of the world.
//   - kill() is kill -9: from that moment every call fails with kDead or does nothing, no reactor
//     turns, nothing is delivered; then the program's objects are destroyed, which must not and
//     cannot be noticed outside.
//   - An operation in flight to a disk when its process dies takes effect then, some milliseconds
//     later, or never; it keeps the file's lock (OpenOptions::lock) until then, as on Linux.
//
// Threads: the world's only one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/host.h"
#include "base/log.h"
#include "base/sim/machine.h"
#include "base/sim/random.h"

namespace braid::base {
class Reactor;
}

namespace braid::base::sim {

class ReactorSlot;
class SimFabric;
class SimSegment;
class SimStream;
class SimWorld;

/// What a process cannot get for a while, as its machine or its limits have no more. What it has
/// stays.
struct SimShortage {
  bool memory = false;       // segments, sockets, and what an adapter locks memory for
  bool descriptors = false;  // segments, sockets, events, files
  uint64_t refused_in = 1;   // one in so many calls is refused: 1 is all of them
  uint64_t seed = 0;         // which of them
};

/// What a process runs: an owner of reactors and all that lives on them.
class SimProgram {
 public:
  virtual ~SimProgram() = default;
};

class SimHost final : public Host {
 public:
  SimHost(SimMachine& machine, std::string name);
  ~SimHost() override;

  // --- for scenarios
  SimWorld& world() { return machine_.world(); }
  SimMachine& machine() { return machine_; }
  const SimMachine& machine() const { return machine_; }
  SimFabric& fabric();
  const std::string& name() const { return name_; }
  /// Takes the program. It lives until the process dies.
  void run(std::unique_ptr<SimProgram> program);
  /// From now on the world gives this reactor its turns.
  void drive(Reactor& reactor);
  bool dead() const { return dead_; }
  bool paused() const { return paused_; }
  /// kill -9. Not from within the process's own code (asserted). Peers are told by the fabric
  /// unless `silent` (the machine went with it).
  void kill(bool silent = false);
  void pause();   // SIGSTOP
  void resume();  // SIGCONT
  /// One reactor's thread is stuck (or not scheduled) while the process's others go on.
  void hang(Reactor& reactor);
  void unhang(Reactor& reactor);
  /// One reactor gets no turn for a while: another program has its core. The others go on.
  void hang_reactor(size_t index, uint64_t duration_ns);
  size_t reactors() const { return slots_.size(); }
  /// It was started, stopped or hung, or went on from that, after `at_ns`.
  bool disturbed_since(uint64_t at_ns) const { return paused_ || disturbed_ns_ > at_ns; }
  /// From now on, until enough() or its death.
  void run_short(const SimShortage& shortage);
  void enough() { shortage_.reset(); }
  /// Calls that were refused for want of memory or descriptors, ever.
  uint64_t refusals() const { return refusals_; }
  /// The same by what could not be had, in the words of the refusal.
  const std::map<std::string, uint64_t>& refused() const { return refused_; }
  size_t segments() const { return segments_.size(); }
  /// What its streams have taken from it and given to it.
  uint64_t stream_bytes() const { return stream_bytes_; }
  /// Calls of sockets that took or gave some.
  uint64_t stream_calls() const { return stream_calls_; }
  /// Those that found nothing to take.
  uint64_t stream_calls_in_vain() const { return stream_calls_in_vain_; }
  /// The place of a message among all that this process sends.
  uint64_t next_send() { return sends_++; }
  /// Killed in the midst of its last turn: of what that turn sent, an end never left the machine.
  bool never_sent(uint64_t send) const { return dead_ && send >= cut_; }
  void turn_begins() { turn_began_at_send_ = sends_; }

  // --- Host
  uint64_t now_ns() override;
  uint64_t wall_clock_ns() override;
  void random(std::span<std::byte> out) override;
  std::string boot_id() override;
  std::string host_name() override;
  int process_id() override { return process_id_; }
  Logger& log() override { return log_; }
  bool mutant(std::string_view name) const override;
  Status adapter_memory(std::string_view what) override;

  Result<std::unique_ptr<IoQueue>> create_io_queue() override;
  Result<std::unique_ptr<Thread>> start_thread(std::string name,
                                               std::function<void()> body) override;
  void execute(std::function<void()> work) override;
  std::unique_ptr<Event> create_event() override;
  Result<std::unique_ptr<Event>> adopt_event(std::unique_ptr<Handle> handle) override;
  Result<std::unique_ptr<File>> open_beneath(const std::string& root, const std::string& name,
                                             const OpenOptions& options) override;
  Result<std::unique_ptr<Segment>> create_segment(size_t size_bytes,
                                                  std::string_view purpose) override;
  Result<std::unique_ptr<Segment>> map_segment(std::unique_ptr<Handle> handle,
                                               size_t size_bytes) override;
  Segment* find_segment(const void* address, size_t length) override;
  Result<std::unique_ptr<PeerProcess>> open_process(const PeerIdentity& identity) override;
  void heavy_fence() override { ++heavy_fences_; }
  uint64_t heavy_fences() const { return heavy_fences_; }
  Result<std::unique_ptr<LocalListener>> listen_local(std::string_view abstract_name) override;
  Result<std::unique_ptr<LocalSocket>> connect_local(std::string_view abstract_name) override;
  Result<std::unique_ptr<StreamListener>> listen_stream(const SocketAddress& address,
                                                        int backlog) override;
  Result<std::unique_ptr<StreamSocket>> connect_stream(const std::string& local_ip,
                                                       const SocketAddress& peer) override;
  std::optional<bool> has_link(const std::string& ip) override;

  // --- for streams
  void count_stream_call(uint64_t bytes) {
    stream_bytes_ += bytes;
    ++stream_calls_;
  }
  void count_stream_call_in_vain() { ++stream_calls_in_vain_; }
  /// Keeps a stream without a socket until the peer has all that was sent.
  void linger(std::shared_ptr<SimStream> stream) { lingering_.push_back(std::move(stream)); }
  /// Lets go of those that are done. Soon: it may be called by one of them.
  void end_lingering();
  /// kNoMemory if the process is short of what it takes: memory and a descriptor.
  Status descriptor(std::string_view what);

 private:
  friend class SimSegment;
  Status alive(std::string_view what) const;
  Status refuse_if(bool short_of, int sys_errno, std::string_view what);
  Error not_simulated(std::string_view what) const;
  void run_work(uint64_t id);
  void set_hung(Reactor& reactor, bool on);

  SimMachine& machine_;
  const std::string name_;
  const int process_id_;
  uint64_t heavy_fences_ = 0;
  bool dead_ = false;
  bool paused_ = false;
  uint64_t disturbed_ns_ = 0;
  struct Shortage {
    SimShortage what;
    SimRandom random;  // of its own: who is not short draws as ever
  };
  std::optional<Shortage> shortage_;
  uint64_t refusals_ = 0;
  std::map<std::string, uint64_t> refused_;
  uint64_t sends_ = 0;
  uint64_t stream_bytes_ = 0;
  uint64_t stream_calls_ = 0;
  uint64_t stream_calls_in_vain_ = 0;
  uint64_t turn_began_at_send_ = 0;  // the last turn of any reactor
  uint64_t cut_ = 0;                 // of a dead process: the first that was never sent
  SimRandom random_;
  Logger log_;
  std::vector<std::unique_ptr<ReactorSlot>> slots_;
  std::vector<SimSegment*> segments_;  // those made by create_segment that exist
  uint64_t work_ids_ = 0;
  std::map<uint64_t, std::function<void()>> work_;  // handed to execute() and not yet run
  std::vector<uint64_t> deferred_work_;             // came due while paused
  std::vector<std::shared_ptr<SimStream>> lingering_;
  std::unique_ptr<SimProgram> program_;
};

}  // namespace braid::base::sim
