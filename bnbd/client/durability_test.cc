#include "bnbd/client/durability.h"

#include <gtest/gtest.h>

namespace braid::bnbd::client {
namespace {

using base::Errc;

/// A write of one part, to its end.
void write(DurabilityLedger& ledger, size_t queue = 0) {
  DurabilityLedger::Untold untold{};
  ledger.acknowledged(ledger.sent(queue), untold, queue);
  ledger.told(untold, queue);
}

TEST(DurabilityLedger, without_restarts_every_flush_succeeds) {
  DurabilityLedger ledger;
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
  write(ledger);
  EXPECT_EQ(ledger.unflushed(), 1u);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
  EXPECT_EQ(ledger.unflushed(), 0u);
}

TEST(DurabilityLedger, a_flush_covers_what_every_queue_counted_before_it) {
  DurabilityLedger ledger(3);
  for (size_t queue = 0; queue < 3; ++queue) {
    write(ledger, queue);
    const auto flush = ledger.begin_flush();
    write(ledger, queue);
    EXPECT_EQ(ledger.flushed(flush), Errc::kOk);
    EXPECT_EQ(ledger.unflushed(), 1u) << "the one after it";
  }
  EXPECT_TRUE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, a_flush_that_ends_behind_a_later_one_takes_nothing_back) {
  DurabilityLedger ledger(2);
  write(ledger, 0);
  const auto early = ledger.begin_flush();
  write(ledger, 1);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
  EXPECT_EQ(ledger.flushed(early), Errc::kOk);
  EXPECT_EQ(ledger.unflushed(), 0u);
  EXPECT_FALSE(ledger.restarted());
}

TEST(DurabilityLedger, a_restart_with_nothing_unflushed_is_no_loss) {
  DurabilityLedger ledger;
  EXPECT_FALSE(ledger.restarted());
  write(ledger);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
  EXPECT_FALSE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, the_first_flush_after_a_loss_fails_and_the_next_does_not) {
  DurabilityLedger ledger;
  write(ledger);
  EXPECT_TRUE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
  EXPECT_EQ(ledger.flushes_failed(), 1u);
}

TEST(DurabilityLedger, a_flush_in_flight_over_the_restart_fails) {
  DurabilityLedger ledger;
  write(ledger);
  const auto flush = ledger.begin_flush();
  EXPECT_TRUE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(flush), Errc::kIo);
  EXPECT_FALSE(ledger.loss_unreported()) << "it covered all that was lost";
}

TEST(DurabilityLedger, a_flush_older_than_a_lost_write_does_not_speak_for_it) {
  DurabilityLedger ledger;
  write(ledger);
  const auto flush = ledger.begin_flush();
  write(ledger);
  EXPECT_TRUE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(flush), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo) << "the second write is lost as well";
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, a_flush_that_waited_covers_what_was_acknowledged_before_its_submission) {
  DurabilityLedger ledger;
  write(ledger);
  const auto asked = ledger.begin_flush();
  write(ledger);
  EXPECT_EQ(ledger.flushed(ledger.submitted(asked)), Errc::kOk);
  EXPECT_EQ(ledger.unflushed(), 0u);
  EXPECT_FALSE(ledger.restarted());
}

TEST(DurabilityLedger, a_flush_that_waited_is_no_word_about_what_was_told_meanwhile) {
  DurabilityLedger ledger;
  write(ledger);
  const auto asked = ledger.begin_flush();
  write(ledger);
  EXPECT_TRUE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(ledger.submitted(asked)), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, every_flush_submitted_before_the_report_fails) {
  DurabilityLedger ledger;
  write(ledger);
  EXPECT_TRUE(ledger.restarted());
  const auto first = ledger.begin_flush();
  const auto second = ledger.begin_flush();
  EXPECT_EQ(ledger.flushed(first), Errc::kIo);
  EXPECT_EQ(ledger.flushed(second), Errc::kIo) << "its user has not seen the first one's end";
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, a_write_acknowledged_during_a_flush_stays_unflushed) {
  DurabilityLedger ledger;
  write(ledger);
  const auto flush = ledger.begin_flush();
  write(ledger);
  EXPECT_EQ(ledger.flushed(flush), Errc::kOk);
  EXPECT_EQ(ledger.unflushed(), 1u);
  EXPECT_TRUE(ledger.restarted());
}

TEST(DurabilityLedger, a_second_loss_is_reported_again) {
  DurabilityLedger ledger;
  write(ledger);
  EXPECT_TRUE(ledger.restarted());
  const auto across = ledger.begin_flush();
  write(ledger);
  EXPECT_TRUE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(across), Errc::kIo);
  EXPECT_TRUE(ledger.loss_unreported());
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, a_failed_flush_that_covers_all_reports_itself) {
  DurabilityLedger ledger;
  write(ledger);
  EXPECT_FALSE(ledger.flush_failed(ledger.begin_flush()));
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
  EXPECT_FALSE(ledger.restarted());
}

