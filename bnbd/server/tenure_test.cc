// What is believed of a writer's number in a file that takes it and then fails.
#include "bnbd/server/tenure.h"

#include <gtest/gtest.h>

#include <memory>

#include "bnbd/test_block.h"

namespace braid::bnbd::server {
namespace {

using base::Errc;

constexpr uint64_t kPatienceNs = base::kSecond;

/// Takes each note into its cache; an fsync that fails leaves it there, or the one before it.
class NoteFile final : public base::File {
 public:
  enum class Fails { kNever, kAfter, kAfterAndStays, kBefore };
  const Info& info() const override { return info_; }
  base::Result<uint64_t> note() const override { return note_; }
  base::Status set_note(uint64_t note) override {
    const bool takes_it = fails == Fails::kNever || fails == Fails::kAfter ||
                          (fails == Fails::kAfterAndStays && sets_ == 0);
    ++sets_;
    if (takes_it) note_ = note;
    if (fails == Fails::kNever || (fails == Fails::kAfter && sets_ > 1)) return {};
    return base::make_error(Errc::kIo, "it is not durable");
  }
  /// As by another server.
  void leave(uint64_t note) { note_ = note; }

  Fails fails = Fails::kNever;

 private:
  Info info_;
  uint64_t note_ = 0;
  int sets_ = 0;
};

class NoteDevice final : public BlockDevice {
 public:
  explicit NoteDevice(std::shared_ptr<base::File> file) : file_(std::move(file)) {
    info_.identity = "file:1";
  }
  const BlockInfo& info() const override { return info_; }
  void submit(BlockRequest&) override { ADD_FAILURE() << "no tenure reads or writes blocks"; }
  base::Result<std::unique_ptr<Region>> create_region(size_t) override {
    return base::make_error(Errc::kNotSupported, "a test");
  }
  BlockStatistics statistics() const override { return {}; }
  std::shared_ptr<base::File> file() const override { return file_; }

 private:
  const std::shared_ptr<base::File> file_;
  BlockInfo info_;
};

/// A file whose writer has number 5.
class RecordedTenure : public testing::Test {
 protected:
  RecordedTenure() : process_(world_.add_machine("server")), table_(process_.reactor()) {
    file_->leave(5);
    open();
  }
  void open() { EXPECT_TRUE(process_.await(table_.learn(device_)).ok()); }
  Errc vacate() {
    std::function<void()> undurable = [this] { ++flushes_failed_; };
    return process_.await(table_.vacate(tenure(), device_, std::move(undurable), kPatienceNs))
        .code();
  }
  Tenure& tenure() { return table_.of(device_.info().identity); }

  base::sim::SimWorld world_{test::calm()};
  test::Process process_;
  const std::shared_ptr<NoteFile> file_ = std::make_shared<NoteFile>();
  NoteDevice device_{file_};
  TenureTable table_;
  uint64_t flushes_failed_ = 0;
};

TEST_F(RecordedTenure, ends_when_the_next_is_durable) {
  EXPECT_EQ(judge_claim(tenure(), 5), Claim::kContinues);
  EXPECT_EQ(vacate(), Errc::kOk);
  EXPECT_EQ(judge_claim(tenure(), 5), Claim::kSuperseded);
  EXPECT_EQ(*file_->note(), tenure().number);
  EXPECT_EQ(flushes_failed_, 0u);
}

TEST_F(RecordedTenure, goes_on_if_the_next_was_refused) {
  file_->fails = NoteFile::Fails::kBefore;
  EXPECT_EQ(vacate(), Errc::kIo);
  EXPECT_EQ(judge_claim(tenure(), 5), Claim::kContinues);
  EXPECT_EQ(flushes_failed_, 0u);
}

TEST_F(RecordedTenure, goes_on_if_the_next_was_taken_back) {
  file_->fails = NoteFile::Fails::kAfter;
  EXPECT_EQ(vacate(), Errc::kIo);
  EXPECT_EQ(*file_->note(), 5u);
  EXPECT_EQ(judge_claim(tenure(), 5), Claim::kContinues);
  EXPECT_EQ(flushes_failed_, 1u);
}

TEST_F(RecordedTenure, goes_on_beside_a_number_that_could_not_be_taken_back) {
  file_->fails = NoteFile::Fails::kAfterAndStays;
  EXPECT_EQ(vacate(), Errc::kIo);
  EXPECT_NE(*file_->note(), 5u);
  EXPECT_EQ(flushes_failed_, 1u);
  open();
  EXPECT_EQ(judge_claim(tenure(), 5), Claim::kContinues) << "nobody else was let in";
  file_->leave(7);
  open();
  EXPECT_EQ(judge_claim(tenure(), 5), Claim::kSuperseded) << "another server has had it since";
}

}  // namespace
}  // namespace braid::bnbd::server
