// The server's side of NBD's fixed newstyle handshake (the protocol document's proto.md, "Fixed
// newstyle negotiation"): bytes in, bytes out, and at the end which export the client may have.
//
//   server                                                      client
//     | -- "NBDMAGIC", "IHAVEOPT", handshake flags (16 bits) ----> |
//     | <- client flags (32 bits) --------------------------------- |
//     | <- "IHAVEOPT", option (32), length (32), data ------------- |   any number of times
//     | -- reply magic, option (32), type (32), length (32), data -> |   one or several
//     ...                                                              until GO or EXPORT_NAME
//
// Pure: no sockets, no time. Memory: one option's data at most, and the answers to one option.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bnbd/frontend/nbd_wire.h"

namespace braid::bnbd {

/// An export as clients are told of it.
struct NbdOffer {
  std::string name;  // at most kNbdNameMax bytes
  std::string description;
  uint64_t size_bytes = 0;
  uint32_t block_min_bytes = 512;
  uint32_t block_preferred_bytes = 4096;
  uint32_t transfer_max_bytes = kNbdTransferMax;
  uint16_t flags = 0;             // without structured replies
  uint16_t flags_structured = 0;  // with them
  std::string refusal;            // why it cannot be had just now, in words; empty: it can
};

/// What there is at one moment.
struct NbdOffers {
  std::vector<NbdOffer> all;  // in the order in which LIST tells them
  /// What a client gets that names none. While it is not in `all`, such a client is refused, and
  /// gets no other disk. Empty: the first of `all`.
  std::string default_name;
  bool ending = false;  // nobody gets one any more: the server ends
};

inline constexpr size_t kNbdNameMax = 4096;

class NbdHandshake {
 public:
  using Offers = std::function<NbdOffers()>;
  enum class State : uint8_t {
    kTalking,
    kGranted,  // the client has an export; when output() is sent, the transmission begins
    kEnded,    // when output() is sent, the connection is to be closed
  };

  explicit NbdHandshake(Offers offers);

  State state() const { return state_; }
  /// To be sent; the part that was sent is taken away by sent().
  std::span<const std::byte> output() const {
    return {output_.data() + sent_bytes_, output_.size() - sent_bytes_};
  }
  void sent(size_t bytes);
  /// Whether received() may be called: what is to be sent comes first.
  bool wants_input() const { return state_ == State::kTalking && output().empty(); }
  static constexpr size_t kInputMax = 16 << 10;  // of one received()
  void received(std::span<const std::byte> bytes);

  // --- kGranted
  const std::string& export_name() const { return export_name_; }
  bool structured() const { return structured_; }
  /// What the client has sent beyond the handshake; at most kInputMax.
  std::vector<std::byte> rest() const { return input_; }
  // --- kEnded
  /// For the log; empty: the client took its leave.
  const std::string& reason() const { return reason_; }

 private:
  using Data = std::span<const std::byte>;
  bool step();
  bool take_flags();
  bool take_option();
  void option(uint32_t number, Data data);
  void export_name_option(Data data);
  void list_option(Data data);
  void go_option(uint32_t number, Data data);
  void send_info(uint32_t number, const NbdOffer& offer, Data requests, bool default_name);
  void grant(const NbdOffer& offer);
  void end(std::string reason);
  void reply(uint32_t option, uint32_t type, Data data = {});
  void refuse(uint32_t option, uint32_t type, std::string_view words);
  uint16_t flags_of(const NbdOffer& offer) const {
    return structured_ ? offer.flags_structured : offer.flags;
  }

  const Offers offers_;
  State state_ = State::kTalking;
  std::vector<std::byte> input_, output_;
  size_t sent_bytes_ = 0;
  size_t skipping_bytes_ = 0;  // of an option that was too long
  bool has_flags_ = false;
  bool fixed_ = false;      // the client takes errors of single options
  bool no_zeroes_ = false;  // of EXPORT_NAME's answer
  bool structured_ = false;
  unsigned options_ = 0;
  std::string export_name_, reason_;
};

}  // namespace braid::bnbd
