// The verbs contract, QP states: every move of ibv_modify_qp(3) for RC, with exactly its
// attributes, and nothing else; values out of range; what may be posted in which state.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "vhca/conformance/pair.h"

namespace braid::vhca::conformance {
namespace {

struct Move {
  int required;
  int optional;
};

// Written down from the manual page, not from the code.
const std::map<std::pair<ibv_qp_state, ibv_qp_state>, Move>& moves() {
  constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  constexpr int kRts = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
                       IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
  static const std::map<std::pair<ibv_qp_state, ibv_qp_state>, Move> kAll = {
      {{IBV_QPS_RESET, IBV_QPS_RESET}, {}},
      {{IBV_QPS_RESET, IBV_QPS_INIT}, {kInit, 0}},
      {{IBV_QPS_INIT, IBV_QPS_RESET}, {}},
      {{IBV_QPS_INIT, IBV_QPS_ERR}, {}},
      {{IBV_QPS_INIT, IBV_QPS_INIT}, {0, kInit}},
      {{IBV_QPS_INIT, IBV_QPS_RTR},
       {IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
            IBV_QP_MIN_RNR_TIMER,
        IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH}},
      {{IBV_QPS_RTR, IBV_QPS_RESET}, {}},
      {{IBV_QPS_RTR, IBV_QPS_ERR}, {}},
      {{IBV_QPS_RTR, IBV_QPS_RTS},
       {IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
            IBV_QP_TIMEOUT,
        kRts}},
      {{IBV_QPS_RTS, IBV_QPS_RESET}, {}},
      {{IBV_QPS_RTS, IBV_QPS_ERR}, {}},
      {{IBV_QPS_RTS, IBV_QPS_RTS}, {0, kRts}},
      {{IBV_QPS_RTS, IBV_QPS_SQD}, {0, IBV_QP_EN_SQD_ASYNC_NOTIFY}},
      {{IBV_QPS_SQD, IBV_QPS_RESET}, {}},
      {{IBV_QPS_SQD, IBV_QPS_ERR}, {}},
      {{IBV_QPS_SQD, IBV_QPS_RTS}, {0, kRts}},
      {{IBV_QPS_SQD, IBV_QPS_SQD},
       {0, IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
               IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_PKEY_INDEX |
               IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH |
               IBV_QP_PATH_MIG_STATE}},
      {{IBV_QPS_ERR, IBV_QPS_RESET}, {}},
      {{IBV_QPS_ERR, IBV_QPS_ERR}, {}}};
  return kAll;
}

// Optional in the table, but no software HCA has them.
constexpr int kMissingFeatures = IBV_QP_ALT_PATH;
constexpr int kAllBits = (IBV_QP_DEST_QPN << 1) - 1;
constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                    IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};

/// The first of the device's GIDs that an IP address makes; else its first.
int routable_gid_index(const Device& device) {
  constexpr int kLooked = 8;
  for (int index = 0; index < kLooked; ++index) {
    auto gid = device.query_gid(1, index);
    if (!gid.ok()) break;
    const uint8_t* const raw = gid->raw;
    const bool none =
        std::all_of(raw, raw + sizeof gid->raw, [](uint8_t each) { return each == 0; });
    const bool link_local = raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80;
    if (!none && !link_local) return index;
  }
  return 0;
}

class ConformanceStates : public Pair {
 protected:
  /// Attributes that are right for every move to `to` from `from`.
  QpAttr attributes(ibv_qp_state from, ibv_qp_state to) {
    QpAttr attr{};
    attr.qp_state = to;
    attr.cur_qp_state = from;
    attr.port_num = 1;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = 0x123456;
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 16;
    attr.min_rnr_timer = 12;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.path_mig_state = IBV_MIG_MIGRATED;
    attr.ah_attr.port_num = 1;
    // Ethernet devices need the whole way.
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.hop_limit = 64;
    const int index = routable_gid_index(rig->device(kClient));
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(index);
    const Device& peer = rig->device(kServer);
    attr.ah_attr.grh.dgid = *peer.query_gid(1, routable_gid_index(peer));
    return attr;
  }
  void prepare(ibv_qp_state from, ibv_qp_state to) {
    if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) (void)rig->prepare_for_rtr(*client.qp);
  }
  /// A QP in a state; null for SQE, which RC does not have.
  Qp* fresh(ibv_qp_state state) {
    client.clear();
    client = make_end(kClient);
    std::vector<ibv_qp_state> way;
    if (state != IBV_QPS_RESET) way.push_back(IBV_QPS_INIT);
    if (state == IBV_QPS_ERR) way.push_back(IBV_QPS_ERR);
    if (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD) {
      way.push_back(IBV_QPS_RTR);
    }
    if (state == IBV_QPS_RTS || state == IBV_QPS_SQD) way.push_back(IBV_QPS_RTS);
    if (state == IBV_QPS_SQD) way.push_back(IBV_QPS_SQD);
    ibv_qp_state at = IBV_QPS_RESET;
    for (const ibv_qp_state next : way) {
      const base::Status status = move(at, next, moves().at({at, next}).required);
      EXPECT_TRUE(status.ok()) << status.error().message();
      at = next;
    }
    // rxe drains at its leisure, refuses moves from SQD meanwhile, and does not tell.
    if (state == IBV_QPS_SQD && GetParam().slow) rig->settle();
    return client.qp.get();
  }
  base::Status move(ibv_qp_state from, ibv_qp_state to, int mask) {
    prepare(from, to);
    return client.qp->modify(attributes(from, to), mask | IBV_QP_STATE);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, ConformanceStates, ::testing::ValuesIn(rigs()),
                         [](const auto& each) { return each.param.name; });

TEST_P(ConformanceStates, ExactlyTheMovesOfTheTableExist) {
  for (const ibv_qp_state from : kStates) {
    if (from == IBV_QPS_SQE) continue;
    for (const ibv_qp_state to : kStates) {
      SCOPED_TRACE(fmt::format("{} to {}", static_cast<int>(from), static_cast<int>(to)));
      Qp* const qp = fresh(from);
      const auto known = moves().find({from, to});
      const int mask = known == moves().end() ? 0 : known->second.required;
      const base::Status status = move(from, to, mask);
      EXPECT_EQ(status.ok(), known != moves().end());
      EXPECT_EQ(qp->query().qp_state, status.ok() ? to : from);
      if (!status.ok()) {
        EXPECT_EQ(status.error().code(), base::Errc::kInvalid);
      }
    }
  }
}

TEST_P(ConformanceStates, EachRequiredAttributeIsRequiredAndTheRefusalNamesIt) {
  for (const auto& [key, allowed] : moves()) {
    for (int bit = 1; bit < kAllBits; bit <<= 1) {
      if ((allowed.required & bit) == 0) continue;
      const Qp* const qp = fresh(key.first);
      const base::Status status = move(key.first, key.second, allowed.required & ~bit);
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code(), base::Errc::kInvalid);
      EXPECT_NE(status.error().message().find("requires"), std::string::npos);
      EXPECT_EQ(qp->query().qp_state, key.first);
    }
  }
}

