#include "trs/wire_auth.h"

#include <algorithm>
#include <cstring>

#include "trs/keys.h"

namespace braid::trs::wire {
namespace {

using base::Errc;
using base::make_error;

/// A message of exactly its length and type. SENDs lie in memory of our own: nobody changes them.
template <typename T>
base::Result<T> take_auth(std::span<const std::byte> bytes, std::string_view what) {
  T message;
  if (bytes.size() != sizeof(T)) {
    return make_error(Errc::kProtocol, "{} of {} bytes; it has {}", what, bytes.size(), sizeof(T));
  }
  const T right;
  std::memcpy(&message, bytes.data(), sizeof(T));
  if (message.type != right.type) {
    return make_error(Errc::kProtocol, "message of type {} where {} is due", uint16_t{message.type},
                      what);
  }
  return message;
}

template <typename Bytes>
bool all_zero(const Bytes& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](auto byte) { return byte == 0; });
}

template <typename T>
base::Result<T> take_reserved(std::span<const std::byte> bytes, std::string_view what) {
  BRAID_TRY(const T message, take_auth<T>(bytes, what));
  if (all_zero(message.reserved)) return message;
  return make_error(Errc::kProtocol, "{} with reserved bytes that are not zero", what);
}

}  // namespace

base::Result<AuthBegin> parse_auth_begin(std::span<const std::byte> message) {
  BRAID_TRY(const AuthBegin begin, take_auth<AuthBegin>(message, "the beginning of a proof"));
  if (begin.algorithm != kHmacSha256) {
    return make_error(Errc::kProtocol, "a proof by algorithm {}; {} is known",
                      uint16_t{begin.algorithm}, kHmacSha256);
  }
  const auto& text = begin.key_name;
  const auto end = std::find(text.begin(), text.end(), '\0');
  const bool ends =
      end != text.end() && std::all_of(end, text.end(), [](char c) { return c == 0; });
  if (!ends || !check_key_name(std::string_view(text.begin(), end)).ok()) {
    return make_error(Errc::kProtocol, "the beginning of a proof with a key name that is none");
  }
  return begin;
}

base::Result<AuthChallenge> parse_auth_challenge(std::span<const std::byte> message) {
  return take_reserved<AuthChallenge>(message, "a challenge");
}

base::Result<AuthProof> parse_auth_proof(std::span<const std::byte> message) {
  return take_reserved<AuthProof>(message, "a proof");
}

base::Result<AuthResult> parse_auth_result(std::span<const std::byte> message) {
  BRAID_TRY(const AuthResult result, take_auth<AuthResult>(message, "the result of a proof"));
  const int value = static_cast<int16_t>(uint16_t{result.error});
  if (value > 0 || (value < 0 && !all_zero(result.proof))) {
    return make_error(Errc::kProtocol, "the result of a proof with error {}{}", value,
                      value < 0 ? " and a proof" : "");
  }
  return result;
}

}  // namespace braid::trs::wire
