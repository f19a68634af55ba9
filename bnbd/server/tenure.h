// Tenures: a tenure is the time in which one client is a device's writer, over all its reconnects.
// It ends when another client is let in for writing, and nothing of it may land after that
// (docs/bnbd.md, "A change of writers").
//
// The number of the present tenure is kept with the file, so that no restart of a server forgets
// it; for what keeps no note, as long as the server lives. One reactor, the home.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/reactor.h"
#include "bnbd/block.h"

namespace braid::bnbd::server {

struct Tenure {
  explicit Tenure(base::Reactor& reactor) : recorded(reactor) {}
  uint64_t number = 0;     // random, so that no two are equal; 0: no writer is known
  bool vacant = false;     // nobody has been told the number yet: the next new writer gets it
  std::string writer;      // whose it is or was, for people; empty: not known any more
  bool recording = false;  // `number` is on its way to the file; `recorded` tells of its end
  uint64_t recording_since_ns = 0;
  base::Signal recorded;
  base::Status record_status;
  uint64_t undone = 0;  // the number that was to be recorded, failed, and may be in the file
  base::Task<void> record_task;
};

class TenureTable {
 public:
  explicit TenureTable(base::Reactor& reactor);
  ~TenureTable();

  /// Of the device with this identity, for as long as the table lives.
  Tenure& of(const std::string& identity);
  /// The device's file was just opened: takes over what another server left there.
  base::Task<base::Status> learn(const BlockDevice& device);
  /// Until it is known what becomes of a tenure that is being recorded: no claim can be judged
  /// before. kTimedOut after `patience_ns`; the recording goes on, and who asks again finds it
  /// where it is.
  base::Task<base::Status> settle(Tenure& tenure, uint64_t patience_ns);
  /// Sees to it that the tenure is vacant: if it is not, begins a new one and records it. kTimedOut
  /// likewise; kIo if it cannot be recorded. `undurable` is called, at any time
  /// while the table lives, when a number is there whose fsync has failed.
  base::Task<base::Status> vacate(Tenure& tenure, const BlockDevice& device,
                                  std::function<void()> undurable, uint64_t patience_ns);
  /// Recordings that have gone on for longer than this.
  unsigned stuck(uint64_t for_ns) const;

 private:
  base::Task<void> record(Tenure& tenure, std::shared_ptr<base::File> file,
                          std::function<void()> undurable, uint64_t before);
  static base::Task<bool> recorded(Tenure& tenure);

  base::Reactor& reactor_;
  base::Logger log_;
  std::map<std::string, std::unique_ptr<Tenure>> tenures_;  // by identity
};

/// What a client may do that opens a device for writing and claims a tenure (0: none).
enum class Claim : uint8_t {
  kNew,         // it begins a tenure
  kContinues,   // the tenure is its own, or nobody knows better
  kSuperseded,  // another client has had the device for writing since: it must not write any more
};
Claim judge_claim(const Tenure& tenure, uint64_t claimed);

}  // namespace braid::bnbd::server
