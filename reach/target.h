// What a person types to name things: "HOST[:PORT]/EXPORT", "10.0.0.1:1234", "2G". Pure parsers;
// any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vhca/device.h"

namespace braid::reach {

inline constexpr uint16_t kDefaultPort = 1234;  // RTRS's default

/// A way to a server: its address, and by which address of this machine.
struct PathSpec {
  PathSpec() {}        // no aggregate: those go wrong beside co_await
  std::string source;  // an IP address; empty: the kernel's choice
  vhca::Address server;
  bool operator==(const PathSpec& other) const {
    return source == other.source && server.ip == other.server.ip &&
           server.port == other.server.port;
  }
};
inline constexpr size_t kPathsMax = 16;  // of one target

/// A remote disk: the ways to its server, and the name of the export there (may contain '/').
struct Target {
  std::vector<PathSpec> paths;  // one at least, none twice
  std::string export_name;      // 1 to 254 bytes
};

/// "10.0.0.1/disk.img", "10.0.0.1:1234/vm/disk.img", "[::1]:1234/x", "localhost/x"; several paths:
/// "10.0.0.1,10.1.0.1/x". kInvalid says what is missing. Host names are kept as they are; see
/// reach/resolve.h.
base::Result<Target> parse_target(std::string_view text);

/// One path: "[SOURCE@]HOST[:PORT]", each address with "ip:" before it (RTRS's spelling) or
/// without, or "gid:" and the 128 bits of a GID in the form of an IPv6 address ("gid:[...]:PORT"):
/// it is that IPv6 address, or the IPv4 address that is mapped in it, as the GIDs of the software
/// HCA's ports are. Link-local ones are refused: they do not say by which port they are reached.
base::Result<PathSpec> parse_path(std::string_view text);

/// "10.0.0.1:1234", "10.0.0.2@10.0.0.1:1234".
std::string path_text(const PathSpec& path);
/// Several of them, as in a target.
std::string paths_text(const std::vector<PathSpec>& paths);

/// "10.0.0.1", "10.0.0.1:1234", "[::]:0", ":1234" (any address).
base::Result<vhca::Address> parse_address(std::string_view text,
                                          uint16_t default_port = kDefaultPort);

/// Whether only this machine can reach it: 127.0.0.0/8 or ::1.
bool is_loopback(std::string_view ip);

/// "10.0.0.1:1234", "[::1]:1234".
std::string address_text(const vhca::Address& address);

/// What a device is called that was given no name: the export's last word, with what a name may not
/// hold replaced.
std::string default_device_name(const std::string& export_name);

/// Bytes from "4096", "64k", "2G", "1.5T", "2GiB": powers of 1024. kInvalid for anything else, and
/// for 0.
base::Result<uint64_t> parse_size(std::string_view text);

/// "2.0 GiB", "512 B".
std::string size_text(uint64_t bytes);

/// Nanoseconds from "500ms", "30s", "1.5m", "2h"; base::kNever from "never". kInvalid for anything
/// else, for 0 and for more than a year.
base::Result<uint64_t> parse_duration(std::string_view text);

/// How long a thread looks before it sleeps: as parse_duration(), and also "50us" and "0", which
/// sleeps at once. "never" sleeps never.
base::Result<uint64_t> parse_poll_budget(std::string_view text);

/// "30 s", "0.5 s", "never".
std::string duration_text(uint64_t duration_ns);

}  // namespace braid::reach
