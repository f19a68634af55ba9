#include "bnbd/frontend/netlink.h"

#include <fmt/core.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace braid::bnbd {

namespace {

constexpr size_t kAlign = 4;
constexpr size_t kAnswerMax = 32768;
constexpr int kTimeoutSeconds = 20;
constexpr uint16_t kTypeMask = 0x3fff;  // without the flags NLA_F_NESTED and NLA_F_NET_BYTEORDER

size_t padded(size_t length) {
  return (length + kAlign - 1) / kAlign * kAlign;
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

void append(std::vector<std::byte>& to, std::span<const std::byte> from) {
  to.insert(to.end(), from.begin(), from.end());
}

std::string_view as_text(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.substr(0, text.find('\0'));
}

/// The verdict message: an errno, the header of the request (or all of it), words.
base::Status read_verdict(std::span<const std::byte> payload, uint16_t flags,
                          NetlinkAnswer& answer) {
  struct nlmsgerr error;
  if (payload.size() < sizeof(error)) {
    return base::make_error(base::Errc::kProtocol, "netlink verdict of {} bytes", payload.size());
  }
  std::memcpy(&error, payload.data(), sizeof(error));
  answer.finished = true;
  answer.sys_errno = error.error <= 0 && error.error > -4096 ? -error.error : EPROTO;
  if ((flags & NLM_F_ACK_TLVS) == 0) return base::ok_status();
  size_t skip = sizeof(error);
  if ((flags & NLM_F_CAPPED) == 0 && error.msg.nlmsg_len >= sizeof(error.msg)) {
    skip += padded(error.msg.nlmsg_len - sizeof(error.msg));
  }
  if (skip > payload.size()) return base::ok_status();
  const auto words = find_attribute(payload.subspan(skip), NLMSGERR_ATTR_MSG);
  if (words) answer.words = as_text(*words);
  return base::ok_status();
}

}  // namespace

void NetlinkAttributes::put(uint16_t type, std::span<const std::byte> payload) {
  const struct nlattr head = {static_cast<uint16_t>(sizeof(head) + payload.size()), type};
  append(bytes_, bytes_of(head));
  append(bytes_, payload);
  bytes_.resize(padded(bytes_.size()));
}

void NetlinkAttributes::put_u32(uint16_t type, uint32_t value) {
  put(type, bytes_of(value));
}

void NetlinkAttributes::put_u64(uint16_t type, uint64_t value) {
  put(type, bytes_of(value));
}

void NetlinkAttributes::put_string(uint16_t type, std::string_view text) {
  std::vector<std::byte> bytes;
  append(bytes, std::as_bytes(std::span(text)));
  bytes.push_back(std::byte{0});
  put(type, bytes);
}

void NetlinkAttributes::put_nested(uint16_t type, const NetlinkAttributes& inner) {
  put(type | NLA_F_NESTED, inner.bytes());
}

std::optional<std::span<const std::byte>> find_attribute(std::span<const std::byte> attributes,
                                                         uint16_t type) {
  struct nlattr head;
  while (attributes.size() >= sizeof(head)) {
    std::memcpy(&head, attributes.data(), sizeof(head));
    if (head.nla_len < sizeof(head) || head.nla_len > attributes.size()) return std::nullopt;
    if ((head.nla_type & kTypeMask) == type) {
      return attributes.subspan(sizeof(head), head.nla_len - sizeof(head));
    }
    attributes = attributes.subspan(std::min(padded(head.nla_len), attributes.size()));
  }
  return std::nullopt;
}

base::Result<NetlinkAnswer> parse_netlink(std::span<const std::byte> datagram, uint32_t sequence) {
  NetlinkAnswer answer;
  struct nlmsghdr head;
  while (datagram.size() >= sizeof(head) && !answer.finished) {
    std::memcpy(&head, datagram.data(), sizeof(head));
    if (head.nlmsg_len < sizeof(head) || head.nlmsg_len > datagram.size()) {
      return base::make_error(base::Errc::kProtocol, "netlink message of {} bytes in {}",
                              head.nlmsg_len, datagram.size());
    }
    const auto payload = datagram.subspan(sizeof(head), head.nlmsg_len - sizeof(head));
    if (head.nlmsg_seq != sequence) {
      // An answer to a request that timed out.
    } else if (head.nlmsg_type == NLMSG_ERROR) {
      BRAID_CHECK(read_verdict(payload, head.nlmsg_flags, answer));
    } else if (head.nlmsg_type >= NLMSG_MIN_TYPE && payload.size() >= GENL_HDRLEN) {
      answer.attributes = payload.subspan(GENL_HDRLEN);
    }
    datagram = datagram.subspan(std::min(padded(head.nlmsg_len), datagram.size()));
  }
  return answer;
}

std::vector<std::byte> make_netlink_request(uint16_t family, uint8_t command, uint8_t version,
                                            const NetlinkAttributes& attributes,
                                            uint32_t sequence) {
  struct nlmsghdr head = {};
  struct genlmsghdr generic = {};
  head.nlmsg_len =
      static_cast<uint32_t>(sizeof(head) + sizeof(generic) + attributes.bytes().size());
  head.nlmsg_type = family;
  head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
  head.nlmsg_seq = sequence;
  generic.cmd = command;
  generic.version = version;
  std::vector<std::byte> request;
  append(request, bytes_of(head));
  append(request, bytes_of(generic));
  append(request, attributes.bytes());
  return request;
}

base::Result<GenericNetlink> GenericNetlink::open() {
  GenericNetlink netlink;
  netlink.socket_.reset(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC));
  if (!netlink.socket_.valid()) return base::sys_error(errno, "open a generic netlink socket");
  const int fd = netlink.socket_.get();
  const struct timeval timeout = {kTimeoutSeconds, 0};
  const int one = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  ::setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one));
  ::setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one));
  return netlink;
}

