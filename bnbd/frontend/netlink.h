// Generic netlink, as much as nbd.ko needs: build a request, exchange it, read attributes.
//
// Own code and not libnl: three requests of a page, against two more packages for every user. The
// layout is that of netlink(7): little pieces of {length, type, payload}, padded to 4 bytes, in the
// machine's byte order.
//
// Threads: any; exchange() blocks, so a worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bnbd/frontend/fd_handle.h"

namespace braid::bnbd {

/// The attributes of a request, appended in order.
class NetlinkAttributes {
 public:
  void put(uint16_t type, std::span<const std::byte> payload);
  void put_u32(uint16_t type, uint32_t value);
  void put_u64(uint16_t type, uint64_t value);
  void put_string(uint16_t type, std::string_view text);
  void put_nested(uint16_t type, const NetlinkAttributes& inner);
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// The payload of the first attribute of this type, or nothing. Any bytes are allowed: lengths that
/// do not fit end the search. Pure.
std::optional<std::span<const std::byte>> find_attribute(std::span<const std::byte> attributes,
                                                         uint16_t type);

/// A request as it goes to the kernel.
std::vector<std::byte> make_netlink_request(uint16_t family, uint8_t command, uint8_t version,
                                            const NetlinkAttributes& attributes, uint32_t sequence);

class GenericNetlink {
 public:
  static base::Result<GenericNetlink> open();

  /// The number of a family such as "nbd"; kNotFound if the kernel has none of that name.
  base::Result<uint16_t> family(std::string_view name);
  /// Sends a request and waits for the kernel's verdict; the attributes of its answer, if it sent
  /// one. An error carries the kernel's own words where it gives some.
  base::Result<std::vector<std::byte>> exchange(uint16_t family, uint8_t command, uint8_t version,
                                                const NetlinkAttributes& attributes);

 private:
  UniqueFd socket_;
  uint32_t sequence_ = 0;
};

/// One datagram from the kernel, taken apart. Pure, for tests.
struct NetlinkAnswer {
  bool finished = false;                                 // the verdict came
  int sys_errno = 0;                                     // the verdict: 0 or a positive errno
  std::string_view words;                                // of the kernel, about an error
  std::optional<std::span<const std::byte>> attributes;  // of an answer
};
/// kProtocol if the bytes are not messages. What answers another sequence number is passed over.
base::Result<NetlinkAnswer> parse_netlink(std::span<const std::byte> datagram, uint32_t sequence);

}  // namespace braid::bnbd
