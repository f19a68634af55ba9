// The states of a path at the client and at the server, and the moves between them.
//
// Each side has one constexpr table. StateMachine is the only writer of a state: it checks the
// table, logs old, new and cause, and leaves what follows to its caller. A move that is not in the
// table is a bug of ours, never something a peer can bring about.
// Threads: the path's home reactor.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/log.h"
#include "base/result.h"

namespace braid::trs {

enum class ClientPathState : uint8_t {
  kConnecting,     // connections are made one by one, then the info exchange
  kConnected,      // requests flow
  kConnectingErr,  // an attempt failed; what it had built is being fenced
  kReconnecting,   // fenced; waits for the next attempt
  kClosing,        // close() was called; connections are being fenced
  kClosed,         // nothing is left of the path
  kDead,           // removed; no way back
};
enum class ServerPathState : uint8_t {
  kConnecting,  // connections come in, then the info request
  kConnected,   // requests flow
  kClosing,     // its connections are being drained
  kClosed,      // no connection left; requests may still be at the user
};
std::string_view to_string(ClientPathState state);
std::string_view to_string(ServerPathState state);

template <typename State>
struct Move {
  State from;
  State to;
  std::string_view cause;
};

inline constexpr Move<ClientPathState> kClientPathMoves[] = {
    {ClientPathState::kConnecting, ClientPathState::kConnected, "info exchange done"},
    {ClientPathState::kConnecting, ClientPathState::kConnectingErr, "attempt failed"},
    {ClientPathState::kConnecting, ClientPathState::kClosing, "close"},
    {ClientPathState::kConnected, ClientPathState::kReconnecting, "connection lost"},
    {ClientPathState::kConnected, ClientPathState::kClosing, "close"},
    {ClientPathState::kConnectingErr, ClientPathState::kReconnecting, "attempt undone"},
    {ClientPathState::kConnectingErr, ClientPathState::kClosing, "close"},
    {ClientPathState::kReconnecting, ClientPathState::kConnecting, "next attempt"},
    {ClientPathState::kReconnecting, ClientPathState::kClosing, "close"},
    {ClientPathState::kClosing, ClientPathState::kClosed, "fenced"},
    {ClientPathState::kClosed, ClientPathState::kReconnecting, "reconnect asked for"},
    {ClientPathState::kClosed, ClientPathState::kDead, "removed"},
};
inline constexpr Move<ServerPathState> kServerPathMoves[] = {
    {ServerPathState::kConnecting, ServerPathState::kConnected, "info exchange done"},
    {ServerPathState::kConnecting, ServerPathState::kClosing, "gave up before it was complete"},
    {ServerPathState::kConnected, ServerPathState::kClosing, "connection lost or replaced"},
    {ServerPathState::kClosing, ServerPathState::kClosed, "last connection drained"},
};

constexpr std::span<const Move<ClientPathState>> moves_of(ClientPathState) {
  return kClientPathMoves;
}
constexpr std::span<const Move<ServerPathState>> moves_of(ServerPathState) {
  return kServerPathMoves;
}
template <typename State>
constexpr bool may_move(State from, State to) {
  for (const auto& move : moves_of(from)) {
    if (move.from == from && move.to == to) return true;
  }
  return false;
}

template <typename State>
class StateMachine {
 public:
  StateMachine(State initial, base::Logger log) : state_(initial), log_(std::move(log)) {}
  State state() const { return state_; }
  bool is(State state) const { return state_ == state; }
  void set(State next, std::string_view cause) {
    BRAID_ASSERT(may_move(state_, next));
    log_.debug("path {} -> {}: {}", to_string(state_), to_string(next), cause);
    state_ = next;
  }

 private:
  State state_;
  base::Logger log_;
};

}  // namespace braid::trs
