// The ledger with a thread for each queue, and losses at any moment: no flush ends well that began
// behind a loss, unless another failed between that spoke for all that was at stake. Each thread
// writes down what it did with a stamp of one clock before and behind, so that only an order that
// threads could know of is asked for. Writers and losses wait for each other, some rounds apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "bnbd/client/durability.h"

namespace braid::bnbd::client {
namespace {

using base::Errc;

constexpr size_t kQueues = 3;
constexpr int kLosses = 60;
constexpr int kRoundsEach = 8;  // of each queue, in the time of a loss
constexpr uint64_t kNever = UINT64_MAX;

struct Part {
  uint64_t sent_at = 0;  // surely by then
  uint64_t told_at = 0;  // not before
};
struct Flush {
  uint64_t begin_from = 0, begin_to = 0;
  uint64_t end_from = 0, end_to = 0;
  bool ok = false;
};
struct Loss {
  uint64_t from = 0, to = 0;
};
struct Notes {
  std::vector<Part> parts;
  std::vector<Flush> flushes;
  std::vector<Loss> losses;
};

class LedgerThreads : public ::testing::Test {
 protected:
  explicit LedgerThreads(bool era_stuck = false) : ledger_(kQueues, era_stuck) {}

  uint64_t stamp() { return clock_.fetch_add(1) + 1; }

  Flush begin_flush(DurabilityLedger::Ticket& ticket) {
    Flush flush;
    flush.begin_from = stamp();
    ticket = ledger_.begin_flush();
    flush.begin_to = stamp();
    return flush;
  }
  void end_flush(Notes& notes, Flush flush, const DurabilityLedger::Ticket& ticket) {
    flush.end_from = stamp();
    flush.ok = ledger_.flushed(ticket) == Errc::kOk;
    flush.end_to = stamp();
    notes.flushes.push_back(flush);
  }

  /// Of one queue: requests of up to three parts, and a flush over each other one.
  void write(size_t queue, Notes& notes) {
    for (int round = 0; round < kLosses * kRoundsEach; ++round) {
      while (losses_ < round / kRoundsEach - 1) std::this_thread::yield();
      DurabilityLedger::Ticket ticket;
      const Flush flush = begin_flush(ticket);
      const size_t first = notes.parts.size();
      DurabilityLedger::Untold untold{};
      for (int part = 0; part <= round % 3; ++part) {
        const uint8_t era = ledger_.sent(queue);
        notes.parts.push_back({stamp(), kNever});
        if (round % 5 == 0) std::this_thread::yield();
        ledger_.acknowledged(era, untold, queue);
      }
      if (round % 2 == 0) end_flush(notes, flush, ticket);
      for (size_t i = first; i < notes.parts.size(); ++i) notes.parts[i].told_at = stamp();
      ledger_.told(untold, queue);
      rounds_[queue] = round + 1;
    }
  }

  void lose(Notes& notes) {
    for (int turn = 0; turn < kLosses; losses_ = ++turn) {
      for (const auto& rounds : rounds_)
        while (rounds < (turn - 1) * kRoundsEach) std::this_thread::yield();
      DurabilityLedger::Ticket ticket;
      Flush flush = begin_flush(ticket);
      if (turn % 4 == 0) std::this_thread::yield();
      const uint64_t from = stamp();
      if (turn % 3 == 0) {
        if (ledger_.restarted(/*done_again=*/false)) notes.losses.push_back({from, stamp()});
        end_flush(notes, flush, ticket);
      } else {
        flush.end_from = from;
        ledger_.flush_failed(ticket);
        flush.end_to = stamp();
        notes.flushes.push_back(flush);
        notes.losses.push_back({from, stamp()});
      }
      for (int i = 0; i < 3; ++i) {  // a chance for it to be reported
        flush = begin_flush(ticket);
        end_flush(notes, flush, ticket);
        std::this_thread::yield();
      }
    }
  }

  /// All threads, to their ends.
  Notes run() {
    std::vector<Notes> notes(kQueues + 1);
    std::vector<std::thread> threads;
    for (size_t queue = 0; queue < kQueues; ++queue)
      threads.emplace_back([&, queue] { write(queue, notes[queue]); });
    threads.emplace_back([&] { lose(notes.back()); });
    for (std::thread& thread : threads) thread.join();
    Notes all;
    for (const Notes& its : notes) {
      all.parts.insert(all.parts.end(), its.parts.begin(), its.parts.end());
      all.flushes.insert(all.flushes.end(), its.flushes.begin(), its.flushes.end());
      all.losses.insert(all.losses.end(), its.losses.begin(), its.losses.end());
    }
    return all;
  }

  DurabilityLedger ledger_;
  std::atomic<uint64_t> clock_{0};
  std::array<std::atomic<int>, kQueues> rounds_{};
  std::atomic<int> losses_{0};
};

/// Whether all that was surely open at the loss had ended, for all that a flush could know, when it
/// began.
bool speaks_for(const Flush& flush, const Loss& loss, const std::vector<Part>& parts) {
  return std::none_of(parts.begin(), parts.end(), [&](const Part& part) {
    return part.sent_at < loss.from && part.told_at > flush.begin_to;
  });
}

/// The first moment in which a flush began to fail that may have reported it.
uint64_t reported_from(const Loss& loss, const Notes& all) {
  uint64_t from = kNever;
  for (const Flush& flush : all.flushes) {
    const bool may = !flush.ok && flush.end_to > loss.from && flush.end_from < from;
    if (may && speaks_for(flush, loss, all.parts)) from = std::max(flush.end_from, loss.from);
  }
  return from;
}

/// How often a flush that began behind a loss ended well before anybody may have reported it.
size_t hidden_losses(const Notes& all) {
  size_t hidden = 0;
  for (const Loss& loss : all.losses) {
    const uint64_t from = reported_from(loss, all);
    for (const Flush& flush : all.flushes)
      hidden += flush.ok && flush.begin_from > loss.to && flush.begin_to < from;
  }
  return hidden;
}

TEST_F(LedgerThreads, NoFlushEndsWellBehindALossThatNobodyHasReported) {
  const Notes all = run();
  EXPECT_FALSE(all.losses.empty());
  EXPECT_EQ(hidden_losses(all), 0u);
  if (ledger_.loss_unreported()) {
    EXPECT_EQ(ledger_.flushed(ledger_.begin_flush()), Errc::kIo);
  }
  EXPECT_EQ(ledger_.flushed(ledger_.begin_flush()), Errc::kOk);
  EXPECT_EQ(ledger_.unflushed(), 0u) << "all parts were told";
}

class StuckLedgerThreads : public LedgerThreads {
 protected:
  StuckLedgerThreads() : LedgerThreads(true) {}
};

TEST_F(StuckLedgerThreads, AnEraThatNeverEndsHidesSome) {
  EXPECT_GT(hidden_losses(run()), 0u);
}

}  // namespace
}  // namespace braid::bnbd::client
