// Each message and immediate that Linux's RTRS was heard to say (tests/golden/rtrs): it is carried
// as we carry it, is taken, and said again by us it has the same bytes.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/test_golden.h"
#include "trs/imm.h"
#include "trs/wire.h"

namespace braid::trs::wire {
namespace {

using base::golden_messages;
using base::GoldenMessage;
using base::read_golden;

constexpr uint32_t kQueueDepth = 512;
constexpr uint32_t kGoldenChunkBytes = 128 * 1024;
constexpr uint32_t kGoldenMaxIoBytes = 126976;

const std::string kFolders[] = {"rtrs/always_invalidate_n", "rtrs/always_invalidate_y"};

std::vector<std::byte> copy(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}
std::string kind_of(const std::string& path) {
  const std::string file = path.substr(path.rfind('/') + 1);
  return file.substr(0, file.find('.'));
}
void for_each(const char* name, const std::function<void(const GoldenMessage&)>& look) {
  for (const std::string& folder : kFolders) {
    for (const std::string& path : golden_messages(folder, name)) {
      SCOPED_TRACE(path);
      look(read_golden(path));
    }
  }
}

/// How a message is carried: the operation, and what it has beside its bytes.
struct Carrier {
  const char* by;
  bool imm = false;
  bool invalidates = false;
};
const std::map<std::string, Carrier> kCarriers = {
    {"conn_req", {"REQ"}},
    {"conn_rsp", {"REP"}},
    {"conn_rej", {"REJ"}},
    {"info_req", {"SEND"}},
    {"info_rsp", {"SEND"}},
    {"session_info", {"WRITE", true}},
    {"session_info_answer", {"WRITE"}},
    {"open", {"WRITE", true}},
    {"open_answer", {"WRITE"}},
    {"close", {"WRITE", true}},
    {"io_read", {"WRITE", true}},
    {"io_write", {"WRITE", true}},
    {"io_flush", {"WRITE", true}},
    {"io_discard", {"WRITE", true}},
    {"answer", {"WRITE", true}},
    {"answer_invalidated", {"WRITE", true}},
    {"answer_with_rkey", {"SEND", true}},
    {"answer_invalidated_with_rkey", {"SEND", true}},
    {"invalidate", {"SEND", false, true}},
    {"heartbeat", {"WRITE", true}},
    {"heartbeat_answer", {"WRITE", true}},
};

TEST(LinuxGolden, EachMessageIsKnownAndCarriedAsWeCarryIt) {
  for (const std::string& folder : kFolders) {
    for (const std::string& path : golden_messages(folder)) {
      SCOPED_TRACE(path);
      const auto known = kCarriers.find(kind_of(path));
      ASSERT_NE(known, kCarriers.end());
      const GoldenMessage golden = read_golden(path);
      EXPECT_EQ(golden.carried_by, known->second.by);
      EXPECT_EQ(golden.imm.has_value(), known->second.imm);
      EXPECT_EQ(golden.invalidates.has_value(), known->second.invalidates);
    }
  }
}

/// Of the first path of a session, of a second one, and of one that is made again: which says as
/// the first did that it may be the first that the server hears of.
TEST(LinuxGolden, ItsConnectRequestsAreOursOfAKernelsKind) {
  std::set<std::pair<bool, bool>> seen;  // made again, kFirstConn
  for_each("conn_req", [&](const GoldenMessage& golden) {
    auto parsed = parse_conn_req(golden.bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message();
    seen.emplace(parsed->recon_cnt > 1, parsed->flags == kFirstConn);
    ConnReq ours;
    ours.cid = uint16_t{parsed->cid};
    ours.cid_num = uint16_t{parsed->cid_num};
    ours.recon_cnt = uint16_t{parsed->recon_cnt};
    ours.sess_uuid = parsed->sess_uuid;
    ours.paths_uuid = parsed->paths_uuid;
    ours.flags = parsed->flags;
    EXPECT_LE(parsed->flags, kFirstConn);
    EXPECT_EQ(copy(bytes_of(ours)), golden.bytes);
  });
  EXPECT_EQ(seen, (std::set<std::pair<bool, bool>>{{false, true}, {false, false}, {true, true}}));
}

TEST(LinuxGolden, ItsConnectAnswersAreOurs) {
  for_each("conn_rsp", [](const GoldenMessage& golden) {
    auto parsed = parse_accept(golden.bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message();
    ConnRsp ours;
    ours.queue_depth = uint16_t{parsed->queue_depth};
    ours.max_io_size = uint32_t{parsed->max_io_size};
    ours.max_hdr_size = uint32_t{parsed->max_hdr_size};
    ours.flags = uint32_t{parsed->flags};
    EXPECT_EQ(copy(bytes_of(ours)), golden.bytes);
  });
}

/// To whom it says nothing of its queues, too. Of each reason that a client could give it
/// (tests/lab/no_kernel.py), and for want of memory.
TEST(LinuxGolden, ItsRejectionsAreOurs) {
  std::map<int, int> errors;
  for_each("conn_rej", [&](const GoldenMessage& golden) {
    auto parsed = parse_reject(golden.bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message();
    ++errors[*parsed];
    ConnRsp ours;
    ours.error = static_cast<uint16_t>(-*parsed);
    EXPECT_EQ(copy(bytes_of(ours)), golden.bytes);
  });
  EXPECT_EQ(errors, (std::map<int, int>{{ECONNRESET, 2}, {ENXIO, 2}, {EEXIST, 2}, {ENOMEM, 2}}));
}

TEST(LinuxGolden, ItsInfoExchangeIsOurs) {
  for_each("info_req", [](const GoldenMessage& golden) {
    auto parsed = parse_info_req(golden.bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message();
    InfoReq ours;
    std::memcpy(ours.session_name.data(), parsed->session_name.data(), parsed->session_name.size());
    EXPECT_EQ(copy(bytes_of(ours)), golden.bytes);
  });
  for_each("info_rsp", [](const GoldenMessage& golden) {
    std::vector<ChunkRegion> chunks(kQueueDepth);
    size_t regions = 0;
    auto parsed = parse_info_rsp(golden.bytes, kGoldenChunkBytes, chunks, &regions);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message();
    InfoRsp head;
    head.sg_cnt = static_cast<uint16_t>(regions);
    std::vector<std::byte> ours = copy(bytes_of(head));
    const size_t each = kQueueDepth / regions;
    for (size_t i = 0; i < kQueueDepth; i += each) {
      SgDescriptor region;
      region.address = chunks[i].address;
      region.key = chunks[i].key;
      region.length = static_cast<uint32_t>(each * kGoldenChunkBytes);
      const auto bytes = bytes_of(region);
      ours.insert(ours.end(), bytes.begin(), bytes.end());
    }
    EXPECT_EQ(ours, golden.bytes);
  });
}

/// What we would put behind the user header.
std::vector<std::byte> our_message(const ParsedRequest& request) {
  if (request.direction == Direction::kWrite) {
    WriteMsg message;
    message.usr_len = static_cast<uint16_t>(request.user_header_bytes);
    return copy(bytes_of(message));
  }
  ReadMsg message;
  message.usr_len = static_cast<uint16_t>(request.user_header_bytes);
  message.flags = request.invalidate ? kNeedInvalidate : uint16_t{0};
  message.sg_cnt = static_cast<uint16_t>(request.data_bytes > 0);
  std::vector<std::byte> bytes = copy(bytes_of(message));
  if (request.data_bytes > 0) {
    const auto target = bytes_of(request.target);
    bytes.insert(bytes.end(), target.begin(), target.end());
  }
  return bytes;
}
ParsedRequest take_request(const GoldenMessage& golden) {
  ParsedRequest parsed;
  const Imm imm = decode_imm(golden.imm.value_or(0));
  EXPECT_EQ(imm.type, ImmType::kRequest);
  const ImmCodec codec(kQueueDepth);
  const RequestImm where = codec.decode(imm.payload);
  EXPECT_EQ(codec.encode(where), golden.imm);
  // The write begins at the chunk's start if it has data, and ends with the message. Where it
  // begins else is not told: the offset is known, and the lengths that go before it.
  std::vector<std::byte> chunk(kGoldenChunkBytes);
  for (const size_t message_bytes : {sizeof(WriteMsg), sizeof(ReadMsg), sizeof(ReadMsg) + 16}) {
    if (where.offset_bytes + message_bytes < golden.bytes.size()) continue;
    const size_t start = where.offset_bytes + message_bytes - golden.bytes.size();
    std::copy(golden.bytes.begin(), golden.bytes.end(),
              chunk.begin() + static_cast<ptrdiff_t>(start));
    std::array<std::byte, kUserHeaderBytesMax> header;
    const char* const wrong =
        parse_request(chunk, where.offset_bytes, kGoldenMaxIoBytes, header, parsed);
    if (wrong == nullptr && our_message(parsed).size() == message_bytes) return parsed;
  }
  ADD_FAILURE() << "not taken";
  return parsed;
}

TEST(LinuxGolden, ItsRequestsAreOurs) {
  const std::map<std::string, Direction> directions = {
      {"session_info", Direction::kRead}, {"open", Direction::kRead},
      {"close", Direction::kWrite},       {"io_read", Direction::kRead},
      {"io_write", Direction::kWrite},    {"io_flush", Direction::kRead},
      {"io_discard", Direction::kWrite}};
  for (const auto& [name, direction] : directions) {
    for_each(name.c_str(), [direction = direction](const GoldenMessage& golden) {
      const ParsedRequest parsed = take_request(golden);
      EXPECT_EQ(parsed.direction, direction);
      const auto ours = our_message(parsed);
      ASSERT_LE(ours.size(), golden.bytes.size());
      EXPECT_TRUE(std::equal(ours.rbegin(), ours.rend(), golden.bytes.rbegin()));
    });
  }
}

TEST(LinuxGolden, ItsAnswersAreOursOfEachErrno) {
  std::map<uint32_t, int> errors;
  const auto look = [&](const GoldenMessage& golden) {
    const Imm imm = decode_imm(golden.imm.value_or(0));
    AnswerImm answer = decode_answer(imm.payload);
    answer.invalidated = imm.type == ImmType::kAnswerInvalidated;
    EXPECT_TRUE(answer.invalidated || imm.type == ImmType::kAnswer);
    EXPECT_EQ(encode_answer(answer), golden.imm);
    EXPECT_LT(answer.request_id, kQueueDepth);
    ++errors[answer.sys_errno];
    if (golden.carried_by == "WRITE") {
      EXPECT_TRUE(golden.bytes.empty());
      return;
    }
    auto key = parse_rkey_rsp(golden.bytes, answer.request_id);
    ASSERT_TRUE(key.ok()) << key.error().message();
    RkeyRsp ours;
    ours.buf_id = static_cast<uint16_t>(answer.request_id);
    ours.rkey = *key;
    EXPECT_EQ(copy(bytes_of(ours)), golden.bytes);
  };
  for (const char* const name : {"answer", "answer_invalidated"}) {
    for (const std::string& path : golden_messages(kFolders[0], name)) look(read_golden(path));
    for (const std::string& path : golden_messages(kFolders[1], name + std::string("_with_rkey"))) {
      look(read_golden(path));
    }
  }
  EXPECT_GT(errors[0], 0);
  EXPECT_GT(errors[EIO], 0) << "a disk that fails";
  EXPECT_GT(errors[ENOENT], 0) << "a disk that is not there";
}

TEST(LinuxGolden, ItsHeartbeatsAreOurs) {
  for_each("heartbeat", [](const GoldenMessage& golden) {
    EXPECT_EQ(encode_imm({ImmType::kHeartbeat, 0}), golden.imm);
    EXPECT_TRUE(golden.bytes.empty());
  });
  for_each("heartbeat_answer", [](const GoldenMessage& golden) {
    EXPECT_EQ(encode_imm({ImmType::kHeartbeatAck, 0}), golden.imm);
    EXPECT_TRUE(golden.bytes.empty());
  });
}

/// Linux's client asks in its first request, and its server takes that request's key away.
TEST(LinuxGolden, AnInvalidationTakesAwayTheKeyThatARequestHasGiven) {
  for (const std::string& folder : kFolders) {
    const GoldenMessage invalidate = read_golden(folder + "/invalidate");
    EXPECT_TRUE(invalidate.bytes.empty());
    const ParsedRequest asked = take_request(read_golden(folder + "/session_info"));
    EXPECT_TRUE(asked.invalidate);
    EXPECT_EQ(invalidate.invalidates, uint32_t{asked.target.key});
  }
}

}  // namespace
}  // namespace braid::trs::wire
