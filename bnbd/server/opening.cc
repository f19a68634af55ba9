#include "bnbd/server/opening.h"

#include <algorithm>

namespace braid::bnbd::server {

namespace {

// Of a client that opens names without end, the oldest are forgotten.
constexpr size_t kWishesMax = 256;

}  // namespace

std::vector<Openings::Wish*> Openings::wishes(const std::string& export_name) {
  forget_old();
  std::vector<Wish*> found;
  for (const auto& wish : wishes_) {
    const bool fits = export_name.empty() || wish->export_name == export_name;
    if (fits && !wish->taken) found.push_back(wish.get());
  }
  return found;
}

Openings::Wish& Openings::begin(const std::string& export_name) {
  forget_old();
  auto found = std::find_if(wishes_.begin(), wishes_.end(),
                            [&](const auto& wish) { return wish->export_name == export_name; });
  if (found == wishes_.end()) {
    found = wishes_.insert(wishes_.end(), std::make_unique<Wish>());
    (*found)->export_name = export_name;
  }
  ++(*found)->under_way;
  return **found;
}

void Openings::end(Wish& wish, bool asks_again) {
  wish.until_ns = asks_again ? home_.now_ns() + kAsksAgainNs : 0;
  if (--wish.under_way == 0) forget_old();
}

void Openings::forget_old() {
  const uint64_t now_ns = home_.now_ns();
  std::erase_if(wishes_,
                [&](const auto& wish) { return wish->under_way == 0 && wish->until_ns <= now_ns; });
  while (wishes_.size() > kWishesMax) {
    const auto oldest = std::find_if(wishes_.begin(), wishes_.end(),
                                     [](const auto& wish) { return wish->under_way == 0; });
    if (oldest == wishes_.end()) return;
    wishes_.erase(oldest);
  }
}

}  // namespace braid::bnbd::server
