#include "vhca/conformance/pair.h"

#include <algorithm>
#include <set>
#include <string>

namespace braid::vhca::conformance {

namespace {

/// "Suite.Test" without what instantiation puts around it.
std::string plain_name(const ::testing::TestInfo& test) {
  const std::string_view suite(test.test_suite_name());
  const std::string_view name(test.name());
  return fmt::format("{}.{}", suite.substr(suite.find('/') + 1), name.substr(0, name.find('/')));
}

}  // namespace

void Pair::SetUp() {
  if (rig == nullptr) GTEST_SKIP() << GetParam().name << " needs " << GetParam().needs;
  const std::string name = plain_name(*::testing::UnitTest::GetInstance()->current_test_info());
  for (const auto& [test, why] : GetParam().cannot) {
    if (test == name) GTEST_SKIP() << GetParam().name << ": " << why;
  }
}

// A name that no test has any more would skip nothing, unnoticed.
TEST(ConformanceRigs, WhatARigCannotDoAreTestsThatExist) {
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  std::set<std::string> names;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      names.insert(plain_name(*suite.GetTestInfo(j)));
    }
  }
  for (const RigFactory& rig : rigs()) {
    for (const auto& [test, why] : rig.cannot) EXPECT_TRUE(names.contains(test)) << test;
  }
}

End Pair::make_end(int side, const EndOptions& options) {
  Device& device = rig->device(side);
  End end;
  end.side = side;
  end.buffer = rig->allocate(side, kBufferBytes);
  end.pd = std::move(*device.alloc_pd());
  end.mr = std::move(*end.pd->reg_mr(end.buffer.data(), end.buffer.size(), options.mr_access));
  if (options.with_channel) end.channel = std::move(*device.create_comp_channel());
  if (GetParam().thread_domain) end.td = device.create_td();
  CqOptions cq_options{
      .capacity = options.cq_capacity, .channel = end.channel.get(), .td = end.td.get()};
  end.send_cq = std::move(*device.create_cq(cq_options));
  end.recv_cq = std::move(*device.create_cq(cq_options));
  QpOptions qp_options = options.qp;
  qp_options.send_cq = end.send_cq.get();
  qp_options.recv_cq = end.recv_cq.get();
  qp_options.td = end.td.get();
  if (options.srq.has_value()) {
    SrqOptions srq_options = *options.srq;
    srq_options.td = end.td.get();
    end.srq = std::move(*end.pd->create_srq(srq_options));
    qp_options.srq = end.srq.get();
  }
  Pd& qp_pd = options.qp_pd != nullptr ? *options.qp_pd : *end.pd;
  end.qp = std::move(*qp_pd.create_qp(qp_options));
  if (options.qp_access.has_value()) {
    EXPECT_TRUE(to_init(*end.qp, *options.qp_access).ok());
  }
  return end;
}

