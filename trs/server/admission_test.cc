#include "trs/server/admission.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace braid::trs::server {
namespace {

using Kind = Admission::Kind;
using S = ServerPathState;

wire::ConnReq request(uint16_t cid, uint16_t recon_cnt, bool first_conn) {
  wire::ConnReq req;
  req.cid = cid;
  req.cid_num = uint16_t{3};
  req.recon_cnt = recon_cnt;
  req.flags = first_conn ? wire::kFirstConn : uint8_t{0};
  return req;
}

KnownPath known(S state, uint16_t recon_cnt) {
  KnownPath path;
  path.state = state;
  path.recon_cnt = recon_cnt;
  path.cid_num = 3;
  return path;
}

void expect_reject(const Admission& admission, int sys_errno) {
  EXPECT_EQ(admission.kind, Kind::kReject);
  EXPECT_EQ(admission.sys_errno, sys_errno);
}

TEST(Admission, UnknownSessionNeedsFirstConn) {
  EXPECT_EQ(admit(request(0, 1, true), nullptr, true).kind, Kind::kNew);
  expect_reject(admit(request(0, 1, false), nullptr, true), ENXIO);
  expect_reject(admit(request(0, 1, true), nullptr, false), ENOMEM);
}

TEST(Admission, ClientThatComesBackReplacesItsPath) {
  for (const S state : {S::kConnecting, S::kConnected, S::kClosing}) {
    const KnownPath path = known(state, 4);
    EXPECT_EQ(admit(request(0, 5, false), &path, false).kind, Kind::kReplace) << to_string(state);
  }
}

TEST(Admission, LateDuplicateOfAnOldConnectIsRefused) {
  const KnownPath path = known(S::kConnected, 4);
  expect_reject(admit(request(0, 4, true), &path, true), ECONNRESET);
  expect_reject(admit(request(0, 3, true), &path, true), ECONNRESET);
}

TEST(Admission, ReconnectCounterWraps) {
  const KnownPath path = known(S::kConnected, 65535);
  EXPECT_EQ(admit(request(0, 0, false), &path, true).kind, Kind::kReplace);
}

TEST(Admission, SecondPathOfALiveSessionIsRefused) {
  KnownPath path = known(S::kConnected, 1);
  path.sess_uuid.bytes.fill(9);
  expect_reject(admit(request(0, 2, false), &path, true), EOPNOTSUPP);
  path.state = S::kClosing;
  EXPECT_EQ(admit(request(0, 2, false), &path, true).kind, Kind::kReplace);
}

TEST(Admission, ClientWhosePathsDoNotEndGetsNoMoreOfThem) {
  KnownPath path = known(S::kConnecting, 4);
  path.paths = kPathsMax - 1;
  EXPECT_EQ(admit(request(0, 5, false), &path, true).kind, Kind::kReplace);
  path.paths = kPathsMax;
  expect_reject(admit(request(0, 5, false), &path, true), EBUSY);
  EXPECT_EQ(admit(request(1, 4, false), &path, true).kind, Kind::kJoin);
}

TEST(Admission, FurtherConnectionsJoinTheirPathOnly) {
  const KnownPath path = known(S::kConnecting, 4);
  EXPECT_EQ(admit(request(1, 4, false), &path, true).kind, Kind::kJoin);
  expect_reject(admit(request(1, 5, false), &path, true), ECONNRESET);
  expect_reject(admit(request(1, 4, false), nullptr, true), ECONNRESET);
  KnownPath taken = path;
  taken.cid_taken = true;
  expect_reject(admit(request(1, 4, false), &taken, true), ECONNRESET);
  KnownPath other = path;
  other.cid_num = 2;
  expect_reject(admit(request(1, 4, false), &other, true), ECONNRESET);
  KnownPath stranger = path;
  stranger.sess_uuid.bytes.fill(9);
  expect_reject(admit(request(1, 4, false), &stranger, true), ECONNRESET);
  for (const S state : {S::kConnected, S::kClosing, S::kClosed}) {
    const KnownPath late = known(state, 4);
    expect_reject(admit(request(1, 4, false), &late, true), ECONNRESET);
  }
}

}  // namespace
}  // namespace braid::trs::server
