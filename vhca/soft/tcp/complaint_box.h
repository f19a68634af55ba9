// ComplaintBox: lines about peers that break the rules of their streams. Whoever reaches a port can
// cause one with each connection, on any thread; a few of each address are logged, by one reactor.
//
// Threads: put() any. The rest the control reactor's. Shared by a wire and its streams, which may
// outlive it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/limited_log.h"
#include "base/reactor.h"

namespace braid::vhca::soft::tcp {

class ComplaintBox : public std::enable_shared_from_this<ComplaintBox> {
 public:
  /// `control` outlives the time until close().
  void open(base::Reactor& control, base::Logger log);
  /// Nothing is logged from now on, but what was left out.
  void close();
  /// False: it is not open.
  bool put(const std::string& ip, const std::string& line);

 private:
  std::mutex mutex_;
  base::Reactor* control_ = nullptr;     // mutex_; null: not open
  std::optional<base::LimitedLog> log_;  // the control reactor's
};

}  // namespace braid::vhca::soft::tcp
