// SimFabric: the network of a simulated world, one level below vhca: ports with IP addresses, and
// reliable ordered channels between processes that carry opaque messages.
//
// A channel is what the hardware under one RC queue pair does. Every message is a *request* that
// the far end answers at once, in order and exactly once, at delivery time and without a turn of
// any reactor, as a NIC does: a stopped (SIGSTOP) process still answers, a killed one does not.
// Both ends may send requests; the two directions are independent. What is lost on the way,
// request or answer, is sent again each `ack_timeout_ns`; when the oldest request has had no answer
// after (retry_count + 1) attempts, the channel is broken at that end: it may or may not have
// been executed.
//
//   requester                     responder
//   send(m) ------ m -----------> request(m, answer)     m lost: again after ack_timeout_ns
//   answered(a) <----- a -------- filled in by request() a lost: m again; the responder's end knows
//                                                        the duplicate and repeats the same answer
//
// Closing a channel, or the death of a process on a living machine, is told to the peer if the way
// is open (as the kernel's connection manager does); a machine that loses power tells nobody.
//
// Threads: the world's only one. A handler is never called inside send(), connect() or a
// constructor, and never for a dead process. A handler may do anything, also destroy its channel.
// It runs outside every reactor's turn: after giving a reactor something to do (a timer, a task, a
// Signal) it must wake() it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/host.h"
#include "base/result.h"

namespace braid::base::sim {

class SimHost;
class SimMachine;
class SimWorld;

/// Where a process listens. The IP is compared as text; "0.0.0.0" and "::" listen on all ports of
/// the machine.
struct FabricAddress {
  std::string ip;
  uint16_t port = 0;
};

/// How long a channel's end tries, and how often. As of an RC queue pair each attempt waits for
/// ack_timeout_ns; total: ack_timeout_ns * (retry_count + 1). As of TCP, each waits for twice the
/// time of the one before, and the end comes after give_up_ns, whatever the count.
struct RetryBudget {
  uint64_t ack_timeout_ns = 4096ull << 12;  // 4.096 us * 2^n, n = 12
  unsigned retry_count = 6;
  uint64_t doubled_up_to_ns = 0;  // TCP: the longest wait; 0: all are equal
  uint64_t give_up_ns = kNever;   // TCP: from the sending of the oldest
};

/// What happens to one end of a channel.
class ChannelHandler {
 public:
  virtual ~ChannelHandler() = default;
  /// A request of the peer: exactly once, in the order sent. Fill `answer` (empty at the call).
  virtual void request(std::span<const std::byte> message, std::vector<std::byte>& answer) = 0;
  /// The answer to the oldest of our requests that had none yet.
  virtual void answered(std::span<const std::byte> answer) = 0;
  /// Nothing more comes and nothing more is carried. kTimedOut: the retry budget is used up;
  /// kDisconnected: the peer closed or its process died; kRefused: nobody listens there. Once.
  virtual void broken(Errc why) = 0;
};

/// One end of a channel. Destroying it closes.
class Channel {
 public:
  virtual ~Channel() = default;
  /// An empty message with room for so many bytes, for send() or as an answer: where many are
  /// large, what others have left.
  virtual std::vector<std::byte> room(size_t bytes) = 0;
  /// Takes a request. Nothing happens on a broken channel. Any number may be under way.
  virtual void send(std::vector<std::byte> message) = 0;
  /// The handler must outlive the channel or be replaced before it goes. Requests that arrive
  /// while there is none (null) wait at the peer, and count against its retry budget.
  virtual void set_handler(ChannelHandler* handler) = 0;
  virtual void set_retry_budget(RetryBudget budget) = 0;
  virtual bool broken() const = 0;
  /// By a fault the device has no receive for what the peer sends now. Counted when true.
  virtual bool receive_missing() = 0;
  virtual FabricAddress local() const = 0;
  virtual FabricAddress peer() const = 0;
  /// For people: address, machine and process of the peer.
  virtual std::string peer_text() const = 0;
};

/// Gets the connections that arrive for a listener.
class IncomingHandler {
 public:
  virtual ~IncomingHandler() = default;
  /// A new channel and the first message of its initiator, who gets no answer to that one: say yes
  /// or no by a request in the other direction. Set the channel's handler before returning, or
  /// later.
  virtual void incoming(std::unique_ptr<Channel> channel, std::span<const std::byte> message) = 0;
};

/// Listens until destroyed.
class FabricListener {
 public:
  virtual ~FabricListener() = default;
  virtual FabricAddress address() const = 0;  // with the port that was chosen if 0 was asked
};

/// The faults, by kind, and how often each had an effect on a message.
struct FabricFaults {
  uint64_t port_down = 0;           // lost at a port that was down, or at a machine without power
  uint64_t black_hole_one_way = 0;  // lost in a direction that was cut alone
  uint64_t black_hole_both = 0;     // lost while both directions were cut
  uint64_t lost_answer = 0;         // the request was executed, its answer was lost
  uint64_t delayed = 0;             // held up by a delay spike
  uint64_t held = 0;                // arrived late, by set_held_until
  uint64_t receive_missing = 0;     // told that no receive is there
  uint64_t to_stopped_process = 0;  // answered by the NIC of a stopped process
  uint64_t retry_exceeded = 0;      // ends of channels that gave up
};

class SimFabric {
 public:
  virtual ~SimFabric() = default;

