#include "trs/path_state.h"

namespace braid::trs {

std::string_view to_string(ClientPathState state) {
  switch (state) {
    case ClientPathState::kConnecting:
      return "connecting";
    case ClientPathState::kConnected:
      return "connected";
    case ClientPathState::kConnectingErr:
      return "connecting-error";
    case ClientPathState::kReconnecting:
      return "reconnecting";
    case ClientPathState::kClosing:
      return "closing";
    case ClientPathState::kClosed:
      return "closed";
    case ClientPathState::kDead:
      return "dead";
  }
  return "unknown";
}

std::string_view to_string(ServerPathState state) {
  switch (state) {
    case ServerPathState::kConnecting:
      return "connecting";
    case ServerPathState::kConnected:
      return "connected";
    case ServerPathState::kClosing:
      return "closing";
    case ServerPathState::kClosed:
      return "closed";
  }
  return "unknown";
}

}  // namespace braid::trs