TEST_P(ConformanceStates, OptionalAttributesAreTakenAndAllOthersRefused) {
  for (const auto& [key, allowed] : moves()) {
    for (int bit = IBV_QP_CUR_STATE; bit < kAllBits; bit <<= 1) {
      if ((allowed.required & bit) != 0) continue;
      if (bit == IBV_QP_ALT_PATH && GetParam().may_have_alternate_paths) continue;
      SCOPED_TRACE(fmt::format("{} to {}, bit {:#x}", static_cast<int>(key.first),
                               static_cast<int>(key.second), bit));
      const Qp* const qp = fresh(key.first);
      const base::Status status = move(key.first, key.second, allowed.required | bit);
      const bool fine = (allowed.optional & bit & ~kMissingFeatures) != 0;
      EXPECT_EQ(status.ok(), fine) << (status.ok() ? "" : status.error().message());
      EXPECT_EQ(qp->query().qp_state, fine ? key.second : key.first);
      if (!fine) {
        EXPECT_EQ(status.error().code(),
                  (allowed.optional & bit) != 0 ? base::Errc::kNotSupported : base::Errc::kInvalid);
      }
    }
  }
}

TEST_P(ConformanceStates, ValuesOutOfRangeAreRefusedByName) {
  struct Case {
    const char* name;
    ibv_qp_state from, to;
    std::function<void(QpAttr&)> spoil;
  };
  const std::vector<Case> cases = {
      {"pkey_index", IBV_QPS_RESET, IBV_QPS_INIT, [](QpAttr& a) { a.pkey_index = 1; }},
      {"port", IBV_QPS_RESET, IBV_QPS_INIT, [](QpAttr& a) { a.port_num = 0; }},
      {"port", IBV_QPS_RESET, IBV_QPS_INIT, [](QpAttr& a) { a.port_num = 200; }},
      {"access", IBV_QPS_RESET, IBV_QPS_INIT, [](QpAttr& a) { a.qp_access_flags = 1u << 12; }},
      {"MTU", IBV_QPS_INIT, IBV_QPS_RTR, [](QpAttr& a) { a.path_mtu = ibv_mtu{}; }},
      {"dest_qp_num", IBV_QPS_INIT, IBV_QPS_RTR, [](QpAttr& a) { a.dest_qp_num = 1u << 24; }},
      {"rq_psn", IBV_QPS_INIT, IBV_QPS_RTR, [](QpAttr& a) { a.rq_psn = 1u << 24; }},
      {"min_rnr_timer", IBV_QPS_INIT, IBV_QPS_RTR, [](QpAttr& a) { a.min_rnr_timer = 32; }},
      {"max_dest_rd_atomic", IBV_QPS_INIT, IBV_QPS_RTR,
       [](QpAttr& a) { a.max_dest_rd_atomic = 17; }},
      {"timeout", IBV_QPS_RTR, IBV_QPS_RTS, [](QpAttr& a) { a.timeout = 32; }},
      {"retry_cnt", IBV_QPS_RTR, IBV_QPS_RTS, [](QpAttr& a) { a.retry_cnt = 8; }},
      {"rnr_retry", IBV_QPS_RTR, IBV_QPS_RTS, [](QpAttr& a) { a.rnr_retry = 8; }},
      {"max_rd_atomic", IBV_QPS_RTR, IBV_QPS_RTS, [](QpAttr& a) { a.max_rd_atomic = 17; }}};
  for (const Case& each : cases) {
    Qp* const qp = fresh(each.from);
    QpAttr attr = attributes(each.from, each.to);
    each.spoil(attr);
    prepare(each.from, each.to);
    const base::Status status =
        qp->modify(attr, moves().at({each.from, each.to}).required | IBV_QP_STATE);
    ASSERT_FALSE(status.ok()) << each.name;
    EXPECT_EQ(status.error().code(), base::Errc::kInvalid);
    EXPECT_NE(status.error().message().find(each.name), std::string::npos)
        << status.error().message();
    EXPECT_EQ(qp->query().qp_state, each.from);
  }
}

