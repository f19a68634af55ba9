#include "trs/connection.h"

#include <algorithm>
#include <numeric>

#include "base/pages.h"
#include "trs/imm.h"

namespace braid::trs {
namespace {

using base::Errc;
using base::make_error;

// wr_id: a kind in the top byte, since a failed completion tells nothing else; sends carry their
// count below.
constexpr uint64_t kKindShift = 56;
enum class Kind : uint64_t { kSend, kLocal, kReceive, kMessage, kSendMarker, kReceiveMarker };
constexpr uint64_t wr_id(Kind kind, uint64_t count = 0) {
  return static_cast<uint64_t>(kind) << kKindShift | count;
}
constexpr Kind kind_of(uint64_t id) {
  return static_cast<Kind>(id >> kKindShift);
}
constexpr uint64_t count_of(uint64_t id) {
  return id & ((uint64_t{1} << kKindShift) - 1);
}

constexpr size_t kPollBurst = 32;
// Receives used up before a batch is posted again; the queue has this many to spare.
constexpr uint32_t kRepostThreshold = 8;

base::Status to_init(vhca::Qp& qp) {
  vhca::QpAttr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = 0;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  return qp.modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

}  // namespace

Connection::Connection(base::Reactor& reactor, const ConnectionOptions& options,
                       ConnectionUser& user)
    : reactor_(reactor), options_(options), user_(user) {
  signal_every_ = std::max(1u, options.send_depth / 4);
}

Connection::~Connection() = default;

base::Result<std::unique_ptr<Connection>> Connection::create(vhca::Device& device, vhca::Pd& pd,
                                                             base::Reactor& reactor,
                                                             const ConnectionOptions& options,
                                                             ConnectionUser& user) {
  std::unique_ptr<Connection> connection(new Connection(reactor, options, user));
  BRAID_CHECK(connection->build(device, pd));
  return connection;
}

base::Status Connection::build(vhca::Device& device, vhca::Pd& pd) {
  pd_ = &pd;
  if (options_.header_bytes > 0) {
    const size_t size_bytes = size_t{options_.send_depth} * options_.header_bytes;
    BRAID_TRY(headers_, reactor_.host().create_segment(size_bytes, "trs headers"));
    if (options_.touch_buffers) BRAID_CHECK(base::populate({headers_->data(), size_bytes}));
    BRAID_TRY(header_mr_, pd.reg_mr(headers_->data(), size_bytes, IBV_ACCESS_LOCAL_WRITE));
  }
  // The messages of the set-up, and one flush marker in each queue.
  const uint32_t receive_wrs = options_.receive_depth + kMessagesMax + 1;
  const uint32_t send_wrs = options_.send_depth + 1;
  vhca::CqOptions cq_options;
  cq_options.capacity = static_cast<int>(send_wrs + receive_wrs);
  cq_options.channel = options_.channel;
  cq_options.td = options_.td;
  BRAID_TRY(cq_, device.create_cq(cq_options));
  cq_->context = this;
  active_ns_ = reactor_.now_ns();
  vhca::QpOptions qp_options;
  qp_options.send_cq = cq_.get();
  qp_options.recv_cq = cq_.get();
  qp_options.cap.max_send_wr = send_wrs;
  qp_options.cap.max_recv_wr = receive_wrs;
  qp_options.cap.max_send_sge = 2;
  qp_options.cap.max_recv_sge = 1;
  qp_options.cap.max_inline_data = kInlineBytes;
  qp_options.td = options_.td;
  qp_options.posts_with_poll = true;
  // Beside the messages of the set-up, which come once.
  qp_options.longest_receive_bytes = std::max(options_.control_bytes, kAnswerBytes);
  BRAID_TRY(qp_, pd.create_qp(qp_options));
  for (size_t i = 0; i < receive_chain_.size(); ++i) {
    receive_chain_[i].wr_id = wr_id(Kind::kReceive);
    receive_chain_[i].next = i + 1 < receive_chain_.size() ? &receive_chain_[i + 1] : nullptr;
  }
  return to_init(*qp_);
}

base::Status Connection::post_receives(std::span<const uint32_t> message_bytes, bool take_answers) {
  take_answers_ = take_answers;
  control_bytes_ = std::max(options_.control_bytes, take_answers ? kAnswerBytes : 0);
  if (!message_bytes.empty()) BRAID_CHECK(post_message_receives(message_bytes));
  if (control_bytes_ > 0) BRAID_CHECK(prepare_buffers());
  receives_used_ = options_.receive_depth;
  while (receives_used_ > 0) {
    if (!repost_receives()) return make_error(Errc::kIo, "the receive queue takes no receives");
  }
  return {};
}

base::Status Connection::post_message_receives(std::span<const uint32_t> message_bytes) {
  BRAID_ASSERT(message_bytes.size() <= kMessagesMax);
  messages_.resize(std::accumulate(message_bytes.begin(), message_bytes.end(), size_t{0}));
  BRAID_TRY(message_mr_, pd_->reg_mr(messages_.data(), messages_.size(), IBV_ACCESS_LOCAL_WRITE));
  size_t at = 0;
  for (size_t i = 0; i < message_bytes.size(); ++i) {
    message_of_[i] = std::span(messages_).subspan(at, message_bytes[i]);
    at += message_bytes[i];
    vhca::Sge sge{};
    sge.addr = reinterpret_cast<uint64_t>(message_of_[i].data());
    sge.length = message_bytes[i];
    sge.lkey = message_mr_->lkey;
    vhca::RecvWr wr{};
    wr.wr_id = wr_id(Kind::kMessage, i);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    const vhca::RecvWr* bad = nullptr;
    const int err = qp_->post_recv(&wr, &bad);
    if (err != 0) return base::sys_error(err, "posting the receives of the set-up");
  }
  return {};
}

base::Status Connection::prepare_buffers() {
  const size_t size_bytes = size_t{options_.receive_depth} * control_bytes_;
  control_ = std::make_unique_for_overwrite<std::byte[]>(size_bytes);
  BRAID_TRY(control_mr_, pd_->reg_mr(control_.get(), size_bytes, IBV_ACCESS_LOCAL_WRITE));
  return {};
}

/// Posts up to a batch of those used up.
bool Connection::repost_receives() {
  const uint32_t count = std::min(receives_used_, kRepostBatch);
  if (control_ != nullptr) give_buffers(count);
  vhca::RecvWr& last = receive_chain_[count - 1];
  vhca::RecvWr* const rest = std::exchange(last.next, nullptr);
  const vhca::RecvWr* bad = nullptr;
  const int err = qp_->post_recv(&receive_chain_[0], &bad);
  last.next = rest;
  receives_used_ -= count;
  return err == 0;
}

/// Receives complete in the order in which they were posted, so the buffers go round.
void Connection::give_buffers(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    std::byte* const buffer = control_.get() + size_t{control_next_} * control_bytes_;
    receive_pieces_[i] = {reinterpret_cast<uint64_t>(buffer), control_bytes_, control_mr_->lkey};
    receive_chain_[i].sg_list = &receive_pieces_[i];
    receive_chain_[i].num_sge = 1;
    receive_chain_[i].wr_id = wr_id(Kind::kReceive, control_next_);
    control_next_ = (control_next_ + 1) % options_.receive_depth;
  }
}

void Connection::attach(std::unique_ptr<vhca::Connection> established, std::function<void()> lost) {
  established_ = std::move(established);
  holds_posts_ = qp_->holds_posts();
  shares_fate_ = qp_->shares_fate();
  if (state_ == State::kSetup) state_ = State::kOpen;
  established_->on_disconnect(std::move(lost));
}

std::string Connection::peer_text() const {
  return established_ ? established_->peer_text() : "nobody yet";
}

bool Connection::post(std::span<vhca::SendWr> chain) {
  active_ns_ = reactor_.now_ns();
  return send(chain);
}

bool Connection::send(std::span<vhca::SendWr> chain) {
  for (size_t i = 0; i < chain.size(); ++i, ++posted_) {
    vhca::SendWr& wr = chain[i];
    wr.wr_id = wr_id(Kind::kSend, posted_);
    wr.next = i + 1 < chain.size() ? &chain[i + 1] : nullptr;
    if (posted_ - last_signaled_ + 1 >= signal_every_) {
      wr.send_flags |= IBV_SEND_SIGNALED;
      last_signaled_ = posted_ + 1;
    }
  }
  return give(chain.front());
}

bool Connection::post_local(vhca::SendWr& wr) {
  active_ns_ = reactor_.now_ns();
  wr.wr_id = wr_id(Kind::kLocal, posted_++);
  wr.next = nullptr;
  wr.send_flags |= IBV_SEND_SIGNALED;
  last_signaled_ = posted_;
  return give(wr);
}

bool Connection::give(vhca::SendWr& first) {
  wake();  // an answer is to be polled for
  const vhca::SendWr* bad = nullptr;
  const int err = qp_->post_send(&first, &bad);
  if (holds_posts_) reactor_.at_turn_end(*this);
  if (err == 0) return true;
  for (; bad != nullptr; bad = bad->next) --posted_;
  fail(base::sys_error(err, "posting a send"));
  return false;
}

vhca::SendWr Connection::imm_alone(uint32_t imm) {
  vhca::SendWr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = to_network(imm);
  return wr;
}

bool Connection::post_imm(uint32_t imm) {
  vhca::SendWr wr = imm_alone(imm);
  return post(wr);
}

bool Connection::post_heartbeat(uint32_t imm, uint64_t polled_ns) {
  const uint64_t now_ns = reactor_.now_ns();
  awaiting_ns_ = std::max(awaiting_ns_, now_ns - std::min(now_ns, kSilentNs) + polled_ns);
  vhca::SendWr wr = imm_alone(imm);
  return send({&wr, 1});
}

bool Connection::post_probe() {
  vhca::SendWr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  return post(wr);
}

size_t Connection::poll(size_t most) {
  if (state_ == State::kDrained) return 0;
  std::array<vhca::Wc, kPollBurst> burst;
  const int count = cq_->poll(std::span(burst).first(std::min(most, kPollBurst)));
  if (count < 0) {
    if (state_ == State::kDraining) state_ = State::kDrained;  // its markers are lost
    fail(make_error(Errc::kIo, "a completion queue was overrun"));
    return 1;
  }
  if (count > 0) wake();
  for (int i = 0; i < count; ++i) complete(burst[static_cast<size_t>(i)]);
  if (std::exchange(received_now_, 0) > 0) active_ns_ = reactor_.now_ns();
  const bool repost = receives_used_ >= kRepostThreshold && state_ == State::kOpen;
  if (repost && !repost_receives()) fail(make_error(Errc::kIo, "receives cannot be posted"));
  return static_cast<size_t>(count);
}

void Connection::complete(const vhca::Wc& wc) {
  const Kind kind = kind_of(wc.wr_id);
  if (kind == Kind::kSendMarker || kind == Kind::kReceiveMarker) {
    if (--markers_due_ == 0) state_ = State::kDrained;
    return;
  }
  if (wc.status != IBV_WC_SUCCESS) {
    const bool send = kind == Kind::kSend || kind == Kind::kLocal;
    if (send) completed_ = count_of(wc.wr_id) + 1;
    const char* const what = kind == Kind::kSend    ? "a send"
                             : kind == Kind::kLocal ? "opening or closing a memory window"
                                                    : "a receive";
    fail(make_error(Errc::kDisconnected, "{} failed: {}", what, to_string(wc.status)));
    return;
  }
  if (kind == Kind::kSend || kind == Kind::kLocal) {
    completed_ = count_of(wc.wr_id) + 1;
    if (kind == Kind::kLocal) user_.local_done(*this);
  } else {
    completed_receive(wc);
  }
}

void Connection::completed_receive(const vhca::Wc& wc) {
  ++received_now_;
  if (kind_of(wc.wr_id) == Kind::kMessage) {
    const std::span<std::byte> message = message_of_[count_of(wc.wr_id)];
    if (wc.opcode != IBV_WC_RECV || wc.byte_len > message.size()) {
      fail(make_error(Errc::kProtocol, "a write with immediate came before the info exchange"));
      return;
    }
    user_.received_message(*this, message.first(wc.byte_len));
    return;
  }
  ++receives_used_;
  if (wc.opcode == IBV_WC_RECV && control_ != nullptr) return completed_send(wc);
  if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
    fail(make_error(Errc::kProtocol, "a message came where only writes with immediate may"));
    return;
  }
  user_.received_imm(*this, from_network(wc.imm_data), wc.byte_len);
}

