// Slice: the chunks of a session that one reactor owns, and which of their requests are at the
// user. It outlives paths. Connection `cid` of every path serves the chunks of slice `cid`.
//
// Threads: the worker's reactor, apart from the section "from the home reactor".
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "trs/server/request.h"

namespace braid::trs::server {

class Session;
class Worker;

class Slice {
 public:
  Slice(Session& session, Worker& worker) : session_(session), worker_(worker) {}
  Worker& worker() { return worker_; }
  Session& session() { return session_; }

  // --- from the home reactor
  /// No request begins any more. Ends in Session::slice_quiet, when none is at the user.
  void close();
  /// Requests that the user has not answered. Any thread.
  uint32_t at_user() const { return at_user_.load(std::memory_order_relaxed); }

  // --- the worker's reactor
  bool closing() const { return closing_; }
  /// Gives the request to the user.
  void begin(Request& request);
  /// The user has answered.
  void ended(Request& request);
  /// Its answer goes to nobody: the chunk is the client's, or goes to the request that came for it
  /// meanwhile by another path.
  static void let_go(Request& request);

 private:
  void report_quiet();

  Session& session_;
  Worker& worker_;
  std::atomic<uint32_t> at_user_{0};  // written by the worker only
  bool closing_ = false;
  bool quiet_ = false;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace braid::trs::server
