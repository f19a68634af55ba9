// DeviceQueue: a remote device as one reactor submits to it. Files by duty: device_queue.cc (what
// the device's home says), submit.cc (the data path).
//
// A BlockRequest becomes an Op: up to three stages (preflush, body, postflush), a stage one or more
// Parts, a Part one request of the transport; more, one after the other, if the server came back
// with smaller limits than the Part was made for.
//
//   waiting_ -> ready_ -> parts: on the wire -> stage ends -> next stage in ready_, or done
//                 retry_ <-- the server did not know the device: sent again when it is open again
//
// Ops and Parts are preallocated; nothing is allocated after the constructor. They take memory with
// their first use. It is a ListNode for
// its session queue's lists of those who need a permit or a copy buffer.
//
// Threads: its reactor's, but for what says otherwise. What the home has to say comes by message,
// on the home reactor itself by a call (DeviceImpl::on_queues); messages share the object, so that
// it outlives them. After DeviceImpl::queue_quiet() it touches nothing but itself.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/lazy_array.h"
#include "bnbd/client/durability.h"
#include "bnbd/client/session_queue.h"
#include "bnbd/deferred_end.h"
#include "bnbd/remote.h"

namespace braid::bnbd::client {

class DeviceImpl;

/// What a queue has to know of its device.
struct DeviceView {
  bool open = false;                     // requests go to the server
  uint64_t epoch = 0;                    // of the opening
  uint32_t id = wire::kNoDevice;         // at the server
  bool server_fua = true;                // it heeds the flag
  bool sends_priority = false;           // it heeds a request's priority
  uint32_t server_max_io_bytes = 0;      // of one request
  base::Errc verdict = base::Errc::kOk;  // how requests end that are not served; kOk: they wait
  BlockInfo info;
};

class DeviceQueue final : public BlockDevice,
                          public base::ListNode,
                          public std::enable_shared_from_this<DeviceQueue> {
 public:
  /// `index`: among its device's queues.
  DeviceQueue(DeviceImpl& device, size_t index, SessionQueue& session, DurabilityLedger& ledger,
              const RemoteDeviceOptions& options, DeviceView view);

  // --- BlockDevice
  const BlockInfo& info() const override { return view_.info; }
  void submit(BlockRequest& request) override;
  void note_flush(FlushNote& note) override;
  void note_told(Untold& untold, bool heard) override;
  base::Result<std::unique_ptr<Region>> create_region(size_t size_bytes) override;
  BlockStatistics statistics() const override { return statistics_.read(); }  // any thread

  // --- any thread
  base::Reactor& reactor() { return reactor_; }
  uint64_t in_progress() const { return base::read_shared(in_progress_); }
  uint64_t waiting() const { return base::read_shared(waiting_count_); }
  uint64_t requests_sent() const { return base::read_shared(requests_sent_); }
  /// Null: there was no such request.
  const LatencyHistogram* latency(LatencyKind kind) const {
    const auto index = static_cast<size_t>(kind);
    return latency_.has(index) ? &latency_[index] : nullptr;
  }

  // --- for its session queue
  uint32_t permits_held() const { return permits_held_; }
  bool has_work() const { return view_.open && (!retry_.empty() || !ready_.empty()); }
  /// Sends one part with this permit. False: it has no more to send, or waits for something else.
  bool send_one(trs::Permit permit);

  // --- from the home
  void join();
  void see(DeviceView view);
  /// What the transport still holds goes out under the present id, or under none.
  void address_held();
  /// Ends what is held with this status, and recalls what the transport has and has not put on a
  /// wire: that ends by the view's verdict.
  void fail_all(base::Errc held);
  /// The path's requests have come back: those of a device that is given up or closed end.
  void requests_returned() { recall_all(Recall::kFails); }
  /// The view says that everything is canceled. Ends in DeviceImpl::queue_quiet.
  void begin_close();

 private:
  enum class Stage : uint8_t { kPreflush, kBody, kPostflush };
  struct Op : base::ListNode {
    BlockRequest* request = nullptr;
    Stage stage = Stage::kBody;
    bool foreign = false;       // its buffer is not used as it is: copied
    uint64_t issued_bytes = 0;  // of the stage; a stage without a length counts as one byte
    uint32_t parts = 0;         // begun and not ended
    bool durable = true;        // each part done went with FUA to a server that heeds it
    base::Errc status = base::Errc::kOk;
    bool flush_failed = false;  // a flush of it, at the server
    DurabilityLedger::Untold untold{};
    uint32_t losses_before = 0;  // with FUA: of the device, when it began
    DurabilityLedger::Ticket postflush;
  };
  /// Why a part was taken back from the transport before it was on the wire.
  enum class Recall : uint8_t { kNone, kCut /* goes in smaller pieces */, kFails /* verdict */ };
  struct Part : base::ListNode {
    DeviceQueue* device = nullptr;
    Op* op = nullptr;
    bool on_wire = false;  // the transport has it
    bool counted = false;  // by the ledger, while it is on the wire: a change without FUA
    uint8_t era = 0;       // then: of the ledger
    Recall recall = Recall::kNone;
    uint64_t offset_bytes = 0;
    uint32_t length_bytes = 0;  // not yet done; a stage without a length counts as one byte
    uint32_t sent_bytes = 0;    // of these, in the present request
    std::byte* copy = nullptr;
    wire::Io message;
    trs::ClientRequest request;
  };

  // --- submit.cc
  void count_latency(LatencyKind kind, uint64_t ns);
  Op* take_op();
  Part* free_part();
  void begin(Op& op, BlockRequest& request);
  void enter(Op& op, Stage stage);
  uint64_t stage_bytes(const Op& op) const;
  uint32_t request_bytes_max(const Op& op) const;
  void send_again(Part& part);
  bool fill(Part& part);
  static bool is_change(const Op& op);
  bool durable_by_itself(const Part& part) const;
  uint32_t operation_flags(const Op& op) const;
  static void part_ended(trs::ClientRequest& request, base::Errc status);
  void end_part(Part& part, base::Errc status);
  void count_end(Part& part, base::Errc status);
  void stage_ended(Op& op);
  void go_on(Op& op, Stage stage);
  base::Errc judge_flush(Op& op, const DurabilityLedger::Ticket& ticket);
  void flush_failed(Op& op, const DurabilityLedger::Ticket& ticket);
  void tell(Op& op);
  void finish(Op& op, base::Errc status);
  void lost_at_server();

  // --- device_queue.cc
  void meet();
  void end_held(base::Errc status);
  void recall_all(Recall why);
  void drop(Op& op, base::Errc status);
  void look_whether_quiet();
  static void quiet_due(base::Timer& timer);

  DeviceImpl& device_;  // the home's: only what any thread may ask
  const size_t index_;
  SessionQueue& session_;
  base::Reactor& reactor_;
  DurabilityLedger& ledger_;
  const std::string name_;
  base::Logger log_;
  DeviceView view_;
  const bool told_early_;  // a planted bug
  bool met_ = false;       // by its session queue: it has asked for something
  bool closing_ = false;
  bool quiet_ = false;  // told, the last thing
  base::Timer quiet_timer_;

  base::LazyArray<Op> ops_;
  base::LazyArray<Part> parts_;
  base::IntrusiveList<Op> free_ops_;  // of those that are there, as below
  base::IntrusiveList<Part> free_parts_;
  base::IntrusiveList<BlockRequest> waiting_;  // for an Op
  base::IntrusiveList<Op> ready_;              // their stage has something to send
  base::IntrusiveList<Part> retry_;
  uint64_t in_progress_ = 0;
  uint64_t waiting_count_ = 0;

  BlockStatistics statistics_;
  DeferredEnd deferred_;
  base::SparseArray<LatencyHistogram> latency_{kLatencyKinds};
  uint32_t permits_held_ = 0;  // parts on the wire
  uint32_t copies_held_ = 0;   // copy buffers
  uint64_t requests_sent_ = 0;
};

}  // namespace braid::bnbd::client
