// Queue: one connection of a path at the server, with the requests that came by it, on its reactor.
// queue.cc has its life, arrival.cc how requests come, answer.cc how they are answered.
//
//   accept() -> open() -> requests ... close() -> drained -> quiet
//
// Threads: the worker's reactor, apart from the section "from the home reactor", whose calls post
// themselves over and are answered by Path::queue_*().
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/intrusive_list.h"
#include "trs/connection.h"
#include "trs/heartbeat.h"
#include "trs/imm.h"
#include "trs/server/landing.h"
#include "trs/server/request.h"
#include "trs/server/turns.h"
#include "trs/wire.h"

namespace braid::trs::server {

class Path;
class Queue;
class Session;
class Slice;
class Worker;
struct TurnClient;

/// What the worker keeps of a queue. The queue's ListNode is in a list of its client: of those that
/// are polled, or of those that sleep.
struct QueuePlace {
  explicit QueuePlace(Queue& of) : with_data{of} {}
  struct WithData : base::ListNode {
    explicit WithData(Queue& of) : queue(of) {}
    Queue& queue;
  };
  TurnClient* client = nullptr;  // null: the queue is not polled
  uint64_t round = 0;            // the last round of polls that it was in
  WithData with_data;            // among those of its client with data that waits
};

class Queue final : public base::ListNode, private ConnectionUser, private HeartbeatOwner {
 public:
  Queue(Path& path, Worker& worker, uint16_t cid);
  ~Queue() override;
  uint16_t cid() const { return cid_; }
  /// ServerRequest::connection.
  uint64_t number() const;
  static constexpr uint32_t kAnswerSends = 4;       // work requests of one answer, at most
  static constexpr uint32_t kPartBytes = 16 << 10;  // of what is long, if sessions share the turns

  // --- from the home reactor
  /// Ends in Path::queue_accepted.
  void accept(std::unique_ptr<vhca::ConnectRequest> request, const wire::ConnRsp& answer);
  /// From here on requests are taken. Ends in Path::queue_opened.
  void open();
  /// Judges the peer's signs of life from now on.
  void watch_peer(Watching watching);
  /// Fences and drains; requests at the user lose their way back. Ends in Path::queue_quiet.
  void close();
  /// After close(): does not wait any more until nobody copies by the connection.
  void give_up_draining();
  uint64_t received_count() const { return received_.load(std::memory_order_relaxed); }
  ServedStatistics statistics() const;  // any thread

  // --- connection 0, whose reactor is the home reactor
  /// At most 64 bytes; longer ones from memory that has a key and stays.
  bool send_message(std::span<const std::byte> message, uint32_t lkey = 0);
  /// Now, or when there is a send slot.
  void send_notice();
  /// It takes turns as its session's client: once it is accepted, and again when a key has told
  /// whose session it is.
  void take_turns();

  // --- the worker's reactor
  /// Sends the answer of a request that has ended, now or when there is a send slot.
  void answer(Request& request);
  /// Takes up a request that was deferred.
  void resume(Request& request);
  /// At most so many completions. How many there were.
  size_t poll(size_t most = SIZE_MAX);
  bool dozes() const { return connection_ && connection_->dozes(); }  // Connection::dozes()
  /// Connection::falls_asleep().
  bool falls_asleep() { return connection_ && connection_->falls_asleep(); }
  bool closing() const { return closing_; }
  /// The worker's.
  QueuePlace place{*this};
  /// Whether data waits for its turn, to be copied, or to be sent and there is a send slot for it.
  bool has_part();
  /// Only if has_part(). With the last part of an answer it is sent, with that of a request the
  /// request begins.
  void do_part();
  void arm();

 private:
  template <typename Function>
  void run_here(Function function);
  base::Task<void> run_accept(std::unique_ptr<vhca::ConnectRequest> request);
  base::Task<base::Status> try_accept(vhca::ConnectRequest& request);
  std::vector<uint32_t> setup_messages() const;
  void begin_close();
  void opened();
  bool room(uint32_t sends) const;
  bool room_for_answer() const;
  void send_due_notice();
  bool bind_windows();
  const char* close_window(const RequestImm& imm);
  vhca::SendWr open_window(uint32_t chunk);
  void request_arrived(RequestImm imm);
  void take(RequestImm imm);
  void refuse(RequestImm imm, const char* wrong);
  const char* check_request(const RequestImm& imm) const;
  const char* take_chunk(Request& request);
  const char* take_request(Request& request, const RequestImm& imm);
  const char* defer(Request& request, const RequestImm& imm);
  const char* take_sequenced(Request& request, const wire::ParsedRequest& parsed);
  bool mutant(const char* name) const;
  const char* take_again(Request& request, const wire::ParsedRequest& parsed);
  static bool is_done_again(const Request& request);
  void arrive(Request& request, const wire::ParsedRequest& parsed);
  bool copies_data(const Request& request, const wire::ParsedRequest& parsed);
  void copy(uint32_t chunk, size_t from, size_t bytes);
  void copy_part(Request& request);
  void arrived(Request& request, const wire::ParsedRequest& parsed);
  void begin(Request& request, const wire::ParsedRequest& parsed);
  void give_to_user(Request& request);
  std::span<std::byte> data_of(const Request& request, const wire::ParsedRequest& parsed);
  bool waits_for_turn(const Request& request) const;
  vhca::Sge data_to_send(const Request& request) const;
  void send_part(Request& request);
  void send_waiting(Request& request);
  void send_answer(Request& request);
  void count(const Request& request);
  static void fill_slot(const Request& request, wire::AnswerSlot& slot);
  void forget_requests();
  void report_quiet();
  void keep_long(Request& request);
  Request& let_long_go();
  void violation(const char* reason, std::string detail);

  void received_imm(Connection& connection, uint32_t imm, uint32_t bytes) override;
  void received_message(Connection& connection, std::span<const std::byte> message) override;
  void local_done(Connection& connection) override;
  void woken(Connection& connection) override;
  void failed(Connection& connection, base::Error why) override;
  Heartbeat::Signs listen() override;
  Traffic traffic() const override;
  uint64_t heard_ns() const override { return connection_->heard_ns(); }
  void send_heartbeat() override;
  void peer_silent(uint64_t silent_ns) override;

  Path& path_;
  Session& session_;
  Worker& worker_;
  const uint16_t cid_;
  std::atomic<uint64_t> received_{0};
  wire::ConnRsp answer_;
  std::shared_ptr<void> channel_;  // the worker's, in which the connection's CQ is
  std::unique_ptr<Connection> connection_;
  bool accepting_ = false;
  bool open_ = false;     // requests are taken
  bool closing_ = false;  // nothing is sent any more
  bool quiet_ = false;
  bool given_up_ = false;  // to drain
  Watching watching_ = Watching::kAlways;
  bool notice_due_ = false;  // for want of a send slot
  HeartbeatDriver heartbeat_;
  // With windows (windows.cc):
  uint32_t reserve_ = 0;                  // send slots for LOCAL_INVs, one for each chunk
  uint32_t binds_due_ = 0;                // before the queue is open
  base::IntrusiveList<Window> leaving_;   // LOCAL_INV is posted
  base::IntrusiveList<Request> running_;  // at the user
  base::IntrusiveList<Request> waiting_;  // answered, without a send slot yet
  base::IntrusiveList<Request> long_;     // their data waits for its turn, to be copied or sent
  ServedStatistics served_;               // single_writer.h; on lines that only this thread writes
  std::array<std::byte, wire::kUserHeaderBytesMax> arriving_{};  // a user header that is judged
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
  base::Task<void> accept_task_;  // last: goes first
};

}  // namespace braid::trs::server
