// Golden bytes are laid out by hand from the protocol's offsets, never by the structures under
// test.
#include "bnbd/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/test_golden.h"

namespace braid::bnbd::wire {
namespace {

using base::Errc;

/// Bytes addressed by offset, as one writes them down from a table of fields.
class Bytes {
 public:
  explicit Bytes(size_t size) : bytes_(size) {}
  Bytes& put(size_t offset, std::initializer_list<unsigned> values) {
    for (unsigned value : values) bytes_.at(offset++) = static_cast<std::byte>(value);
    return *this;
  }
  Bytes& text(size_t offset, std::string_view text) {
    for (char c : text) bytes_.at(offset++) = static_cast<std::byte>(c);
    return *this;
  }
  operator std::span<const std::byte>() const { return bytes_; }  // NOLINT: implicit on purpose
  std::vector<std::byte> bytes_;
};

template <typename T>
std::vector<std::byte> copy_of(const T& message) {
  const auto bytes = bytes_of(message);
  return {bytes.begin(), bytes.end()};
}

TEST(BnbdWire, session_info_is_36_bytes_with_the_version_at_4) {
  SessionInfo info;
  info.header.type = static_cast<uint16_t>(MessageType::kSessionInfo);
  EXPECT_EQ(copy_of(info), Bytes(36).put(0, {0, 0, 0, 0, 2}).bytes_);
  info.header.type = static_cast<uint16_t>(MessageType::kSessionInfoAnswer);
  EXPECT_EQ(copy_of(info), Bytes(36).put(0, {1, 0, 0, 0, 2}).bytes_);
}

TEST(BnbdWire, open_is_264_bytes_with_the_mode_at_4_and_the_name_at_6) {
  auto open = make_open("disk.img", AccessMode::kReadWrite);
  ASSERT_TRUE(open.ok());
  const Bytes golden = Bytes(264).put(0, {2, 0, 0, 0, 1, 0}).text(6, "disk.img");
  EXPECT_EQ(copy_of(*open), golden.bytes_);
  auto parsed = parse_open(golden);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->name, "disk.img");
  EXPECT_EQ(parsed->mode, AccessMode::kReadWrite);
}

TEST(BnbdWire, the_modes_are_0_ro_1_rw_2_migration_as_linux_sends_them) {
  constexpr std::array kModes = {AccessMode::kReadOnly, AccessMode::kReadWrite,
                                 AccessMode::kMigration};
  for (unsigned value = 0; value < kModes.size(); ++value) {
    const Bytes golden = Bytes(264).put(0, {2, 0, 0, 0, value, 0}).text(6, "sda");
    EXPECT_EQ(copy_of(*make_open("sda", kModes.at(value))), golden.bytes_);
    EXPECT_EQ(parse_open(golden)->mode, kModes.at(value));
  }
  const auto refused = parse_open(Bytes(264).put(0, {2, 0, 0, 0, 3, 0}).text(6, "sda"));
  EXPECT_EQ(refused.code(), Errc::kProtocol);
}

TEST(BnbdWire, open_answer_is_56_bytes_in_sectors_and_bytes) {
  OpenedDevice device;
  device.device_id = 0x11223344;
  device.size_bytes = uint64_t{0x0102030405} * 512;
  device.max_io_bytes = 0x100000;
  device.max_write_zeroes_bytes = 0x200000;
  device.max_discard_bytes = 0x400000;
  device.discard_granularity_bytes = 4096;
  device.physical_block_bytes = 4096;
  device.logical_block_bytes = 512;
  device.force_unit_access = true;
  device.write_cache = true;
  const Bytes golden = Bytes(56)
                           .put(0, {3, 0, 0, 0, 0x44, 0x33, 0x22, 0x11})
                           .put(8, {5, 4, 3, 2, 1, 0, 0, 0})
                           .put(16, {0, 8, 0, 0})
                           .put(20, {0, 0x10, 0, 0})
                           .put(24, {0, 0x20, 0, 0})
                           .put(28, {0, 0x10, 0, 0})
                           .put(36, {0, 0x10, 0, 2})
                           .put(40, {128, 0, 0, 0})
                           .put(45, {3});
  EXPECT_EQ(copy_of(make_open_answer(device)), golden.bytes_);
  auto parsed = parse_open_answer(golden);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->device_id, device.device_id);
  EXPECT_EQ(parsed->size_bytes, device.size_bytes);
  EXPECT_EQ(parsed->max_io_bytes, device.max_io_bytes);
  EXPECT_EQ(parsed->max_write_zeroes_bytes, device.max_write_zeroes_bytes);
  EXPECT_EQ(parsed->max_discard_bytes, device.max_discard_bytes);
  EXPECT_TRUE(parsed->force_unit_access && parsed->write_cache);
  EXPECT_TRUE(parsed->identity.empty());
}

