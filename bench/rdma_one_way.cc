#include "bench/rdma_one_way.h"

#include <cstring>
#include <optional>

#include "bench/braid_side.h"
#include "bench/queue_pair.h"
#include "bench/spin.h"
#include "bench/workload.h"
#include "vhca/soft_device.h"

namespace braid::bench {
namespace {

constexpr uint32_t kRdmaReceives = 64;
// The send queue gives slots back with each signalled request.
constexpr uint32_t kSignalEvery = 32;
constexpr int kRdmaStartMs = 30'000;

// Where the peer may write; goes with connect and accept.
struct Target {
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t reserved = 0;
};

// One end: a QP with memory that the peer writes to. Each message begins with its number, which the
// receiver loads and compares, as a program would use what it was sent: without that, the line with
// the data would never move.
class RdmaEnd {
 public:
  RdmaEnd(uint32_t length_bytes, bool inline_data, Memory memory)
      : length_bytes_(length_bytes), inline_(inline_data) {
    BRAID_ASSERT(length_bytes >= sizeof(uint64_t));
    device_ = must(vhca::create_soft_device(*side_.host, *side_.reactor, {}));
    const size_t memory_bytes = 2 * size_t{length_bytes};
    if (memory == Memory::kSegment) {
      segment_ = must(side_.host->create_segment(memory_bytes, "bench"));
      memory_ = segment_->data();
    } else {
      foreign_.resize(memory_bytes);
      memory_ = foreign_.data();
    }
    pair_.emplace(*device_);
    mr_ = pair_->register_memory(memory_, memory_bytes);
    for (uint32_t i = 0; i < kRdmaReceives; ++i) post_receive();
  }

  void serve(Channel& channel) {
    const auto listener = must(device_->listen(*side_.reactor, {.ip = "127.0.0.1", .port = 0}, 1));
    channel.send({{"port", listener->address().port}});
    const auto request = must(side_.reactor->run_until_done(listener->next()));
    set_target(request->private_data());
    const Target mine = my_target();
    vhca::ConnectParameters parameters;
    parameters.private_data = std::as_bytes(std::span(&mine, 1));
    const auto connection = must(
        side_.reactor->run_until_done(request->accept(*side_.reactor, *pair_->qp, parameters)));
    for (;;) {
      wait_for_message();
      send();
    }
  }

  Sample ask(uint16_t port, unsigned duration_ms, unsigned latency_ms, pid_t server) {
    const Target mine = my_target();
    vhca::ConnectParameters parameters;
    parameters.private_data = std::as_bytes(std::span(&mine, 1));
    const auto result = must(side_.reactor->run_until_done(
        device_->connect(*side_.reactor, *pair_->qp, {.ip = "127.0.0.1", .port = port}, parameters,
                         10 * base::kSecond)));
    if (!result.connection) throw std::runtime_error("the measuring peer rejected the connection");
    set_target(result.connection->peer_private_data());
    const auto round_trip = [this] {
      send();
      wait_for_message();
    };
    return one_way(measure_operations(duration_ms, latency_ms, server, round_trip));
  }

 private:
  Target my_target() const {
    return {.address = reinterpret_cast<uint64_t>(memory_), .rkey = mr_->rkey};
  }
  void set_target(std::span<const std::byte> data) {
    if (data.size() < sizeof target_) throw std::runtime_error("no target in the private data");
    std::memcpy(&target_, data.data(), sizeof target_);
  }
  void post_receive() {
    const vhca::RecvWr wr{};
    if (pair_->qp->post_recv(&wr, nullptr) != 0) throw std::runtime_error("post_recv failed");
  }
  void send() {
    const uint64_t number = ++sent_;
    std::memcpy(memory_ + length_bytes_, &number, sizeof number);
    vhca::Sge sge{.addr = reinterpret_cast<uint64_t>(memory_ + length_bytes_),
                  .length = length_bytes_,
                  .lkey = mr_->lkey};
    vhca::SendWr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.send_flags =
        (inline_ ? IBV_SEND_INLINE : 0) | (sent_ % kSignalEvery == 0 ? IBV_SEND_SIGNALED : 0);
    wr.wr.rdma.remote_addr = target_.address;
    wr.wr.rdma.rkey = target_.rkey;
    if (pair_->qp->post_send(&wr, nullptr) != 0) throw std::runtime_error("post_send failed");
  }
  void wait_for_message() {
    for (Spinner spinner;; spinner.turn()) {
      vhca::Wc wc[2];
      const int count = pair_->cq->poll(wc);
      bool received = false;
      for (int i = 0; i < count; ++i) {
        if (wc[i].status != IBV_WC_SUCCESS) throw std::runtime_error("the connection broke");
        received = received || wc[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM;
      }
      if (count < 0) throw std::runtime_error("the completion queue was overrun");
      if (!received) continue;
      check_data();
      post_receive();
      return;
    }
  }

  void check_data() {
    uint64_t number = 0;
    std::memcpy(&number, memory_, sizeof number);
    if (number == ++received_) return;
    throw std::runtime_error(fmt::format("message {} brought the data of {}", received_, number));
  }

  const uint32_t length_bytes_;
  const bool inline_;
  BraidSide side_;
  std::unique_ptr<vhca::Device> device_;
  std::optional<QueuePair> pair_;
  std::unique_ptr<base::Segment> segment_;
  std::vector<std::byte> foreign_;
  std::byte* memory_ = nullptr;  // of one of them; the first half is written by the peer
  std::unique_ptr<vhca::Mr> mr_;
  Target target_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
};

class WriteImmOneWay : public Candidate {
 public:
  WriteImmOneWay(uint32_t length_bytes, Memory memory)
      : length_bytes_(length_bytes), memory_(memory) {}
  std::string name() const override {
    return std::string("braid, in-host software HCA, ") +
           (memory_ == Memory::kSegment ? "its own memory" : "foreign memory");
  }
  std::string threads() const override { return "one a side; both spin, no yield"; }
  base::Status prepare(Bench&) override { return base::ok_status(); }

  base::Result<Sample> run(Bench& bench) override {
    // As a program would: what is small enough goes with the request.
    const bool inline_data = length_bytes_ <= vhca::QpOptions().cap.max_inline_data;
    BRAID_TRY(Process server,
              Process::call(bench.interrupts, bench.cpus.server, [&](Channel& channel) {
                RdmaEnd(length_bytes_, inline_data, memory_).serve(channel);
              }));
    BRAID_TRY(const auto ready, server.receive(kRdmaStartMs));
    const uint16_t port = ready.at("port");
    const bool quick = bench.options.quick;
    BRAID_TRY(
        Process client, Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
          RdmaEnd end(length_bytes_, inline_data, memory_);
          channel.send(to_json(end.ask(port, quick ? 5 : 1000, quick ? 2 : 300, server.pid())));
        }));
    BRAID_TRY(const auto message, client.receive(60'000));
    return sample_from_json(message);
  }

 private:
  const uint32_t length_bytes_;
  const Memory memory_;
};

}  // namespace

std::unique_ptr<Candidate> write_imm_one_way(uint32_t length_bytes, Memory memory) {
  return std::make_unique<WriteImmOneWay>(length_bytes, memory);
}

}  // namespace braid::bench
