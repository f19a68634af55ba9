// Heartbeat: is the peer's thread behind a connection alive? The judgement (Heartbeat, pure) and
// what drives it (HeartbeatDriver, a timer on the connection's reactor). Both sides run one for
// each connection, towards a kernel peer one for connection 0 only; where one thread at each side
// has all connections of a path, and they are lost together, connection 0's speaks for those that
// are idle (docs/trs.md).
//
// Anything received from the peer is a sign of life, so a busy connection sends no heartbeats. A
// check in which nothing new had come is a miss; the first miss asks (HB_MSG) and each further one
// only counts, since the connection is reliable and one question under way is enough. Part of a
// long message is a sign of life too. Who hears much and has nothing to say sends a heartbeat at
// each other check: on a slow link the peer's question waits behind all that it has sent, and it
// has to hear of us. Detection takes at most interval * (missed_max + 1), behind the interval
// between seldom checks, and never less than two checks that are apart in time.
//
// A connection by which nothing but heartbeats goes is checked seldom, until it is asked to hurry
// or a check is missed: a thousand sessions that do nothing must not cost those that work. And who
// waits for an answer and hears nothing for some milliseconds asks at once, before any check: an
// adapter whose peer has acknowledged all finds a loss only by what is sent.
#pragma once

#include <cstdint>
#include <optional>

#include "base/reactor.h"
#include "trs/client.h"

namespace braid::trs {

/// Of whose signs of life by one connection the judge makes up his mind, and when.
enum class Watching : uint8_t {
  kAlways,     // of this connection's
  kWhileBusy,  // of this connection's, while something is under way by it; else another's speak for
               // it, if a device loses them together
  kWholePath,  // of those by any connection of the path
};

/// What goes by a connection now, as far as heartbeats care.
enum class Traffic : uint8_t {
  kNone,     // nothing, and another connection's heartbeat shows of this one, too, that it is alive
  kIdle,     // nothing but heartbeats for Heartbeat::kIdleAfterNs, and nothing is under way, by a
             // wire that is not lost but with the peer's process
  kSome,     // nothing that the peer owes us
  kAwaited,  // the peer owes an answer
};

class Heartbeat {
 public:
  static constexpr uint64_t kIdleAfterNs = 500 * base::kMillisecond;
  enum class Verdict : uint8_t { kAlive, kAsk, kSilent };
  /// Counts since ever.
  struct Signs {
    uint64_t received = 0;  // messages of the peer
    uint64_t bytes = 0;     // of the peer's messages that are not complete, if the device can tell
    uint64_t sent = 0;      // messages of ours
  };

  Heartbeat(const HeartbeatOptions& options, uint64_t now_ns)
      : options_(options), last_check_ns_(now_ns) {}

  /// One check. `lateness_ns` is how late this reactor itself was: if it was, the peer's answer may
  /// lie unseen, and the check is void.
  Verdict check(uint64_t now_ns, const Signs& signs, uint64_t lateness_ns);
  /// In place of a check: the next one begins anew.
  void rest(uint64_t now_ns);
  /// Between checks, while an answer is awaited. True: ask, as nothing has come since the look or
  /// check before. Once only between two checks: a slow disk is not asked all the time.
  bool look(const Signs& signs);
  bool looks() const { return !asked_; }
  unsigned missed() const { return missed_; }

 private:
  const HeartbeatOptions options_;
  uint64_t last_check_ns_;
  Signs last_;
  unsigned missed_ = 0;
  uint64_t seen_ = 0;   // of the peer, at the last look or check
  bool asked_ = false;  // by a look
};

/// What a heartbeat needs of its connection. Nothing here stops the driver, but peer_silent() may.
class HeartbeatOwner {
 public:
  virtual ~HeartbeatOwner() = default;
  /// Takes what has arrived, and counts.
  virtual Heartbeat::Signs listen() = 0;
  virtual Traffic traffic() const = 0;
  /// When the peer was heard last, if traffic() is kIdle.
  virtual uint64_t heard_ns() const = 0;
  virtual void send_heartbeat() = 0;
  virtual void peer_silent(uint64_t silent_ns) = 0;
};

class HeartbeatDriver {
 public:
  HeartbeatDriver(base::Reactor& reactor, const HeartbeatOptions& options, HeartbeatOwner& owner)
      : reactor_(reactor), options_(options), owner_(owner), timer_(&tick, this) {}
  void start();
  void stop();
  /// Something begins that must not wait for a check that is seldom.
  void hurry() {
    if (seldom_) begin_checks();
  }
  /// How long a peer that owes an answer is silent before it is asked: one to two of these.
  static constexpr uint64_t kLookNs = 4 * base::kMillisecond;
  /// Intervals between two checks where nothing but heartbeats goes.
  static constexpr uint64_t kSeldom = 20;

 private:
  static void tick(base::Timer& timer);
  void begin_checks();
  void check(uint64_t now_ns, uint64_t late_ns);
  void conclude(Heartbeat::Verdict verdict);
  void schedule(uint64_t now_ns, bool looks);
  base::Reactor& reactor_;
  const HeartbeatOptions options_;
  HeartbeatOwner& owner_;
  base::Timer timer_;
  std::optional<Heartbeat> heartbeat_;
  uint64_t check_ns_ = 0;  // when the next one is due; before it there may be looks
  bool seldom_ = false;    // that is more than an interval behind the one before
};

}  // namespace braid::trs
