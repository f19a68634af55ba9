// A server that writes to its client's memory once more when a read has been answered. It has the
// key: RTRS's clients give it away with each read.
#include "bnbd/test_rig.h"
#include "trs/late_writer_device.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::Io;

constexpr uint32_t kReadBytes = 8192;
constexpr int kContent = 0x11;
constexpr int kScribble = 0xee;

class ScribblingServer final : public test::Node {
 public:
  ScribblingServer(base::sim::SimHost& process, ExportServerOptions options)
      : Node(process, test::kServerIp, 1),
        late_writer_(std::move(device), kReadBytes),
        scribble_(kReadBytes, static_cast<std::byte>(kScribble)) {
    options.transport.listen = {test::kServerIp, test::kPort};
    options.transport.reactors = reactor_list();
    server = std::move(ExportServer::create(late_writer_, std::move(options))).value();
  }
  void scribble() {
    home().post([this] {
      late_writer_.late(scribble_.data(), kReadBytes);
      scribbled = true;
    });
  }
  bool scribbled = false;

 private:
  trs::testing::LateWriterDevice late_writer_;
  std::vector<std::byte> scribble_;

 public:
  std::unique_ptr<ExportServer> server;
};

class ReadGuard : public test::Rig, public testing::WithParamInterface<bool> {
 protected:
  ReadGuard() {
    server_host = &server_machine.start_process("server");
    auto node = std::make_unique<ScribblingServer>(*server_host, exports);
    server_ = node.get();
    server_host->run(std::move(node));
    session_options.guard_reads = GetParam();
    client_ = &add_client();
    device_ = &open(*client_);
    region_ = std::move(device_->create_region(3 * kReadBytes)).value();
  }
  /// In the region, at its n-th place.
  void place(Io& io, size_t n) {
    io.request.buffer = {region_.get(), region_->data() + n * kReadBytes};
  }
  void fill(Io& io, int value) {
    std::fill_n(io.request.buffer.address, kReadBytes, static_cast<std::byte>(value));
  }
  ScribblingServer* server_ = nullptr;
  test::ClientNode* client_ = nullptr;
  RemoteDevice* device_ = nullptr;
  std::unique_ptr<Region> region_;
};
INSTANTIATE_TEST_SUITE_P(Reads, ReadGuard, testing::Bool(), [](const auto& tested) {
  return std::string(tested.param ? "guarded" : "plain");
});

TEST_P(ReadGuard, what_has_been_read_is_out_of_the_servers_reach_if_guarded) {
  const bool guarded = GetParam();
  Io write(BlockOp::kWrite, 0, kReadBytes), read(BlockOp::kRead, 0, kReadBytes);
  place(write, 0);
  place(read, 1);
  fill(write, kContent);
  EXPECT_EQ(run(*client_, *device_, write), Errc::kOk);
  EXPECT_EQ(run(*client_, *device_, read), Errc::kOk);
  EXPECT_TRUE(read.all(kContent));
  server_->scribble();
  ASSERT_TRUE(until([&] { return server_->scribbled; }));
  // Behind the scribble on its connection.
  Io behind(BlockOp::kRead, 0, kReadBytes);
  place(behind, 2);
  EXPECT_EQ(run(*client_, *device_, behind), Errc::kOk);
  EXPECT_TRUE(behind.all(kContent));
  EXPECT_TRUE(read.all(guarded ? kContent : kScribble));
  EXPECT_TRUE(write.all(kContent));
  EXPECT_EQ(device_->status().statistics.copies, guarded ? 2U : 0U) << "writes go as they are";
}

TEST_P(ReadGuard, more_reads_than_there_are_copy_buffers_are_all_answered) {
  constexpr size_t kReads = 200;
  EXPECT_EQ(write(*client_, *device_, 0, kReadBytes, kContent), Errc::kOk);
  std::vector<std::unique_ptr<Io>> reads;
  for (size_t i = 0; i < kReads; ++i) {
    reads.push_back(std::make_unique<Io>(BlockOp::kRead, 0, kReadBytes));
    submit(*client_, *device_, *reads.back());
  }
  for (const auto& read : reads) {
    EXPECT_EQ(wait(*read), Errc::kOk);
    EXPECT_TRUE(read->all(kContent));
  }
}

}  // namespace
}  // namespace braid::bnbd
