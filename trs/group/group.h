// GroupImpl: a group's legs, as its user changes them. Thread: the home reactor.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "trs/group.h"
#include "trs/group/queue.h"

namespace braid::trs::group {

class GroupImpl final : public Group {
 public:
  explicit GroupImpl(const std::vector<base::Reactor*>& reactors);
  ~GroupImpl() override = default;

  base::Task<base::Result<size_t>> add_leg(ClientSession& session, LegPolicy policy) override;
  base::Task<base::Status> remove_leg(size_t slot) override;
  LegMask legs() const override;
  GroupQueue& queue(size_t reactor_index) override { return *queues_.at(reactor_index); }
  base::Task<void> close() override;

 private:
  enum class State : uint8_t { kNone, kComing, kThere, kLeaving };
  struct Slot {
    State state = State::kNone;
    ClientSession* session = nullptr;
  };
  /// What a queue runs when it has done its part: *due is counted down at home.
  Queue::Done reply(const std::shared_ptr<size_t>& due);

  base::Reactor& home_;
  const std::shared_ptr<base::Signal> changed_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::array<Slot, kLegsMax> slots_;
};

}  // namespace braid::trs::group
