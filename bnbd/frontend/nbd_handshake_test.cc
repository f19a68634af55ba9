// The handshake as bytes: what each option is answered with, and how it ends.
#include "bnbd/frontend/nbd_handshake.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/endian.h"

namespace braid::bnbd {
namespace {

using base::be16;
using base::be32;
using base::be64;
using State = NbdHandshake::State;

constexpr uint32_t kAck = 1, kServer = 2, kInfo = 3;
constexpr uint32_t kUnsupported = 0x80000001, kPolicy = 0x80000002, kInvalid = 0x80000003,
                   kUnknown = 0x80000006, kShutdown = 0x80000007, kTooBig = 0x80000009;
constexpr uint32_t kExportName = 1, kAbort = 2, kList = 3, kStartTls = 5, kInfoOption = 6, kGo = 7,
                   kStructured = 8, kSetMeta = 10;

template <typename T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
std::string option(uint32_t number, const std::string& data = {}) {
  return bytes_of(be64(0x49484156454f5054)) + bytes_of(be32(number)) +
         bytes_of(be32(static_cast<uint32_t>(data.size()))) + data;
}
std::string go(const std::string& name, const std::vector<uint16_t>& wanted = {}) {
  std::string data = bytes_of(be32(static_cast<uint32_t>(name.size()))) + name +
                     bytes_of(be16(static_cast<uint16_t>(wanted.size())));
  for (const uint16_t one : wanted) data += bytes_of(be16(one));
  return data;
}

struct Reply {
  uint32_t option = 0;
  uint32_t type = 0;
  std::string data;
};

class NbdHandshakeTest : public testing::Test {
 protected:
  NbdHandshakeTest() {
    NbdOffer first;
    first.name = "first";
    first.description = "the first one";
    first.size_bytes = 1 << 20;
    first.flags = 0x0101;
    first.flags_structured = 0x0181;
    NbdOffer second = first;
    second.name = "second";
    second.description.clear();
    second.size_bytes = 2 << 20;
    second.block_min_bytes = 4096;
    offers_.all = {first, second};
  }
  void greet(uint32_t flags = 3) {
    EXPECT_EQ(take(18), std::string("NBDMAGICIHAVEOPT\0\3", 18));
    feed(bytes_of(be32(flags)));
  }
  void feed(const std::string& bytes) {
    ASSERT_TRUE(handshake_.wants_input());
    handshake_.received(std::as_bytes(std::span(bytes)));
  }
  std::string take(size_t length) {
    const auto output = handshake_.output();
    EXPECT_GE(output.size(), length);
    const std::string bytes(reinterpret_cast<const char*>(output.data()),
                            std::min(length, output.size()));
    handshake_.sent(bytes.size());
    return bytes;
  }
  template <typename T>
  static T first_of(const std::string& bytes, size_t at = 0) {
    T value;
    EXPECT_GE(bytes.size(), at + sizeof(value));
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    return value;
  }
  /// All replies that are there.
  std::vector<Reply> replies() {
    std::string bytes = take(handshake_.output().size());
    std::vector<Reply> all;
    while (!bytes.empty()) {
      EXPECT_EQ(first_of<be64>(bytes), 0x0003e889045565a9U);
      const size_t length = first_of<be32>(bytes, 16);
      all.push_back(
          {first_of<be32>(bytes, 8), first_of<be32>(bytes, 12), bytes.substr(20, length)});
      bytes.erase(0, 20 + length);
    }
    return all;
  }
  Reply ask(uint32_t number, const std::string& data = {}) {
    feed(option(number, data));
    const std::vector<Reply> all = replies();
    EXPECT_EQ(all.size(), 1U);
    EXPECT_EQ(all.front().option, number);
    return all.front();
  }
  /// Of an INFO or GO: the data of each information, by its type; the last reply is an ACK.
  std::map<uint16_t, std::string> infos(uint32_t number, const std::string& data) {
    feed(option(number, data));
    std::map<uint16_t, std::string> by_type;
    std::vector<Reply> all = replies();
    EXPECT_EQ(all.back().type, kAck);
    all.pop_back();
    for (const Reply& reply : all) {
      EXPECT_EQ(reply.type, kInfo);
      by_type[first_of<be16>(reply.data)] = reply.data.substr(2);
    }
    return by_type;
  }

