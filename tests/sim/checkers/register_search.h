// The search through one burst of a BlockRegister: every value that an order of its operations can
// leave. Only register.cc includes it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/sim/checkers/register.h"

namespace braid::sim {

/// Nodes of a search. Of few it is a list, of many an open-addressed table.
class NodeSet {
 public:
  using Node = std::pair<uint32_t, uint64_t>;
  /// False: it is there already.
  bool insert(Node node) {
    if (table_.empty()) {
      if (std::find(list_.begin(), list_.end(), node) != list_.end()) return false;
      list_.push_back(node);
      if (list_.size() == kListMax) grow(kListMax * 8);
      return true;
    }
    if (!put(node)) return false;
    list_.push_back(node);
    if (list_.size() * 2 > table_.size()) grow(table_.size() * 4);
    return true;
  }

 private:
  static constexpr size_t kListMax = 32;

  bool put(Node node) {
    const size_t mask = table_.size() - 1;
    size_t at = ((node.second ^ uint64_t{node.first} << 32) * 0x9e3779b97f4a7c15 >> 20) & mask;
    for (; table_[at] != 0; at = (at + 1) & mask)
      if (list_[table_[at] - 1] == node) return false;
    table_[at] = static_cast<uint32_t>(list_.size() + 1);
    return true;
  }
  void grow(size_t size) {
    table_.assign(size, 0);
    const std::vector<Node> all = std::exchange(list_, {});
    for (const Node& node : all) {
      put(node);
      list_.push_back(node);
    }
  }

  std::vector<Node> list_;
  std::vector<uint32_t> table_;  // 1 + place in the list, 0: free; its size is a power of two
};

/// All orders of a burst's operations that respect their intervals. A node is a set of operations
/// done and the value then; each node is visited once.
struct BlockRegister::Search {
  using Node = std::pair<uint32_t, uint64_t>;

  const std::vector<Op>& ops;
  uint32_t certain = 0;                      // operations that must have happened
  uint32_t unread = 0;                       // writes that need not have, whose value nobody found
  std::array<uint32_t, kOpsMax> before{};    // of each operation: those that must be done first
  std::array<uint32_t, kOpsMax> too_late{};  // and those of which none may be done any more
  NodeSet seen;
  std::vector<Node> open;
  std::vector<uint64_t> finals;

  explicit Search(const std::vector<Op>& burst) : ops(burst) {
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].certain) certain |= 1u << i;
      if (ops[i].kind == Kind::kWrite && !ops[i].certain && !found(ops[i].value)) unread |= 1u << i;
      for (size_t j = 0; j < ops.size(); ++j) {
        if (j != i && ops[j].certain && ops[j].end < ops[i].begin) before[i] |= 1u << j;
        if (ops[j].begin > ops[i].end) too_late[i] |= 1u << j;
      }
    }
  }

  bool found(uint64_t value) const {
    return std::any_of(ops.begin(), ops.end(), [value](const Op& op) {
      return op.kind == Kind::kRead && op.certain && op.value == value;
    });
  }

  void visit(uint32_t done, uint64_t value) {
    if (seen.insert({done, value})) open.emplace_back(done, value);
  }

  bool may_be_next(size_t next, uint32_t done) const {
    const bool again = (done >> next & 1) != 0;
    if (again && !ops[next].repeated) return false;
    return (done & too_late[next]) == 0 && (before[next] & ~done) == 0;
  }

  /// Anything may be there that was not durable; and a write that is still under way, done once and
  /// lost, is sent again by its client and done again.
  void lose_power(const Op& loss, uint32_t then) {
    uint32_t under_way = 0;
    for (size_t i = 0; i < ops.size(); ++i)
      if ((then >> i & 1) != 0 && ops[i].kind == Kind::kWrite && ops[i].end > loss.begin)
        under_way |= 1u << i;
    for (uint32_t again = under_way;; again = (again - 1) & under_way) {
      for (const Candidate& c : loss.restored) visit(then & ~again, c.value);
      if (again == 0) return;
    }
  }

  void step(uint32_t done, uint64_t value) {
    if ((done & certain) == certain) finals.push_back(value);
    for (size_t i = 0; i < ops.size(); ++i) {
      if (!may_be_next(i, done)) continue;
      const uint32_t then = done | 1u << i;
      switch (ops[i].kind) {
        case Kind::kRead:
          if (ops[i].certain && ops[i].value == value) visit(then, value);
          break;
        case Kind::kWrite:
          // Whatever changes the value after an unread one makes it as if it had not happened: it
          // is only looked at as the last.
          if ((unread >> i & 1) == 0) {
            visit(then, ops[i].value);
          } else if ((done & certain) == certain) {
            finals.push_back(ops[i].value);
          }
          break;
        case Kind::kPowerLoss:
          lose_power(ops[i], then);
          break;
      }
    }
  }

  std::vector<uint64_t> run(const std::vector<Candidate>& starts) {
    for (const Candidate& start : starts) visit(0, start.value);
    while (!open.empty()) {
      const auto [done, value] = open.back();
      open.pop_back();
      step(done, value);
    }
    std::sort(finals.begin(), finals.end());
    finals.erase(std::unique(finals.begin(), finals.end()), finals.end());
    return std::move(finals);
  }
};

}  // namespace braid::sim