  // --- for devices (vhca/soft/sim)
  /// kExists: the address is taken; kNotFound: no such port on the machine; kDead.
  virtual Result<std::unique_ptr<FabricListener>> listen(SimHost& process,
                                                         const FabricAddress& address,
                                                         IncomingHandler& handler) = 0;
  /// Starts a channel from the machine's port `local_ip` (empty: its first port). `first_message`
  /// goes to the listener's IncomingHandler; failure comes as ChannelHandler::broken(). The channel
  /// may carry requests at once.
  virtual Result<std::unique_ptr<Channel>> connect(SimHost& process, const std::string& local_ip,
                                                   const FabricAddress& peer, RetryBudget budget,
                                                   ChannelHandler& handler,
                                                   std::vector<std::byte> first_message) = 0;
  /// The ports of a process's machine, in the order they were added.
  virtual std::vector<std::string> ports_of(const SimHost& process) const = 0;
  virtual bool port_up(const std::string& ip) const = 0;
  /// Calls back when the port goes down or comes up, for as long as what is given back is kept.
  virtual std::shared_ptr<void> watch_port(const std::string& ip,
                                           std::function<void(bool up)> callback) = 0;

  // --- for scenarios: topology and faults. Unknown addresses are a bug of the scenario (asserted).
  virtual void add_port(SimMachine& machine, const std::string& ip) = 0;
  virtual void set_port_up(const std::string& ip, bool up) = 0;
  /// Nothing sent from one port reaches the other any more; the other direction is untouched.
  virtual void set_black_hole(const std::string& from_ip, const std::string& to_ip, bool on) = 0;
  /// Answers to requests that went from -> to are lost on their way back; requests arrive.
  virtual void set_lose_answers(const std::string& from_ip, const std::string& to_ip, bool on) = 0;
  /// Every message from -> to takes up to this much longer (seeded). Order holds in a channel.
  virtual void set_extra_delay(const std::string& from_ip, const std::string& to_ip,
                               uint64_t max_ns) = 0;
  /// All that goes from -> to shares so much (0: as ever): each message waits until those that were
  /// sent before, in whatever channel, are through.
  virtual void set_rate(const std::string& from_ip, const std::string& to_ip,
                        uint64_t bytes_per_ms) = 0;
  /// What is sent from -> to from now on arrives after `until_ns` (0: as ever), behind it what
  /// follows in the same channel: its sender may have given the channel up long before.
  virtual void set_held_until(const std::string& from_ip, const std::string& to_ip,
                              uint64_t until_ns) = 0;
  /// What goes from -> to and needs a receive is told that there is none (RNR), though there is.
  virtual void set_receive_missing(const std::string& from_ip, const std::string& to_ip,
                                   bool on) = 0;
  virtual void heal_all() = 0;  // ends every fault above; what is held comes when it was to come
  virtual const FabricFaults& faults() const = 0;
  /// Messages that faults of this way lost, held up or left without an answer.
  virtual uint64_t path_hits(const std::string& from_ip, const std::string& to_ip) = 0;
  /// Messages lost because this port was down.
  virtual uint64_t port_hits(const std::string& ip) const = 0;
  /// When a process on port `at_ip` last got a request from `from_ip`, by a channel that it still
  /// has; 0: never. Repetitions and answers do not count: hardware sends them for a stopped
  /// process, too.
  virtual uint64_t last_heard_ns(const std::string& at_ip, const std::string& from_ip) const = 0;
  /// Ends of channels that processes hold and that are not broken, in words.
  virtual std::vector<std::string> open_ends() const = 0;
  /// Called when a new channel has reached a listener, to place a fault into what follows.
  virtual void set_connect_hook(std::function<void(const FabricAddress& listener)> hook) = 0;
};

}  // namespace braid::base::sim
