// The messages by which a key is proved, files of keys, and both ends of the proof against a peer
// that does not have the key: whatever it says, it has proved nothing. The first byte chooses.

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "tests/fuzz/reached.h"
#include "trs/handshake.h"

namespace {

namespace trs = braid::trs;
namespace wire = braid::trs::wire;

braid::fuzz::Verdicts begins("begin"), results("result"), rings("file of keys"),
    challenged("a server's challenge"), proofs_made("a client's proof");

void require(bool condition) {
  if (!condition) std::abort();
}

trs::KeyPtr key(uint8_t number) {
  const std::vector<uint8_t> secret(32, number);
  return *trs::Key::create("k", secret);
}

void fuzz_parsers(std::span<const std::byte> bytes) {
  auto begin = wire::parse_auth_begin(bytes);
  if (begins.count(begin.ok())) require(trs::check_key_name(begin->key_name.data()).ok());
  require(!wire::parse_auth_challenge(bytes).ok() || bytes.size() == sizeof(wire::AuthChallenge));
  require(!wire::parse_auth_proof(bytes).ok() || bytes.size() == sizeof(wire::AuthProof));
  auto result = wire::parse_auth_result(bytes);
  if (results.count(result.ok())) require(static_cast<int16_t>(uint16_t{result->error}) <= 0);
}

void fuzz_keys(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  auto ring = trs::parse_keys(text);
  if (!rings.count(ring.ok())) return;
  for (const std::string& name : (*ring)->names()) {
    const trs::KeyPtr found = (*ring)->find(name);
    auto again = trs::Key::parse(found->line());
    require(again.ok() && (*again)->name() == name && (*again)->same_secret(*found));
  }
}

/// Messages, each behind a byte that says how long it is.
template <typename Take>
void each_message(std::span<const std::byte> bytes, Take take) {
  while (!bytes.empty()) {
    const size_t length = std::min(std::to_integer<size_t>(bytes[0]), bytes.size() - 1);
    take(bytes.subspan(1, length));
    bytes = bytes.subspan(1 + length);
  }
}

void fuzz_server(std::span<const std::byte> bytes) {
  auto ring = std::make_shared<trs::KeyRing>();
  require(ring->add(key(1)).ok());
  trs::ServerHandshake server(ring, {}, {}, {});
  size_t challenges = 0;
  each_message(bytes, [&](std::span<const std::byte> message) {
    const auto step = server.received(message);
    require(step.kind != trs::ServerHandshake::Step::Kind::kProven);
    challenges += step.kind == trs::ServerHandshake::Step::Kind::kChallenge ? 1 : 0;
  });
  challenged.count(challenges > 0);
  require(challenges <= 1);
}

void fuzz_client(std::span<const std::byte> bytes) {
  trs::ClientHandshake client(key(1), {}, {}, {});
  size_t proofs = 0;
  each_message(bytes, [&](std::span<const std::byte> message) {
    auto next = client.received(message);
    proofs += next.ok() ? 1 : 0;
    require(!client.proven() && client.rejected_errno() >= 0);
  });
  proofs_made.count(proofs > 0);
  require(proofs <= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  if (size_bytes == 0) return 0;
  // Of the exact length, so that a read beyond it is seen.
  const std::vector<std::uint8_t> copy(data + 1, data + size_bytes);
  const auto bytes = std::as_bytes(std::span(copy));
  switch (data[0] % 4) {
    case 0:
      fuzz_parsers(bytes);
      break;
    case 1:
      fuzz_keys(bytes);
      break;
    case 2:
      fuzz_server(bytes);
      break;
    default:
      fuzz_client(bytes);
      break;
  }
  return 0;
}
