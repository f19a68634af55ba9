#include "bnbd/client/durability.h"

#include <gtest/gtest.h>

namespace braid::bnbd::client {
namespace {

using base::Errc;

TEST(DurabilityLedger, without_restarts_every_flush_succeeds) {
  DurabilityLedger ledger;
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
  ledger.acknowledged();
  EXPECT_EQ(ledger.unflushed(), 1u);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
  EXPECT_EQ(ledger.unflushed(), 0u);
}

TEST(DurabilityLedger, a_flush_covers_what_every_queue_counted_before_it) {
  DurabilityLedger ledger(3);
  for (size_t queue = 0; queue < 3; ++queue) {
    ledger.acknowledged(queue);
    const auto flush = ledger.begin_flush();
    ledger.acknowledged(queue);
    EXPECT_EQ(ledger.flushed(flush), Errc::kOk);
    EXPECT_EQ(ledger.unflushed(), 1u) << "the one after it";
  }
  EXPECT_TRUE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, a_flush_that_ends_behind_a_later_one_takes_nothing_back) {
  DurabilityLedger ledger(2);
  ledger.acknowledged(0);
  const auto early = ledger.begin_flush();
  ledger.acknowledged(1);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
  EXPECT_EQ(ledger.flushed(early), Errc::kOk);
  EXPECT_EQ(ledger.unflushed(), 0u);
  EXPECT_FALSE(ledger.restarted());
}

TEST(DurabilityLedger, a_restart_with_nothing_unflushed_is_no_loss) {
  DurabilityLedger ledger;
  EXPECT_FALSE(ledger.restarted());
  ledger.acknowledged();
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
  EXPECT_FALSE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, the_first_flush_after_a_loss_fails_and_the_next_does_not) {
  DurabilityLedger ledger;
  ledger.acknowledged();
  EXPECT_TRUE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
  EXPECT_EQ(ledger.flushes_failed(), 1u);
}

TEST(DurabilityLedger, a_flush_in_flight_over_the_restart_fails) {
  DurabilityLedger ledger;
  ledger.acknowledged();
  const auto flush = ledger.begin_flush();
  EXPECT_TRUE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(flush), Errc::kIo);
  EXPECT_FALSE(ledger.loss_unreported()) << "it covered all that was lost";
}

TEST(DurabilityLedger, a_flush_older_than_a_lost_write_does_not_speak_for_it) {
  DurabilityLedger ledger;
  ledger.acknowledged();
  const auto flush = ledger.begin_flush();
  ledger.acknowledged();
  EXPECT_TRUE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(flush), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo) << "the second write is lost as well";
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, every_flush_submitted_before_the_report_fails) {
  DurabilityLedger ledger;
  ledger.acknowledged();
  EXPECT_TRUE(ledger.restarted());
  const auto first = ledger.begin_flush();
  const auto second = ledger.begin_flush();
  EXPECT_EQ(ledger.flushed(first), Errc::kIo);
  EXPECT_EQ(ledger.flushed(second), Errc::kIo) << "its user has not seen the first one's end";
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, a_write_acknowledged_during_a_flush_stays_unflushed) {
  DurabilityLedger ledger;
  ledger.acknowledged();
  const auto flush = ledger.begin_flush();
  ledger.acknowledged();
  EXPECT_EQ(ledger.flushed(flush), Errc::kOk);
  EXPECT_EQ(ledger.unflushed(), 1u);
  EXPECT_TRUE(ledger.restarted());
}

TEST(DurabilityLedger, a_second_loss_is_reported_again) {
  DurabilityLedger ledger;
  ledger.acknowledged();
  EXPECT_TRUE(ledger.restarted());
  const auto across = ledger.begin_flush();
  ledger.acknowledged();
  EXPECT_TRUE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(across), Errc::kIo);
  EXPECT_TRUE(ledger.loss_unreported());
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

}  // namespace
}  // namespace braid::bnbd::client
