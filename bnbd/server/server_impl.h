// The export server's inside. The files by duty: server.cc (life, sessions, status), io.cc (the
// data path), control.cc (SESS_INFO, OPEN, CLOSE, news), operator.cc (what an operator does).
//
//   TRS, any reactor          home reactor                             the request's reactor
//   request() -- Message -->  dispatch() -> backend -> io_done() -- Message -->  answer()
//
// On the home reactor the messages fall away.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/limited_log.h"
#include "bnbd/server/door.h"
#include "bnbd/server/export.h"
#include "bnbd/server/session.h"
#include "bnbd/wire.h"

namespace braid::bnbd::server {

class ServerImpl final : public ExportServer, private trs::ServerUser, private DoorUser {
 public:
  static base::Result<std::unique_ptr<ServerImpl>> create(vhca::Device& device,
                                                          ExportServerOptions options);
  explicit ServerImpl(ExportServerOptions options);
  ~ServerImpl() override;

  vhca::Address address() const override { return transport_->address(); }
  std::vector<vhca::Address> addresses() const override { return transport_->addresses(); }
  base::Task<base::Status> stop() override;
  std::vector<ExportStatus> exports() const override;
  ExportServerStatistics statistics() const override;
  trs::ServerStatistics transport_statistics() const override { return transport_->statistics(); }
  base::Result<size_t> set_keys(std::shared_ptr<const trs::KeyRing> keys) override {
    return transport_->set_keys(std::move(keys));
  }
  std::vector<trs::ServerSession*> sessions() const override { return transport_->sessions(); }
  std::vector<SessionStatus> session_statuses() const override;
  base::Result<ForceClosed> force_close(const ForceClose& what) override;
  base::Task<base::Result<uint64_t>> resize(std::string name, uint64_t size_bytes,
                                            bool force) override;

 private:
  std::string unanswered() const;
  void session_opened(trs::ServerSession& session) override;
  void session_closed(trs::ServerSession& session) override;
  void request(trs::ServerRequest& request) override;
  bool moves_data(const trs::ServerSession& session, const base::Reactor& reactor,
                  std::span<const std::byte> user_header) override;

  // --- io.cc, home reactor
  static void message_at_home(base::Message& message);
  static void message_back(base::Message& message);
  static base::Errc disk_status(base::Errc status);
  static void io_done(BlockRequest& block, base::Errc status);
  void dispatch(RequestSlot& slot);
  void do_control(RequestSlot& slot) override;
  void do_handed_over(RequestSlot& slot) override { dispatch(slot); }
  void begin_io(RequestSlot& slot);
  const char* fill_block(RequestSlot& slot, const wire::Io& io) const;
  /// Ends a slot on the reactor it came on.
  void finish(RequestSlot& slot, base::Errc status);
  static void answer(RequestSlot& slot);
  /// finish(), with a line in the log (not more than a few per second).
  void refuse(RequestSlot& slot, base::Errc status, std::string_view why);

  // --- control.cc, home reactor
  void session_info(RequestSlot& slot);
  base::Task<void> open(RequestSlot& slot);
  base::Task<void> close(RequestSlot& slot);
  base::Task<base::Result<SessionDevice*>> open_device(Session& session, wire::OpenRequest request);
  base::Task<base::Result<Export*>> find_export(Session& session, wire::OpenRequest request,
                                                std::string name);
  base::Result<SessionDevice*> add_device(Session& session, const wire::OpenRequest& request,
                                          Export& exported);
  base::Task<base::Status> lend_memory(Session& session, Export& exported, uint64_t patience_ns);
  void answer_open(RequestSlot& slot, const SessionDevice& device);
  void refuse_open(RequestSlot& slot, const base::Error& why);
  void end_retired(Session& session, SessionDevice& device);
  void release(std::unique_ptr<SessionDevice> device);
  void session_news(RequestSlot& slot);

  // --- operator.cc, home reactor
  void force_close(Session& session, SessionDevice& device);
  unsigned take_devices(Session& session, const std::string& export_name);
  unsigned take_openings(Session& session, const std::string& export_name);
  static SessionStatus describe(Session& session);

  const ExportServerOptions options_;
  base::Reactor& home_;
  base::Logger log_;
  base::LimitedLog refusals_, comings_;
  ExportServerStatistics statistics_;
  ExportTable exports_;
  Door door_;
  uint64_t sessions_numbered_ = 0;
  std::vector<std::unique_ptr<Session>> sessions_;  // goes before exports_: it holds them
  std::unique_ptr<trs::Server> transport_;          // goes before the others: it calls us
};

}  // namespace braid::bnbd::server
