#include "reach/target.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "bnbd/kernel_device.h"
#include "bnbd/wire.h"
#include "reach/resolve.h"

namespace braid::reach {

using base::Errc;
using base::Error;
using base::make_error;
using base::Result;

namespace {

constexpr std::string_view kTargetForm =
    "HOST[:PORT][,HOST[:PORT]...]/EXPORT, for example 10.0.0.1/disk.img";

Result<uint16_t> parse_port(std::string_view text, std::string_view whole) {
  unsigned port = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (text.empty() || status != std::errc() || end != text.data() + text.size() || port > 65535)
    return make_error(Errc::kInvalid, "port \"{}\" in \"{}\": want a number from 0 to 65535", text,
                      whole);
  return static_cast<uint16_t>(port);
}

}  // namespace

Result<vhca::Address> parse_address(std::string_view text, uint16_t default_port) {
  const std::string_view whole = text;
  // Whoever reads it as a C string sees another address than who compares it.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    return make_error(Errc::kInvalid, "address \"{}\" goes on behind a zero byte",
                      text.substr(0, zero));
  if (text.starts_with("ip:")) text.remove_prefix(3);
  vhca::Address address;
  address.port = default_port;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos)
      return make_error(Errc::kInvalid, "address \"{}\": '[' without ']'; want [IPV6]:PORT", whole);
    address.ip = std::string(text.substr(1, close - 1));
    text.remove_prefix(close + 1);
  } else {
    const size_t colon = text.find(':');
    // More than one colon without brackets is an IPv6 address without a port.
    const bool bare_ipv6 =
        colon != std::string_view::npos && text.find(':', colon + 1) != std::string_view::npos;
    const size_t end = bare_ipv6 || colon == std::string_view::npos ? text.size() : colon;
    address.ip = std::string(text.substr(0, end));
    text.remove_prefix(end);
    if (address.ip.empty() && !text.empty()) address.ip = "0.0.0.0";
  }
  if (!text.empty()) {
    if (text.front() != ':')
      return make_error(Errc::kInvalid, "address \"{}\": want HOST[:PORT]", whole);
    BRAID_TRY(address.port, parse_port(text.substr(1), whole));
  }
  if (address.ip.find_first_of("[]") != std::string::npos)
    return make_error(Errc::kInvalid, "address \"{}\": brackets go around an IPv6 address", whole);
  if (address.ip.empty())
    return make_error(Errc::kInvalid, "address \"{}\": the host is missing; want HOST[:PORT]",
                      whole);
  return address;
}

namespace {

/// The IP address that a GID holds.
Result<std::string> ip_of_gid(const std::string& text) {
  in6_addr gid{};
  if (::inet_pton(AF_INET6, text.c_str(), &gid) != 1)
    return make_error(Errc::kInvalid, "GID \"{}\": want eight groups of hexadecimal digits", text);
  if (IN6_IS_ADDR_LINKLOCAL(&gid) != 0)
    return make_error(Errc::kInvalid,
                      "GID \"{}\": it is link-local (fe80::), which is good on one link only and "
                      "does not say on which; want the GID of that port that holds its IP address "
                      "(::ffff:a.b.c.d, or a global IPv6 address), or the address itself",
                      text);
  char ip[INET6_ADDRSTRLEN] = {};
  const bool mapped = IN6_IS_ADDR_V4MAPPED(&gid) != 0;
  const void* const bytes = mapped ? static_cast<const void*>(gid.s6_addr + 12) : &gid;
  ::inet_ntop(mapped ? AF_INET : AF_INET6, bytes, ip, sizeof ip);
  return std::string(ip);
}

/// One address of a path.
Result<vhca::Address> parse_end(std::string_view text, uint16_t default_port = kDefaultPort) {
  if (!text.starts_with("gid:")) return parse_address(text, default_port);
  text.remove_prefix(4);
  if (text.starts_with("ip:"))
    return make_error(Errc::kInvalid, "\"gid:{}\": an address is a GID or an IP address", text);
  BRAID_TRY(vhca::Address address, parse_address(text, default_port));
  BRAID_TRY(address.ip, ip_of_gid(address.ip));
  return address;
}

Result<std::string> parse_source(std::string_view text) {
  if (text.empty())
    return Error(Errc::kInvalid, "the source before '@' is missing; want SOURCE@HOST[:PORT]");
  auto address = parse_end(text, 0);
  if (!address.ok()) return address.error();
  if (!is_ip(address->ip) || address->port != 0)
    return make_error(Errc::kInvalid,
                      "source \"{}\": want an IP address of this machine, without a port", text);
  return std::move(address->ip);
}

}  // namespace

Result<PathSpec> parse_path(std::string_view text) {
  PathSpec path;
  std::string_view rest = text;
  if (const size_t at = text.find('@'); at != std::string_view::npos) {
    auto source = parse_source(text.substr(0, at));
    if (!source.ok()) return source.error().with("path \"{}\"", text);
    path.source = std::move(*source);
    rest.remove_prefix(at + 1);
  }
  auto server = parse_end(rest);
  if (!server.ok()) return server.error().with("path \"{}\"", text);
  if (server->ip.find('@') != std::string::npos)
    return make_error(Errc::kInvalid, "path \"{}\": want one '@' at most, SOURCE@HOST[:PORT]",
                      text);
  path.server = std::move(*server);
  return path;
}