  NbdOffers offers_;
  NbdHandshake handshake_{[this] { return offers_; }};
};

TEST_F(NbdHandshakeTest, GoGivesAnExportWithItsSizeFlagsAndLimits) {
  greet();
  const auto all = infos(kGo, go("second"));
  EXPECT_EQ(all.at(0), bytes_of(be64(2 << 20)) + bytes_of(be16(0x0101)));
  EXPECT_EQ(all.at(3), bytes_of(be32(4096)) + bytes_of(be32(4096)) + bytes_of(be32(32 << 20)));
  EXPECT_EQ(all.count(1), 0U) << "the name was not asked for";
  EXPECT_EQ(handshake_.state(), State::kGranted);
  EXPECT_EQ(handshake_.export_name(), "second");
  EXPECT_FALSE(handshake_.structured());
}

TEST_F(NbdHandshakeTest, AnEmptyNameIsTheFirstExportAndItsNameIsTold) {
  greet();
  EXPECT_EQ(infos(kGo, go("")).at(1), "first");
  EXPECT_EQ(handshake_.export_name(), "first");
}

TEST_F(NbdHandshakeTest, AnEmptyNameIsTheDefaultExportWhereverItIs) {
  offers_.default_name = "second";
  greet();
  EXPECT_EQ(infos(kGo, go("")).at(1), "second");
  EXPECT_EQ(handshake_.export_name(), "second");
}

/// A client that comes back while its disk is away must not write to another one.
TEST_F(NbdHandshakeTest, AnEmptyNameIsRefusedInWordsWhileTheDefaultExportIsNotThere) {
  offers_.default_name = "vm";
  greet();
  const std::string words =
      "\"vm\", which a client gets that names no export, is not there just now";
  for (const uint32_t number : {kInfoOption, kGo}) {
    const Reply reply = ask(number, go(""));
    EXPECT_EQ(reply.type, kUnknown);
    EXPECT_EQ(reply.data, words + "; there are: \"first\", \"second\"");
    EXPECT_EQ(ask(number, go("vm")).data,
              "there is no export \"vm\"; there are: \"first\", \"second\"");
  }
  feed(option(kList));
  EXPECT_EQ(replies().size(), 3U) << "what is there is told all the same";
  EXPECT_EQ(infos(kInfoOption, go("second")).count(0), 1U);
  offers_.all.clear();
  EXPECT_EQ(ask(kGo, go("")).data, words + ", and nothing else is");
  EXPECT_EQ(handshake_.state(), State::kTalking);
}

TEST_F(NbdHandshakeTest, ExportNameWithoutANameEndsItWhileTheDefaultExportIsNotThere) {
  offers_.default_name = "vm";
  greet();
  feed(option(kExportName, ""));
  EXPECT_EQ(handshake_.state(), State::kEnded);
  EXPECT_TRUE(handshake_.output().empty()) << "a size would be taken for success";
  EXPECT_EQ(handshake_.reason().find("\"vm\", which a client gets"), 0U) << handshake_.reason();
}

TEST_F(NbdHandshakeTest, AServerThatEndsLetsNobodyIn) {
  offers_.ending = true;
  greet();
  for (const uint32_t number : {kInfoOption, kGo}) {
    for (const char* name : {"", "first", "third"}) {
      const Reply reply = ask(number, go(name));
      EXPECT_EQ(reply.type, kShutdown);
      EXPECT_EQ(reply.data, "this server is ending, and lets nobody in any more");
    }
  }
  feed(option(kExportName, "first"));
  EXPECT_EQ(handshake_.state(), State::kEnded);
  EXPECT_TRUE(handshake_.output().empty());
}

TEST_F(NbdHandshakeTest, InfoTellsWhatIsAskedAndGoesOn) {
  greet();
  const auto all = infos(kInfoOption, go("first", {1, 2, 3, 77}));
  EXPECT_EQ(all.at(1), "first");
  EXPECT_EQ(all.at(2), "the first one");
  EXPECT_EQ(all.size(), 4U);
  EXPECT_EQ(handshake_.state(), State::kTalking);
  EXPECT_EQ(infos(kInfoOption, go("second", {2})).count(2), 0U) << "it has no description";
}

TEST_F(NbdHandshakeTest, StructuredRepliesChangeTheFlags) {
  greet();
  EXPECT_EQ(ask(kStructured, "x").type, kInvalid);
  EXPECT_EQ(ask(kStructured).type, kAck);
  EXPECT_EQ(infos(kGo, go("first")).at(0).substr(8), bytes_of(be16(0x0181)));
  EXPECT_TRUE(handshake_.structured());
}

TEST_F(NbdHandshakeTest, AnUnknownNameIsToldWhatThereIs) {
  greet();
  const Reply reply = ask(kGo, go("third\n"));
  EXPECT_EQ(reply.type, kUnknown);
  EXPECT_EQ(reply.data, "there is no export \"third?\"; there are: \"first\", \"second\"");
  EXPECT_EQ(handshake_.state(), State::kTalking);
  offers_.all.clear();
  EXPECT_EQ(ask(kGo, go("")).data, "nothing is exported here just now");
}

TEST_F(NbdHandshakeTest, ListNamesAll) {
  greet();
  EXPECT_EQ(ask(kList, "x").type, kInvalid);
  feed(option(kList));
  const std::vector<Reply> all = replies();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].type, kServer);
  EXPECT_EQ(all[0].data, bytes_of(be32(5)) + "firstthe first one");
  EXPECT_EQ(all[1].data, bytes_of(be32(6)) + "second");
  EXPECT_EQ(all[2].type, kAck);
}

