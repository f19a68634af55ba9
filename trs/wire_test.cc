// The messages against bytes put together by hand from the offsets of the protocol
// (docs/trs-wire.md), and each rule of the parsers.
#include "trs/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/test_golden.h"
#include "trs/imm.h"

namespace braid::trs::wire {
namespace {

using base::Errc;
using testing::HasSubstr;

using Bytes = std::vector<uint8_t>;

Bytes bytes(std::span<const std::byte> from) {
  Bytes out(from.size());
  std::memcpy(out.data(), from.data(), from.size());
  return out;
}

std::span<const std::byte> view(const Bytes& from) {
  return std::as_bytes(std::span(from));
}

void put(Bytes& at, size_t offset, std::initializer_list<uint8_t> values) {
  std::copy(values.begin(), values.end(), at.begin() + static_cast<std::ptrdiff_t>(offset));
}

ConnReq conn_req() {
  ConnReq req;
  req.cid = uint16_t{1};
  req.cid_num = uint16_t{3};
  req.recon_cnt = uint16_t{0x0405};
  req.sess_uuid.bytes.fill(0xaa);
  req.paths_uuid.bytes.fill(0xbb);
  req.flags = kFirstConn;
  req.braid_magic = kBraidMagic;
  req.braid_features = 0x01u;
  return req;
}

Bytes golden_conn_req() {
  Bytes golden(56, 0);
  put(golden, 2, {0xbd, 0x1b});                // magic
  put(golden, 4, {0x00, 0x02});                // version 2.0
  put(golden, 6, {1, 0});                      // cid
  put(golden, 8, {3, 0});                      // cid_num
  put(golden, 10, {5, 4});                     // recon_cnt
  std::fill_n(golden.begin() + 12, 16, 0xaa);  // sess_uuid
  std::fill_n(golden.begin() + 28, 16, 0xbb);  // paths_uuid
  put(golden, 44, {1});                        // first_conn
  put(golden, 45, {'B', 'R', 'A', 'D', 1, 0, 0, 0});
  return golden;
}

Bytes golden_conn_rsp() {
  Bytes golden(56, 0);
  put(golden, 0, {0xbd, 0x1b, 0x00, 0x02});
  put(golden, 6, {0x00, 0x02});               // queue_depth 512
  put(golden, 8, {0x00, 0xf0, 0x01, 0x00});   // max_io_size 126976
  put(golden, 12, {0x00, 0x10, 0x00, 0x00});  // max_hdr_size 4096
  return golden;
}

TEST(Wire, ConnectRequestHasItsGoldenBytes) {
  EXPECT_EQ(bytes(bytes_of(conn_req())), golden_conn_req());
  auto parsed = parse_conn_req(view(golden_conn_req()));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->cid, 1);
  EXPECT_EQ(parsed->cid_num, 3);
  EXPECT_EQ(parsed->recon_cnt, 0x0405);
  EXPECT_EQ(parsed->braid_magic, kBraidMagic);
}

TEST(Wire, ConnectRequestOfAKernelClientIsTaken) {
  Bytes kernel = golden_conn_req();
  std::fill(kernel.begin() + 45, kernel.end(), 0);
  put(kernel, 0, {7, 4});  // written by its connection manager
  EXPECT_TRUE(parse_conn_req(view(kernel)).ok());
}

TEST(Wire, ConnectRequestMayBePaddedByTheConnectionManager) {
  Bytes padded = golden_conn_req();
  padded.resize(92, 0x5a);
  EXPECT_TRUE(parse_conn_req(view(padded)).ok());
}

struct Damage {
  const char* name;
  size_t offset;
  std::initializer_list<uint8_t> value;
  const char* complaint;
};

TEST(Wire, EveryBadFieldOfAConnectRequestIsNamed) {
  const Damage damages[] = {
      {"magic", 2, {0xbe}, "magic 0x1bbe"},
      {"version", 4, {0, 3}, "protocol 3.0"},
      {"cid beyond", 6, {3, 0}, "connection 3 of 3"},
      {"no I/O connection", 8, {1, 0}, "for 1 connections"},
      {"too many", 8, {1, 0x10}, "for 4097 connections"},
      {"flags", 44, {3}, "unknown flags"},
      {"reserved", 53, {1}, "reserved"},
      {"features without magic", 45, {0, 0, 0, 0}, "reserved"},
  };
  for (const Damage& damage : damages) {
    Bytes bad = golden_conn_req();
    put(bad, damage.offset, damage.value);
    auto parsed = parse_conn_req(view(bad));
    ASSERT_FALSE(parsed.ok()) << damage.name;
    EXPECT_EQ(parsed.code(), Errc::kProtocol) << damage.name;
    EXPECT_THAT(parsed.error().message(), HasSubstr(damage.complaint)) << damage.name;
  }
  Bytes cut = golden_conn_req();
  cut.pop_back();
  EXPECT_THAT(parse_conn_req(view(cut)).error().message(), HasSubstr("55 bytes"));
}

TEST(Wire, ConnectAnswerHasItsGoldenBytes) {
  ConnRsp rsp;
  rsp.queue_depth = uint16_t{512};
  rsp.max_io_size = 131072u - 4096u;
  rsp.max_hdr_size = 4096u;
  EXPECT_EQ(bytes(bytes_of(rsp)), golden_conn_rsp());
  auto parsed = parse_accept(view(golden_conn_rsp()));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->queue_depth, 512);
  EXPECT_EQ(parsed->max_io_size, 126976u);
}

