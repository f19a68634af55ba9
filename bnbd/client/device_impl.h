// RemoteDevice's inside. Files by duty: device.cc (life, state, status), submit.cc (the data path).
//
// A BlockRequest becomes an Op: up to three stages (preflush, body, postflush), a stage one or more
// Parts, a Part one request of the transport; more, one after the other, if the server came back
// with smaller limits than the Part was made for.
//
//   waiting_ -> ready_ -> parts: on the wire -> stage ends -> next stage in ready_, or done
//                 retry_ <-- the server did not know the device: sent again when it is open again
//
// Ops and Parts are preallocated; nothing is allocated after the constructor. One reactor. The
// device is a ListNode for the session's queues of those who need a permit or a copy buffer.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bnbd/client/durability.h"
#include "bnbd/client/session_impl.h"
#include "bnbd/deferred_end.h"
#include "bnbd/remote.h"

namespace braid::bnbd::client {

class DeviceImpl final : public RemoteDevice, public base::ListNode {
 public:
  DeviceImpl(SessionImpl& session, uint64_t serial, RemoteDeviceOptions options,
             const wire::OpenedDevice& opened);
  ~DeviceImpl() override;

  // --- BlockDevice
  const BlockInfo& info() const override { return info_; }
  void submit(BlockRequest& request) override;
  base::Result<std::unique_ptr<Region>> create_region(size_t size_bytes) override {
    return session_.create_region(size_bytes);
  }
  BlockStatistics statistics() const override { return statistics_; }

  // --- RemoteDevice
  const std::string& name() const override { return options_.name; }
  wire::AccessMode mode() const override { return options_.mode; }
  /// Opened again, but not all devices are yet: its I/O is still held.
  RemoteState state() const override {
    const bool held = state_ == RemoteState::kOpen && !session_.path_up();
    return held ? RemoteState::kPathDown : state_;
  }
  RemoteDeviceStatus status() const override;
  const LatencyHistogram& latency(LatencyKind kind) const override {
    return latency_[static_cast<size_t>(kind)];
  }
  std::string explain() const override;
  base::Task<base::Status> remap() override;
  void watch(std::function<void()> changed) override { changed_ = std::move(changed); }
  base::Task<void> close() override;

  // --- for the session
  uint64_t serial() const { return serial_; }
  uint64_t tenure() const { return tenure_; }
  uint64_t lost_after_ns() const { return options_.lost_after_ns; }
  uint32_t id_at_server() const { return open_at_server() ? device_id_ : wire::kNoDevice; }
  bool wants_reopening() const {
    return !closing_ && (state_ == RemoteState::kPathDown || state_ == RemoteState::kUnavailable);
  }
  uint32_t permits_held() const { return permits_held_; }
  bool closing() const { return closing_; }
  bool open_at_server() const { return state_ == RemoteState::kOpen; }
  /// It has an id at the server, or will ask for one.
  bool wants_id() const { return state_ == RemoteState::kOpen || wants_reopening(); }
  bool has_work() const {
    return state_ == RemoteState::kOpen && (!retry_.empty() || !ready_.empty());
  }
  /// Sends one part with this permit. False: it has no more to send, or waits for something else.
  bool send_one(trs::Permit permit);
  void path_lost();
  /// There will be no path any more.
  void lost(std::string why);
  void requests_returned();
  void reopened(const wire::OpenedDevice& opened);
  void refused(const base::Error& why);
  void superseded(std::string why);
  bool remapping() const { return remapping_; }
  void news(const wire::DeviceNews& told);
  /// What the transport still holds goes out under the present id, or under none.
  void address_held();
  /// Requests flow: a device that is open has been away no longer.
  void path_restored();

