#include "vhca/soft/inhost/rendezvous.h"

#include <arpa/inet.h>

#include <array>

namespace braid::vhca::soft::inhost {

using base::Errc;
using base::make_error;
using base::Result;

namespace {

constexpr uint16_t kEphemeralFirst = 32768;
constexpr uint16_t kEphemeralCount = 28232;  // to 60999, as TCP's here by default
constexpr int kEphemeralTries = 1000;
constexpr const char* kAnyV4 = "0.0.0.0";
constexpr const char* kAnyV6 = "::";

}  // namespace

Result<std::string> canonical_ip(const std::string& ip) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  for (const int family : {AF_INET, AF_INET6}) {
    std::array<unsigned char, sizeof(in6_addr)> bytes{};
    if (::inet_pton(family, ip.c_str(), bytes.data()) != 1) continue;
    ::inet_ntop(family, bytes.data(), text.data(), text.size());
    return std::string(text.data());
  }
  return make_error(Errc::kInvalid,
                    "\"{}\" is not an IP address; right would be, for example, 127.0.0.1 or ::1",
                    ip);
}

std::string listener_name(const std::string& ip, uint16_t port) {
  return fmt::format("braid.cm.{}.{}", ip, port);
}

Result<std::vector<std::string>> listener_names(base::Host& host, const Address& address) {
  BRAID_TRY(const std::string ip, canonical_ip(address.ip));
  if (address.port == 0) return make_error(Errc::kInvalid, "port 0 of {}; 1 to 65535", ip);
  if (!host.is_local_address(ip)) {
    return make_error(Errc::kNotSupported,
                      "{} is not an address of this host, and shared memory connects processes "
                      "of one host: others are reached by TCP",
                      ip);
  }
  std::vector<std::string> names{listener_name(ip, address.port)};
  if (ip.find(':') == std::string::npos) names.push_back(listener_name(kAnyV4, address.port));
  names.push_back(listener_name(kAnyV6, address.port));  // takes IPv4 too, as TCP's wildcard does
  return names;
}

Result<BoundListener> bind_listener(base::Host& host, const Address& address) {
  BRAID_TRY(const std::string ip, canonical_ip(address.ip));
  if (!host.is_local_address(ip)) {
    return make_error(Errc::kInvalid, "cannot listen at {}: not an address of this host", ip);
  }
  for (int attempt = 0; attempt < kEphemeralTries; ++attempt) {
    uint16_t port = address.port;
    if (port == 0) {
      uint16_t value = 0;
      host.random(std::as_writable_bytes(std::span(&value, 1)));
      port = static_cast<uint16_t>(kEphemeralFirst + value % kEphemeralCount);
    }
    auto socket = host.listen_local(listener_name(ip, port));
    if (socket.ok()) return BoundListener{{ip, port}, std::move(socket).value()};
    if (socket.code() != Errc::kBusy && socket.code() != Errc::kExists) return socket.error();
    if (address.port != 0) {
      return make_error(Errc::kExists, "somebody listens at {} port {} already", ip, port);
    }
  }
  return make_error(Errc::kExists, "no free port at {} after {} tries", ip, kEphemeralTries);
}

}  // namespace braid::vhca::soft::inhost
