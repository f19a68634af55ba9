// fio's jobs as a side of the block rows: one engine of fio on one server.
//
// Main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/rounds.h"
#include "bench/workload.h"

namespace braid::bench {

/// What a job of fio works on: a server, and the engine by which fio gets there.
class FioTarget {
 public:
  virtual ~FioTarget() = default;  // ends the server
  virtual std::string name() const = 0;
  /// As Candidate::threads().
  virtual std::string threads() const = 0;
  /// Starts a server of a store of so many bytes. kNotFound: something is not installed.
  virtual base::Status start(Bench& bench, uint64_t store_bytes) = 0;
  /// fio's arguments, once the server is there: engine, where it is, and what else a job needs.
  virtual std::vector<std::string> engine() const = 0;
  /// "NAME=value", added to fio's environment.
  virtual std::vector<std::string> environment() const { return {}; }
  /// Whose CPU time counts beside fio's.
  virtual std::vector<pid_t> servers() const { return {}; }
};

/// Operations of a store that was filled before, in unit_of(work). kNotFound without fio.
std::unique_ptr<Candidate> fio_job(std::unique_ptr<FioTarget> target, const BlockWork& work);

/// Takes the figures out of fio's JSON output; `cpu_ns` is fio's own. kIo naming what is missing.
base::Result<Sample> parse_fio(const std::string& text, const BlockWork& work);

}  // namespace braid::bench
