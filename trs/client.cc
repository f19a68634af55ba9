#include "trs/client.h"

namespace braid::trs {

Permit& Permit::operator=(Permit&& other) noexcept {
  if (this != &other) {
    release();
    queue_ = std::exchange(other.queue_, nullptr);
    index_ = other.index_;
  }
  return *this;
}

void Permit::release() {
  if (ClientQueue* const queue = std::exchange(queue_, nullptr)) queue->give_back(index_);
}

std::string_view to_string(SessionState state) {
  switch (state) {
    case SessionState::kConnecting:
      return "connecting";
    case SessionState::kConnected:
      return "connected";
    case SessionState::kReconnecting:
      return "reconnecting";
    case SessionState::kLost:
      return "lost";
    case SessionState::kClosed:
      return "closed";
  }
  return "unknown";
}

}  // namespace braid::trs
