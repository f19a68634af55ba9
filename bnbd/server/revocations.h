// Whom the operator has put out of what: pairs of a thing (an identity, an export's name) and the
// name of a session. Bounded: the oldest is forgotten first. One reactor, the home.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace braid::bnbd::server {

class Revocations {
 public:
  explicit Revocations(size_t count_max) : count_max_(count_max) {}

  bool contains(const std::string& what, const std::string& session) const {
    return by_key_.contains({what, session});
  }
  /// Whoever is put out once more is the newest.
  void add(const std::string& what, const std::string& session) {
    remove(what, session);
    if (by_key_.size() >= count_max_) {
      by_key_.erase(by_age_.begin()->second);
      by_age_.erase(by_age_.begin());
    }
    by_age_.emplace(++added_, Key(what, session));
    by_key_.emplace(Key(what, session), added_);
  }
  void remove(const std::string& what, const std::string& session) {
    const auto found = by_key_.find({what, session});
    if (found == by_key_.end()) return;
    by_age_.erase(found->second);
    by_key_.erase(found);
  }

 private:
  using Key = std::pair<std::string, std::string>;
  const size_t count_max_;  // at least 1
  uint64_t added_ = 0;
  std::map<Key, uint64_t> by_key_;
  std::map<uint64_t, Key> by_age_;
};

}  // namespace braid::bnbd::server