TEST(Wire, EveryBadFieldOfAConnectAnswerIsNamed) {
  const Damage damages[] = {
      {"magic", 0, {0}, "magic"},
      {"version", 3, {1}, "protocol 1.0"},
      {"error", 4, {0xfa, 0xff}, "error -6"},
      {"no chunks", 6, {0, 0}, "0 chunks"},
      {"chunk not a power of two", 8, {1}, "power of two"},
      {"no room for headers", 8, {0xf0, 0xff, 0x01, 0x00, 0x10, 0x00}, "leaves 16 bytes"},
      {"too much for the immediate", 6, {0x00, 0x20}, "28 bits"},
      {"flags", 16, {4}, "unknown flags"},
      {"reserved", 50, {1}, "reserved"},
  };
  for (const Damage& damage : damages) {
    Bytes bad = golden_conn_rsp();
    put(bad, damage.offset, damage.value);
    auto parsed = parse_accept(view(bad));
    ASSERT_FALSE(parsed.ok()) << damage.name;
    EXPECT_THAT(parsed.error().message(), HasSubstr(damage.complaint)) << damage.name;
  }
  Bytes invalidating = golden_conn_rsp();
  put(invalidating, 16, {2});
  EXPECT_TRUE(parse_accept(view(invalidating)).ok());
}

TEST(Wire, RejectCarriesANegativeErrno) {
  Bytes reject(56, 0);
  put(reject, 0, {0xbd, 0x1b, 0x00, 0x02, 0xfa, 0xff});  // -6
  auto parsed = parse_reject(view(reject));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, 6);
  EXPECT_FALSE(parse_reject({}).ok());
}

TEST(Wire, InfoRequestHasItsGoldenBytes) {
  InfoReq req;
  std::memcpy(req.session_name.data(), "node7", 5);
  Bytes golden(272, 0);
  put(golden, 2, {'n', 'o', 'd', 'e', '7'});
  EXPECT_EQ(bytes(bytes_of(req)), golden);
  auto info = parse_info_req(view(golden));
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->session_name, "node7");
  EXPECT_EQ(info->admin_permits, 0) << "as from a kernel";
  Bytes with_admin = golden;
  with_admin[257] = 4;
  req.braid_admin_permits = 4;
  EXPECT_EQ(bytes(bytes_of(req)), with_admin);
  EXPECT_EQ(parse_info_req(view(with_admin)).value().admin_permits, 4);

  Bytes other_type = golden;
  other_type[0] = 1;
  EXPECT_FALSE(parse_info_req(view(other_type)).ok());
  Bytes endless = golden;
  std::fill(endless.begin() + 2, endless.begin() + 257, 'x');
  EXPECT_THAT(parse_info_req(view(endless)).error().message(), HasSubstr("does not end"));
  Bytes control = golden;
  control[3] = '\n';
  EXPECT_FALSE(parse_info_req(view(control)).ok());
  Bytes unnamed(272, 0);
  EXPECT_FALSE(parse_info_req(view(unnamed)).ok());
  golden.push_back(0);
  EXPECT_FALSE(parse_info_req(view(golden)).ok());
}

