#include "tests/sim/board.h"

#include <algorithm>

namespace braid::sim {

Wish Board::wish(size_t client, size_t device) const {
  const DevicePlan& plan = plan_.devices[device];
  const Device& its = devices_[device];
  if (std::find(plan.readers.begin(), plan.readers.end(), client) != plan.readers.end())
    return Wish::kRead;
  if (its.writer == client)
    return its.holder.value_or(client) == client ? Wish::kWrite : Wish::kNothing;
  return its.contested && plan.used_by(client) ? Wish::kContest : Wish::kNothing;
}

void Board::hand_over(size_t device) {
  const DevicePlan& plan = plan_.devices[device];
  if (!plan.heir) return;
  Device& its = devices_[device];
  its.writer = its.writer == plan.writer ? *plan.heir : plan.writer;
}

void Board::release(size_t client, size_t device) {
  Device& its = devices_[device];
  if (its.holder == client) its.holder.reset();
}

void Board::opened_for_writing(size_t client, size_t device) {
  Device& its = devices_[device];
  if (its.last_writer && *its.last_writer != client) ++counters.handed_over;
  its.last_writer = client;
}

void Board::client_died(size_t client) {
  for (size_t d = 0; d < devices_.size(); ++d) release(client, d);
}

}  // namespace braid::sim
