// Handshake: how the two ends of a path prove to each other that they hold the same key, and what
// they share from then on (docs/authentication.md). Pure: messages in, messages out; nonces are
// given. Who uses it carries the messages, and ends the path when a step says so.
//
// Threads: any, one at a time. Allocates; calls OpenSSL. Control path only.
#pragma once

#include <optional>
#include <string>

#include "trs/keys.h"
#include "trs/wire_auth.h"

namespace braid::trs {

/// HMAC-SHA256 over the pieces, one behind the other.
wire::Proof hmac(std::span<const uint8_t> key,
                 std::initializer_list<std::span<const std::byte>> pieces);
/// In constant time.
bool same_bytes(std::span<const uint8_t> a, std::span<const uint8_t> b);

/// What both ends of an authenticated path know, and nobody else. Wiped when it goes.
class PathSecret {
 public:
  PathSecret(const Key& key, const wire::ConnReq& request, const wire::ConnRsp& granted,
             const wire::AuthBegin& begin, const wire::AuthChallenge& challenge);
  ~PathSecret();
  PathSecret(const PathSecret&) = default;
  PathSecret& operator=(const PathSecret&) = default;

  wire::Proof of_client() const;
  wire::Proof of_server() const;
  /// Of a further connection: `request` as it would be without a proof. Goes in the place of its
  /// sess_uuid.
  wire::Uuid join(const wire::ConnReq& request) const;
  /// The answer to it: goes into ConnRsp::braid_proof, which is zero in `granted`.
  wire::Uuid joined(const wire::ConnReq& request, const wire::ConnRsp& granted) const;
  wire::Proof info(const wire::InfoReq& request) const;
  wire::Proof told(const wire::InfoReq& request, std::span<const std::byte> answer) const;

 private:
  wire::Proof bytes_;
};

class ClientHandshake {
 public:
  /// `request` and `granted` as they were on the wire of connection 0.
  ClientHandshake(KeyPtr key, const wire::ConnReq& request, const wire::ConnRsp& granted,
                  const wire::Nonce& nonce);
  /// The first message.
  const wire::AuthBegin& begin() const { return begin_; }
  /// Takes what the server sent. A message to send; nothing: both have proved. kProtocol: no such
  /// message is due. kPermission: the server has not proved that it has the key. kRefused: it says
  /// so, with rejected_errno().
  base::Result<std::optional<wire::AuthProof>> received(std::span<const std::byte> message);
  bool proven() const { return state_ == State::kProven; }
  int rejected_errno() const { return rejected_errno_; }
  /// Only once proven().
  const PathSecret& secret() const { return *secret_; }

 private:
  enum class State : uint8_t { kBegun, kChallenged, kProven, kFailed };
  State state_ = State::kBegun;
  const KeyPtr key_;
  const wire::ConnReq request_;
  const wire::ConnRsp granted_;
  wire::AuthBegin begin_;
  int rejected_errno_ = 0;
  std::optional<PathSecret> secret_;
};

/// Why a server does not let somebody in; the words are fixed, and counted by.
namespace refusal {
inline constexpr const char* kNoKey = "no key shown";
inline constexpr const char* kUnknownKey = "key not known";
inline constexpr const char* kWrongKey = "wrong key";
inline constexpr const char* kOthersSession = "session of another key";
inline constexpr const char* kNoProofInTime = "no proof in time";
inline constexpr const char* kTooManyUnproven = "too many unproven paths";
inline constexpr const char* kUnprovenConnection = "connection without proof";
inline constexpr const char* kRevoked = "key revoked";
}  // namespace refusal

class ServerHandshake {
 public:
  /// `granted` as it is sent. The ring may change its mind meanwhile: this one is asked.
  ServerHandshake(std::shared_ptr<const KeyRing> keys, const wire::ConnReq& request,
                  const wire::ConnRsp& granted, const wire::Nonce& nonce);

  struct Step {
    enum class Kind : uint8_t {
      kChallenge,  // send challenge()
      kProven,     // the client has: send welcome(), if it may come in
      kRefused,    // send refuse(EKEYREJECTED); `reason` is one of `refusal`
      kBreach,     // no such message is due: `detail`
    } kind = Kind::kBreach;
    const char* reason = nullptr;
    std::string detail;
  };
  Step received(std::span<const std::byte> message);
  const wire::AuthChallenge& challenge() const { return challenge_; }
  /// Only once it has proved.
  wire::AuthResult welcome() const;
  static wire::AuthResult refuse(int sys_errno);
  /// As the client says, from its first message on; proved only once kProven was told.
  const std::string& key_name() const { return key_name_; }
  const KeyPtr& key() const { return key_; }
  const PathSecret& secret() const { return *secret_; }

 private:
  enum class State : uint8_t { kWaiting, kChallenged, kProven, kOver };
  Step check(const wire::AuthProof& proof);
  State state_ = State::kWaiting;
  const std::shared_ptr<const KeyRing> keys_;
  const wire::ConnReq request_;
  const wire::ConnRsp granted_;
  wire::AuthBegin begin_;
  wire::AuthChallenge challenge_;
  std::string key_name_;
  KeyPtr key_;
  std::optional<PathSecret> secret_;
};

}  // namespace braid::trs