Bytes golden_info_rsp() {
  Bytes golden(8 + 2 * 16, 0);
  put(golden, 0, {1, 0, 2, 0});
  put(golden, 8, {0x00, 0x00, 0x10, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0x00, 0x40, 0, 0});
  put(golden, 24, {0x00, 0x00, 0x20, 0, 0, 0, 0, 0, 5, 6, 7, 8, 0x00, 0x40, 0, 0});
  return golden;
}

TEST(Wire, InfoAnswerGivesEachChunkItsPlaceAndKey) {
  std::vector<ChunkRegion> chunks(4);
  ASSERT_TRUE(parse_info_rsp(view(golden_info_rsp()), 0x2000, chunks).ok());
  EXPECT_EQ(chunks[0].address, 0x100000u);
  EXPECT_EQ(chunks[1].address, 0x102000u);
  EXPECT_EQ(chunks[2].address, 0x200000u);
  EXPECT_EQ(chunks[1].key, 0x04030201u);
  EXPECT_EQ(chunks[3].key, 0x08070605u);
}

TEST(Wire, InfoAnswerMustCoverAllChunksExactly) {
  std::vector<ChunkRegion> chunks(4);
  std::vector<ChunkRegion> odd(3);
  EXPECT_FALSE(parse_info_rsp(view(golden_info_rsp()), 0x1000, chunks).ok());
  EXPECT_FALSE(parse_info_rsp(view(golden_info_rsp()), 0x2000, odd).ok());
  Bytes no_regions = golden_info_rsp();
  no_regions[2] = 0;
  EXPECT_FALSE(parse_info_rsp(view(no_regions), 0x2000, chunks).ok());
  Bytes wrapping = golden_info_rsp();
  std::fill_n(wrapping.begin() + 8, 8, 0xff);
  EXPECT_FALSE(parse_info_rsp(view(wrapping), 0x2000, chunks).ok());
  Bytes cut = golden_info_rsp();
  cut.pop_back();
  EXPECT_FALSE(parse_info_rsp(view(cut), 0x2000, chunks).ok());
}

/// A chunk of 4 KiB with a request in it.
class Request : public ::testing::Test {
 protected:
  void place(size_t offset, std::initializer_list<uint8_t> values) { put(chunk_, offset, values); }
  const char* parse(uint32_t offset, uint32_t max_io_bytes = 2048) {
    return parse_request(view(chunk_), offset, max_io_bytes, header_, out_);
  }
  Bytes chunk_ = Bytes(4096, 0);
  std::array<std::byte, kUserHeaderBytesMax> header_{};
  ParsedRequest out_;
};

TEST_F(Request, WriteIsDataThenUserHeaderThenMessage) {
  place(512, {'h', 'e', 'a', 'd'});
  place(516, {2, 0, 4, 0});
  ASSERT_EQ(parse(516), nullptr);
  EXPECT_EQ(out_.direction, Direction::kWrite);
  EXPECT_EQ(out_.data_bytes, 512u);
  EXPECT_EQ(out_.user_header_bytes, 4u);
  EXPECT_EQ(std::memcmp(header_.data(), "head", 4), 0);
}

TEST_F(Request, ReadNamesItsTarget) {
  place(1024, {'h', 'i'});
  place(1026, {3, 0, 2, 0, 1, 0, 1, 0});
  place(1034, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x00, 0x04, 0, 0});
  ASSERT_EQ(parse(1026), nullptr);
  EXPECT_EQ(out_.direction, Direction::kRead);
  EXPECT_EQ(out_.data_bytes, 1024u);
  EXPECT_EQ(out_.target.address, 0x0807060504030201u);
  EXPECT_EQ(out_.target.key, 0x0c0b0a09u);
}

TEST_F(Request, ReadWithoutTargetAsksForNothing) {
  place(0, {3, 0, 0, 0, 0, 0, 0, 0});
  ASSERT_EQ(parse(0), nullptr);
  EXPECT_EQ(out_.data_bytes, 0u);
}

TEST_F(Request, ReadOfMoreThanItsDataAreaIsRefused) {
  place(1026, {3, 0, 2, 0, 0, 0, 1, 0});
  place(1034, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0x04, 0, 0});
  EXPECT_STREQ(parse(1026), "read of more than its data area");
  place(1034 + 12, {0xff, 0xff, 0xff, 0xff});
  EXPECT_STREQ(parse(1026), "read of more than its data area");
}

