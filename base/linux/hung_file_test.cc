// A file that does not answer holds up no other file of its reactor.
#include <functional>
#include <vector>

#include "base/await.h"
#include "base/linux/test_hung_files.h"

namespace braid::base {
namespace {

constexpr size_t kBlock = 4096;

class HungFile : public testing::Test {
 public:
  ~HungFile() override { files.end(); }
  void SetUp() override {
    if (!files.valid()) GTEST_SKIP() << "no FUSE file system can be had here (root is needed)";
    reactor = std::move(Reactor::create(*host, {})).value();
    hung = open("hung1");
    other = open("well1");
  }
  std::unique_ptr<File> open(const std::string& name) {
    auto file = host->open_beneath(files.path(), name, {.direct = false});
    EXPECT_TRUE(file.ok()) << file.error().message();
    return std::move(file).value();
  }
  IoOp& set(IoOp& op, File& file, IoOpcode opcode) {
    op.file = &file;
    op.opcode = opcode;
    if (opcode == IoOpcode::kRead || opcode == IoOpcode::kWrite) {
      op.buffer = buffer.data();
      op.length_bytes = kBlock;
    }
    return op;
  }
  /// Requests of the hung file, more than an IoQueue has places.
  void hang(IoOpcode opcode) {
    for (IoOp& op : stuck) {
      set(op, *hung, opcode).done = [](IoOp& o, Errc) { ++*static_cast<size_t*>(o.context); };
      op.context = &ended;
      reactor->io().submit(op);
    }
    reactor->turn();
  }
  void everything_else_goes_on() {
    for (const IoOpcode opcode : {IoOpcode::kFlush, IoOpcode::kWrite, IoOpcode::kRead}) {
      for (int i = 0; i < 20; ++i) {
        IoOp op;
        EXPECT_EQ(run_io(*reactor, set(op, *other, opcode)), Errc::kOk);
      }
    }
    EXPECT_EQ(ended, 0u);
  }
  void end() {
    files.end();
    while (ended < stuck.size()) {
      if (!reactor->turn()) reactor->io().wait(kNever);
    }
  }

  HungFiles files;
  std::unique_ptr<Host> host = quiet_linux_host();
  std::vector<std::byte> buffer = std::vector<std::byte>(kBlock);
  std::unique_ptr<File> hung, other;
  std::unique_ptr<Reactor> reactor;
  std::vector<IoOp> stuck = std::vector<IoOp>(1500);
  size_t ended = 0;
};

TEST_F(HungFile, FlushesThatHangLeaveWorkersAndPlacesToOtherFiles) {
  hang(IoOpcode::kFlush);
  everything_else_goes_on();
  end();
}

TEST_F(HungFile, WritesThatHangLeavePlacesToOtherFiles) {
  hang(IoOpcode::kWrite);
  everything_else_goes_on();
  end();
}

TEST_F(HungFile, ReadsThatHangLeavePlacesToOtherFiles) {
  hang(IoOpcode::kRead);
  everything_else_goes_on();
  end();
}

// The kernel tells each open file once of what it could not write.
TEST_F(HungFile, WhoFlushesHearsOfALostPageAlsoWhenASettingHasHeardOfIt) {
  const std::function<Status(File&)> settings[] = {
      [](File& file) { return file.set_size(HungFiles::kFileBytes); },
      [](File& file) { return file.set_note(7); }};
  char name[] = "lost1";
  for (const auto& setting : settings) {
    const auto lost = open(name);
    ++name[4];
    IoOp write, flush;
    ASSERT_EQ(run_io(*reactor, set(write, *lost, IoOpcode::kWrite)), Errc::kOk) << "in the cache";
    EXPECT_EQ(setting(*lost).code(), Errc::kIo);
    EXPECT_EQ(run_io(*reactor, set(flush, *lost, IoOpcode::kFlush)), Errc::kIo);
  }
}

}  // namespace
}  // namespace braid::base
