// TcpEnd: one end of a connection: socket, stream, and who drives them when nobody polls.
//
// The QP's owner moves data in post and poll. For one that does not, the connection's reactor
// watches the socket; either the socket is watched, or the owner polls it and a timer looks whether
// it still does:
//
//   watched ── readable: run() ──> watched        nobody polls
//                             └──> polled         somebody does (stream hot), timer runs
//   polled ── silent for 50 us, arm(), or no poll between two looks of the timer ──> watched
//   watched ── what comes cannot be answered (stuck) ──> watched for room to send only
//   watched ── its budget is used up ──> not watched, until the budget's owner calls may_receive()
//
// Shared by the QP's link, the Connection and whoever is connecting; what any of them does ends it
// for all. Threads: the reactor's, but for what says otherwise. The stream is its QP's while there
// is one (under the QP's lock), then the mutex's. Order: mutex > QP's lock.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>  // lint: allow(os) only to know the own thread

#include "base/reactor.h"
#include "base/stream_socket.h"
#include "vhca/soft/tcp/stream.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft::tcp {

class TcpEnd final : public StreamEvents,
                     public PortUser,
                     public std::enable_shared_from_this<TcpEnd> {
 public:
  enum class Phase : uint8_t { kDeciding, kEstablished, kOver };

  TcpEnd(base::Host& host, base::Reactor& reactor, std::unique_ptr<base::StreamSocket> socket,
         std::shared_ptr<Activity> activity, const TcpStream::Options& options);
  ~TcpEnd() override;

  /// Gives the QP its link: to RTR, and as initiator to RTS, which the peer is told. The socket is
  /// watched from now on.
  base::Status establish(LinkEnd& qp, uint32_t peer_qp_number, const ConnectParameters& parameters,
                         bool initiator);
  /// Until the phase is not kDeciding any more.
  base::Task<bool> decided();
  /// Ends the connection: the QP is flushed, the peer told, the socket closed. Idempotent.
  void disconnect();

  Phase phase() const { return phase_; }
  base::Errc why() const { return why_; }  // once kOver
  const std::string& peer_text() const { return peer_text_; }
  /// Runs in a turn of the reactor when the peer ends it; replaces the one before.
  void on_over(std::function<void()> callback) { on_over_ = std::move(callback); }

  // --- for the QP's link, under the QP's lock; any thread
  TcpStream& stream() { return stream_; }
  void set_retries(uint64_t retry_ns);
  /// The QP, or its link, is no more. Not under the lock.
  void forget_qp();

  // --- StreamEvents; any thread
  void want_read() override { watch_later(read_); }
  void want_write() override { watch_later(write_); }
  void acknowledge_later() override;
  void ports_changed() override;
  void word_is_claimed() override;
  void may_receive() override;
  void peer_ready() override;
  void over(base::Errc why) override;

  // --- PortUser
  void port_changed() override;

 private:
  struct Direction {
    base::Watch watch;
    bool write = false;
    std::atomic<bool> wanted{false};  // is watched, or will be
    bool watched = false;
  };
  static void ready(base::Watch& watch);
  static void look(base::Timer& timer);
  static void acknowledge_due(base::Timer& timer);
  static void look_at_ports(base::Timer& timer);
  static void look_at_word(base::Timer& timer);
  void schedule_ports();
  void watch_again();
  void watch_later(Direction& direction);
  void watch_now(Direction& direction);
  void unwatch(Direction& direction);
  void run();
  void stop_polling();
  void set_phase(Phase phase);
  void end(base::Errc why);
  static base::Task<void> linger(std::shared_ptr<TcpEnd> self);
  base::Task<bool> farewell_sent();

  base::Reactor& reactor_;
  // Who is on the reactor's thread watches at once, others ask it to. In simulation there is one.
  const std::thread::id thread_ = std::this_thread::get_id();  // lint: allow(os) see above
  const std::unique_ptr<base::StreamSocket> socket_;
  const std::string peer_text_;
  Phase phase_ = Phase::kDeciding;
  base::Errc why_ = base::Errc::kOk;
  bool lingering_ = false;  // over, but for a farewell that the socket has not taken
  std::function<void()> on_over_;
  base::Signal changed_;
  Direction read_;
  Direction write_;
  base::Timer look_;
  base::Timer acknowledge_;
  base::Timer word_;       // while the stream waits for one
  uint64_t word_wait_ns_;  // of the timer
  // The stream waits for a word, and the timer runs, or a message that starts it is under way.
  std::atomic<bool> word_due_{false};
  base::Timer ports_;                   // while the stream looks at ports
  std::atomic<bool> ports_due_{false};  // a message that starts it is under way
  // Null: without faults. Shared: messages to the reactor keep an end longer than its device.
  const std::shared_ptr<Port> port_;
  uint32_t polls_at_look_ = 0;
  std::mutex mutex_;
  LinkEnd* qp_ = nullptr;  // mutex_
  TcpStream stream_;
};

}  // namespace braid::vhca::soft::tcp