TEST_F(NbdHandshakeTest, AnExportThatIsFullRefusesInWordsButTellsOfItself) {
  offers_.all[0].refusal = "it is full";
  greet();
  const Reply reply = ask(kGo, go("first"));
  EXPECT_EQ(reply.type, kPolicy);
  EXPECT_EQ(reply.data, "it is full");
  EXPECT_EQ(infos(kInfoOption, go("first")).size(), 2U);
}

TEST_F(NbdHandshakeTest, RefusesWhatItDoesNotHave) {
  greet();
  const Reply tls = ask(kStartTls);
  EXPECT_EQ(tls.type, kUnsupported);
  EXPECT_NE(tls.data.find("no TLS"), std::string::npos);
  EXPECT_EQ(ask(kSetMeta, std::string(12, '\0')).type, kUnsupported);
  EXPECT_EQ(ask(0xffffffff).type, kUnsupported);
  EXPECT_EQ(handshake_.state(), State::kTalking);
}

TEST_F(NbdHandshakeTest, MalformedGoIsInvalidWhateverTheLengthsSay) {
  greet();
  for (const std::string& data :
       {std::string(), std::string(3, '\0'), bytes_of(be32(0xffffffff)), bytes_of(be32(5)) + "fir",
        bytes_of(be32(5)) + "first", go("first", {1}) + "x", go("first", {1, 2}).substr(0, 13),
        bytes_of(be32(4097)) + std::string(4097 + 2, 'x')}) {
    EXPECT_EQ(ask(kGo, data).type, kInvalid) << data.size();
  }
  EXPECT_EQ(handshake_.state(), State::kTalking);
}

