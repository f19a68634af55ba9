// A stream as a hostile peer of the TCP wire has it, and what he said on it.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/stream_socket.h"
#include "vhca/soft/tcp/frames.h"

namespace braid::fuzz {

namespace tcp = vhca::soft::tcp;

/// One stream as the hostile peer has it.
struct HostileLine {
  std::unique_ptr<base::StreamSocket> socket;
  std::vector<std::byte> said, heard, rest;  // `rest` is kept back
  uint64_t sequence = 0;                     // of its requests
  bool accepts = false;                      // else it connected

  /// Says so many of the bytes that it has kept back, if the stream takes them.
  void say(size_t count) {
    while (socket != nullptr && count > 0) {
      const iovec piece{rest.data(), count};
      size_t sent = 0;
      if (socket->send({&piece, 1}, sent) != base::Errc::kOk) return;
      const auto end = rest.begin() + static_cast<ptrdiff_t>(sent);
      said.insert(said.end(), rest.begin(), end);
      rest.erase(rest.begin(), end);
      count -= sent;
    }
  }
  void hear() {
    std::array<std::byte, 512> bytes;
    const iovec piece{bytes.data(), bytes.size()};
    size_t received = 0;
    while (socket != nullptr && socket->receive({&piece, 1}, received) == base::Errc::kOk) {
      heard.insert(heard.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(received));
    }
  }
  static constexpr uint32_t kEpoch = 0x55;
  /// As the acceptor says it.
  uint32_t epoch() const {
    if (accepts) return kEpoch;
    const auto header = header_of(heard);
    return header.has_value() ? uint32_t{header->epoch} : 0;
  }
  static std::optional<tcp::FrameHeader> header_of(std::span<const std::byte> bytes) {
    tcp::FrameHeader header;
    if (bytes.size() < sizeof header) return {};
    std::memcpy(&header, bytes.data(), sizeof header);
    return header;
  }
};

/// The first frame of a line, as nobody but the judge reads it.
struct FirstFrame {
  tcp::FrameHeader header;
  tcp::CmBody body;
  std::vector<std::byte> private_data;
  std::span<const std::byte> behind;

  static std::optional<FirstFrame> of(std::span<const std::byte> said) {
    FirstFrame frame;
    constexpr size_t kBare = sizeof frame.header + sizeof frame.body;
    if (said.size() < kBare) return {};
    std::memcpy(&frame.header, said.data(), sizeof frame.header);
    std::memcpy(&frame.body, said.data() + sizeof frame.header, sizeof frame.body);
    const size_t bytes = frame.body.private_bytes;
    if (frame.header.length != sizeof frame.body + bytes || said.size() < kBare + bytes) return {};
    const auto data = said.subspan(kBare, bytes);
    frame.private_data.assign(data.begin(), data.end());
    frame.behind = said.subspan(kBare + bytes);
    return frame;
  }
  bool is(tcp::FrameKind kind) const {
    return header.magic == tcp::kFrameMagic && header.version == tcp::kFrameVersion &&
           header.kind == static_cast<uint8_t>(kind);
  }
};

}  // namespace braid::fuzz
