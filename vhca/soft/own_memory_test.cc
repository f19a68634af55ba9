// Memory of our own that is deregistered while the software HCA is at work on it: on a thread that
// is none of the program's, or in a poll of the program's.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/linux_host.h"
#include "base/log.h"
#include "base/reactor.h"
#include "vhca/soft/qp.h"
#include "vhca/soft_device.h"

namespace braid::vhca::soft {
namespace {

/// A direct link that meets no receive once, then runs `copy` in the middle of its copy.
class CopyingLink final : public Link {
 public:
  explicit CopyingLink(std::function<void()> copy)
      : Link(LinkFamily::kDirect), copy_(std::move(copy)) {}
  Execution execute(const Request&) override {
    if (!std::exchange(waited_, true)) return {.outcome = Outcome::kNoReceive, .rnr_timer = 1};
    copy_();
    return {};
  }
  Next next_arrival(Arrival&) override { return Next::kNone; }
  void pop_arrival() override {}
  void receive_posted(uint32_t, bool, std::span<const uint32_t>) override {}
  void arm(bool, bool) override {}
  void qp_changed(uint32_t, uint8_t) override {}
  bool close() override { return true; }

 private:
  const std::function<void()> copy_;
  bool waited_ = false;
};

TEST(OwnMemoryTest, MemoryIsKeptWhileTheStallClockSendsFromIt) {
  const auto host = std::move(*base::create_linux_host({.log_sink = base::make_null_sink()}));
  const auto reactor = std::move(*base::Reactor::create(*host, {}));
  const auto device = std::move(*create_soft_device(*host, *reactor));
  const auto pd = std::move(*device->alloc_pd());
  const auto cq = std::move(*device->create_cq({}));
  const auto qp = std::move(*pd->create_qp({.send_cq = cq.get(), .recv_cq = cq.get()}));
  auto memory = std::make_shared<std::vector<std::byte>>(4096);
  auto mr = std::move(*pd->reg_mr(memory->data(), memory->size(), 0));
  const std::weak_ptr<void> kept = memory;

  bool copied = false;
  const auto copy = [&] {
    copied = true;
    pd->dereg_mr(std::move(mr), std::move(memory));  // as another thread might, at this moment
    EXPECT_FALSE(kept.expired()) << "the copy goes on";
  };
  auto& end = dynamic_cast<SoftQp&>(*qp);
  ASSERT_TRUE(end.establish(std::make_unique<CopyingLink>(copy), 5, {}).ok());
  ASSERT_TRUE(end.start_sending().ok());
  Sge sge{reinterpret_cast<uint64_t>(memory->data()), 64, mr->lkey};
  SendWr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  const SendWr* bad = nullptr;
  ASSERT_EQ(qp->post_send(&wr, &bad), 0);
  // Nobody polls.
  const uint64_t deadline_ns = host->now_ns() + 60 * base::kSecond;
  while (!(copied && kept.expired()) && host->now_ns() < deadline_ns) {
    if (!reactor->turn()) host->yield();
  }
  EXPECT_TRUE(copied);
  EXPECT_TRUE(kept.expired()) << "let go of when the copy has ended";
}

/// A direct link with one message, which runs `found` in the middle of the poll that finds it.
class ArrivingLink final : public Link {
 public:
  explicit ArrivingLink(std::function<void()> found)
      : Link(LinkFamily::kDirect), found_(std::move(found)) {}
  Execution execute(const Request&) override { return {}; }
  Next next_arrival(Arrival& arrival) override {
    if (popped_) return Next::kNone;
    found_();
    arrival = {.length = static_cast<uint32_t>(payload_.size()), .payload = payload_};
    return Next::kArrival;
  }
  void pop_arrival() override { popped_ = true; }
  void receive_posted(uint32_t, bool, std::span<const uint32_t>) override {}
  void arm(bool, bool) override {}
  void qp_changed(uint32_t, uint8_t) override {}
  bool close() override { return true; }

 private:
  const std::function<void()> found_;
  const std::vector<std::byte> payload_{64};
  bool popped_ = false;
};

TEST(OwnMemoryTest, MemoryIsKeptWhileAThreadOfTheProgramPollsAQpWithoutThreadDomain) {
  const auto host = std::move(*base::create_linux_host({.log_sink = base::make_null_sink()}));
  const auto reactor = std::move(*base::Reactor::create(*host, {}));
  const auto device = std::move(*create_soft_device(*host, *reactor));
  const auto pd = std::move(*device->alloc_pd());
  const auto cq = std::move(*device->create_cq({}));
  const auto qp = std::move(*pd->create_qp({.send_cq = cq.get(), .recv_cq = cq.get()}));
  auto memory = std::make_shared<std::vector<std::byte>>(4096);
  auto mr = std::move(*pd->reg_mr(memory->data(), memory->size(), IBV_ACCESS_LOCAL_WRITE));
  const std::weak_ptr<void> kept = memory;
  Sge sge{reinterpret_cast<uint64_t>(memory->data()), 64, mr->lkey};

  bool found = false;
  const auto deregister = [&] {
    if (std::exchange(found, true)) return;
    pd->dereg_mr(std::move(mr), std::move(memory));  // as another thread might, at this moment
    EXPECT_FALSE(kept.expired()) << "the poll goes on, and may have resolved the key";
  };
  auto& end = dynamic_cast<SoftQp&>(*qp);
  ASSERT_TRUE(end.establish(std::make_unique<ArrivingLink>(deregister), 5, {}).ok());
  RecvWr wr{7, nullptr, &sge, 1};
  const RecvWr* bad = nullptr;
  ASSERT_EQ(qp->post_recv(&wr, &bad), 0);
  Wc wc;
  const uint64_t deadline_ns = host->now_ns() + 60 * base::kSecond;
  while (!(found && kept.expired()) && host->now_ns() < deadline_ns) {
    (void)cq->poll({&wc, 1});
    if (!reactor->turn()) host->yield();
  }
  EXPECT_TRUE(found);
  EXPECT_TRUE(kept.expired()) << "let go of when the poll has ended";
}

}  // namespace
}  // namespace braid::vhca::soft
