// How a person names a way to a server: addresses, sources, GIDs, ports. The first byte chooses:
// one path, one address, or a target with several. What is taken can be said again, and means what
// was typed.
#include <arpa/inet.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "reach/resolve.h"
#include "reach/target.h"
#include "tests/fuzz/reached.h"
#include "tests/fuzz/two_party.h"

namespace {

using namespace braid::reach;  // NOLINT
using braid::fuzz::require;
namespace vhca = braid::vhca;

braid::fuzz::Verdicts addresses("address"), paths("path"), targets("target");

bool has_any(const std::string& text, const char* characters) {
  return text.find_first_of(characters) != std::string::npos;
}

bool ends_once(const std::string& text) {
  return text.find('\0') == std::string::npos;
}

/// "ip" and "gid" before a colon are no hosts but say what follows.
bool reads_as_prefix(const vhca::Address& address) {
  return address.ip == "ip" || address.ip == "gid";
}

void check_address(const vhca::Address& address) {
  require(!address.ip.empty(), "there is a host");
  require(!has_any(address.ip, "[]"), "without brackets");
  require(ends_once(address.ip), "which ends where C says that it does");
  if (reads_as_prefix(address)) return;
  auto again = parse_address(address_text(address), 1);
  require(again.ok() && again->ip == address.ip && again->port == address.port,
          "an address can be said again");
}

void fuzz_address(const std::string& text) {
  auto address = parse_address(text, 7);
  auto other = parse_address(text, 8);
  require(address.ok() == other.ok(), "a port that is not said changes nothing else");
  if (!addresses.count(address.ok())) return;
  check_address(*address);
  const bool said = address->port == other->port;
  require(said || (address->port == 7 && other->port == 8), "what is not said is the default");
  require(!said || has_any(text, "0123456789"), "what is said has digits");
  if (text.starts_with("ip:")) return;
  auto spelled = parse_address("ip:" + text, 7);
  require(spelled.ok() && spelled->ip == address->ip && spelled->port == address->port,
          "\"ip:\" changes nothing");
}

/// The address that a GID is, by another way than the parser's.
void check_gid(const std::string& typed, const std::string& ip) {
  std::string text = typed.substr(4);
  if (text.starts_with('[')) text = text.substr(1, text.find(']') - 1);
  in6_addr gid{};
  require(::inet_pton(AF_INET6, text.c_str(), &gid) == 1, "a GID is 128 bits");
  require(gid.s6_addr[0] != 0xfe || (gid.s6_addr[1] & 0xc0) != 0x80, "and not of one link");
  static constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  in6_addr found{};
  if (std::memcmp(gid.s6_addr, kMapped.data(), kMapped.size()) == 0) {
    require(::inet_pton(AF_INET, ip.c_str(), &found) == 1, "one that maps IPv4 is that");
    return require(std::memcmp(&found, gid.s6_addr + 12, 4) == 0, "and no other");
  }
  require(::inet_pton(AF_INET6, ip.c_str(), &found) == 1, "any other is IPv6");
  require(std::memcmp(&found, &gid, sizeof gid) == 0, "the same");
}

void fuzz_path(const std::string& text) {
  auto path = parse_path(text);
  if (!paths.count(path.ok())) return;
  check_address(path->server);
  require(!has_any(path->server.ip, "@"), "a path has one '@' at most");
  require(path->source.empty() || is_ip(path->source), "a source is an address");
  require(ends_once(path->source), "which ends where C says that it does");
  const size_t at = text.find('@');
  require(path->source.empty() == (at == std::string::npos), "and there if it was typed");
  const std::string server = at == std::string::npos ? text : text.substr(at + 1);
  if (server.starts_with("gid:")) check_gid(server, path->server.ip);
  if (at != std::string::npos && text.starts_with("gid:"))
    check_gid(text.substr(0, at), path->source);
  if (reads_as_prefix(path->server)) return;
  auto again = parse_path(path_text(*path));
  require(again.ok() && *again == *path, "a path can be said again");
}

void fuzz_target(const std::string& text) {
  auto target = parse_target(text);
  if (!targets.count(target.ok())) return;
  require(!target->paths.empty() && target->paths.size() <= kPathsMax, "there are ways, not many");
  require(!target->export_name.empty() && text.ends_with("/" + target->export_name),
          "the export's name is as it was typed");
  for (size_t i = 0; i < target->paths.size(); ++i) {
    for (size_t j = 0; j < i; ++j)
      require(!(target->paths[i] == target->paths[j]), "none is there twice");
    if (reads_as_prefix(target->paths[i].server)) return;
  }
  auto again = parse_target(paths_text(target->paths) + "/" + target->export_name);
  require(again.ok() && again->paths == target->paths, "a target can be said again");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  if (size_bytes == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
  switch (data[0] % 3) {
    case 0:
      fuzz_path(text);
      break;
    case 1:
      fuzz_address(text);
      break;
    default:
      fuzz_target(text);
      break;
  }
  return 0;
}