TEST(DurabilityLedger, what_a_failed_flush_left_in_the_cache_is_lost_by_a_restart) {
  DurabilityLedger ledger;
  write(ledger);
  EXPECT_FALSE(ledger.flush_failed(ledger.begin_flush()));
  EXPECT_TRUE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, every_flush_submitted_before_a_failure_fails) {
  DurabilityLedger ledger;
  write(ledger);
  const auto first = ledger.begin_flush();
  const auto second = ledger.begin_flush();
  EXPECT_FALSE(ledger.flush_failed(first));
  EXPECT_EQ(ledger.flushed(second), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, what_is_on_a_wire_at_a_failure_is_told_to_a_flush_after_its_end) {
  DurabilityLedger ledger(2);
  DurabilityLedger::Untold untold{};
  const uint8_t era = ledger.sent(1);
  EXPECT_TRUE(ledger.flush_failed(ledger.begin_flush()));
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  EXPECT_TRUE(ledger.loss_unreported()) << "it is still on its wire";
  ledger.acknowledged(era, untold, 1);
  const auto between = ledger.begin_flush();
  ledger.told(untold, 1);
  EXPECT_EQ(ledger.flushed(between), Errc::kIo);
  EXPECT_TRUE(ledger.loss_unreported()) << "nobody had been told of the write";
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, writes_after_a_failure_do_not_put_its_report_off) {
  DurabilityLedger ledger;
  const uint8_t before = ledger.sent();
  EXPECT_TRUE(ledger.flush_failed(ledger.begin_flush()));
  const uint8_t after = ledger.sent();
  EXPECT_NE(before, after);
  ledger.ended(before);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
  ledger.ended(after);
}

TEST(DurabilityLedger, a_failure_while_another_is_unreported_waits_for_both) {
  DurabilityLedger ledger;
  const uint8_t first = ledger.sent();
  EXPECT_TRUE(ledger.flush_failed(ledger.begin_flush()));
  const uint8_t second = ledger.sent();
  EXPECT_TRUE(ledger.flush_failed(ledger.begin_flush()));
  const uint8_t third = ledger.sent();
  EXPECT_EQ(second, third) << "two eras are open already";
  ledger.ended(first);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  const uint8_t fourth = ledger.sent();
  EXPECT_EQ(fourth, first) << "that era is empty now";
  EXPECT_TRUE(ledger.loss_unreported());
  ledger.ended(second);
  ledger.ended(third);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  EXPECT_FALSE(ledger.loss_unreported());
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
  ledger.ended(fourth);
}

TEST(DurabilityLedger, what_is_on_a_wire_is_sent_again_after_the_loss_of_the_path_only) {
  DurabilityLedger ledger;
  const uint8_t era = ledger.sent();
  EXPECT_FALSE(ledger.restarted(/*done_again=*/true));
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
  EXPECT_TRUE(ledger.restarted(/*done_again=*/false));
  ledger.ended(era);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, a_part_lost_before_its_request_was_told_is_reported_after_that) {
  DurabilityLedger ledger;
  DurabilityLedger::Untold untold{};
  ledger.acknowledged(ledger.sent(), untold);
  const auto early = ledger.begin_flush();
  EXPECT_TRUE(ledger.restarted());
  ledger.acknowledged(ledger.sent(), untold);
  ledger.told(untold);
  EXPECT_EQ(ledger.flushed(early), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, a_flush_behind_a_request_covers_it_and_reports_to_nobody_else) {
  DurabilityLedger ledger;
  DurabilityLedger::Untold untold{};
  ledger.acknowledged(ledger.sent(), untold);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush_behind(ledger.losses())), Errc::kOk);
  ledger.told(untold);
  EXPECT_EQ(ledger.unflushed(), 0u);
  write(ledger);
  ledger.acknowledged(ledger.sent(), untold);
  EXPECT_TRUE(ledger.flush_failed(ledger.begin_flush_behind(ledger.losses())));
  ledger.told(untold);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo)
      << "the write's user has heard nothing";
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, a_flush_behind_a_request_speaks_for_that_alone) {
  DurabilityLedger ledger;
  write(ledger);
  uint32_t losses = ledger.losses();
  DurabilityLedger::Untold untold{};
  ledger.acknowledged(ledger.sent(), untold);
  EXPECT_TRUE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(ledger.begin_flush_behind(losses), &untold), Errc::kIo);
  ledger.told(untold);
  losses = ledger.losses();
  ledger.acknowledged(ledger.sent(), untold);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush_behind(losses), &untold), Errc::kOk)
      << "it began behind the loss";
  ledger.told(untold);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo) << "of the first write";
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

TEST(DurabilityLedger, a_report_counts_when_its_user_hears_of_it) {
  DurabilityLedger ledger;
  DurabilityLedger::Untold by_restart{}, at_server{};
  write(ledger);
  EXPECT_TRUE(ledger.restarted());
  EXPECT_EQ(ledger.flushed(ledger.begin_flush(), &by_restart), Errc::kIo);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kIo) << "and reports it itself";
  EXPECT_FALSE(ledger.loss_unreported());
  write(ledger);
  EXPECT_FALSE(ledger.flush_failed(ledger.begin_flush(), &at_server));
  ledger.told(by_restart);
  EXPECT_TRUE(ledger.loss_unreported()) << "that was the loss before";
  ledger.told(at_server);
  EXPECT_EQ(ledger.flushed(ledger.begin_flush()), Errc::kOk);
}

}  // namespace
}  // namespace braid::bnbd::client
