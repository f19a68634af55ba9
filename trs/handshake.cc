#include "trs/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace braid::trs {

using base::Errc;
using base::make_error;
using base::Result;

wire::Proof hmac(std::span<const uint8_t> key,
                 std::initializer_list<std::span<const std::byte>> pieces) {
  std::vector<std::byte> all;
  for (const auto& piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
  wire::Proof proof{};
  unsigned length = 0;
  const unsigned char* const made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(all.data()), all.size(), proof.data(), &length);
  BRAID_ASSERT(made != nullptr && length == proof.size());
  return proof;
}

bool same_bytes(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

namespace {

/// With its NUL, so that no label is the beginning of another.
template <size_t n>
std::span<const std::byte> label(const char (&text)[n]) {
  return std::as_bytes(std::span<const char, n>(text));
}

/// Without the bytes that the connection manager may change on the way.
std::span<const std::byte> said(const wire::ConnReq& request) {
  return wire::bytes_of(request).subspan(sizeof(request.owned_by_cm));
}

wire::Uuid shortened(const wire::Proof& proof) {
  wire::Uuid tag;
  std::copy_n(proof.begin(), tag.bytes.size(), tag.bytes.begin());
  return tag;
}

}  // namespace

PathSecret::PathSecret(const Key& key, const wire::ConnReq& request, const wire::ConnRsp& granted,
                       const wire::AuthBegin& begin, const wire::AuthChallenge& challenge)
    : bytes_(hmac(key.secret(), {label("Braid TRS 1 path"), said(request), wire::bytes_of(granted),
                                 wire::bytes_of(begin), wire::bytes_of(challenge)})) {}

PathSecret::~PathSecret() {
  OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

wire::Proof PathSecret::of_client() const {
  return hmac(bytes_, {label("client")});
}

wire::Proof PathSecret::of_server() const {
  return hmac(bytes_, {label("server")});
}

wire::Uuid PathSecret::join(const wire::ConnReq& request) const {
  return shortened(hmac(bytes_, {label("join"), said(request)}));
}

wire::Uuid PathSecret::joined(const wire::ConnReq& request, const wire::ConnRsp& granted) const {
  return shortened(hmac(bytes_, {label("joined"), said(request), wire::bytes_of(granted)}));
}

wire::Proof PathSecret::info(const wire::InfoReq& request) const {
  return hmac(bytes_, {label("info"), wire::bytes_of(request)});
}

wire::Proof PathSecret::told(const wire::InfoReq& request,
                             std::span<const std::byte> answer) const {
  return hmac(bytes_, {label("told"), wire::bytes_of(request), answer});
}

// --- client

ClientHandshake::ClientHandshake(KeyPtr key, const wire::ConnReq& request,
                                 const wire::ConnRsp& granted, const wire::Nonce& nonce)
    : key_(std::move(key)), request_(request), granted_(granted) {
  begin_.nonce = nonce;
  const std::string& name = key_->name();
  std::copy(name.begin(), name.end(), begin_.key_name.begin());
}

Result<std::optional<wire::AuthProof>> ClientHandshake::received(
    std::span<const std::byte> message) {
  const State state = std::exchange(state_, State::kFailed);
  if (state == State::kBegun) {
    BRAID_TRY(const wire::AuthChallenge challenge, wire::parse_auth_challenge(message));
    secret_.emplace(*key_, request_, granted_, begin_, challenge);
    state_ = State::kChallenged;
    wire::AuthProof proof;
    proof.proof = secret_->of_client();
    return std::optional(proof);
  }
  if (state != State::kChallenged) {
    return make_error(Errc::kProtocol, "a message of the proof that is not due");
  }
  BRAID_TRY(const wire::AuthResult result, wire::parse_auth_result(message));
  if (result.error != 0) {
    rejected_errno_ = -static_cast<int16_t>(uint16_t{result.error});
    return make_error(Errc::kRefused, "the server does not let us in (errno {})", rejected_errno_);
  }
  if (!same_bytes(result.proof, secret_->of_server())) {
    return make_error(Errc::kPermission,
                      "the server has not proved that it has key \"{}\": it is another server, or "
                      "somebody stands between",
                      key_->name());
  }
  state_ = State::kProven;
  return std::optional<wire::AuthProof>();
}

// --- server

ServerHandshake::ServerHandshake(std::shared_ptr<const KeyRing> keys, const wire::ConnReq& request,
                                 const wire::ConnRsp& granted, const wire::Nonce& nonce)
    : keys_(std::move(keys)), request_(request), granted_(granted) {
  challenge_.nonce = nonce;
}

ServerHandshake::Step ServerHandshake::received(std::span<const std::byte> message) {
  const State state = std::exchange(state_, State::kOver);
  if (state == State::kWaiting) {
    auto begin = wire::parse_auth_begin(message);
    if (!begin.ok()) return {Step::Kind::kBreach, nullptr, begin.error().message()};
    begin_ = *begin;
    key_name_ = begin_.key_name.data();
    key_ = keys_->find(key_name_);
    state_ = State::kChallenged;  // for an unknown name too: who asks is not told which there are
    return {Step::Kind::kChallenge, nullptr, {}};
  }
  if (state != State::kChallenged) {
    return {Step::Kind::kBreach, nullptr, "a message of the proof that is not due"};
  }
  auto proof = wire::parse_auth_proof(message);
  if (!proof.ok()) return {Step::Kind::kBreach, nullptr, proof.error().message()};
  return check(*proof);
}

ServerHandshake::Step ServerHandshake::check(const wire::AuthProof& proof) {
  if (key_ == nullptr) {
    return {Step::Kind::kRefused, refusal::kUnknownKey,
            fmt::format("no key by the name \"{}\" is known here", key_name_)};
  }
  PathSecret secret(*key_, request_, granted_, begin_, challenge_);
  if (!same_bytes(proof.proof, secret.of_client())) {
    return {Step::Kind::kRefused, refusal::kWrongKey,
            fmt::format("it has not proved to have key \"{}\": it has another by this name",
                        key_name_)};
  }
  secret_ = secret;
  state_ = State::kProven;
  return {Step::Kind::kProven, nullptr, {}};
}

wire::AuthResult ServerHandshake::welcome() const {
  wire::AuthResult result;
  result.proof = secret_->of_server();
  return result;
}

wire::AuthResult ServerHandshake::refuse(int sys_errno) {
  wire::AuthResult result;
  result.error = static_cast<uint16_t>(-sys_errno);
  return result;
}

}  // namespace braid::trs
