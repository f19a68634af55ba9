// Queue: one connection of a session at the server, with the requests that came by it, on its
// reactor.
//
//   accept() -> open() -> requests ... close() -> drained, every request ended -> quiet
//
// Threads: the worker's reactor, apart from the section "from the home reactor", whose calls post
// themselves over and are answered by Session::queue_*().
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/intrusive_list.h"
#include "trs/connection.h"
#include "trs/heartbeat.h"
#include "trs/imm.h"
#include "trs/server/request.h"
#include "trs/wire.h"

namespace braid::trs::server {

class Session;
class Worker;

class Queue final : public base::ListNode, private ConnectionUser, private HeartbeatOwner {
 public:
  Queue(Session& session, Worker& worker, uint16_t cid);
  ~Queue() override;
  uint16_t cid() const { return cid_; }

  // --- from the home reactor
  /// Ends in Session::queue_accepted.
  void accept(std::unique_ptr<vhca::ConnectRequest> request, const wire::ConnRsp& answer);
  /// From here on requests are taken. Ends in Session::queue_opened.
  void open();
  /// Judges the peer's signs of life from now on: those by this connection, or for a peer with one
  /// heartbeat per path those by any.
  void watch_peer(bool whole_path);
  /// Fences and drains. Ends in Session::queue_quiet, when no request is at the user any more.
  void close();
  /// Requests that the user has not answered. Any thread.
  uint32_t at_user() const { return at_user_.load(std::memory_order_relaxed); }
  uint64_t received_count() const { return received_.load(std::memory_order_relaxed); }

  // --- connection 0, whose reactor is the home reactor
  bool send_message(std::span<const std::byte> message);  // at most 64 bytes

  // --- the worker's reactor
  void answer(Request& request, base::Errc status, const DataBuffer* source);
  bool poll();
  void arm();

 private:
  template <typename Function>
  void run_here(Function function);
  base::Task<void> run_accept(std::unique_ptr<vhca::ConnectRequest> request);
  base::Task<base::Status> try_accept(vhca::ConnectRequest& request);
  void begin_close();
  void request_arrived(RequestImm imm);
  const char* check_request(const RequestImm& imm) const;
  void send_answer(Request& request);
  void end(Request& request);
  void report_quiet();
  void violation(const char* reason, std::string detail);
  void count_at_user(int change) {
    at_user_.store(at_user() + static_cast<uint32_t>(change), std::memory_order_relaxed);
  }

  void received_imm(Connection& connection, uint32_t imm, uint32_t bytes) override;
  void received_message(Connection& connection, std::span<const std::byte> message) override;
  void failed(Connection& connection, base::Error why) override;
  uint64_t listen() override;
  void send_heartbeat() override;
  void peer_silent(uint64_t silent_ns) override;

  Session& session_;
  Worker& worker_;
  const uint16_t cid_;
  std::atomic<uint64_t> received_{0};
  wire::ConnRsp answer_;
  std::unique_ptr<Connection> connection_;
  bool accepting_ = false;
  bool open_ = false;     // requests are taken
  bool closing_ = false;  // nothing is sent any more
  bool quiet_ = false;
  bool whole_path_ = false;  // the heartbeat counts what comes by any connection
  HeartbeatDriver heartbeat_;
  std::atomic<uint32_t> at_user_{0};  // written by the queue's own reactor
  base::IntrusiveList<Request> waiting_;
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
  base::Task<void> accept_task_;  // last: goes first
};

}  // namespace braid::trs::server
