// The owner's own atomics beside peers that claim words: what a claim without a descriptor ends in.
#include "vhca/soft/inhost/word_claim.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/test_host.h"
#include "vhca/soft/inhost/wire.h"

namespace braid::vhca::soft::inhost {
namespace {

using base::Errc;

class Name final : public base::LocalListener {
 public:
  base::Result<std::unique_ptr<base::LocalSocket>> accept() override {
    return base::make_error(Errc::kWouldBlock, "nobody");
  }
  const base::Handle& handle() const override { std::abort(); }
};

class Lines final : public base::LogSink {
 public:
  void write(base::LogLevel, std::string_view, std::string_view) override { ++count; }
  int count = 0;
};

class ClaimHost final : public base::TestHost {
 public:
  base::Result<std::unique_ptr<base::LocalListener>> listen_local(std::string_view name) override {
    if (!name.starts_with("braid.word.")) return base::TestHost::listen_local(name);
    ++claims;
    if (failure != Errc::kOk) return base::make_error(failure, "as the test wants it");
    return std::unique_ptr<base::LocalListener>(std::make_unique<Name>());
  }
  base::Logger& log() override { return logger_; }

  Errc failure = Errc::kOk;
  int claims = 0;
  const std::shared_ptr<Lines> lines = std::make_shared<Lines>();

 private:
  base::Logger logger_{lines, "test", base::LogLevel::kWarning};
};

/// A peer that may be in the middle of a copy.
class PeersMemory final : public base::Segment {
 public:
  std::byte* data() const override { return const_cast<std::byte*>(bytes_.data()); }
  size_t size() const override { return bytes_.size(); }
  const base::Handle& handle() const override { std::abort(); }

 private:
  alignas(64) std::array<std::byte, sizeof(SegmentHead)> bytes_{};
};

class WordClaims : public ::testing::Test {
 protected:
  WordClaims() {
    wire.copies().add(std::make_shared<PeerCopies>(std::make_unique<PeersMemory>(), nullptr));
  }
  Wire::WordChange add(uint64_t value) {
    Request request;
    request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.remote_address = reinterpret_cast<uint64_t>(&word);
    request.length = 8;
    request.compare_add = value;
    return wire.change_word(request, MrView{}, before);
  }

  ClaimHost host;
  InHostWire wire{host, {}};
  uint64_t word = 40;
  uint64_t before = 0;
};

TEST_F(WordClaims, AWordIsChangedUnderItsClaim) {
  EXPECT_EQ(add(2), Wire::WordChange::kDone);
  EXPECT_EQ(before, 40u);
  EXPECT_EQ(word, 42u);
  EXPECT_EQ(host.claims, 1);
}

TEST_F(WordClaims, SomebodyElsesIsWaitedFor) {
  host.failure = Errc::kBusy;
  EXPECT_EQ(add(2), Wire::WordChange::kBusy);
  EXPECT_EQ(word, 40u);
  EXPECT_EQ(host.lines->count, 0);
}

// The process runs out of descriptors now and then; its peers' requests do not fail of that.
TEST_F(WordClaims, ADescriptorIsWaitedForAndMissedInTheLogOnce) {
  host.failure = Errc::kNoMemory;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(add(2), Wire::WordChange::kBusy);
  EXPECT_EQ(word, 40u);
  EXPECT_EQ(host.lines->count, 1);
  host.failure = Errc::kOk;
  EXPECT_EQ(add(2), Wire::WordChange::kDone);
  EXPECT_EQ(word, 42u);
  host.failure = Errc::kNoMemory;
  EXPECT_EQ(add(2), Wire::WordChange::kBusy);
  EXPECT_EQ(host.lines->count, 2) << "another lack";
}

TEST_F(WordClaims, WhatNeverComesIsAFailure) {
  host.failure = Errc::kPermission;
  EXPECT_EQ(add(2), Wire::WordChange::kFailed);
  EXPECT_EQ(host.lines->count, 1);
}

}  // namespace
}  // namespace braid::vhca::soft::inhost
