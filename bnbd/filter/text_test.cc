// What filters look like as text: words and their refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bnbd/filters.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using testing::HasSubstr;

/// Also what it looks like when it is shown.
FilterSpec good(const std::string& text, const std::string& shown = {}) {
  auto spec = parse_filter(text);
  EXPECT_TRUE(spec.ok()) << spec.error().message();
  if (!spec.ok()) return {};
  EXPECT_EQ(to_string(*spec), shown.empty() ? text : shown);
  auto again = parse_filter(to_string(*spec));
  EXPECT_TRUE(again.ok() && *again == *spec) << to_string(*spec);
  return *spec;
}

void bad(const std::string& text, const std::string& words) {
  const auto spec = parse_filter(text);
  ASSERT_FALSE(spec.ok()) << text;
  EXPECT_EQ(spec.code(), Errc::kInvalid);
  EXPECT_THAT(spec.error().message(), HasSubstr(words)) << text;
  EXPECT_THAT(spec.error().message(), HasSubstr("filter \"" + text + "\"")) << text;
}

const DelayOptions::Bounds& of(const FilterSpec& spec, BlockOp op) {
  return spec.delay.by_op[static_cast<size_t>(op)];
}

TEST(FilterText, Delay) {
  const FilterSpec some = good("delay:read=200us,write=1ms-5ms,percent=50");
  EXPECT_EQ(of(some, BlockOp::kRead).min_ns, 200'000U);
  EXPECT_EQ(of(some, BlockOp::kWrite).max_ns, 5'000'000U);
  EXPECT_EQ(of(some, BlockOp::kFlush).max_ns, 0U);
  EXPECT_EQ(some.delay.match.percent, 50);
  EXPECT_EQ(of(good("delay:read=0s-1h", "delay:read=0ns-1h"), BlockOp::kRead).min_ns, 0U);
}

TEST(FilterText, DelayOfAllButWhatIsNamed) {
  const FilterSpec spec = good("delay:2ms,from=1M,to=1.5M,trim=7ns",
                               "delay:read=2ms,write=2ms,flush=2ms,discard=7ns,write-zeroes=2ms,"
                               "secure-erase=2ms,from=1M,to=1536K");
  EXPECT_EQ(of(spec, BlockOp::kDiscard).min_ns, 7U);
  EXPECT_EQ(spec.delay.match.to_bytes, 1536U << 10);
  EXPECT_EQ(of(good("delay:60s", "delay:1m"), BlockOp::kFlush).max_ns, 60'000'000'000U);
}

TEST(FilterText, Error) {
  const FilterSpec all = good("error");
  EXPECT_TRUE(all.error.ops[0] && all.error.ops[5]);
  EXPECT_EQ(all.error.status, Errc::kIo);
  const FilterSpec some = good("error:op=write,zero,every=100,count=3,errno=ENOSPC",
                               "error:write,write-zeroes,every=100,count=3,errno=ENOSPC");
  EXPECT_FALSE(some.error.ops[static_cast<size_t>(BlockOp::kRead)]);
  EXPECT_TRUE(some.error.ops[static_cast<size_t>(BlockOp::kWriteZeroes)]);
  EXPECT_EQ(some.error.every, 100U);
  EXPECT_EQ(good("error:read,percent=0.1,from=1M,to=2M").error.match.percent, 0.1);
}

TEST(FilterText, Rate) {
  const FilterSpec spec = good("rate:bytes=100M,ops=5000,write-bytes=1536K,burst=1s");
  EXPECT_EQ(spec.rate.all.bytes_per_second, 100U << 20);
  EXPECT_EQ(spec.rate.writes.bytes_per_second, 1536U << 10);
  EXPECT_EQ(spec.rate.reads, RateOptions::Limit());
  EXPECT_EQ(spec.rate.burst_ns, 1'000'000'000U);
  EXPECT_EQ(good("rate:read-ops=1,burst=0s", "rate:read-ops=1,burst=0ns").rate.burst_ns, 0U);
}

TEST(FilterText, Checksum) {
  EXPECT_EQ(good("checksum").checksum, ChecksumOptions());
  const FilterSpec spec =
      good("checksum:block=512,memory=2GiB,learn", "checksum:block=512,memory=2G,learn");
  EXPECT_EQ(spec.checksum.block_bytes, 512U);
  EXPECT_TRUE(spec.checksum.learn);
}

TEST(FilterText, RefusalsNameTheWordAndWhatWouldBeRight) {
  bad("", "want delay:, error:, rate: or checksum");
  bad("dealy:1ms", "want delay:");
  bad("delay", "delays nothing");
  bad("delay:", "\"\": want TIME");
  bad("delay:percent=5", "delays nothing");
  bad("delay:raed=1ms", "\"raed=1ms\": want TIME");
  bad("delay:read=5", "\"read=5\": want a number with ns, us, ms, s, m or h");
  bad("delay:1x", "\"1x\": want a number with ns");
  bad("delay:read=2h", "at most an hour");
  bad("delay:read=-1ms", "want a number");
  bad("delay:read=1e3us", "want a number");
  bad("delay:read=0s", "a time above 0");
  bad("delay:read=5ms-1ms", "the shorter first");
  bad("delay:1ms,2ms", "\"2ms\": that was said before");
  bad("delay:discard=1ms,trim=2ms", "\"trim=2ms\": that was said before");
  bad("delay:1ms,from=2M,to=1M", "to=1M lies not behind from=2M");
  bad("error:reed", "\"reed\": want read, write");
  bad("error:op=reed", "\"op=reed\": want read, write, flush");
  bad("error:read,op=read", "said before");
  bad("error:percent=101", "from 0.0000001 to 100");
  bad("error:percent=0", "from 0.0000001 to 100");
  bad("error:percent=nan", "from 0.0000001 to 100");
  bad("error:percent=1,every=2", "percent= or every=, not both");
  bad("error:every=0", "a whole number from 1");
  bad("error:errno=EFOO", "\"errno=EFOO\": want one of EIO, ENOSPC");
  bad("error:from=1X", "want a number of bytes");
  bad("error:to=0", "want a number of bytes");
  bad("rate", "limits nothing");
  bad("rate:burst=1s", "limits nothing");
  bad("rate:bytes=100", "from 4K");
  bad("rate:bits=1M", "\"bits=1M\": want bytes=, ops=");
  bad("rate:ops=1.5", "a whole number");
  bad("rate:ops=10,", "\"\": want bytes=");
  bad("checksum:block=3000", "a power of two from 512 to 32K");
  bad("checksum:block=64K", "a power of two");
  bad("checksum:memory=1K", "from 1M");
  bad("checksum:state=memory", "want block=, memory=, learn");
  bad("checksum:learn=1", "want block=");
}

}  // namespace
}  // namespace braid::bnbd