base::Status Pair::to_init(Qp& qp, int access) {
  QpAttr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = static_cast<unsigned>(access);
  return qp.modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

namespace {

base::Task<base::Result<std::unique_ptr<Connection>>> accept_one(Listener& listener,
                                                                 base::Reactor& reactor, Qp& qp,
                                                                 ConnectParameters parameters) {
  BRAID_CO_TRY(std::unique_ptr<ConnectRequest> request, co_await listener.next());
  co_return co_await request->accept(reactor, qp, parameters);
}

base::Task<void> keep_connection(base::Task<base::Result<std::unique_ptr<Connection>>> task,
                                 std::unique_ptr<Connection>* to) {
  base::Result<std::unique_ptr<Connection>> result = co_await std::move(task);
  EXPECT_TRUE(result.ok()) << result.error().message();
  if (result.ok()) *to = std::move(*result);
}

}  // namespace

void Pair::connect(const EndOptions& client_options, const EndOptions& server_options,
                   const ConnectParameters& client_parameters,
                   const ConnectParameters& server_parameters) {
  polled_.clear();  // of CQs that go now; others may come to lie at their addresses
  client = make_end(kClient, client_options);
  server = make_end(kServer, server_options);
  ends = {&client, &server};
  connect_ends(client, server, client_parameters, server_parameters);
}

void Pair::connect_ends(End& from, End& to, const ConnectParameters& from_parameters,
                        const ConnectParameters& to_parameters) {
  base::Reactor& server_reactor = rig->reactor(kServer);
  const Address address = rig->server_address();
  auto listener = std::move(*rig->device(kServer).listen(server_reactor, address, 4));
  server_reactor.spawn(keep_connection(accept_one(*listener, server_reactor, *to.qp, to_parameters),
                                       &to.connection));
  server_reactor.wake();
  base::Result<ConnectResult> result = run(
      kClient, rig->device(kClient).connect(rig->reactor(kClient), *from.qp, listener->address(),
                                            from_parameters, 10 * base::kSecond));
  ASSERT_TRUE(result.ok()) << result.error().message();
  from.connection = std::move(result->connection);
  ASSERT_NE(from.connection, nullptr) << "rejected";
  ASSERT_TRUE(rig->run_until([&] { return to.connection != nullptr; }));
}

int Pair::post_recv(End& at, uint64_t wr_id, size_t offset, uint32_t length) {
  Sge sge{at.address(offset), length, at.mr->lkey};
  RecvWr wr{wr_id, nullptr, &sge, 1};
  return post(at, wr);
}

int Pair::post_recv_without_sge(End& at, uint64_t wr_id) {
  RecvWr wr{wr_id, nullptr, nullptr, 0};
  return post(at, wr);
}

int Pair::post(End& at, const RecvWr& wr) {
  const RecvWr* bad = nullptr;
  return at.srq != nullptr ? at.srq->post_recv(&wr, &bad) : at.qp->post_recv(&wr, &bad);
}

SendWr Pair::work(End& from, const End& to, ibv_wr_opcode opcode, uint64_t wr_id, size_t offset,
                  uint32_t length, size_t remote_offset) {
  sges_.push_back(std::make_unique<Sge>(Sge{from.address(offset), length, from.mr->lkey}));
  SendWr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = sges_.back().get();
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = to.address(remote_offset);
  wr.wr.rdma.rkey = to.mr->rkey;
  return wr;
}

void Pair::poll_all() {
  for (End* end : ends) {
    for (Cq* cq : {end->send_cq.get(), end->recv_cq.get()}) {
      if (cq == nullptr) continue;
      Wc wc[4];
      const int count = cq->poll(wc);
      for (int i = 0; i < count; ++i) polled_.emplace_back(cq, wc[i]);
    }
  }
}

bool Pair::run_until(const std::function<bool()>& done) {
  return rig->run_until([&] {
    poll_all();
    return done();
  });
}

Wc Pair::next(Cq& cq) {
  const auto find = [&] {
    return std::find_if(polled_.begin(), polled_.end(),
                        [&](const auto& each) { return each.first == &cq; });
  };
  EXPECT_TRUE(run_until([&] { return find() != polled_.end(); })) << "no completion came";
  const auto found = find();
  if (found == polled_.end()) return Wc{.wr_id = UINT64_MAX, .status = IBV_WC_GENERAL_ERR};
  const Wc wc = found->second;
  polled_.erase(found);
  return wc;
}

bool Pair::quiet(End& end) {
  rig->settle();
  poll_all();
  for (const auto& [cq, wc] : polled_) {
    if (cq == end.send_cq.get() || cq == end.recv_cq.get()) return false;
  }
  return true;
}

AsyncEvent Pair::next_event(int side) {
  std::optional<AsyncEvent> event;
  const bool came = run_until([&] {
    event = rig->device(side).next_async_event();
    return event.has_value();
  });
  EXPECT_TRUE(came) << "no event came";
  return event.value_or(AsyncEvent{});
}

bool Pair::no_events() {
  rig->settle();
  poll_all();
  rig->settle();
  return !rig->device(kClient).next_async_event() && !rig->device(kServer).next_async_event();
}

ibv_qp_state Pair::state_of(End& end) {
  rig->settle();
  poll_all();
  return end.qp->query().qp_state;
}

void Pair::expect_flush(End& end, Cq& cq, const std::vector<uint64_t>& wr_ids) {
  for (const uint64_t wr_id : wr_ids) {
    const Wc wc = next(cq);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.qp_num, end.qp->number());
  }
}

}  // namespace braid::vhca::conformance
