#include "tests/sim/checkers/register.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/result.h"
#include "tests/sim/checkers/register_search.h"

namespace braid::sim {

// --- candidates

void BlockRegister::add(std::vector<Candidate>& to, Candidate candidate) {
  for (Candidate& known : to) {
    if (known.value != candidate.value) continue;
    known.until = std::max(known.until, candidate.until);
    known.beside = std::max(known.beside, candidate.beside);
    known.unowed |= candidate.unowed;
    return;
  }
  to.push_back(candidate);
}

bool BlockRegister::was_left(const std::vector<Candidate>& before, uint64_t value) {
  return std::any_of(before.begin(), before.end(),
                     [value](const Candidate& c) { return c.value == value && c.left; });
}

void BlockRegister::strike(std::vector<Candidate>& candidates, Instant floor) {
  if (candidates.size() <= 1) return;
  Instant latest = 0;
  for (const Candidate& c : candidates) latest = std::max(latest, c.until);
  std::erase_if(candidates,
                [&](const Candidate& c) { return c.until <= floor && c.until < latest; });
}

std::vector<uint64_t> BlockRegister::possible(Instant floor) const {
  std::vector<Candidate> now = possible_;
  strike(now, floor);
  std::vector<uint64_t> values;
  for (const Candidate& c : now) values.push_back(c.value);
  return values;
}

// --- operations

bool BlockRegister::being_written() const {
  return std::any_of(burst_.begin(), burst_.end(),
                     [](const Op& op) { return op.kind == Kind::kWrite && op.end == kForever; });
}

bool BlockRegister::written_since(Instant since) const {
  return std::any_of(burst_.begin(), burst_.end(),
                     [since](const Op& op) { return op.kind == Kind::kWrite && op.end > since; });
}

std::vector<uint64_t> BlockRegister::versions() const {
  std::vector<uint64_t> values;
  for (const Candidate& c : possible_) values.push_back(c.value);
  for (const Op& op : burst_) {
    if (op.kind == Kind::kWrite) values.push_back(op.value);
    for (const Candidate& c : op.restored) values.push_back(c.value);
  }
  return values;
}

void BlockRegister::begin(uint64_t id, Kind kind, uint64_t written, Instant now) {
  Op op;
  op.id = id;
  op.value = written;
  op.begin = now;
  op.kind = kind;
  BRAID_ASSERT(burst_.size() < kOpsMax);
  burst_.push_back(std::move(op));
  ++pending_;
}

std::optional<std::string> BlockRegister::end(uint64_t id, bool succeeded, uint64_t value,
                                              bool durable, Instant now, Instant floor,
                                              bool repeated) {
  const auto op = std::find_if(burst_.begin(), burst_.end(), [id](const Op& o) {
    return o.id == id && o.kind != Kind::kPowerLoss && o.end == kForever;
  });
  if (op == burst_.end()) return fmt::format("operation {} ended but was not under way", id);
  op->end = now;
  op->certain = succeeded;
  op->durable = durable && succeeded;
  op->repeated = repeated && op->kind == Kind::kWrite;
  if (op->kind == Kind::kRead) op->value = value;
  if (--pending_ != 0) return std::nullopt;
  if (burst_.size() == 1 && resolve_plain(now, floor)) return std::nullopt;
  return resolve(now, floor);
}

bool BlockRegister::resolve_plain(Instant now, Instant floor) {
  const Op& op = burst_.front();
  if (possible_.size() != 1 || !op.certain) return false;
  if (op.kind == Kind::kRead) {
    if (possible_.front().value != op.value) return false;
    possible_.front().until = kForever;
  } else {
    if (op.durable) {
      past_.clear();
    } else if (possible_.front().value != op.value) {
      add(past_, {possible_.front().value, now, op.begin});
    }
    for (Candidate& c : past_) {
      c.unowed = false;
      c.until = std::min(c.until, now);  // what a failed flush had left was written anew
    }
    possible_.front() = {op.value, kForever};
    std::erase_if(past_, [floor](const Candidate& c) { return c.until <= floor; });
  }
  burst_.clear();
  return true;
}

std::optional<std::string> BlockRegister::resolve(Instant now, Instant floor) {
  strike(possible_, floor);
  for (Op& op : burst_) strike(op.restored, floor);
  std::optional<std::string> wrong;
  std::vector<uint64_t> finals = Search(burst_).run(possible_);
  if (finals.empty()) {
    wrong = describe();
    // Go on from what was seen, so that one mistake is one report.
    for (const Op& op : burst_)
      if (op.kind != Kind::kPowerLoss) finals.push_back(op.value);
  }
  const bool seen = std::any_of(burst_.begin(), burst_.end(),
                                [](const Op& op) { return op.kind == Kind::kRead && op.certain; });
  const std::vector<Candidate> before = std::exchange(possible_, {});
  const bool forgotten = finals.size() > 1 && forgotten_in_burst();
  for (const uint64_t value : finals) {
    Instant until = kForever;
    Instant beside = last_write();
    const bool written = std::any_of(burst_.begin(), burst_.end(), [value](const Op& op) {
      return op.kind == Kind::kWrite && op.value == value;
    });
    const auto took_back = [&](const std::vector<Candidate>& from) {
      for (const Candidate& c : from) {
        if (c.value != value) continue;
        until = c.until;
        beside = std::max(beside, c.beside);
      }
    };
    if (!written && !seen) {
      took_back(before);
      for (const Op& op : burst_) took_back(op.restored);
    }
    const bool left = forgotten || (!written && was_left(before, value));
    add(possible_, {value, until, beside, false, left});
  }
  retire(before, now, floor);
  for (const Op& op : burst_)
    if (op.kind == Kind::kWrite && op.certain) settled_at_ = std::max(settled_at_, op.end);
  burst_.clear();
  return wrong;
}

/// When a value was surely no longer current: when a write ended that surely came after it. Null:
/// a value from before the burst. Never, if a failed flush may have dropped each such write.
Instant BlockRegister::superseded_at(const Op* write, Instant burst_end) const {
  Instant at = kForever;
  bool dropped = false;
  for (const Op& op : burst_) {
    if (op.kind != Kind::kWrite || (write != nullptr && op.begin <= write->end)) continue;
    if (!op.certain) {
      dropped |= op.begin < dropped_at_;
    } else if (op.end <= dropped_to_) {
      dropped = true;
    } else {
      at = std::min(at, op.end);
    }
  }
  return at == kForever && !dropped ? burst_end : at;
}

/// A flush failed at the disk behind a write of the burst that failed, and nothing was written well
/// after that: which of two values the medium has is forgotten.
bool BlockRegister::forgotten_in_burst() const {
  bool forgotten = false;
  for (const Op& op : burst_) {
    if (op.kind != Kind::kWrite) continue;
    if (op.certain && op.end > dropped_to_) return false;
    forgotten |= !op.certain && op.begin < dropped_at_;
  }
  return forgotten;
}

Instant BlockRegister::last_write() const {
  Instant last = 0;
  for (const Op& op : burst_)
    if (op.kind == Kind::kWrite) last = std::max(last, op.begin);
  return last;
}

bool BlockRegister::overwritten_durably(const Op* write) const {
  bool durably = false;
  for (const Op& op : burst_) {
    if (op.kind == Kind::kPowerLoss) return false;  // too much at once: assume the least
    durably |= op.durable && (write == nullptr || op.begin > write->end);
  }
  return durably;
}

void BlockRegister::retire(const std::vector<Candidate>& before, Instant now, Instant floor) {
  if (overwritten_durably(nullptr)) past_.clear();
  const auto is_possible = [this](uint64_t value) {
    return std::any_of(possible_.begin(), possible_.end(),
                       [value](const Candidate& c) { return c.value == value; });
  };
  const bool unowed = std::none_of(burst_.begin(), burst_.end(), [](const Op& op) {
    return op.kind == Kind::kWrite && op.certain;
  });
  for (Candidate& c : past_) {
    c.unowed &= unowed;
    if (!unowed) c.until = std::min(c.until, superseded_at(nullptr, now));
  }
  if (!overwritten_durably(nullptr)) {
    for (const Candidate& c : before)
      if (!is_possible(c.value))
        add(past_, {c.value,
                    unowed && (c.left || forgotten_in_burst())
                        ? kForever
                        : std::min(c.until, superseded_at(nullptr, now)),
                    std::max(c.beside, last_write()), unowed});
  }
  for (const Op& op : burst_) {
    if (op.kind == Kind::kWrite && !is_possible(op.value) && !overwritten_durably(&op))
      add(past_, {op.value, superseded_at(&op, now), last_write(), unowed});
    // What a loss brought back was there until something was written after that loss.
    const bool rewritten_durably = std::any_of(burst_.begin(), burst_.end(), [&](const Op& later) {
      return later.durable && later.begin > op.end;
    });
    if (rewritten_durably) continue;
    for (const Candidate& c : op.restored)
      if (!is_possible(c.value))
        add(past_, {c.value, std::min(c.until, superseded_at(&op, now)),
                    std::max(c.beside, last_write()), unowed});
  }
  std::erase_if(past_, [floor](const Candidate& c) { return c.until <= floor; });
}

void BlockRegister::power_loss(Instant now, Instant floor, Instant unreported) {
  strike(possible_, floor);
  std::erase_if(past_, [floor](const Candidate& c) { return c.until <= floor; });
  for (Candidate& c : past_)
    if (c.beside <= unreported || c.unowed) c.until = kForever;
  if (burst_.empty()) {
    for (const Candidate& c : past_) add(possible_, c);
    past_.clear();
    return;
  }
  Op loss;
  loss.id = 0;
  loss.value = 0;
  loss.begin = loss.end = now;
  loss.kind = Kind::kPowerLoss;
  loss.certain = true;
  restore(loss, floor, unreported);
  BRAID_ASSERT(burst_.size() < kOpsMax);
  burst_.push_back(std::move(loss));
}

/// What may be there after a loss in the midst of a burst: all that was ever there, but for what a
/// flush or a durable write had surely replaced for good.
void BlockRegister::restore(Op& loss, Instant floor, Instant unreported) const {
  const auto durably_after = [this](Instant at) {
    return std::any_of(burst_.begin(), burst_.end(),
                       [at](const Op& op) { return op.durable && op.begin > at; });
  };
  const auto restored = [&](const Candidate& c, Instant written, Instant until) {
    if (until <= floor || durably_after(written)) return;
    const Instant beside = std::max(c.beside, last_write());
    const bool stays = beside <= unreported || c.unowed;
    add(loss.restored, {c.value, stays ? kForever : until, beside});
  };
  for (const Candidate& c : past_) restored(c, 0, c.until);
  const Instant superseded = superseded_at(nullptr, kForever);
  for (const Candidate& c : possible_) restored(c, 0, std::min(c.until, superseded));
  for (const Op& op : burst_) {
    if (op.kind == Kind::kWrite)
      restored({op.value, kForever}, op.end, superseded_at(&op, kForever));
    // What an earlier power loss brought back may be there still, or again.
    for (const Candidate& c : op.restored) restored(c, op.begin, c.until);
  }
}

void BlockRegister::loss_admitted(Instant floor) {
  strike(possible_, floor);
  for (Candidate& c : possible_) c.until = kForever;
  for (Op& op : burst_)
    for (Candidate& c : op.restored) c.until = kForever;
}

void BlockRegister::dropped(Instant begin, Instant now, Instant floor) {
  dropped_to_ = std::max(dropped_to_, begin);
  dropped_at_ = now;
  std::erase_if(past_, [floor](const Candidate& c) { return c.until <= floor; });
  for (Candidate& c : past_)
    if (c.unowed || c.until <= begin) c.until = kForever;
  const bool told = settled_at_ <= begin;
  for (Candidate& c : possible_) c.left = possible_.size() > 1 && (told || c.left);
}

std::string BlockRegister::describe() const {
  std::string text = "no order of these explains the values (instants of begin and end):";
  for (const Op& op : burst_) {
    const char* const kind = op.kind == Kind::kRead    ? "read"
                             : op.kind == Kind::kWrite ? "write"
                                                       : "power loss";
    text += fmt::format(" {} #{} value {} [{}, {}] {};", kind, op.id, op.value, op.begin, op.end,
                        op.certain ? "ok" : "failed");
  }
  text += " before them:";
  for (const Candidate& c : possible_) text += fmt::format(" {}", c.value);
  return text;
}

}  // namespace braid::sim
