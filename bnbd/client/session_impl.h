// RemoteSession's inside at home: the TRS session, its devices, registered memory. Files by duty:
// session.cc (life, control messages), reconnect.cc (the path comes and goes), resources.cc
// (memory, what is of each reactor), news.cc. What is of one reactor is in session_queue.h.
//
// Thread: the home reactor's, but for home() and create_region(). Devices borrow the session.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/reactor.h"
#include "bnbd/client/session_queue.h"
#include "bnbd/remote.h"
#include "vhca/device.h"

namespace braid::bnbd::client {

class DeviceImpl;

/// How an OPEN ended: the path failed it, or the server answered, well, with a refusal or nonsense.
struct OpenReply {
  OpenReply() {}  // no aggregate: those go wrong beside co_await
  base::Status path;
  bool unanswered = false;  // in time; it may still have been done
  base::Result<wire::OpenedDevice> answer = wire::OpenedDevice();  // if the path is well
};

/// What is told of a device that was open before.
struct Claim {
  Claim() {}  // no aggregate: those go wrong beside co_await
  bool again = false;
  bool remap = false;
  uint64_t tenure = 0;
};

/// A device that is being opened for the first time.
struct Opening {
  std::string name;
  wire::AccessMode mode;
  bool operator==(const Opening&) const = default;
};

class SessionImpl final : public RemoteSession, private trs::SessionUser {
 public:
  SessionImpl(vhca::Device& device, RemoteSessionOptions options);
  ~SessionImpl() override;
  base::Task<base::Status> start();

  // --- RemoteSession
  base::Task<base::Result<std::unique_ptr<RemoteDevice>>> open_device(
      RemoteDeviceOptions options) override;
  base::Task<void> close() override;
  trs::SessionState state() const override { return transport_->state(); }
  const trs::SessionLimits& limits() const override { return transport_->limits(); }
  trs::ClientStatistics statistics() const override;
  std::vector<trs::ClientStatistics> statistics_by_reactor() const override;
  std::string server_text() const override;
  void drop_path(std::string_view why) override { transport_->drop_path(why); }
  size_t link_down(std::span<const vhca::Device* const> adapter, uint8_t port) override {
    return transport_->link_down(adapter, port);
  }
  std::string explain() const override { return transport_->explain(); }
  base::Result<size_t> add_path(const RemotePath& path) override;
  base::Task<base::Status> remove_path(size_t id) override { return transport_->remove_path(id); }
  base::Status disconnect_path(size_t id) override { return transport_->disconnect_path(id); }
  base::Status reconnect_path(size_t id) override { return transport_->reconnect_path(id); }
  std::vector<trs::PathStatus> paths() const override { return transport_->paths(); }
  trs::PathPolicy path_policy() const override { return transport_->policy(); }
  void set_path_policy(trs::PathPolicy policy) override { transport_->set_policy(policy); }
  std::vector<RemoteDevice*> devices() const override;

  // --- for devices
  base::Reactor& home() { return home_; }
  base::Logger& log() { return log_; }
  size_t reactors() const { return options_.transport.reactors.size(); }
  SessionQueue& queue(size_t index) { return *queues_[index]; }
  bool path_up() const { return path_up_; }
  uint64_t lineage() const { return transport_->lineage(); }
  /// Whether the server heeds a request's priority.
  bool sends_priority() const { return version_ >= wire::kVersionMajor; }
  /// Each reactor hands out the permits that are free.
  void serve();
  base::Result<std::unique_ptr<Region>> create_region(size_t size_bytes);
  /// The server no longer knows a device, or refused to open it: tried again after this time.
  void reopen_later(uint64_t delay_ns);
  /// Opens a device again on the present path. An error means that the path is gone.
  base::Task<base::Status> reopen(uint64_t serial);
  /// Likewise, on a path by which requests flow.
  base::Task<base::Status> reopen_alone(uint64_t serial);
  uint64_t path_generation() const { return path_generation_; }
  uint64_t reopen_delay_ns() const { return options_.reopen_delay_ns; }
  uint64_t close_patience_ns() const { return options_.close_patience_ns; }
  /// Whether another device would be disturbed by the loss of the path.
  bool needs_path_besides(const DeviceImpl& device) const;
  base::Task<void> send_close(uint32_t device_id);
  void forget(DeviceImpl& device);