TEST(BnbdWire, close_is_8_bytes) {
  Close close;
  close.header.type = static_cast<uint16_t>(MessageType::kClose);
  close.device_id = 0xa1b2c3d4;
  const Bytes golden = Bytes(8).put(0, {5, 0, 0, 0, 0xd4, 0xc3, 0xb2, 0xa1});
  EXPECT_EQ(copy_of(close), golden.bytes_);
  EXPECT_EQ(parse_close(golden)->device_id, 0xa1b2c3d4u);
}

TEST(BnbdWire, io_is_the_kernels_padded_structure_of_32_bytes) {
  const Bytes golden = Bytes(32)
                           .put(0, {4, 0, 0, 0, 0x78, 0x56, 0x34, 0x12})
                           .put(8, {8, 7, 6, 5, 4, 3, 2, 0})
                           .put(16, {1, 0x07, 0, 0})
                           .put(20, {0, 0x20, 0, 0})
                           .put(24, {0x34, 0x12});
  Io io;
  ASSERT_EQ(parse_io(golden, io), nullptr);
  EXPECT_EQ(io.device_id, 0x12345678u);
  EXPECT_EQ(io.sector, 0x02030405060708u);
  EXPECT_EQ(operation_of(io), Operation::kWrite);
  EXPECT_EQ(io.operation_flags & ~kOperationMask, kFlagSync | kFlagForceUnitAccess | kFlagPreflush);
  EXPECT_EQ(io.length_bytes, 8192u);
  EXPECT_EQ(io.priority, 0x1234);
  EXPECT_EQ(copy_of(io), golden.bytes_);
}

TEST(BnbdWire, io_of_version_1_has_24_bytes_and_no_priority) {
  Io io;
  io.priority = 7;
  ASSERT_EQ(parse_io(Bytes(24).put(0, {4}), io), nullptr);
  EXPECT_EQ(io.priority, 0);
}

TEST(BnbdWire, extension_of_464_bytes_follows_the_open_answer) {
  OpenedDevice device;
  device.device_id = 9;
  device.size_bytes = 1 << 20;
  device.max_io_bytes = 1 << 20;
  device.physical_block_bytes = 4096;
  device.logical_block_bytes = 4096;
  device.identity = "file:fs:12:99";
  device.identity_hash = hash_identity(device.identity);
  device.incarnation = 0x0807060504030201;
  device.tenure = 0x1817161514131211;
  ExtendedOpenAnswer answer{make_open_answer(device), make_extension(device)};
  const auto bytes = copy_of(answer);
  Bytes golden(464);
  golden.put(0, {3, 0, 0xd0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8});
  for (size_t i = 0; i < 16; ++i) golden.put(16 + i, {device.identity_hash[i]});
  golden.put(32, {13, 0}).text(40, device.identity);
  golden.put(456, {0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18});
  EXPECT_EQ((std::vector<std::byte>(bytes.begin() + 56, bytes.end())), golden.bytes_);

  auto parsed = parse_open_answer(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->identity, device.identity);
  EXPECT_EQ(parsed->identity_hash, device.identity_hash);
  EXPECT_EQ(parsed->incarnation, device.incarnation);
  EXPECT_EQ(parsed->tenure, device.tenure);
}

