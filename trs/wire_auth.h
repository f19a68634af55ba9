// The messages by which the ends of a path prove their key (docs/authentication.md): SENDs on
// connection 0 between its connect and the connects of the others, in this order. Rules as in
// wire.h.
#pragma once

#include "trs/wire.h"

namespace braid::trs::wire {

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;
using Nonce = std::array<uint8_t, kNonceBytes>;
using Proof = std::array<uint8_t, kProofBytes>;

inline constexpr uint16_t kHmacSha256 = 1;  // AuthBegin::algorithm

/// From the client.
struct AuthBegin {
  base::le16 type = uint16_t{34};
  base::le16 algorithm = kHmacSha256;
  Nonce nonce{};
  std::array<char, 64> key_name{};  // ends with NUL, zeros behind
};
static_assert(sizeof(AuthBegin) == 100 && kIsWireStruct<AuthBegin>);
static_assert(offsetof(AuthBegin, nonce) == 4 && offsetof(AuthBegin, key_name) == 36);

/// From the server.
struct AuthChallenge {
  base::le16 type = uint16_t{35};
  std::array<uint8_t, 2> reserved{};
  Nonce nonce{};
};
static_assert(sizeof(AuthChallenge) == 36 && kIsWireStruct<AuthChallenge>);
static_assert(offsetof(AuthChallenge, nonce) == 4);

/// From the client.
struct AuthProof {
  base::le16 type = uint16_t{36};
  std::array<uint8_t, 2> reserved{};
  Proof proof{};
};
static_assert(sizeof(AuthProof) == 36 && kIsWireStruct<AuthProof>);
static_assert(offsetof(AuthProof, proof) == 4);

/// From the server.
struct AuthResult {
  base::le16 type = uint16_t{37};
  base::le16 error;  // 0, or a negative errno as in ConnRsp; then the proof is zero
  Proof proof{};
};
static_assert(sizeof(AuthResult) == 36 && kIsWireStruct<AuthResult>);
static_assert(offsetof(AuthResult, error) == 2 && offsetof(AuthResult, proof) == 4);

/// The name in it is one (check_key_name).
base::Result<AuthBegin> parse_auth_begin(std::span<const std::byte> message);
base::Result<AuthChallenge> parse_auth_challenge(std::span<const std::byte> message);
base::Result<AuthProof> parse_auth_proof(std::span<const std::byte> message);
base::Result<AuthResult> parse_auth_result(std::span<const std::byte> message);

/// What authenticated peers send in the info exchange has a proof behind it.
inline constexpr size_t kProvenInfoReqBytes = sizeof(InfoReq) + kProofBytes;

}  // namespace braid::trs::wire