TEST_F(Request, UserHeaderLongerThanItsOffsetIsRefused) {
  place(16, {2, 0, 17, 0});
  EXPECT_STREQ(parse(16), "user header longer than what precedes the message");
  place(2048, {2, 0, 0x01, 0x04});
  EXPECT_STREQ(parse(2048), "user header too long");
}

TEST_F(Request, MessageThatStraddlesTheChunksEndIsRefused) {
  EXPECT_STREQ(parse(4093), "message beyond the chunk's end");
  EXPECT_STREQ(parse(4096), "message beyond the chunk's end");
  EXPECT_STREQ(parse(UINT32_MAX), "message beyond the chunk's end");
  place(4090, {3, 0, 0, 0});
  EXPECT_STREQ(parse(4090), "message beyond the chunk's end");
  place(4080, {3, 0, 0, 0, 0, 0, 1, 0});
  EXPECT_STREQ(parse(4080), "message beyond the chunk's end");
}

TEST_F(Request, MoreDataThanGrantedIsRefused) {
  place(2052, {2, 0, 0, 0});
  EXPECT_STREQ(parse(2052), "more data than the session allows");
}

TEST_F(Request, UnknownTypesFlagsAndTargetCountsAreRefused) {
  place(0, {4, 0, 0, 0});
  EXPECT_STREQ(parse(0), "unknown message type");
  place(0, {3, 0, 0, 0, 2, 0, 0, 0});
  EXPECT_STREQ(parse(0), "unknown flags in a read request");
  place(0, {3, 0, 0, 0, 0, 0, 2, 0});
  EXPECT_STREQ(parse(0), "more than one target in a read request");
}

// --- what Linux says (tests/golden/rtrs)

base::GoldenMessage linux_says(const std::string& message, char always_invalidate = 'n') {
  return base::read_golden(std::string("rtrs/always_invalidate_") + always_invalidate + "/" +
                           message);
}

TEST(WireLinux, ItsConnectRequestIsTakenAndOursDiffersInBraidsBytesOnly) {
  const auto golden = linux_says("conn_req");
  ASSERT_EQ(golden.bytes.size(), sizeof(ConnReq));
  auto parsed = parse_conn_req(golden.bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->cid, 0);
  EXPECT_EQ(parsed->cid_num, 5) << "one for each of 4 CPUs and one for service";
  EXPECT_EQ(parsed->flags, kFirstConn);
  EXPECT_EQ(parsed->braid_magic, 0u);
  ConnReq ours;
  ours.cid = uint16_t{parsed->cid};
  ours.cid_num = uint16_t{parsed->cid_num};
  ours.recon_cnt = uint16_t{parsed->recon_cnt};
  ours.sess_uuid = parsed->sess_uuid;
  ours.paths_uuid = parsed->paths_uuid;
  ours.flags = kFirstConn;
  EXPECT_EQ(bytes(bytes_of(ours)), bytes(golden.bytes));
}

TEST(WireLinux, ItsAcceptIsWhatWeWouldSay) {
  const auto golden = linux_says("conn_rsp");
  auto parsed = parse_accept(golden.bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->queue_depth, 512);
  EXPECT_EQ(parsed->max_io_size, 126976u);
  EXPECT_EQ(parsed->max_hdr_size, 4096u);
  ConnRsp ours;
  ours.queue_depth = uint16_t{512};
  ours.max_io_size = 126976u;
  ours.max_hdr_size = 4096u;
  EXPECT_EQ(bytes(bytes_of(ours)), bytes(golden.bytes));
  ours.flags = kNewRkey;
  EXPECT_EQ(bytes(bytes_of(ours)), bytes(linux_says("conn_rsp", 'y').bytes));
}

TEST(WireLinux, ItsInfoRequestIsTaken) {
  const auto golden = linux_says("info_req");
  auto parsed = parse_info_req(golden.bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->session_name, "lab");
  EXPECT_EQ(parsed->admin_permits, 0);
}

TEST(WireLinux, ItsChunksAreOneRegionOrOneEach) {
  constexpr uint32_t kChunkBytes = 128 * 1024;
  for (const auto& [invalidate, regions] : {std::pair{'n', 1u}, {'y', 512u}}) {
    const auto golden = linux_says("info_rsp", invalidate);
    EXPECT_EQ(golden.bytes.size(), sizeof(InfoRsp) + regions * sizeof(SgDescriptor));
    std::vector<ChunkRegion> chunks(512);
    const auto status = parse_info_rsp(golden.bytes, kChunkBytes, chunks);
    ASSERT_TRUE(status.ok()) << status.error().message();
    EXPECT_NE(chunks[0].address, chunks[1].address);
    EXPECT_EQ(chunks[0].key == chunks[1].key, regions == 1);
  }
}

