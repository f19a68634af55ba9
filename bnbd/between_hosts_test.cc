// Client and server in two network namespaces with a cable between them: the TCP wire, a disk, and
// the cable pulled and plugged. Needs root and iproute2; skipped without.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <future>
#include <optional>

#include "base/linux_host.h"
#include "bnbd/remote.h"
#include "bnbd/server.h"
#include "bnbd/test_block.h"
#include "vhca/soft_device.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::Io;

bool run(const std::string& command) {
  return std::system((command + " 2>/dev/null").c_str()) == 0;  // NOLINT(cert-env33-c)
}

/// Two namespaces and a pair of interfaces; gone with the object.
class Cable {
 public:
  Cable() : tag_(fmt::format("braid{}", ::getpid())) {
    good_ = run("ip netns add " + name(0)) && run("ip netns add " + name(1)) &&
            run(fmt::format("ip link add eth0 netns {} type veth peer name eth0 netns {}", name(0),
                            name(1)));
    for (int side = 0; side < 2 && good_; ++side) {
      good_ = ip(side, fmt::format("addr add {}/24 dev eth0", address(side))) &&
              ip(side, "link set lo up") && ip(side, "link set eth0 up");
    }
  }
  ~Cable() {
    run("ip netns del " + name(0));
    run("ip netns del " + name(1));
  }
  Cable(const Cable&) = delete;
  Cable& operator=(const Cable&) = delete;
  bool good() const { return good_; }
  static std::string address(int side) { return fmt::format("10.213.7.{}", side + 1); }
  bool plug(bool on) { return ip(1, on ? "link set eth0 up" : "link set eth0 down"); }
  /// Moves the calling thread to a side, for good.
  bool enter(int side) const {
    const int fd = ::open(("/run/netns/" + name(side)).c_str(), O_RDONLY | O_CLOEXEC);
    const bool entered = fd >= 0 && ::setns(fd, CLONE_NEWNET) == 0;
    if (fd >= 0) ::close(fd);
    return entered;
  }

 private:
  std::string name(int side) const { return tag_ + (side == 0 ? "c" : "s"); }
  bool ip(int side, const std::string& what) const {
    return run(fmt::format("ip -n {} {}", name(side), what));
  }
  const std::string tag_;
  bool good_ = false;
};

/// A host, a reactor and a device on one side of the cable, on a thread of its own there.
class Side {
 public:
  Side(base::Host& host, const Cable& cable, int side) : host_(host) {
    reactor_ = std::move(base::Reactor::create(host_, {})).value();
    std::promise<bool> entered;
    thread_ = std::move(host_.start_thread("side", [this, &cable, side, &entered] {
                const bool there = cable.enter(side);
                // A carrier comes a moment behind the cable; a port that has none yet tells no
                // loss.
                while (there && host_.has_link(Cable::address(side)) != true) host_.yield();
                if (there) {
                  device_ = std::move(
                      *vhca::create_tcp_device(host_, *reactor_, {.ip = Cable::address(side)}));
                }
                entered.set_value(there);
                reactor_->run();
              })).value();
    entered_ = entered.get_future().get();
  }
  ~Side() {
    reactor_->post([this] {
      device_.reset();
      reactor_->stop();
    });
    thread_.reset();
  }
  bool entered() const { return entered_; }
  vhca::Device& device() { return *device_; }
  base::Reactor& reactor() { return *reactor_; }
  /// Runs a task on the reactor, to its end.
  template <typename T>
  T run(std::function<base::Task<T>()> make) {
    std::promise<T> done;
    reactor_->post([&] { reactor_->spawn(keep(make(), done)); });
    return done.get_future().get();
  }

 private:
  template <typename T>
  static base::Task<void> keep(base::Task<T> task, std::promise<T>& to) {
    to.set_value(co_await std::move(task));
  }
  base::Host& host_;
  bool entered_ = false;
  std::unique_ptr<base::Reactor> reactor_;
  std::unique_ptr<vhca::Device> device_;
  std::unique_ptr<base::Thread> thread_;
};

class BetweenHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, for network namespaces";
    cable_ = std::make_unique<Cable>();
    if (!cable_->good()) GTEST_SKIP() << "needs \"ip netns\" (iproute2) and veth";
    base::LinuxHostOptions quiet;
    quiet.log_sink = base::make_null_sink();
    host_ = std::move(base::create_linux_host(quiet)).value();
    here_ = std::make_unique<Side>(*host_, *cable_, 0);
    there_ = std::make_unique<Side>(*host_, *cable_, 1);
    ASSERT_TRUE(here_->entered() && there_->entered());
    address_ = there_->run<vhca::Address>([this] { return serve(); });
    const Errc opened = here_->run<Errc>([this] { return open(); });
    ASSERT_EQ(opened, Errc::kOk);
  }
  void TearDown() override {
    if (session_) here_->run<bool>([this] { return close(); });
    if (server_) there_->run<bool>([this] { return stop(); });
    here_.reset();
    there_.reset();
  }
  base::Task<vhca::Address> serve() {
    ExportServerOptions options;
    options.named = {{NamedExport::Kind::kMemory, "ram", 8 << 20}};
    options.transport.listen = {Cable::address(1), 0};
    options.transport.reactors = {&there_->reactor()};
    options.transport.queue_depth = 32;
    options.transport.max_io_bytes = 256 << 10;
    server_ = std::move(ExportServer::create(there_->device(), std::move(options))).value();
    co_return server_->address();
  }
  base::Task<Errc> open() {
    RemoteSessionOptions options;
    options.transport.session_name = "test";
    options.transport.server = address_;
    options.transport.reactors = {&here_->reactor()};
    auto session = co_await RemoteSession::open(here_->device(), std::move(options));
    if (!session.ok()) co_return session.code();
    session_ = std::move(*session);
    RemoteDeviceOptions device;
    device.name = "ram";
    auto disk = co_await session_->open_device(std::move(device));
    if (disk.ok()) disk_ = std::move(*disk);
    co_return disk.code();
  }
  base::Task<bool> close() {
    co_await session_->close();
    disk_.reset();
    session_.reset();
    co_return true;
  }
  base::Task<bool> stop() {
    (void)co_await server_->stop();
    server_.reset();
    co_return true;
  }
  /// Submits all, then waits for all; the number that failed.
  static base::Task<size_t> all(base::Reactor& reactor, BlockDevice& disk, std::deque<Io>& ios) {
    for (Io& io : ios) disk.submit(io.request);
    size_t failed = 0;
    for (Io& io : ios) {
      while (!io.status.has_value()) co_await reactor.sleep_ns(0);
      if (io.status != Errc::kOk) ++failed;
    }
    co_return failed;
  }
  /// Writes stamps everywhere, and reads them back.
  void exercise(uint64_t length, int stamp) {
    const uint64_t count = (4 << 20) / length;
    std::deque<Io> writes, reads;
    for (uint64_t i = 0; i < count; ++i) {
      writes.emplace_back(BlockOp::kWrite, i * length, length, static_cast<int>(i) + stamp);
      reads.emplace_back(BlockOp::kRead, i * length, length, 0x55);
    }
    for (std::deque<Io>* const ios : {&writes, &reads}) {
      const size_t failed = here_->run<size_t>([&] { return all(here_->reactor(), *disk_, *ios); });
      ASSERT_EQ(failed, 0u);
    }
    for (uint64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(reads[i].all(static_cast<int>((i + static_cast<uint64_t>(stamp)) % 256))) << i;
    }
  }
  /// Until a port tells this; events before it are passed over.
  static base::Task<bool> tells(Side& side, ibv_event_type wanted) {
    for (;;) {
      const std::optional<vhca::AsyncEvent> event = side.device().next_async_event();
      if (event.has_value() && event->type == wanted) co_return true;
      if (!event.has_value()) co_await side.reactor().sleep_ns(base::kMillisecond);
    }
  }
  base::Task<bool> until(bool open) {
    while ((disk_->status().state == RemoteState::kOpen) != open) {
      co_await here_->reactor().sleep_ns(base::kMillisecond);
    }
    co_return true;
  }

  std::unique_ptr<Cable> cable_;
  std::unique_ptr<base::Host> host_;
  std::unique_ptr<Side> here_, there_;
  std::unique_ptr<ExportServer> server_;
  vhca::Address address_;
  std::unique_ptr<RemoteSession> session_;
  std::unique_ptr<RemoteDevice> disk_;
};

TEST_F(BetweenHosts, a_disk_keeps_what_is_written_in_every_size) {
  for (const uint64_t length : {4096u, 65536u, 1u << 20}) {
    exercise(length, static_cast<int>(length >> 12));
  }
}

TEST_F(BetweenHosts, a_cable_that_is_pulled_and_plugged_is_a_delay) {
  exercise(4096, 1);
  ASSERT_TRUE(cable_->plug(false));
  std::deque<Io> writes;
  for (uint64_t i = 0; i < 64; ++i) writes.emplace_back(BlockOp::kWrite, i * 4096, 4096, 9);
  std::promise<size_t> written;
  here_->reactor().post([&] {
    here_->reactor().spawn(
        [](base::Task<size_t> task, std::promise<size_t>& to) -> base::Task<void> {
          to.set_value(co_await std::move(task));
        }(all(here_->reactor(), *disk_, writes), written));
  });
  ASSERT_TRUE(here_->run<bool>([this] { return until(false); })) << "the loss was noticed";
  ASSERT_TRUE(cable_->plug(true));
  EXPECT_EQ(written.get_future().get(), 0u);
  std::deque<Io> reads;
  for (uint64_t i = 0; i < 64; ++i) reads.emplace_back(BlockOp::kRead, i * 4096, 4096, 0);
  EXPECT_EQ(here_->run<size_t>([&] { return all(here_->reactor(), *disk_, reads); }), 0u);
  for (const Io& io : reads) EXPECT_TRUE(io.all(9));
  EXPECT_EQ(disk_->status().losses, 0u);
  exercise(65536, 5);
}

TEST_F(BetweenHosts, a_cable_that_is_pulled_and_plugged_is_told_by_the_ports_of_both_ends) {
  for (int round = 0; round < 2; ++round) {
    for (const bool plugged : {false, true}) {
      ASSERT_TRUE(cable_->plug(plugged));
      const auto event = plugged ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
      for (const auto* side : {&here_, &there_}) {
        ASSERT_TRUE((*side)->run<bool>([&] { return tells(**side, event); }));
      }
    }
  }
  exercise(4096, 3);
}

}  // namespace
}  // namespace braid::bnbd
