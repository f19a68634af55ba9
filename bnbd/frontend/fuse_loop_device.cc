#include "bnbd/frontend/fuse_loop_device.h"

#include <fmt/core.h>

#include <utility>

#include "bnbd/frontend/detach_policy.h"
#include "bnbd/frontend/fuse_mount.h"
#include "bnbd/frontend/fuse_server.h"
#include "bnbd/frontend/held_device.h"
#include "bnbd/frontend/loop_device.h"
#include "bnbd/frontend/offloaded.h"
#include "bnbd/frontend/write_back.h"

namespace braid::bnbd {

namespace {

/// What workers use: it lives as long as the last of them, and is destroyed by whoever is last.
struct Attachment {
  FuseMount mount;
  HeldDevice held;
  LoopOptions options;
  LoopDevice loop;
};

std::string loop_name(const Attachment& attachment) {
  return fmt::format("loop{}", attachment.loop.index);
}

class FuseLoopDevice : public KernelDevice {
 public:
  FuseLoopDevice(base::Reactor& reactor, FuseServer::Ptr server,
                 std::shared_ptr<Attachment> attachment, const KernelDeviceOptions& options,
                 const std::string& why, size_t reactors)
      : reactor_(reactor),
        server_(std::move(server)),
        attachment_(std::move(attachment)),
        options_(options),
        path_("/dev/" + loop_name(*attachment_)),
        kind_text_(fmt::format("FUSE file + loop device ({}){}, {}",
                               attachment_->loop.direct_io ? "direct I/O" : "through a page cache",
                               reactors > 1 ? " on one reactor only" : "", why)) {
    reactor_.host().serves_disk(loop_name(*attachment_), true);
  }
  ~FuseLoopDevice() override {
    server_.reset();
    reactor_.host().serves_disk(loop_name(*attachment_), false);
    // Letting go of the loop device may wait for its pages to fail: not on this thread.
    reactor_.host().execute([attachment = std::move(attachment_)] { attachment->held.drop(); });
  }

  const std::string& path() const override { return path_; }
  KernelDeviceKind kind() const override { return KernelDeviceKind::kFuse; }
  const std::string& kind_text() const override { return kind_text_; }
  bool alive() const override { return server_->alive(); }
  KernelDeviceStatistics statistics() const override { return server_->statistics(); }

  uint64_t waits_at_most_ns() const override { return base::kNever; }

  base::Task<base::Status> follow_size() override {
    const std::function<base::Status()> work = [attachment = attachment_,
                                                size_bytes = server_->device_bytes()] {
      return resize_loop(attachment->loop.index, attachment->options.label, size_bytes);
    };
    co_return co_await offloaded<void>(reactor_, work);
  }

  base::Task<base::Result<Detached>> detach(DetachMode mode) override {
    const std::shared_ptr<Attachment> attachment = attachment_;
    const auto removal = [attachment](LoopRemoval how) {
      return [attachment, how] {
        return detach_loop(attachment->loop.index, attachment->options.label, attachment->held,
                           how);
      };
    };
    DetachSteps steps;
    steps.name = loop_name(*attachment);
    steps.mode = mode;
    steps.force_flush_timeout_ns = options_.force_flush_timeout_ns;
    steps.remove_politely = removal(LoopRemoval::kPolite);
    steps.remove_if_clean = removal(LoopRemoval::kIfClean);
    steps.remove_by_force = removal(LoopRemoval::kForced);
    steps.write_back = [name = steps.name] { return write_back(name); };
    co_return co_await detach_from(reactor_, *server_, std::move(steps));
  }

 private:
  base::Reactor& reactor_;
  FuseServer::Ptr server_;
  std::shared_ptr<Attachment> attachment_;
  const KernelDeviceOptions options_;
  const std::string path_;
  const std::string kind_text_;
};

}  // namespace

base::Task<base::Result<std::unique_ptr<KernelDevice>>> attach_fuse_loop(
    base::Reactor& reactor, BlockDevice& device, KernelDeviceOptions options, std::string why) {
  const BlockInfo& info = device.info();
  auto attachment = std::make_shared<Attachment>();
  attachment->options.file_name = options.name;
  uint32_t salt = 0;
  reactor.host().random(std::as_writable_bytes(std::span(&salt, 1)));
  attachment->options.label = fmt::format("braid:{}:{:08x}", options.name, salt);
  attachment->options.logical_block_bytes = info.logical_block_bytes;
  attachment->options.read_only = info.read_only;
  BRAID_CO_TRY(attachment->held, HeldDevice::create());

  const uint32_t max_read_bytes = FuseServer::max_read_bytes(info);
  std::function<base::Result<FuseMount>()> make_mount = [max_read_bytes] {
    return create_fuse_mount(max_read_bytes);
  };
  BRAID_CO_TRY(attachment->mount, co_await offloaded(reactor, std::move(make_mount)));
  constexpr unsigned kFirst = SlotPool<FuseServer::Slot>::kFirst;
  BRAID_CO_TRY(auto slots, co_await make_slots<FuseServer>(reactor, device, kFirst, options.slots));
  BRAID_CO_TRY(auto server, FuseServer::create(reactor, device, options.name, std::move(slots),
                                               std::move(attachment->mount.device)));
  // This waits for the session, which this reactor serves meanwhile.
  std::function<base::Result<LoopDevice>()> make_loop = [attachment] {
    auto loop = attach_loop(attachment->mount.root.get(), attachment->options, attachment->held);
    attachment->mount.root.reset();  // the loop device's file keeps the file system
    return loop;
  };
  auto loop = co_await offloaded(reactor, std::move(make_loop));
  if (!loop.ok()) {
    server->stop();
    co_await server->drained();
    co_return loop.error();
  }
  attachment->loop = std::move(*loop);
  co_return std::unique_ptr<KernelDevice>(std::make_unique<FuseLoopDevice>(
      reactor, std::move(server), std::move(attachment), options, why, device.queues().size()));
}

}  // namespace braid::bnbd