TEST_F(NbdHandshakeTest, ALongOptionIsSkippedAndTheNextOneIsHeard) {
  greet();
  const std::string data(100'000, 'x');
  const std::string stream = option(kSetMeta, data) + option(kList, "x");
  feed(stream.substr(0, NbdHandshake::kInputMax));
  EXPECT_EQ(replies().at(0).type, kTooBig);
  for (size_t at = NbdHandshake::kInputMax; at < stream.size(); at += NbdHandshake::kInputMax) {
    feed(stream.substr(at, NbdHandshake::kInputMax));
  }
  EXPECT_EQ(replies().at(0).type, kInvalid);
}

TEST_F(NbdHandshakeTest, AnOptionWithoutEndAndOptionsWithoutEndEndIt) {
  greet();
  feed(bytes_of(be64(0x49484156454f5054)) + bytes_of(be32(kList)) + bytes_of(be32(0xffffffff)));
  EXPECT_EQ(handshake_.state(), State::kEnded);

  NbdHandshake other([this] { return offers_; });
  other.sent(18);
  const std::string flags = bytes_of(be32(3));
  other.received(std::as_bytes(std::span(flags)));
  const std::string list = option(kList);
  int options = 0;
  for (; other.wants_input() && options < 1000; ++options) {
    other.received(std::as_bytes(std::span(list)));
    other.sent(other.output().size());
  }
  EXPECT_LT(options, 100);
  EXPECT_EQ(other.state(), State::kEnded);
}

TEST_F(NbdHandshakeTest, ExportNameIsAnsweredWithZeroesUnlessTheClientWantsNone) {
  greet(1);
  feed(option(kExportName, "first"));
  EXPECT_EQ(take(134), bytes_of(be64(1 << 20)) + bytes_of(be16(0x0101)) + std::string(124, '\0'));
  EXPECT_EQ(handshake_.state(), State::kGranted);

  NbdHandshake other([this] { return offers_; });
  other.sent(18);
  const std::string bytes = bytes_of(be32(3)) + option(kExportName, "second");
  other.received(std::as_bytes(std::span(bytes)));
  EXPECT_EQ(other.output().size(), 10U);
}

TEST_F(NbdHandshakeTest, ExportNameForWhatThereIsNotEndsIt) {
  greet();
  feed(option(kExportName, "third"));
  EXPECT_EQ(handshake_.state(), State::kEnded);
  EXPECT_NE(handshake_.reason().find("third"), std::string::npos);
}

TEST_F(NbdHandshakeTest, AClientWithoutFixedNewstyleMayOnlyNameAnExport) {
  greet(0);
  feed(option(kList));
  EXPECT_EQ(handshake_.state(), State::kEnded);
}

TEST_F(NbdHandshakeTest, UnknownClientFlagsAndWrongMagicsEndIt) {
  greet(4);
  EXPECT_EQ(handshake_.state(), State::kEnded);
  NbdHandshake other([this] { return offers_; });
  other.sent(18);
  const std::string bytes = bytes_of(be32(3)) + std::string(16, 'g');
  other.received(std::as_bytes(std::span(bytes)));
  EXPECT_EQ(other.state(), State::kEnded);
}

TEST_F(NbdHandshakeTest, AbortIsAcknowledgedAndEndsItWithoutComplaint) {
  greet();
  EXPECT_EQ(ask(kAbort).type, kAck);
  EXPECT_EQ(handshake_.state(), State::kEnded);
  EXPECT_EQ(handshake_.reason(), "");
}

TEST_F(NbdHandshakeTest, PipelinedOptionsAreAnsweredOneAfterTheOtherAndTheRestIsKept) {
  greet();
  feed(option(kStructured) + option(kGo, go("first")) + "early");
  const std::vector<Reply> first = replies();
  ASSERT_EQ(first.size(), 1U) << "the next option waits until the answer is sent";
  EXPECT_EQ(handshake_.state(), State::kGranted);
  EXPECT_EQ(replies().back().type, kAck);
  const std::vector<std::byte> rest = handshake_.rest();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(rest.data()), rest.size()), "early");
}

TEST_F(NbdHandshakeTest, ByteByByteIsTheSame) {
  greet();
  const std::string stream = option(kGo, go("first"));
  for (const char byte : stream) feed(std::string(1, byte));
  EXPECT_EQ(handshake_.state(), State::kGranted);
}

}  // namespace
}  // namespace braid::bnbd