/// Its receive is posted again after this round of completions at the earliest.
void Connection::completed_send(const vhca::Wc& wc) {
  if (wc.byte_len > control_bytes_) {
    fail(make_error(Errc::kProtocol, "a message longer than its buffer"));
    return;
  }
  const size_t at = size_t{static_cast<uint32_t>(count_of(wc.wr_id))} * control_bytes_;
  const auto message = std::span(control_.get() + at, wc.byte_len);
  const bool with_imm = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (with_imm && take_answers_) {
    user_.received_answer(*this, from_network(wc.imm_data), message);
  } else if (!with_imm && options_.control_bytes > 0) {
    user_.received_message(*this, message);
  } else {
    fail(make_error(Errc::kProtocol, "a message {} immediate came where none may",
                    with_imm ? "with" : "without"));
  }
}

void Connection::arm() {
  if (std::exchange(armed_, true)) return;
  armed_from_ = cq_->begin_arm() ? reactor_.ask_fence() : 0;
}

bool Connection::falls_asleep() {
  if (armed_) return asleep_ = reactor_.fences() >= armed_from_;
  if (reactor_.now_ns() - std::max(active_ns_, awaiting_ns_) >= kSilentNs) arm();
  return false;
}

void Connection::wake() {
  if (!std::exchange(armed_, false)) return;
  asleep_ = false;
  cq_->disarm();
  user_.woken(*this);
}