TEST(BnbdWire, a_claim_of_16_bytes_follows_the_open_message) {
  const Open open = make_open("disk.img", AccessMode::kReadWrite).value();
  const Bytes golden = Bytes(280)
                           .put(0, {2, 0, 0, 0, 1, 0})
                           .text(6, "disk.img")
                           .put(264, {2, 0, 16, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(copy_of(make_claim(open, 0x0807060504030201, true)), golden.bytes_);
  auto parsed = parse_open(golden);
  EXPECT_TRUE(parsed->again && parsed->remap);
  EXPECT_FALSE(parse_open(Bytes(golden).put(264, {1}))->remap) << "version 1 has no flags";
  EXPECT_FALSE(parse_open(wire::bytes_of(open))->again);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->tenure, 0x0807060504030201u);
  EXPECT_EQ(parsed->name, "disk.img");
  EXPECT_EQ(parse_open(wire::bytes_of(open))->tenure, 0u);
  EXPECT_FALSE(parse_open(Bytes(golden).put(264, {0})).ok()) << "version 0";
  EXPECT_FALSE(parse_open(Bytes(golden).put(266, {15})).ok()) << "shorter than it is";
}

TEST(BnbdWire, news_are_asked_for_with_16_bytes_and_told_in_items_of_16) {
  const Bytes question = Bytes(16).put(0, {64, 0}).put(8, {9, 0, 0, 0, 0, 0, 0, 1});
  EXPECT_EQ(copy_of(make_news(0x0100000000000009)), question.bytes_);
  EXPECT_EQ(parse_news(question).value(), 0x0100000000000009u);
  EXPECT_FALSE(parse_news(Bytes(17).put(0, {64, 0})).ok());

  const Bytes golden = Bytes(48)
                           .put(0, {65, 0, 0, 0, 2, 0, 0, 0, 11})
                           .put(16, {0x44, 0x33, 0x22, 0x11, 1, 0, 0, 0, 5, 4, 3})
                           .put(32, {0x45, 0x33, 0x22, 0x11, 2});
  NewsList news{11,
                {{0x11223344, NewsKind::kResized, uint64_t{0x030405} * 512},
                 {0x11223345, NewsKind::kClosed, 0}}};
  EXPECT_EQ(make_news_answer(news), golden.bytes_);
  Bytes longer(100);
  std::copy(golden.bytes_.begin(), golden.bytes_.end(), longer.bytes_.begin());
  for (const std::span<const std::byte> bytes : {std::span<const std::byte>(golden), {longer}}) {
    auto parsed = parse_news_answer(bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message();
    EXPECT_EQ(parsed->newest, 11u);
    ASSERT_EQ(parsed->items.size(), 2u);
    EXPECT_EQ(parsed->items[0].device_id, 0x11223344u);
    EXPECT_EQ(parsed->items[0].size_bytes, uint64_t{0x030405} * 512);
    EXPECT_EQ(parsed->items[1].kind, NewsKind::kClosed);
  }
  EXPECT_FALSE(parse_news_answer(Bytes(golden).put(4, {3})).ok()) << "more items than came";
  EXPECT_FALSE(parse_news_answer(Bytes(golden).put(4, {0, 0, 0, 0x10})).ok());
  EXPECT_FALSE(parse_news_answer(Bytes(golden).put(20, {3})).ok()) << "a kind that there is not";
  EXPECT_FALSE(parse_news_answer(Bytes(golden).put(16, {0, 0, 0, 0})).ok()) << "no device";
  EXPECT_FALSE(
      parse_news_answer(Bytes(golden).put(24, {255, 255, 255, 255, 255, 255, 255, 255})).ok());
}

TEST(BnbdWire, a_priority_is_heeded_as_far_as_a_client_may_go) {
  EXPECT_EQ(heeded_priority(0), 0);
  EXPECT_EQ(heeded_priority(2 << 13 | 5), 2 << 13 | 5);
  EXPECT_EQ(heeded_priority(1 << 13 | 3), 2 << 13) << "real time: the server's own";
  EXPECT_EQ(heeded_priority(3 << 13 | 7), 3 << 13);
  EXPECT_EQ(heeded_priority(2 << 13 | 0x1ff8 | 6), 2 << 13 | 6) << "hints are dropped";
  for (unsigned nonsense = 4; nonsense < 8; ++nonsense) {
    EXPECT_EQ(heeded_priority(static_cast<uint16_t>(nonsense << 13)), 0);
  }
}

TEST(BnbdWire, secure_erase_is_offered_with_the_length_of_a_discard) {
  OpenedDevice device;
  device.device_id = 1;
  device.max_io_bytes = 65536;
  device.logical_block_bytes = device.physical_block_bytes = 512;
  device.max_discard_bytes = 0x400000;
  device.discard_alignment_bytes = 0x1234;
  EXPECT_EQ(parse_open_answer(bytes_of(make_open_answer(device)))->max_secure_erase_bytes, 0u);
  device.max_secure_erase_bytes = device.max_discard_bytes;
  const auto bytes = copy_of(make_open_answer(device));
  EXPECT_EQ(bytes.at(42), std::byte{1});
  EXPECT_EQ(bytes.at(32), std::byte{0x34});
  EXPECT_EQ(bytes.at(33), std::byte{0x12});
  EXPECT_EQ(parse_open_answer(bytes)->max_secure_erase_bytes, device.max_discard_bytes);
  EXPECT_EQ(parse_open_answer(bytes)->discard_alignment_bytes, 0x1234u);
}

TEST(BnbdWire, the_identity_hash_is_fixed_for_all_builds) {
  const std::array<uint8_t, 16> xxh3_of_nothing = {0x99, 0xaa, 0x06, 0xd3, 0x01, 0x47, 0x98, 0xd8,
                                                   0x60, 0x01, 0xc3, 0x24, 0x46, 0x8d, 0x49, 0x7f};
  EXPECT_EQ(hash_identity(""), xxh3_of_nothing);
  EXPECT_NE(hash_identity("a"), hash_identity("b"));
}

TEST(BnbdWire, a_refusal_between_braid_peers_tells_code_and_reason) {
  const auto bytes = copy_of(make_refusal(EBUSY, "disk.img is open rw by host-a"));
  auto parsed = parse_open_answer(bytes);
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.code(), base::errc_from_errno(EBUSY));
  EXPECT_EQ(parsed.error().message(), "disk.img is open rw by host-a");
}

TEST(BnbdWire, a_text_longer_than_the_field_is_cut_off) {
  const auto bytes = copy_of(make_refusal(EBUSY, std::string(1000, 'x')));
  EXPECT_EQ(parse_open_answer(bytes).error().message(), std::string(416, 'x'));
}

TEST(BnbdWire, padding_and_reserved_bytes_are_ignored) {
  EXPECT_TRUE(parse_session_info(Bytes(36).put(2, {0xee, 0xee, 2, 0xee}).put(35, {0xee}),
                                 MessageType::kSessionInfo)
                  .ok());
  EXPECT_TRUE(
      parse_open(
          Bytes(264).put(0, {2, 0, 0xee, 0xee, 0, 0xee}).text(6, "d").put(261, {0xee, 0xee, 0xee}))
          .ok());
  Io io;
  EXPECT_EQ(parse_io(Bytes(32).put(0, {4, 0, 0xee, 0xee}).put(26, {0xee}), io), nullptr);
}

TEST(BnbdWire, a_name_without_end_is_refused) {
  Bytes open = Bytes(264).put(0, {2, 0, 0, 0, 1});
  for (size_t i = 6; i < 261; ++i) open.text(i, "n");
  EXPECT_EQ(parse_open(open).code(), Errc::kProtocol);
  open.put(260, {0});
  EXPECT_EQ(parse_open(open)->name.size(), 254u);
}

TEST(BnbdWire, names_that_do_not_fit_are_refused_before_sending) {
  EXPECT_FALSE(make_open("", AccessMode::kReadOnly).ok());
  EXPECT_FALSE(make_open(std::string(255, 'n'), AccessMode::kReadOnly).ok());
  EXPECT_FALSE(make_open(std::string_view("a\0b", 3), AccessMode::kReadOnly).ok());
  EXPECT_TRUE(make_open(std::string(254, 'n'), AccessMode::kReadOnly).ok());
}

TEST(BnbdWire, every_other_length_of_a_message_is_refused) {
  for (size_t size = 0; size <= 600; ++size) {
    Io io;
    EXPECT_EQ(parse_io(Bytes(size ? size : 0), io) == nullptr, false);
    Bytes typed(std::max<size_t>(size, 1));
    typed.bytes_.resize(size);
    if (size > 0) typed.put(0, {4});
    EXPECT_EQ(parse_io(typed, io) == nullptr, size == 24 || size == 32) << size;
    if (size > 0) typed.put(0, {5});
    EXPECT_EQ(parse_close(typed).ok(), size == 8) << size;
    if (size > 6) typed.put(0, {2}).put(6, {'d'});
    EXPECT_EQ(parse_open(typed).ok(), size == 264) << size << "; 280 needs a claim";
  }
}

TEST(BnbdWire, answers_with_impossible_fields_are_refused) {
  const Bytes good =
      Bytes(56).put(0, {3, 0, 0, 0, 1}).put(8, {8}).put(16, {8}).put(36, {0, 2, 0, 2});
  ASSERT_TRUE(parse_open_answer(good).ok());
  EXPECT_TRUE(parse_open_answer(Bytes(good).put(4, {0})).ok()) << "Linux's first device";
  EXPECT_FALSE(parse_open_answer(Bytes(good).put(4, {255, 255, 255, 255})).ok()) << "no device";
  EXPECT_FALSE(parse_open_answer(Bytes(good).put(38, {1, 2})).ok()) << "block of 513";
  EXPECT_FALSE(parse_open_answer(Bytes(good).put(38, {0, 0})).ok()) << "block of 0";
  EXPECT_FALSE(parse_open_answer(Bytes(good).put(36, {0, 1})).ok()) << "physical below logical";
  EXPECT_FALSE(parse_open_answer(Bytes(good).put(16, {0})).ok()) << "no I/O size";
  EXPECT_FALSE(parse_open_answer(Bytes(good).put(15, {0xff})).ok()) << "size beyond 64 bits";
  EXPECT_FALSE(parse_open_answer(Bytes(good).put(0, {4})).ok()) << "wrong type";
  EXPECT_FALSE(parse_open_answer(Bytes(55)).ok()) << "too short";
}

TEST(BnbdWire, unknown_operations_flags_and_types_are_refused) {
  Io io;
  EXPECT_NE(parse_io(Bytes(32).put(0, {4}).put(16, {6}), io), nullptr);
  EXPECT_NE(parse_io(Bytes(32).put(0, {4}).put(17, {0x10}), io), nullptr);
  EXPECT_NE(parse_io(Bytes(32).put(0, {4}).put(15, {0xff}), io), nullptr);
  EXPECT_NE(parse_io(Bytes(32).put(0, {5}), io), nullptr);
  EXPECT_FALSE(request_type(Bytes(3)).ok());
  EXPECT_FALSE(request_type(Bytes(4).put(0, {1})).ok()) << "an answer is no request";
  EXPECT_FALSE(request_type(Bytes(4).put(0, {6})).ok());
  EXPECT_EQ(*request_type(Bytes(4).put(0, {5})), MessageType::kClose);
  EXPECT_FALSE(parse_open(Bytes(264).put(0, {2, 0, 0, 0, 3}).text(6, "d")).ok()) << "mode 3";
}

// --- what Linux says (tests/golden/rtrs): TRS's message stands behind the user header

std::vector<std::byte> linux_says(const std::string& message, size_t header_bytes,
                                  size_t message_bytes) {
  auto bytes = base::read_golden("rtrs/always_invalidate_n/" + message).bytes;
  bytes.resize(bytes.size() - message_bytes);
  bytes.erase(bytes.begin(), bytes.end() - static_cast<ptrdiff_t>(header_bytes));
  return bytes;
}
constexpr size_t kReadMessageBytes = 24;
constexpr size_t kWriteMessageBytes = 4;

TEST(BnbdWireLinux, its_session_info_and_our_answer) {
  const auto asked = linux_says("session_info", sizeof(SessionInfo), kReadMessageBytes);
  auto parsed = parse_session_info(asked, MessageType::kSessionInfo);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->version, kVersionMajor);
  SessionInfo ours;
  ours.header.type = static_cast<uint16_t>(MessageType::kSessionInfo);
  EXPECT_EQ(copy_of(ours), asked);
  ours.header.type = static_cast<uint16_t>(MessageType::kSessionInfoAnswer);
  EXPECT_EQ(copy_of(ours), linux_says("session_info_answer", sizeof(SessionInfo), 0));
}