 private:
  enum class Stage : uint8_t { kPreflush, kBody, kPostflush };
  struct Op : base::ListNode {
    BlockRequest* request = nullptr;
    Stage stage = Stage::kBody;
    bool foreign = false;       // its buffer is not registered here: copied
    uint64_t issued_bytes = 0;  // of the stage; a stage without a length counts as one byte
    uint32_t parts = 0;         // begun and not ended
    bool durable = true;        // each part done went with FUA to a server that heeds it
    base::Errc status = base::Errc::kOk;
    DurabilityLedger::Ticket postflush;
  };
  /// Why a part was taken back from the transport before it was on the wire.
  enum class Recall : uint8_t { kNone, kCut /* goes in smaller pieces */, kFails /* verdict() */ };
  struct Part : base::ListNode {
    DeviceImpl* device = nullptr;
    Op* op = nullptr;
    bool on_wire = false;  // the transport has it
    Recall recall = Recall::kNone;
    uint64_t offset_bytes = 0;
    uint32_t length_bytes = 0;  // not yet done; a stage without a length counts as one byte
    uint32_t sent_bytes = 0;    // of these, in the present request
    std::byte* copy = nullptr;
    wire::Io message;
    trs::ClientRequest request;
  };

  // --- submit.cc
  void begin(Op& op, BlockRequest& request);
  void enter(Op& op, Stage stage);
  uint64_t stage_bytes(const Op& op) const;
  uint32_t request_bytes_max(const Op& op) const;
  void send_again(Part& part);
  bool fill(Part& part);
  uint32_t operation_flags(const Op& op) const;
  static void part_ended(trs::ClientRequest& request, base::Errc status);
  void end_part(Part& part, base::Errc status);
  void stage_ended(Op& op);
  void go_on(Op& op, Stage stage);
  base::Errc judge_flush(const DurabilityLedger::Ticket& ticket);
  void finish(Op& op, base::Errc status);
  void lost_at_server();

  // --- device.cc
  void set_state(RemoteState state, std::string why);
  void revoked(std::string why);
  void set_size(uint64_t size_bytes);
  base::Status may_remap() const;
  void count_absence();
  void take_over(const wire::OpenedDevice& opened);
  static void give_up(base::Timer& timer);
  static void close_due(base::Timer& timer);
  base::Errc verdict() const;
  void end_held(base::Errc status);
  void recall_all(Recall why);
  void drop(Op& op, base::Errc status);
  std::string held_text() const;
  bool quiet() const { return in_progress_ == 0 && deferred_.empty(); }

  SessionImpl& session_;
  const uint64_t serial_;
  const RemoteDeviceOptions options_;
  base::Logger log_;
  RemoteState state_ = RemoteState::kOpen;
  std::string why_;                       // it is not open
  base::Errc refusal_ = base::Errc::kOk;  // the server's last, in kUnavailable
  bool shrank_ = false;                   // why it was replaced
  bool remapping_ = false;                // its user wants it back, whatever has happened
  std::function<void()> changed_;
  base::Timer give_up_timer_;
  bool gave_up_ = false;
  bool closing_ = false;
  base::Timer close_timer_;
  uint32_t device_id_ = wire::kNoDevice;
  uint64_t tenure_ = 0;  // as its writer; 0: for reading, or of a server that tells none
  bool server_fua_ = true;
  uint32_t server_max_io_bytes_ = 0;
  BlockInfo info_;
  DurabilityLedger ledger_;

  std::vector<Op> ops_;
  std::vector<Part> parts_;
  base::IntrusiveList<Op> free_ops_;
  base::IntrusiveList<Part> free_parts_;
  base::IntrusiveList<BlockRequest> waiting_;  // for an Op
  base::IntrusiveList<Op> ready_;              // their stage has something to send
  base::IntrusiveList<Part> retry_;
  uint32_t in_progress_ = 0;
  uint32_t waiting_count_ = 0;
  std::shared_ptr<base::Signal> idle_;  // shared with close(), which may outlive a killed process

  BlockStatistics statistics_;
  DeferredEnd deferred_;
  std::array<LatencyHistogram, kLatencyKinds> latency_;
  uint32_t permits_held_ = 0;  // parts on the wire
  uint32_t copies_held_ = 0;   // copy buffers
  uint64_t requests_sent_ = 0;
  uint64_t reopened_ = 0;
};

}  // namespace braid::bnbd::client