void Connection::take_events(vhca::CompChannel& channel) {
  while (vhca::Cq* const cq = channel.next_event()) {
    cq->ack_events(1);
    static_cast<Connection*>(cq->context)->wake();
  }
}

void Connection::fail(base::Error why) {
  if (failed_ || state_ != State::kOpen) return;
  failed_ = true;
  user_.failed(*this, std::move(why));
}

void Connection::fence() {
  if (state_ == State::kDraining || state_ == State::kDrained) return;
  state_ = State::kDraining;
  base::ListNode::unlink();
  wake();
  vhca::QpAttr attr{};
  attr.qp_state = IBV_QPS_ERR;
  // A refusal means that the QP is past saving or its process is dead: nothing will come of it.
  if (!qp_->modify(attr, IBV_QP_STATE).ok()) {
    state_ = State::kDrained;
    return;
  }
  vhca::SendWr send{};
  send.wr_id = wr_id(Kind::kSendMarker);
  send.opcode = IBV_WR_RDMA_WRITE;
  send.send_flags = IBV_SEND_SIGNALED;
  vhca::RecvWr receive{};
  receive.wr_id = wr_id(Kind::kReceiveMarker);
  const vhca::SendWr* bad_send = nullptr;
  const vhca::RecvWr* bad_receive = nullptr;
  if (qp_->post_send(&send, &bad_send) == 0) ++markers_due_;
  if (qp_->post_recv(&receive, &bad_receive) == 0) ++markers_due_;
  if (markers_due_ == 0) state_ = State::kDrained;
}

const char* to_string(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return "success";
    case IBV_WC_LOC_LEN_ERR:
      return "local length error";
    case IBV_WC_LOC_QP_OP_ERR:
      return "local QP operation error";
    case IBV_WC_LOC_PROT_ERR:
      return "local protection error";
    case IBV_WC_WR_FLUSH_ERR:
      return "flushed, the queue pair is in the error state";
    case IBV_WC_REM_INV_REQ_ERR:
      return "the peer found the request invalid";
    case IBV_WC_REM_ACCESS_ERR:
      return "the peer refused access to its memory";
    case IBV_WC_REM_OP_ERR:
      return "the peer could not complete the operation";
    case IBV_WC_RETRY_EXC_ERR:
      return "no answer from the peer (retries used up)";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the peer had no receive posted";
    default:
      return "an error without a name here";
  }
}

}  // namespace braid::trs