/// A chunk as the golden write left it, and where the immediate points to.
struct Written {
  std::vector<std::byte> chunk;
  RequestImm where;
};
Written written(const base::GoldenMessage& golden, size_t message_bytes) {
  constexpr uint32_t kChunkBytes = 128 * 1024;
  Written result;
  const Imm imm = decode_imm(golden.imm.value_or(0));
  EXPECT_EQ(imm.type, ImmType::kRequest);
  result.where = ImmCodec(512).decode(imm.payload);
  EXPECT_EQ(ImmCodec(512).encode(result.where), golden.imm);
  result.chunk.resize(kChunkBytes);
  const size_t end = result.where.offset_bytes + message_bytes;
  std::copy(golden.bytes.begin(), golden.bytes.end(),
            result.chunk.begin() + static_cast<ptrdiff_t>(end - golden.bytes.size()));
  return result;
}

TEST(WireLinux, ItsReadsAreTaken) {
  for (const char invalidate : {'n', 'y'}) {
    const auto request =
        written(linux_says("io_read", invalidate), sizeof(ReadMsg) + sizeof(SgDescriptor));
    std::array<std::byte, kUserHeaderBytesMax> header;
    ParsedRequest parsed;
    ASSERT_STREQ(parse_request(request.chunk, request.where.offset_bytes, 126976, header, parsed),
                 nullptr);
    EXPECT_EQ(parsed.direction, Direction::kRead);
    EXPECT_EQ(parsed.data_bytes, 4096u);
    EXPECT_EQ(parsed.user_header_bytes, 32u);
    EXPECT_EQ(parsed.target.length, 4096u);
  }
}

TEST(WireLinux, ItsWritesAreTaken) {
  const auto request = written(linux_says("io_write"), sizeof(WriteMsg));
  EXPECT_EQ(request.where.offset_bytes, 4096u + 32);
  std::array<std::byte, kUserHeaderBytesMax> header;
  ParsedRequest parsed;
  ASSERT_STREQ(parse_request(request.chunk, request.where.offset_bytes, 126976, header, parsed),
               nullptr);
  EXPECT_EQ(parsed.direction, Direction::kWrite);
  EXPECT_EQ(parsed.data_bytes, 4096u);
  EXPECT_EQ(parsed.user_header_bytes, 32u);
}

TEST(WireLinux, ItsAnswersAndHeartbeatsAreOurs) {
  const Imm answer = decode_imm(*linux_says("answer").imm);
  EXPECT_EQ(answer.type, ImmType::kAnswer);
  EXPECT_EQ(decode_answer(answer.payload).sys_errno, 0u);
  EXPECT_EQ(encode_answer(decode_answer(answer.payload)), *linux_says("answer").imm);
  EXPECT_EQ(decode_imm(*linux_says("answer_invalidated").imm).type, ImmType::kAnswerInvalidated);
  EXPECT_EQ(encode_imm({ImmType::kHeartbeat, 0}), *linux_says("heartbeat").imm);
  EXPECT_EQ(encode_imm({ImmType::kHeartbeatAck, 0}), *linux_says("heartbeat_answer").imm);
}

TEST(WireLinux, ItsNewKeysComeInASendWithTheAnswersImmediate) {
  for (const char* const name : {"answer_with_rkey", "answer_invalidated_with_rkey"}) {
    const auto golden = linux_says(name, 'y');
    EXPECT_EQ(golden.carried_by, "SEND");
    ASSERT_EQ(golden.bytes.size(), sizeof(RkeyRsp));
    RkeyRsp rsp;
    std::memcpy(&rsp, golden.bytes.data(), sizeof rsp);
    EXPECT_EQ(rsp.type, static_cast<uint16_t>(MessageType::kRkeyRsp));
    EXPECT_EQ(rsp.buf_id, decode_answer(decode_imm(*golden.imm).payload).request_id)
        << "the permit's chunk";
    EXPECT_NE(rsp.rkey, 0u);
  }
}

}  // namespace
}  // namespace braid::trs::wire