// Else every request would end as if the peer were dead.
TEST_P(ConformanceStates, APeerByNumberIsReachedOrRefusedInWords) {
  if (End probe = make_end(kClient); !rig->prepare_for_rtr(*probe.qp)) {
    GTEST_SKIP() << "these devices reach peers by number";
  }
  Qp* const qp = fresh(IBV_QPS_INIT);
  const int mask = moves().at({IBV_QPS_INIT, IBV_QPS_RTR}).required | IBV_QP_STATE;
  const base::Status status = qp->modify(attributes(IBV_QPS_INIT, IBV_QPS_RTR), mask);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), base::Errc::kNotSupported);
  for (const char* const word : {"RTR", "0x123456", "connection manager"}) {
    EXPECT_NE(status.error().message().find(word), std::string::npos) << status.error().message();
  }
  EXPECT_EQ(qp->query().qp_state, IBV_QPS_INIT);
  EXPECT_EQ(qp->query().dest_qp_num, 0u) << "nothing was set";
  server = make_end(kServer);
  connect_ends(client, server);
  EXPECT_EQ(qp->query().qp_state, IBV_QPS_RTS) << "the connection manager takes it as it was";
}

TEST_P(ConformanceStates, TheCurrentStateIsCheckedWhenGiven) {
  Qp* const qp = fresh(IBV_QPS_RTS);
  QpAttr attr = attributes(IBV_QPS_SQD, IBV_QPS_RTS);
  EXPECT_EQ(qp->modify(attr, IBV_QP_STATE | IBV_QP_CUR_STATE).error().code(), base::Errc::kInvalid);
}

TEST_P(ConformanceStates, QueryGivesBackWhatWasSet) {
  Qp* const qp = fresh(IBV_QPS_RTS);
  const QpAttr attr = qp->query();
  EXPECT_EQ(attr.cur_qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.dest_qp_num, 0x123456u);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_4096);
  EXPECT_EQ(attr.rnr_retry, 7);
  EXPECT_EQ(attr.timeout, 14);
  EXPECT_GE(attr.cap.max_send_wr, 128u);
  EXPECT_GE(attr.cap.max_recv_wr, 128u);
  EXPECT_GE(attr.cap.max_inline_data, 64u);
}

TEST_P(ConformanceStates, AQpTellsWhatItWasMadeWith) {
  EndOptions options;
  options.qp.cap = {.max_send_wr = 20, .max_recv_wr = 30, .max_send_sge = 3, .max_recv_sge = 2};
  options.qp.signal_all = true;
  server = make_end(kServer, options);
  const QpOptions made = server.qp->options();
  EXPECT_EQ(made.send_cq, server.send_cq.get());
  EXPECT_EQ(made.recv_cq, server.recv_cq.get());
  EXPECT_EQ(made.td, server.td.get());
  EXPECT_EQ(made.srq, nullptr);
  EXPECT_TRUE(made.signal_all);
  EXPECT_GE(made.cap.max_send_wr, 20u);
  EXPECT_GE(made.cap.max_recv_wr, 30u);
  EXPECT_GE(made.cap.max_send_sge, 3u);
  EXPECT_GE(made.cap.max_recv_sge, 2u);
}

