// SimWorld: a whole installation in one thread under a virtual clock: machines with disks and
// ports, processes on them, reactors in those. The shipping code runs on it unchanged, through
// SimHost.
//
//   SimWorld ── SimMachine ── SimDisk            power_loss(), power_on()
//      │            └──────── SimHost (process)  kill(), pause(), resume()
//      │                        └─ reactors      the world gives them their turns
//      └─────── SimFabric                        ports, channels, their faults
//
// Time moves from event to event; equal times run in the order of their making. How long a turn
// takes, who runs first, what a fault hits: all is drawn from the seed, so that a seed replays bit
// for bit; trace_hash() proves it.
//
// Threads: one world, one thread. Several worlds may run on several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/sim/event_queue.h"
#include "base/sim/fabric.h"
#include "base/sim/machine.h"
#include "base/sim/random.h"

namespace braid::base::sim {

/// How fast things are; bounds of what is drawn.
struct SimTiming {
  uint64_t turn_min_ns = 300, turn_max_ns = 1500;      // one turn of a reactor
  uint64_t wake_min_ns = 500, wake_max_ns = 5000;      // from a wake-up to the turn
  uint64_t work_min_ns = 2000, work_max_ns = 100'000;  // Host::execute, until it runs
  uint64_t wire_min_ns = 800, wire_max_ns = 4000;      // one message, one way
  uint64_t wire_bytes_per_us = 10'000;                 // and its size
  /// A reactor comes late: the operating system gave the core to somebody else.
  uint32_t late_per_million = 20;
  uint64_t late_max_ns = 20 * kMillisecond;
};

struct SimWorldOptions {
  uint64_t seed = 1;
  SimTiming timing;
  std::shared_ptr<LogSink> log_sink;  // null: log lines are dropped
  LogLevel log_level = LogLevel::kInfo;
  /// Called with each event before it runs, if set.
  std::function<void(const EventQueue::Due& event)> trace;
  /// Names of planted bugs that are on, see Host::mutant.
  std::vector<std::string> mutants;
};

struct SimCounters {
  uint64_t events = 0, turns = 0;
  uint64_t late_turns = 0, kills = 0, pauses = 0, power_losses = 0;
};

class SimWorld {
 public:
  explicit SimWorld(SimWorldOptions options);
  ~SimWorld();  // all processes die first
  SimWorld(const SimWorld&) = delete;

  uint64_t now_ns() const { return now_ns_; }
  const SimWorldOptions& options() const { return options_; }
  SimTiming& timing() { return timing_; }
  SimRandom& random() { return random_; }
  SimFabric& fabric() { return *fabric_; }
  SimCounters& counters() { return counters_; }

  SimMachine& add_machine(const std::string& name);

  /// Runs `action` at a time, outside every process: for scenarios, faults, checkers.
  void at(uint64_t at_ns, std::function<void()> action);
  void after(uint64_t delay_ns, std::function<void()> action) {
    at(now_ns_ + delay_ns, std::move(action));
  }

  void run_for(uint64_t duration_ns) { run_until(nullptr, duration_ns); }
  /// Runs until `done` is true (asked after every event) or the time is over; true if it was done.
  bool run_until(const std::function<bool()>& done, uint64_t duration_max_ns);

  /// A hash of every event so far. Equal seeds and programs give equal hashes.
  uint64_t trace_hash() const { return trace_hash_; }
  /// Makes a value part of the trace (what a workload saw).
  void note(uint64_t value);

  // --- for the parts of the world
  void push(uint64_t at_ns, EventKind kind, uint32_t subject, EventQueue::Callback run) {
    events_.push(at_ns, kind, subject, std::move(run));
  }
  uint32_t next_subject() { return ++subjects_; }
  int next_process_id() { return ++process_ids_; }

 private:
  void run_one();

  SimWorldOptions options_;
  SimTiming timing_;
  SimRandom random_;
  EventQueue events_;
  uint64_t now_ns_ = kSecond;  // not 0: a clock that starts at 0 hides mistakes with "never"
  uint64_t trace_hash_ = 0;
  uint32_t subjects_ = 0;
  int process_ids_ = 100;
  SimCounters counters_;
  std::unique_ptr<SimFabric> fabric_;
  std::vector<std::unique_ptr<SimMachine>> machines_;
};

}  // namespace braid::base::sim