base::Result<uint16_t> GenericNetlink::family(std::string_view name) {
  NetlinkAttributes attributes;
  attributes.put_string(CTRL_ATTR_FAMILY_NAME, name);
  BRAID_TRY(const auto answer, exchange(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 1, attributes));
  const auto id = find_attribute(answer, CTRL_ATTR_FAMILY_ID);
  uint16_t family = 0;
  if (!id || id->size() != sizeof(family)) {
    return base::make_error(base::Errc::kProtocol, "netlink gave no number for family {}", name);
  }
  std::memcpy(&family, id->data(), sizeof(family));
  return family;
}

base::Result<std::vector<std::byte>> GenericNetlink::exchange(uint16_t family, uint8_t command,
                                                              uint8_t version,
                                                              const NetlinkAttributes& attributes) {
  const auto request = make_netlink_request(family, command, version, attributes, ++sequence_);
  struct sockaddr_nl kernel = {};
  kernel.nl_family = AF_NETLINK;
  if (::sendto(socket_.get(), request.data(), request.size(), 0,
               reinterpret_cast<const struct sockaddr*>(&kernel), sizeof(kernel)) < 0) {
    return base::sys_error(errno, "send a netlink request");
  }
  std::vector<std::byte> result;
  std::vector<std::byte> buffer(kAnswerMax);
  for (;;) {
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::sys_error(errno, "wait for the answer to a netlink request");
    BRAID_TRY(const NetlinkAnswer answer,
              parse_netlink(std::span(buffer).first(static_cast<size_t>(got)), sequence_));
    if (answer.attributes) result.assign(answer.attributes->begin(), answer.attributes->end());
    if (!answer.finished) continue;
    if (answer.sys_errno == 0) return result;
    const base::Error error = base::sys_error(answer.sys_errno, "netlink");
    return answer.words.empty() ? error : error.with("{}", answer.words);
  }
}

}  // namespace braid::bnbd
