// Path: its client's proof of a key, before anything else is believed.
#include <cerrno>
#include <cstring>

#include "trs/server/path.h"
#include "trs/server/server_impl.h"
#include "trs/server/session.h"

namespace braid::trs::server {

bool Path::proves_join(wire::ConnReq& request) const {
  if (!proven_ || !handshake_ || !bringing_up()) return false;
  wire::ConnReq due = request;
  due.sess_uuid = uuid_;
  const wire::Uuid proof = handshake_->secret().join(due);
  if (!same_bytes(proof.bytes, request.sess_uuid.bytes)) return false;
  request = due;
  return true;
}

void Path::authenticate(std::span<const std::byte> message) {
  if (refused_) return;
  const ServerHandshake::Step step = handshake_->received(message);
  switch (step.kind) {
    case ServerHandshake::Step::Kind::kChallenge:
      if (!queues_[0]->send_message(wire::bytes_of(handshake_->challenge()))) {
        close("connection 0 was lost in the proof of the key");
      }
      return;
    case ServerHandshake::Step::Kind::kProven:
      return proved();
    case ServerHandshake::Step::Kind::kRefused:
      session_.server().count_refused_key(step.reason);
      return refuse(EKEYREJECTED, step.detail);
    case ServerHandshake::Step::Kind::kBreach:
      return breach("malformed proof of a key", step.detail);
  }
}

/// Whether there is room for it, and what it replaces, is decided only now.
void Path::proved() {
  if (const int sys_errno = session_.server().admit_proven(*this, handshake_->key())) {
    return refuse(sys_errno, fmt::format("key \"{}\" is right, but not its connect request",
                                         handshake_->key_name()));
  }
  proven_ = true;
  queues_[0]->take_turns();
  home_.schedule_after(half_open_timer_, kHalfOpenNs);
  if (!queues_[0]->send_message(wire::bytes_of(handshake_->welcome()))) {
    close("connection 0 was lost in the proof of the key");
  }
}

/// The client is to read why before the connection goes.
void Path::refuse(int sys_errno, const std::string& why) {
  refused_ = true;
  session_.server().complain(peer_text_, fmt::format("{} refused: {}", peer_text_, why));
  home_.schedule_after(half_open_timer_, kRefusedNs);
  if (!queues_[0]->send_message(wire::bytes_of(ServerHandshake::refuse(sys_errno)))) {
    close("it was refused");
  }
}

void Path::end_unproven(const char* reason, const std::string& why) {
  if (!live() || proven_) return;
  if (!refused_) {
    session_.server().count_refused_key(reason);
    session_.server().complain(peer_text_, fmt::format("{} refused: {}", peer_text_, why));
  }
  close(why);
}

bool Path::check_info_proof(std::span<const std::byte> message) {
  if (message.size() != wire::kProvenInfoReqBytes) return false;
  wire::InfoReq request;
  wire::Proof proof;
  std::memcpy(&request, message.data(), sizeof(request));
  std::memcpy(proof.data(), message.data() + sizeof(request), proof.size());
  if (!same_bytes(proof, handshake_->secret().info(request))) return false;
  info_ = request;
  return true;
}

}  // namespace braid::trs::server
