// The owner's own atomics beside peers that claim words, who can keep a claim away, and what one
// without a descriptor ends in.
#include "vhca/soft/inhost/word_claim.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/linux_host.h"
#include "base/test_host.h"
#include "vhca/soft/inhost/wire.h"

namespace braid::vhca::soft::inhost {
namespace {

using base::Errc;

class Lines final : public base::LogSink {
 public:
  void write(base::LogLevel, std::string_view, std::string_view) override { ++count; }
  int count = 0;
};

/// With real memory, whose bytes can be locked.
class ClaimHost final : public base::TestHost {
 public:
  ClaimHost() {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    real = std::move(*base::create_linux_host(options));
  }
  base::Result<std::unique_ptr<base::Segment>> create_published_segment(
      size_t size_bytes, std::string_view purpose) override {
    return real->create_published_segment(size_bytes, purpose);
  }
  base::Logger& log() override { return logger_; }

  std::unique_ptr<base::Host> real;
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

class BorrowedNothing final : public base::Handle {
 public:
  int fd() const override { return -1; }
  base::Result<std::unique_ptr<base::Handle>> duplicate() const override {
    return base::make_error(Errc::kNotSupported, "nothing");
  }
};

class WordClaims : public ::testing::Test {
 protected:
  WordClaims() {
    EXPECT_FALSE(wire.mr_table_memory(16).empty());
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

  /// As a peer does.
  WordClaim claim(const uint64_t* at) {
    return claim_word(host, *wire.mr_table_handle(), reinterpret_cast<uint64_t>(at), lacks_);
  }

  ClaimHost host;
  InHostWire wire{host, {}};
  uint64_t words[2] = {40, 40};
  uint64_t& word = words[0];
  uint64_t before = 0;

 private:
  std::atomic<bool> lacks_{false};
};

TEST_F(WordClaims, AWordIsChangedUnderItsClaim) {
  EXPECT_EQ(add(2), Wire::WordChange::kDone);
  EXPECT_EQ(before, 40u);
  EXPECT_EQ(word, 42u);
  EXPECT_NE(claim(&word).lock, nullptr) << "it was let go of";
}

TEST_F(WordClaims, SomebodyElsesIsWaitedForAndItsNeighbourIsNot) {
  WordClaim others = claim(&word);
  EXPECT_EQ(add(2), Wire::WordChange::kBusy);
  EXPECT_TRUE(claim(&word).claimed);
  EXPECT_EQ(word, 40u);
  EXPECT_EQ(host.lines->count, 0);
  others = claim(&words[1]);
  EXPECT_EQ(add(2), Wire::WordChange::kDone);
}

// Names on the host are everybody's: who reads them learns where memory lies, who takes them stops
// an atomic.
TEST_F(WordClaims, NobodyElseOnTheHostSeesAClaimOrCanKeepOneAway) {
  const WordClaim held = claim(&word);
  ASSERT_NE(held.lock, nullptr);
  std::stringstream names;
  names << std::ifstream("/proc/net/unix").rdbuf();
  const auto address = reinterpret_cast<uint64_t>(&word);
  EXPECT_EQ(names.str().find("braid.word"), std::string::npos);
  EXPECT_EQ(names.str().find(fmt::format("{:x}", address)), std::string::npos);
  // Another device's memory is none of ours, whatever is locked there.
  const auto strangers = std::move(*host.create_published_segment(4096, "strange"));
  std::atomic<bool> lacks{false};
  const auto second = reinterpret_cast<uint64_t>(&words[1]);
  const WordClaim strange = claim_word(host, strangers->handle(), second, lacks);
  ASSERT_NE(strange.lock, nullptr);
  EXPECT_NE(claim(&words[1]).lock, nullptr);
}

// The process runs out of descriptors now and then; its peers' requests do not fail of that.
TEST_F(WordClaims, ADescriptorIsWaitedForAndMissedInTheLogOnce) {
  std::atomic<bool> lacks{false};
  const auto lack = [&] {
    const WordClaim claim = claim_by(host, base::make_error(Errc::kNoMemory, "none left"), lacks);
    return claim.claimed && claim.lock == nullptr;
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(lack());
  EXPECT_EQ(host.lines->count, 1);
  std::unique_ptr<base::Handle> had = std::make_unique<BorrowedNothing>();
  EXPECT_NE(claim_by(host, std::move(had), lacks).lock, nullptr);
  EXPECT_TRUE(lack());
  EXPECT_EQ(host.lines->count, 2) << "another lack";
}

TEST_F(WordClaims, WhatNeverComesIsAFailure) {
  const BorrowedNothing nothing;
  std::atomic<bool> lacks{false};
  const WordClaim none = claim_word(host, nothing, 8, lacks);
  EXPECT_FALSE(none.claimed);
  EXPECT_EQ(none.lock, nullptr);
  EXPECT_EQ(host.lines->count, 1);
}

}  // namespace
}  // namespace braid::vhca::soft::inhost
