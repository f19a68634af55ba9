// The end of the in-host wire that ships, as the target inhost_peer uses it: what it posts, and
// what must hold of its completions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/linux_host.h"
#include "base/log.h"
#include "base/reactor.h"
#include "tests/fuzz/two_party.h"
#include "vhca/device.h"
#include "vhca/soft_device.h"

namespace braid::fuzz {

inline constexpr size_t kInHostBufferBytes = 32 << 10;
inline constexpr uint32_t kInHostDepth = 16;
inline constexpr uint32_t kInHostAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// What outlives an input: a process has one device, and it must not wear out.
struct InHostProcess {
  InHostProcess() {
    base::LinuxHostOptions host_options;
    host_options.log_sink = base::make_null_sink();
    host = std::move(*base::create_linux_host(host_options));
    reactor = std::move(*base::Reactor::create(*host, {.name = "fuzz"}));
    device = std::move(*vhca::create_soft_device(*host, *reactor, {.payload_bytes = 4096}));
    pd = std::move(*device->alloc_pd());
    listener = std::move(*device->listen(*reactor, {.ip = "127.0.0.1"}, 8));
    name = "braid.cm.127.0.0.1." + std::to_string(listener->address().port);
  }
  std::unique_ptr<base::Host> host;
  std::unique_ptr<base::Reactor> reactor;
  std::unique_ptr<vhca::Device> device;
  std::unique_ptr<vhca::Pd> pd;
  std::unique_ptr<vhca::Listener> listener;
  std::string name;
  uint32_t peers = 0;
};

/// The end that ships.
class InHostShipping {
 public:
  InHostShipping(InHostProcess& process, bool shares_receives) : process_(process) {
    segment_ = std::move(*process_.host->create_segment(kInHostBufferBytes, "fuzz"));
    mr_ = std::move(*process_.pd->reg_mr(segment_->data(), kInHostBufferBytes, kInHostAccess));
    channel_ = std::move(*process_.device->create_comp_channel());
    vhca::CqOptions cq_options;
    cq_options.capacity = 256;
    cq_options.channel = channel_.get();
    cq_ = std::move(*process_.device->create_cq(cq_options));
    vhca::QpOptions options;
    options.send_cq = options.recv_cq = cq_.get();
    options.cap.max_send_wr = options.cap.max_recv_wr = kInHostDepth;
    options.signal_all = true;
    if (shares_receives) {
      srq_ = std::move(*process_.pd->create_srq({.max_wr = kInHostDepth}));
      options.srq = srq_.get();
    }
    qp_ = std::move(*process_.pd->create_qp(options));
    vhca::QpAttr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kInHostAccess;
    const auto status =
        qp_->modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    require(status.ok(), "a QP can be made");
    accepting_ = accept();
    accepting_.start();
  }
  ~InHostShipping() { drop(); }

  uint32_t rkey() const { return mr_->rkey; }
  std::byte* memory() const { return segment_->data(); }

  void post_recv(uint32_t length) {
    const vhca::Sge piece{address(posted_[1]), length, mr_->lkey};
    vhca::RecvWr wr{};
    wr.wr_id = posted_[1];
    wr.sg_list = const_cast<vhca::Sge*>(&piece);
    wr.num_sge = 1;
    const vhca::RecvWr* bad = nullptr;
    if (posted_[1] - ended_[1] >= kInHostDepth) return;
    if ((srq_ ? srq_->post_recv(&wr, &bad) : qp_->post_recv(&wr, &bad)) != 0) return;
    lengths_[posted_[1] % kInHostDepth] = length;
    ++posted_[1];
  }
  void post_send(ibv_wr_opcode opcode, uint32_t length, uint64_t remote, uint32_t rkey) {
    const bool atomic =
        opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    const vhca::Sge piece{address(posted_[0]), atomic ? 8 : length, mr_->lkey};
    vhca::SendWr wr{};
    wr.wr_id = posted_[0] | kSend;
    wr.opcode = opcode;
    wr.sg_list = const_cast<vhca::Sge*>(&piece);
    wr.num_sge = 1;
    if (atomic) {
      wr.wr.atomic.remote_addr = remote;
      wr.wr.atomic.rkey = rkey;
    } else {
      wr.wr.rdma.remote_addr = remote;
      wr.wr.rdma.rkey = rkey;
    }
    const vhca::SendWr* bad = nullptr;
    if (posted_[0] - ended_[0] >= kInHostDepth || qp_->post_send(&wr, &bad) != 0) return;
    ++posted_[0];
  }
  void poll() {
    std::array<vhca::Wc, 8> burst;
    const int count = cq_->poll(burst);
    require(count >= 0, "polling works");
    for (int i = 0; i < count; ++i) take(burst[static_cast<size_t>(i)]);
  }
  /// Before it sleeps: the peer is to signal, and it looks once more.
  void arm(bool solicited_only) {
    cq_->arm(solicited_only);
    poll();
  }
  /// Everything that was posted has completed. What a QP has not used of an SRQ is the SRQ's.
  bool settled() const {
    return ended_[0] == posted_[0] && (srq_ != nullptr || ended_[1] == posted_[1]);
  }
  bool connected() const { return connection_ != nullptr; }
  /// A QP that nobody connected keeps what is posted: it is flushed by going to ERR.
  void fail() {
    vhca::QpAttr attr{};
    attr.qp_state = IBV_QPS_ERR;
    (void)qp_->modify(attr, IBV_QP_STATE);
  }
  void drop() {
    accepting_ = {};
    connection_.reset();
    qp_.reset();
    srq_.reset();
    mr_.reset();
  }

  uint64_t arrived = 0, succeeded = 0, failed = 0;  // completions: receives, sends, either

 private:
  static constexpr uint64_t kSend = 1ull << 32;

  uint64_t address(uint64_t number) const {
    return reinterpret_cast<uint64_t>(segment_->data() + number % 4 * 8192);
  }
  base::Task<void> accept() {
    auto request = co_await process_.listener->next();
    if (!request.ok()) co_return;
    const vhca::ConnectParameters parameters{
        .retry_count = 1, .rnr_retry_count = 1, .ack_timeout = 1};
    auto result = co_await (*request)->accept(*process_.reactor, *qp_, parameters);
    if (result.ok()) connection_ = std::move(*result);
  }
  void take(const vhca::Wc& wc) {
    const size_t queue = (wc.wr_id & kSend) != 0 ? 0 : 1;
    require((wc.wr_id & ~kSend) == ended_[queue] && ended_[queue] < posted_[queue],
            "work requests complete once and in their order");
    if (queue == 1 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV) {
      require(wc.byte_len <= lengths_[ended_[1] % kInHostDepth], "what arrives fits its receive");
    }
    if (wc.status != IBV_WC_SUCCESS)
      ++failed;
    else
      ++(queue == 1 ? arrived : succeeded);
    ++ended_[queue];
  }

  InHostProcess& process_;
  std::unique_ptr<base::Segment> segment_;
  std::unique_ptr<vhca::Mr> mr_;
  std::unique_ptr<vhca::CompChannel> channel_;
  std::unique_ptr<vhca::Cq> cq_;
  std::unique_ptr<vhca::Srq> srq_;
  std::unique_ptr<vhca::Qp> qp_;
  std::unique_ptr<vhca::Connection> connection_;
  base::Task<void> accepting_;
  std::array<uint64_t, 2> posted_{}, ended_{};  // sends, receives
  std::array<uint32_t, kInHostDepth> lengths_{};
};

}  // namespace braid::fuzz