TEST(BnbdWireLinux, its_open_is_ours) {
  const auto asked = linux_says("open", sizeof(Open), kReadMessageBytes);
  auto parsed = parse_open(asked);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->name, "/dev/ram0");
  EXPECT_EQ(parsed->mode, AccessMode::kReadWrite);
  EXPECT_EQ(copy_of(*make_open("/dev/ram0", AccessMode::kReadWrite)), asked);
}

TEST(BnbdWireLinux, its_open_answer_describes_the_disk) {
  auto parsed = parse_open_answer(linux_says("open_answer", sizeof(OpenAnswer), 0));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->size_bytes, 16u << 20);
  EXPECT_EQ(parsed->logical_block_bytes, 512u);
  EXPECT_EQ(parsed->physical_block_bytes, 4096u);
  EXPECT_FALSE(parsed->write_cache);
  EXPECT_EQ(parsed->identity, "");
  EXPECT_EQ(parsed->device_id, 0u) << "ids count from 0, in each session";
}

TEST(BnbdWireLinux, its_reads_writes_and_close_are_taken) {
  Io io;
  ASSERT_EQ(parse_io(linux_says("io_read", sizeof(Io), kReadMessageBytes), io), nullptr);
  EXPECT_EQ(operation_of(io), Operation::kRead);
  EXPECT_EQ(io.length_bytes, 4096u);
  ASSERT_EQ(parse_io(linux_says("io_write", sizeof(Io), kWriteMessageBytes), io), nullptr);
  EXPECT_EQ(operation_of(io), Operation::kWrite);
  EXPECT_EQ(io.sector, 0u);
  EXPECT_EQ(io.length_bytes, 4096u);
  auto close = parse_close(linux_says("close", sizeof(Close), kWriteMessageBytes));
  ASSERT_TRUE(close.ok()) << close.error().message();
}