TEST_P(ConformanceStates, PostsAreAllowedAsTheStateAllows) {
  server = make_end(kServer);
  struct Case {
    ibv_qp_state state;
    int send, receive;
  };
  for (const Case& each : {Case{IBV_QPS_RESET, EINVAL, EINVAL}, Case{IBV_QPS_INIT, EINVAL, 0},
                           Case{IBV_QPS_RTR, EINVAL, 0}, Case{IBV_QPS_RTS, 0, 0},
                           Case{IBV_QPS_SQD, 0, 0}, Case{IBV_QPS_ERR, 0, 0}}) {
    fresh(each.state);
    EXPECT_EQ(post_recv(client, 1, 0, 64), each.receive) << each.state;
    EXPECT_EQ(post_send(client, work(client, server, IBV_WR_SEND, 1, 0, 8)), each.send)
        << each.state;
  }
}

TEST_P(ConformanceStates, LimitsOfQueuesAreCheckedWhenAQpIsMade) {
  End end = make_end(kClient);
  const DeviceAttr device = rig->device(kClient).query();
  QpOptions good;
  good.send_cq = end.send_cq.get();
  good.recv_cq = end.recv_cq.get();
  good.td = end.td.get();
  EXPECT_TRUE(end.pd->create_qp(good).ok());
  const auto refused = [&](auto spoil) {
    QpOptions options = good;
    spoil(options);
    return end.pd->create_qp(options).code() == base::Errc::kInvalid;
  };
  EXPECT_TRUE(refused([](QpOptions& o) { o.send_cq = nullptr; }));
  const auto too_many = static_cast<uint32_t>(device.max_qp_wr) + 1;
  EXPECT_TRUE(refused([&](QpOptions& o) { o.cap.max_send_wr = too_many; }));
  EXPECT_TRUE(refused([&](QpOptions& o) { o.cap.max_recv_wr = too_many; }));
  const auto sges = static_cast<uint32_t>(device.max_sge) + 1;
  EXPECT_TRUE(refused([&](QpOptions& o) { o.cap.max_send_sge = sges; }));
  EXPECT_TRUE(refused([&](QpOptions& o) { o.cap.max_recv_sge = sges; }));
  EXPECT_TRUE(refused([](QpOptions& o) { o.cap.max_inline_data = 1u << 20; }));
  EXPECT_EQ(rig->device(kClient).create_cq({.capacity = 0}).code(), base::Errc::kInvalid);
}

TEST_P(ConformanceStates, AQpOfManyThreadsCannotUseACqOfOne) {
  Device& device = rig->device(kClient);
  const auto td = device.create_td();
  const auto pd = std::move(*device.alloc_pd());
  const auto cq = std::move(*device.create_cq({.td = td.get()}));
  QpOptions options;
  options.send_cq = options.recv_cq = cq.get();
  EXPECT_EQ(pd->create_qp(options).code(), base::Errc::kInvalid);
  options.td = td.get();
  EXPECT_TRUE(pd->create_qp(options).ok());
}

TEST_P(ConformanceStates, PortsAndGidsCanBeQueried) {
  Device& device = rig->device(kServer);
  const DeviceAttr attr = device.query();
  ASSERT_GE(attr.phys_port_cnt, 1);
  const auto port = device.query_port(1);
  ASSERT_TRUE(port.ok());
  EXPECT_EQ(port.value().state, IBV_PORT_ACTIVE);
  EXPECT_TRUE(device.query_gid(1, 0).ok());
  EXPECT_EQ(device.query_port(0).code(), base::Errc::kNotFound);
  EXPECT_EQ(device.query_port(static_cast<uint8_t>(attr.phys_port_cnt + 1)).code(),
            base::Errc::kNotFound);
  EXPECT_EQ(device.query_gid(1, 10000).code(), base::Errc::kNotFound);
}

TEST_P(ConformanceStates, TheDefaultPartitionIsTheFirst) {
  Device& device = rig->device(kServer);
  const int keys = device.query_port(1)->pkey_tbl_len;
  ASSERT_GE(keys, 1);
  auto first = device.query_pkey(1, 0);
  ASSERT_TRUE(first.ok()) << first.error().message();
  EXPECT_EQ(*first, 0xffff);
  for (const int none : {-1, keys, 1 << 20}) {
    EXPECT_EQ(device.query_pkey(1, none).code(), base::Errc::kInvalid) << none;
  }
  EXPECT_EQ(device.query_pkey(0, 0).code(), base::Errc::kNotFound);
}

}  // namespace
}  // namespace braid::vhca::conformance