Result<Target> parse_target(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos || slash + 1 == text.size())
    return make_error(Errc::kInvalid, "target \"{}\": the export is missing; want {}", text,
                      kTargetForm);
  if (slash == 0)
    return make_error(Errc::kInvalid, "target \"{}\": the server is missing; want {}", text,
                      kTargetForm);
  Target target;
  std::string_view paths = text.substr(0, slash);
  for (size_t comma = 0; comma != std::string_view::npos;) {
    comma = paths.find(',');
    auto path = parse_path(paths.substr(0, comma));
    if (!path.ok()) return path.error().with("target \"{}\"", text);
    if (std::find(target.paths.begin(), target.paths.end(), *path) != target.paths.end())
      return make_error(Errc::kInvalid, "target \"{}\": the path {} is there twice", text,
                        path_text(*path));
    target.paths.push_back(std::move(*path));
    if (comma != std::string_view::npos) paths.remove_prefix(comma + 1);
  }
  if (target.paths.size() > kPathsMax)
    return make_error(Errc::kInvalid, "target \"{}\": {} paths; {} are the most", text,
                      target.paths.size(), kPathsMax);
  target.export_name = std::string(text.substr(slash + 1));
  if (target.export_name.size() >= bnbd::wire::kNameBytes)
    return make_error(Errc::kInvalid,
                      "target \"{}\": the export's name has {} bytes; {} are the most", text,
                      target.export_name.size(), bnbd::wire::kNameBytes - 1);
  return target;
}

std::string path_text(const PathSpec& path) {
  return (path.source.empty() ? "" : path.source + "@") + address_text(path.server);
}

std::string paths_text(const std::vector<PathSpec>& paths) {
  std::string text;
  for (const PathSpec& path : paths) text += (text.empty() ? "" : ",") + path_text(path);
  return text;
}

bool is_loopback(std::string_view ip) {
  return ip == "::1" || ip.starts_with("127.");
}

std::string address_text(const vhca::Address& address) {
  const bool ipv6 = address.ip.find(':') != std::string::npos;
  return (ipv6 ? "[" + address.ip + "]" : address.ip) + ":" + std::to_string(address.port);
}

Result<uint64_t> parse_size(std::string_view text) {
  const auto wrong = [&] {
    return make_error(
        Errc::kInvalid,
        "size \"{}\": want a positive number with an optional K, M, G or T, for example 2G", text);
  };
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || !(number > 0)) return wrong();
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  int power = 0;
  if (!unit.empty()) {
    const size_t at = std::string_view("kmgt").find(static_cast<char>(unit.front() | 0x20));
    if (at == std::string_view::npos) return wrong();
    power = static_cast<int>(at) + 1;
    unit.remove_prefix(1);
    if (!unit.empty() && unit != "iB" && unit != "B" && unit != "b") return wrong();
  }
  const double bytes = std::ldexp(number, 10 * power);
  if (bytes < 1 || bytes > std::ldexp(1.0, 62)) return wrong();
  return static_cast<uint64_t>(bytes);
}

Result<uint64_t> parse_duration(std::string_view text) {
  if (text == "never") return base::kNever;
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const double unit_s = unit == "ms"  ? 0.001
                        : unit == "s" ? 1
                        : unit == "m" ? 60
                        : unit == "h" ? 3600
                                      : 0;
  constexpr double kYear = 365.0 * 24 * 3600;
  const double seconds = number * unit_s;
  if (status != std::errc() || !(seconds >= 0.001) || seconds > kYear)
    return make_error(
        Errc::kInvalid,
        "duration \"{}\": want a positive number with ms, s, m or h, for example 30s, "
        "or never",
        text);
  return static_cast<uint64_t>(seconds * static_cast<double>(base::kSecond));
}

Result<uint64_t> parse_poll_budget(std::string_view text) {
  if (text == "0") return uint64_t{0};
  uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  if (status == std::errc() && unit == "us" && number > 0 && number <= 1'000'000)
    return number * base::kMicrosecond;
  auto longer = parse_duration(text);
  if (!longer.ok())
    return make_error(Errc::kInvalid,
                      "polling budget \"{}\": want a time such as 50us, 2ms or 1s, 0 or never",
                      text);
  return longer;
}

std::string duration_text(uint64_t duration_ns) {
  if (duration_ns == base::kNever) return "never";
  return fmt::format("{:g} s",
                     static_cast<double>(duration_ns) / static_cast<double>(base::kSecond));
}

std::string default_device_name(const std::string& export_name) {
  std::string name = export_name.substr(export_name.rfind('/') + 1).substr(0, bnbd::kDeviceNameMax);
  for (char& c : name)
    if (!bnbd::check_device_name(std::string("x") + c).ok()) c = '_';
  if (name.starts_with('.')) name.front() = '_';
  return name.empty() ? "disk" : name;
}

std::string size_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace braid::reach