 private:
  // trs::SessionUser
  base::Task<base::Status> reconnected() override;
  void restored() override;
  void disconnected(const base::Error& why) override;
  void requests_returned() override;
  void lost(const base::Error& why) override;
  void notice() override;

  void choose_lost_after();
  uint64_t pool_bytes() const;
  base::Task<base::Status> make_pool(uint64_t size_bytes);
  base::Task<base::Status> make_queues();
  base::Task<void> queues_passed();
  base::Result<trs::PathOptions> path_options(const RemotePath& path);
  base::Status add_paths();
  base::Task<base::Status> exchange_versions();
  base::Task<OpenReply> send_open(std::string name, wire::AccessMode mode, Claim claim);
  base::Task<base::Result<wire::OpenedDevice>> open_patiently(std::string name,
                                                              wire::AccessMode mode);
  base::Task<base::Result<base::Errc>> admin(std::string what, trs::Direction direction,
                                             std::span<const std::byte> header,
                                             std::span<std::byte> answer,
                                             trs::LateAnswer late_answer = {});
  base::Error being_closed(const std::string& name) const;
  void opened_late(const std::string& name, wire::AccessMode mode,
                   std::span<const std::byte> answer);
  bool in_use(uint32_t id) const;
  void close_unused(uint32_t id);
  base::Task<void> close_late();
  void forget_path();
  base::Task<base::Status> reopen_all();
  base::Task<void> reopen_beside(uint64_t serial, base::Status& outcome, size_t& under_way,
                                 base::Signal& ended);
  base::Task<void> reopen_unavailable();
  void follow_news();
  void ask_news_later();
  void ask_news_soon();
  bool asks_news() const;
  bool opening() const;
  void opening_ended();
  base::Task<void> ask_news();
  base::Task<base::Result<bool>> ask_news_once();
  static void news_due(base::Timer& timer);
  DeviceImpl* find(uint64_t serial);
  static void reopen_due(base::Timer& timer);

  vhca::Device& device_;
  RemoteSessionOptions options_;
  base::Reactor& home_;
  base::Logger log_;
  std::unique_ptr<trs::Domain> domain_;
  std::shared_ptr<base::Segment> memory_;  // the copy buffers
  std::unique_ptr<vhca::Mr> buffers_mr_;   // of them

  uint8_t version_ = wire::kVersionMajor;  // that both speak
  bool path_up_ = false;
  bool closing_devices_ = false;  // all of them, by close()
  bool closing_ = false;
  uint64_t path_generation_ = 0;  // counts losses of the path: answers of an older one are void
  uint64_t serials_ = 0;
  std::vector<DeviceImpl*> devices_;  // in the order of opening
  std::vector<Opening> opening_;      // in open_device()
  unsigned joining_ = 0;              // of devices_: whose open_device() has not ended
  const std::shared_ptr<base::Signal> joined_ = std::make_shared<base::Signal>(home_);
  const std::shared_ptr<unsigned> reopening_alone_ = std::make_shared<unsigned>(0);
  std::vector<uint32_t> late_ids_;  // opened when nobody waited any more; to be closed

  std::unique_ptr<trs::ClientSession> transport_;
  // By reactor; those that wait at the transport's queues go before these. Messages share them.
  std::vector<std::shared_ptr<SessionQueue>> queues_;
  base::Timer reopen_timer_;
  base::Task<void> reopen_task_;
  base::Timer news_timer_;
  base::Task<void> news_task_;
  uint64_t news_seen_ = 0;         // on this path
  bool noticed_ = false;           // there are news, and no question that would have them
  bool told_early_ = false;        // news came while something was being opened
  uint64_t asked_news_at_ns_ = 0;  // the last question began, or ended
  base::Task<void> late_task_;
};

}  // namespace braid::bnbd::client
