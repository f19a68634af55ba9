#include "bnbd/frontend/nbd_device.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "bnbd/frontend/detach_policy.h"
#include "bnbd/frontend/nbd_connection.h"
#include "bnbd/frontend/nbd_servers.h"
#include "bnbd/frontend/offloaded.h"
#include "bnbd/frontend/write_back.h"

namespace braid::bnbd {

using base::Status;

namespace {

class NbdDevice : public KernelDevice {
 public:
  NbdDevice(base::Reactor& reactor, std::unique_ptr<NbdServers> server,
            std::shared_ptr<NbdConnection> connection, const KernelDeviceOptions& options)
      : reactor_(reactor),
        server_(std::move(server)),
        connection_(std::move(connection)),
        options_(options),
        path_(fmt::format("/dev/nbd{}", connection_->index())),
        kind_text_(text_of(options.nbd_connections, server_->reactors())) {
    reactor_.host().serves_disk(name(), true);
  }
  ~NbdDevice() override {
    server_.reset();
    reactor_.host().serves_disk(name(), false);
    // Waits for the kernel: not on this thread.
    reactor_.host().execute(
        [connection = std::move(connection_)] { (void)connection->remove(NbdRemoval::kForced); });
  }

  const std::string& path() const override { return path_; }
  KernelDeviceKind kind() const override { return KernelDeviceKind::kNbd; }
  const std::string& kind_text() const override { return kind_text_; }
  bool alive() const override { return server_->alive(); }
  KernelDeviceStatistics statistics() const override { return server_->statistics(); }
  uint64_t waits_at_most_ns() const override { return kNbdRequestTimeoutNs; }

  base::Task<base::Status> follow_size() override {
    // Else the kernel's next request may be refused.
    base::Task<void> heard = server_->caught_up();
    co_await std::move(heard);
    const std::function<Status()> work = [connection = connection_,
                                          size_bytes = server_->device_bytes()] {
      return connection->resize(size_bytes);
    };
    co_return co_await offloaded<void>(reactor_, work);
  }

  base::Task<base::Result<Detached>> detach(DetachMode mode) override {
    const std::shared_ptr<NbdConnection> connection = connection_;
    const auto removal = [connection](NbdRemoval how) {
      return [connection, how] { return connection->remove(how); };
    };
    DetachSteps steps;
    steps.name = name();
    steps.mode = mode;
    steps.force_flush_timeout_ns = options_.force_flush_timeout_ns;
    steps.remove_politely = removal(NbdRemoval::kPolite);
    steps.remove_if_clean = removal(NbdRemoval::kIfClean);
    steps.remove_by_force = removal(NbdRemoval::kForced);
    steps.write_back = [name = steps.name] { return write_back(name); };
    // nbd.ko does not fail what was sent on connections that then end.
    steps.fail_waiting = [connection] { connection->fail_waiting(); };
    co_return co_await detach_from(reactor_, *server_, std::move(steps));
  }

 private:
  std::string name() const { return fmt::format("nbd{}", connection_->index()); }
  static std::string text_of(unsigned connections, size_t reactors) {
    const char* const plural = connections == 1 ? "" : "s";
    std::string text = fmt::format("nbd.ko, {} socket pair{}", connections, plural);
    if (reactors > 1) text += fmt::format(" on {} reactors", reactors);
    return text;
  }

  base::Reactor& reactor_;
  std::unique_ptr<NbdServers> server_;
  std::shared_ptr<NbdConnection> connection_;
  const KernelDeviceOptions options_;
  const std::string path_;
  const std::string kind_text_;
};

struct SocketPairs {
  std::vector<UniqueFd> kernel_ends;
  std::vector<UniqueFd> our_ends;
};

base::Result<SocketPairs> make_sockets(unsigned count) {
  SocketPairs pairs;
  for (unsigned i = 0; i < count; ++i) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return base::sys_error(errno, "make a socket pair");
    }
    pairs.kernel_ends.emplace_back(ends[0]);
    pairs.our_ends.emplace_back(ends[1]);
  }
  return pairs;
}

/// On a worker: the whole set-up but the server, which runs already.
Status set_up(NbdConnection& connection) {
  BRAID_CHECK(connection.connect());
  Status tied = connection.tie();
  if (!tied.ok()) (void)connection.remove(NbdRemoval::kForced);
  return tied;
}

}  // namespace

unsigned nbd_connections(unsigned asked, size_t reactors) {
  const size_t wanted = std::max<size_t>(asked, reactors);
  return static_cast<unsigned>(std::min<size_t>(wanted, kNbdConnectionsMax));
}

base::Task<base::Result<std::unique_ptr<KernelDevice>>> attach_nbd(base::Reactor& reactor,
                                                                   BlockDevice& device,
                                                                   KernelDeviceOptions options) {
  const bool asked_for = options.kind == KernelDeviceKind::kNbd;
  const std::function<Status()> find_module = [asked_for] { return find_nbd_module(asked_for); };
  BRAID_CO_CHECK(co_await offloaded<void>(reactor, find_module));

  options.nbd_connections = nbd_connections(options.nbd_connections, device.queues().size());
  const BlockInfo& info = device.info();
  uint32_t salt = 0;
  reactor.host().random(std::as_writable_bytes(std::span(&salt, 1)));
  NbdParameters parameters;
  parameters.identifier = fmt::format("braid:{}:{:08x}", options.name, salt);
  parameters.size_bytes = info.size_bytes;
  parameters.block_bytes = info.logical_block_bytes;
  // A flush of a BlockDevice covers every write that was done before it, on whatever connection.
  parameters.transmission_flags = nbd_transmission_flags(info, options.nbd_connections > 1);
  parameters.dead_connection_timeout_s = options.nbd_dead_connection_timeout_s;
  BRAID_CO_TRY(auto sockets, make_sockets(options.nbd_connections));
  BRAID_CO_TRY(
      auto connection,
      NbdConnection::create(std::move(parameters), slot_payload_bytes(info, NbdServer::kPayloadMax),
                            std::move(sockets.kernel_ends)));
  NbdServerOptions server_options;
  server_options.name = options.name;
  BRAID_CO_TRY(auto server,
               co_await NbdServers::create(reactor, device, std::move(server_options),
                                           options.slots, std::move(sockets.our_ends)));
  const std::function<Status()> connect = [connection] { return set_up(*connection); };
  BRAID_CO_CHECK(co_await offloaded<void>(reactor, connect));
  co_return std::unique_ptr<KernelDevice>(
      std::make_unique<NbdDevice>(reactor, std::move(server), std::move(connection), options));
}

}  // namespace braid::bnbd
