#include "trs/server/admission.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace braid::trs::server {
namespace {

using Kind = Admission::Kind;
using S = ServerPathState;

constexpr uint32_t kEpoch = 0xabc;

wire::ConnReq request(uint16_t cid, uint16_t recon_cnt, bool first_conn) {
  wire::ConnReq req;
  req.cid = cid;
  req.cid_num = uint16_t{3};
  req.recon_cnt = recon_cnt;
  req.flags = first_conn ? wire::kFirstConn : uint8_t{0};
  return req;
}

wire::ConnReq joining(uint16_t recon_cnt, uint32_t epoch) {
  wire::ConnReq req = request(0, recon_cnt, false);
  wire::set_joined_epoch(req, epoch);
  return req;
}

KnownPath known_path(S state, uint16_t recon_cnt) {
  KnownPath path;
  path.state = state;
  path.recon_cnt = recon_cnt;
  path.cid_num = 3;
  return path;
}

/// A session with one path, the one that the requests here name.
KnownSession known(S state, uint16_t recon_cnt) {
  KnownSession session;
  session.live = state == S::kConnecting || state == S::kConnected;
  session.open = state == S::kConnected;
  session.sequenced = true;
  session.epoch = kEpoch;
  session.recon_cnt = recon_cnt;
  session.cid_num = 3;
  session.paths = 1;
  session.path = known_path(state, recon_cnt);
  return session;
}

void expect_reject(const Admission& admission, int sys_errno) {
  EXPECT_EQ(admission.kind, Kind::kReject);
  EXPECT_EQ(admission.sys_errno, sys_errno);
}

TEST(Admission, UnknownSessionNeedsFirstConn) {
  EXPECT_EQ(admit(request(0, 1, true), nullptr, Room{}).kind, Kind::kNew);
  expect_reject(admit(request(0, 1, false), nullptr, Room{}), ENXIO);
  expect_reject(admit(request(0, 1, true), nullptr, Room{.session = false}), ENOMEM);
}

TEST(Admission, ClientThatComesBackReplacesItsFormerLife) {
  for (const S state : {S::kConnecting, S::kConnected, S::kClosing}) {
    const KnownSession session = known(state, 4);
    EXPECT_EQ(admit(request(0, 5, false), &session, Room{.session = false}).kind, Kind::kReplace)
        << to_string(state);
  }
}

TEST(Admission, ComingBackByAnotherPathReplacesTheFormerLifeToo) {
  KnownSession session = known(S::kConnected, 4);
  session.path.reset();
  EXPECT_EQ(admit(request(0, 5, false), &session, Room{}).kind, Kind::kReplace);
}

TEST(Admission, LateDuplicateOfAnOldConnectIsRefused) {
  KnownSession session = known(S::kConnected, 4);
  expect_reject(admit(request(0, 4, true), &session, Room{}), ECONNRESET);
  expect_reject(admit(request(0, 3, true), &session, Room{}), ECONNRESET);
  session.path.reset();  // by another path
  expect_reject(admit(request(0, 3, true), &session, Room{}), ECONNRESET);
}

TEST(Admission, ConnectionsBeyondTheServersOrTheClientsShareAreRefused) {
  wire::ConnReq asked = request(0, 5, true);
  asked.cid_num = uint16_t{9};
  EXPECT_EQ(admit(asked, nullptr, Room{.connections = 9}).kind, Kind::kNew);
  expect_reject(admit(asked, nullptr, Room{.connections = 8}), ENOMEM);
  expect_reject(admit(asked, nullptr, Room{.of_client = 8}), ENOMEM);
  KnownSession session = known(S::kConnected, 4);
  session.connections = 100;
  const uint16_t cid_num = request(0, 5, false).cid_num;
  EXPECT_EQ(admit(request(0, 5, false), &session, Room{.of_client = 100u + cid_num}).kind,
            Kind::kReplace);
  expect_reject(admit(request(0, 5, false), &session, Room{.of_client = 99u + cid_num}), ENOMEM);
}

TEST(Admission, OneAddressIsRefusedWhereOthersStillFindRoom) {
  expect_reject(admit(request(0, 1, true), nullptr, Room{.session_of_address = false}), EDQUOT);
  const uint16_t cid_num = request(0, 1, true).cid_num;
  EXPECT_EQ(admit(request(0, 1, true), nullptr, Room{.of_address = cid_num}).kind, Kind::kNew);
  expect_reject(admit(request(0, 1, true), nullptr, Room{.of_address = cid_num - 1u}), EDQUOT);
  const KnownSession session = known(S::kConnected, 4);
  EXPECT_EQ(admit(request(0, 5, false), &session, Room{.session_of_address = false}).kind,
            Kind::kReplace);
}

TEST(Admission, ReconnectCounterWraps) {
  const KnownSession session = known(S::kConnected, 65535);
  EXPECT_EQ(admit(request(0, 0, false), &session, Room{}).kind, Kind::kReplace);
  EXPECT_EQ(admit(joining(0, kEpoch), &session, Room{}).kind, Kind::kPath);
}

TEST(Admission, PathJoinsTheIncarnationThatItNames) {
  KnownSession session = known(S::kConnected, 4);
  session.path.reset();
  EXPECT_EQ(admit(joining(5, kEpoch), &session, Room{.session = false}).kind, Kind::kPath);
  expect_reject(admit(joining(5, kEpoch + 1), &session, Room{}), ENXIO);
  expect_reject(admit(joining(5, kEpoch), nullptr, Room{}), ENXIO);
  session.paths = kPathsMax;
  expect_reject(admit(joining(5, kEpoch), &session, Room{}), EBUSY);
}

TEST(Admission, NoPathJoinsWhatIsNotOpen) {
  for (const S state : {S::kConnecting, S::kClosing, S::kClosed}) {
    const KnownSession session = known(state, 4);
    expect_reject(admit(joining(5, kEpoch), &session, Room{}), ENXIO);
  }
}

TEST(Admission, PathThatJoinsAgainMustBeNewerAndAlike) {
  const KnownSession session = known(S::kConnected, 4);
  EXPECT_EQ(admit(joining(5, kEpoch), &session, Room{}).kind, Kind::kPath);
  expect_reject(admit(joining(4, kEpoch), &session, Room{}), ECONNRESET);
  KnownSession fewer = known(S::kConnected, 4);
  fewer.cid_num = 2;
  expect_reject(admit(joining(5, kEpoch), &fewer, Room{}), ECONNRESET);
}

TEST(Admission, ClientWithoutIncarnationsAddsPathsByTheirName) {
  KnownSession session = known(S::kConnected, 4);
  session.sequenced = false;
  EXPECT_EQ(admit(request(0, 5, false), &session, Room{}).kind, Kind::kReplace) << "its only path";
  session.paths = 2;
  EXPECT_EQ(admit(request(0, 5, false), &session, Room{}).kind, Kind::kPath) << "one of two";
  session.path.reset();
  session.paths = 1;
  EXPECT_EQ(admit(request(0, 1, false), &session, Room{}).kind, Kind::kPath) << "a second one";
  session.open = false;
  session.live = false;
  EXPECT_EQ(admit(request(0, 1, false), &session, Room{}).kind, Kind::kReplace);
}

TEST(Admission, ClientWhoseLivesDoNotEndGetsNoMoreOfThem) {
  KnownSession session = known(S::kConnecting, 4);
  session.lives = kLivesMax - 1;
  EXPECT_EQ(admit(request(0, 5, false), &session, Room{}).kind, Kind::kReplace);
  session.lives = kLivesMax;
  expect_reject(admit(request(0, 5, false), &session, Room{}), EBUSY);
  EXPECT_EQ(admit(request(1, 4, false), &session, Room{}).kind, Kind::kJoin);
}

TEST(Admission, FurtherConnectionsJoinTheirPathOnly) {
  const KnownSession session = known(S::kConnecting, 4);
  EXPECT_EQ(admit(request(1, 4, false), &session, Room{}).kind, Kind::kJoin);
  expect_reject(admit(request(1, 5, false), &session, Room{}), ECONNRESET);
  expect_reject(admit(request(1, 4, false), nullptr, Room{}), ECONNRESET);
  KnownSession taken = session;
  taken.path->cid_taken = true;
  expect_reject(admit(request(1, 4, false), &taken, Room{}), ECONNRESET);
  KnownSession other = session;
  other.path->cid_num = 2;
  expect_reject(admit(request(1, 4, false), &other, Room{}), ECONNRESET);
  KnownSession stranger = session;
  stranger.path.reset();
  expect_reject(admit(request(1, 4, false), &stranger, Room{}), ECONNRESET);
  for (const S state : {S::kConnected, S::kClosing, S::kClosed}) {
    const KnownSession late = known(state, 4);
    expect_reject(admit(request(1, 4, false), &late, Room{}), ECONNRESET);
  }
}

}  // namespace
}  // namespace braid::trs::server
