// RemoteDevice's inside at home: its life, state and status (device.cc). The requests are those of
// its queues, one for each reactor of the session (device_queue.h), which it tells what they have
// to know (docs/client-reactors.md).
//
// Thread: the home reactor's, but for home() and create_region().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/limited_log.h"
#include "bnbd/client/device_queue.h"
#include "bnbd/client/durability.h"
#include "bnbd/client/session_impl.h"
#include "bnbd/remote.h"

namespace braid::bnbd::client {

class DeviceImpl final : public RemoteDevice {
 public:
  DeviceImpl(SessionImpl& session, uint64_t serial, RemoteDeviceOptions options,
             const wire::OpenedDevice& opened);
  ~DeviceImpl() override;

  // --- BlockDevice
  const BlockInfo& info() const override { return info_; }
  void submit(BlockRequest& request) override { queues_.front()->submit(request); }
  void note_flush(FlushNote& note) override { queues_.front()->note_flush(note); }
  void note_told(Untold& untold, bool heard) override { queues_.front()->note_told(untold, heard); }
  base::Result<std::unique_ptr<Region>> create_region(size_t size_bytes) override {
    return session_.create_region(size_bytes);
  }
  BlockStatistics statistics() const override;
  std::vector<BlockQueue> queues() override;

  // --- RemoteDevice
  const std::string& name() const override { return options_.name; }
  wire::AccessMode mode() const override { return options_.mode; }
  /// Opened again, but not all devices are yet: its I/O is still held.
  RemoteState state() const override {
    const bool held = state_ == RemoteState::kOpen && !session_.path_up();
    return held ? RemoteState::kPathDown : state_;
  }
  RemoteDeviceStatus status() const override;
  LatencyHistogram latency(LatencyKind kind) const override;
  std::string explain() const override;
  base::Task<base::Status> remap() override;
  void give_up() override;
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
  bool closing() const { return closing_; }
  bool open_at_server() const { return state_ == RemoteState::kOpen; }
  /// It has an id at the server, or will ask for one.
  bool wants_id() const { return state_ == RemoteState::kOpen || wants_reopening(); }
  /// Its queues take their places among those of other devices.
  void join();
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

  // --- for its queues
  base::Reactor& home() { return session_.home(); }
  /// The server does not know the device of this opening any more.
  void lost_at_server(uint64_t epoch);
  /// One has ended all that it had, and says nothing more.
  void queue_quiet();

 private:
  /// Runs it for each queue on its reactor, at home at once. What is asked for first runs first.
  template <typename Function>
  void on_queues(Function function) {
    for (const auto& queue : queues_) {
      if (&queue->reactor() == &session_.home()) {
        function(*queue);
      } else {
        queue->reactor().post([queue, function] { function(*queue); });
      }
    }
  }
  DeviceView view() const;
  void tell_queues();
  void set_state(RemoteState state, std::string why);
  void revoked(std::string why);
  void set_size(uint64_t size_bytes);
  base::Status may_remap() const;
  void count_absence();
  void take_over(const wire::OpenedDevice& opened);
  void ask_again_later();
  static void give_up_due(base::Timer& timer);
  void hold_no_longer(std::string why);
  static void close_due(base::Timer& timer);
  base::Errc verdict() const;
  void fail_all(base::Errc status);
  uint64_t in_progress() const;
  uint64_t waiting() const;
  std::string held_text() const;

  SessionImpl& session_;
  const uint64_t serial_;
  const RemoteDeviceOptions options_;
  base::Logger log_;
  base::LimitedLog sizes_;  // lines about these, as often as the server says another one
  RemoteState state_ = RemoteState::kOpen;
  std::string why_;                       // it is not open
  base::Errc refusal_ = base::Errc::kOk;  // the server's last, in kUnavailable
  bool shrank_ = false;                   // why it was replaced
  bool remapping_ = false;                // its user wants it back, whatever has happened
  std::function<void()> changed_;
  base::Timer give_up_timer_;
  bool gave_up_ = false;
  std::string gave_up_why_;  // "after ..."
  bool closing_ = false;
  base::Timer close_timer_;
  size_t loud_queues_ = 0;  // while it is being closed: those that are not quiet yet
  uint64_t epoch_ = 0;      // counts its openings
  uint64_t lineage_ = 0;    // trs::ClientSession::lineage(), of the last opening
  uint32_t device_id_ = wire::kNoDevice;
  uint64_t tenure_ = 0;  // as its writer; 0: for reading, or of a server that tells none
  bool server_fua_ = true;
  uint32_t server_max_io_bytes_ = 0;
  BlockInfo info_;
  DurabilityLedger ledger_;

  std::vector<std::shared_ptr<DeviceQueue>> queues_;  // by the session's reactors; the home's first
  std::shared_ptr<base::Signal> idle_;  // shared with close(), which may outlive a killed process
  uint64_t reopened_ = 0;
};

}  // namespace braid::bnbd::client