/// All forms of what its client was heard to say: operations with their flags, modes of access.
TEST(BnbdWireLinux, what_it_says_in_any_form_is_what_we_would_say) {
  struct Kind {
    const char* name;
    Operation operation;
    size_t message_bytes;  // of TRS, behind the user header
    size_t forms;          // at least
  };
  constexpr size_t kReadMessageWithoutTargetBytes = 8;
  for (const Kind& kind : {Kind{"io_read", Operation::kRead, kReadMessageBytes, 2},
                           Kind{"io_write", Operation::kWrite, kWriteMessageBytes, 2},
                           Kind{"io_flush", Operation::kFlush, kReadMessageWithoutTargetBytes, 1},
                           Kind{"io_discard", Operation::kDiscard, kWriteMessageBytes, 1}}) {
    const auto forms = base::golden_messages("rtrs/always_invalidate_n", kind.name);
    EXPECT_GE(forms.size(), kind.forms) << kind.name;
    for (const std::string& path : forms) {
      SCOPED_TRACE(path);
      const auto said =
          linux_says(path.substr(path.rfind('/') + 1), sizeof(Io), kind.message_bytes);
      Io io;
      ASSERT_STREQ(parse_io(said, io), nullptr);
      EXPECT_EQ(operation_of(io), kind.operation);
      Io ours;
      ours.header.type = static_cast<uint16_t>(MessageType::kIo);
      ours.device_id = io.device_id;
      ours.sector = io.sector;
      ours.operation_flags = io.operation_flags;
      ours.length_bytes = io.length_bytes;
      ours.priority = io.priority;
      EXPECT_EQ(copy_of(ours), said);
    }
  }
}

TEST(BnbdWireLinux, it_opens_in_each_mode_as_we_would) {
  std::set<AccessMode> modes;
  for (const std::string& path : base::golden_messages("rtrs/always_invalidate_n", "open")) {
    SCOPED_TRACE(path);
    const auto said = linux_says(path.substr(path.rfind('/') + 1), sizeof(Open), kReadMessageBytes);
    auto parsed = parse_open(said);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message();
    EXPECT_EQ(copy_of(*make_open(parsed->name, parsed->mode)), said);
    modes.insert(parsed->mode);
  }
  EXPECT_EQ(modes.size(), 3u);
}

TEST(BnbdWireLinux, its_open_answers_tell_of_caches_and_discards_as_ours_do) {
  bool cached = false;
  for (const std::string& path : base::golden_messages("rtrs/always_invalidate_n", "open_answer")) {
    SCOPED_TRACE(path);
    const auto said = linux_says(path.substr(path.rfind('/') + 1), sizeof(OpenAnswer), 0);
    auto parsed = parse_open_answer(said);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message();
    cached = cached || (parsed->write_cache && parsed->max_discard_bytes > 0);
    const OpenAnswer ours = make_open_answer(*parsed);
    OpenAnswer linux;
    std::memcpy(&linux, said.data(), sizeof linux);
    EXPECT_EQ(ours.cache_policy, linux.cache_policy);
    EXPECT_EQ(ours.max_discard_sectors, linux.max_discard_sectors);
    EXPECT_EQ(ours.discard_granularity_bytes, linux.discard_granularity_bytes);
    EXPECT_EQ(ours.size_sectors, linux.size_sectors);
    EXPECT_EQ(ours.max_io_sectors, linux.max_io_sectors);
  }
  EXPECT_TRUE(cached) << "a disk with a write cache, which discards";
}

}  // namespace
}  // namespace braid::bnbd::wire
