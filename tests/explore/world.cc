#include "tests/explore/world.h"

#include <ucontext.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define EXPLORE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EXPLORE_ASAN 1
#endif
#endif
#if defined(EXPLORE_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace braid::explore {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr unsigned kStepsMax = 20'000;  // beyond this a party runs for ever

World* current_world = nullptr;

/// Stacks are used again by the next world.
std::vector<std::unique_ptr<std::byte[]>>& spare_stacks() {
  static std::vector<std::unique_ptr<std::byte[]>> stacks;
  return stacks;
}

}  // namespace

static bool lies_in(const std::vector<std::pair<const std::byte*, size_t>>& ranges,
                    const void* at) {
  const auto* const byte = static_cast<const std::byte*>(at);
  return std::any_of(ranges.begin(), ranges.end(), [byte](const auto& range) {
    return byte >= range.first && byte < range.first + range.second;
  });
}

/// A stack of its own; with no stack, the one that run() was called on.
struct World::Fiber {
  ucontext_t context{};
  std::unique_ptr<std::byte[]> stack;
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  size_t size = 0;

  ~Fiber() {
    if (stack != nullptr) spare_stacks().push_back(std::move(stack));
  }
  void start(void (*entry)()) {
    if (!spare_stacks().empty()) {
      stack = std::move(spare_stacks().back());
      spare_stacks().pop_back();
    } else {
      stack = std::make_unique<std::byte[]>(kStackBytes);
    }
    bottom = stack.get();
    size = kStackBytes;
#if defined(EXPLORE_ASAN)
    __asan_unpoison_memory_region(bottom, size);  // a party may have been left in the middle
#endif
    ::getcontext(&context);
    context.uc_stack.ss_sp = stack.get();
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    ::makecontext(&context, entry, 0);
  }
  void arrived([[maybe_unused]] Fiber* from) {
#if defined(EXPLORE_ASAN)
    const void* from_bottom = nullptr;
    size_t from_size = 0;
    __sanitizer_finish_switch_fiber(fake_stack, &from_bottom, &from_size);
    if (from != nullptr && from->bottom == nullptr) {
      from->bottom = from_bottom;
      from->size = from_size;
    }
#endif
  }
  void switch_to(Fiber& to) {
#if defined(EXPLORE_ASAN)
    __sanitizer_start_switch_fiber(&fake_stack, to.bottom, to.size);
#endif
    ::swapcontext(&context, &to.context);
    arrived(nullptr);
  }
};

World::World(Chooser& chooser) : chooser_(chooser), scheduler_(std::make_unique<Fiber>()) {}

World::~World() = default;

World* World::current() {
  return current_world;
}

void World::share(const void* begin, size_t bytes) {
  shared_.emplace_back(static_cast<const std::byte*>(begin), bytes);
}

void World::name_place(const std::string& name, const void* begin, size_t bytes) {
  if (name == weak_place) weak_.emplace_back(static_cast<const std::byte*>(begin), bytes);
}

bool World::shared(const void* at) const {
  return lies_in(shared_, at);
}

void World::add_party(std::function<void()> body) {
  parties_.push_back(std::make_unique<Party>());
  parties_.back()->body = std::move(body);
  parties_.back()->fiber = std::make_unique<Fiber>();
  parties_.back()->fiber->start(&World::enter);
}

void World::enter() {
  World& world = *current_world;
  Party& party = *world.parties_[world.running_];
  party.fiber->arrived(world.scheduler_.get());
  party.body();
  party.ended = true;
  world.leave();
}

/// From the running party to the scheduler.
void World::leave() {
  parties_[running_]->fiber->switch_to(*scheduler_);
}

void World::resume(unsigned party) {
  running_ = party;
  current_world = this;
  scheduler_->switch_to(*parties_[party]->fiber);
  current_world = nullptr;
}

bool World::runnable(const Party& party) const {
  if (party.ended || party.dead) return false;
  return party.condition == nullptr || party.timed_out || (*party.condition)();
}

void World::run() {
  unsigned last = 0;
  while (violation_.empty()) {
    // Who ran goes on; else the first who can.
    std::optional<unsigned> next;
    if (runnable(*parties_[last])) next = last;
    for (unsigned i = 0; i < parties_.size() && !next; ++i) {
      if (runnable(*parties_[i])) next = i;
    }
    if (next) {
      resume(*next);
      last = running_;
      continue;
    }
    // All wait. Stores become visible some day; when none is left, those who wait do so for ever.
    bool more = false;
    for (auto& party : parties_) {
      more |= !party->stores.empty();
      commit_all(*party);
    }
    for (auto& party : parties_) {
      if (more || party->ended || party->dead || party->timed_out) continue;
      party->timed_out = more = true;
    }
    if (!more) return;
  }
}

// --- steps

/// Before each step of the running party: others may go first, stores become visible.
void World::scheduling_point() {
  Party& party = *parties_[running_];
  const unsigned me = running_;
  if (++party.steps > kStepsMax) fail("a party never comes to an end");
  if (kill_ && kill_->first == me && kill_->second == party.steps) {
    party.dead = true;
    commit_all(party);
    ++changes_;
    leave();
  }
  if (scribble_ && scribble_->party == me && scribble_->step == party.steps) {
    std::memcpy(scribble_->at, &scribble_->value, scribble_->bytes);
  }
  while (const std::optional<unsigned> other = choose(me)) {
    if (*other == me) continue;  // a store became visible
    running_ = *other;
    party.fiber->switch_to(*parties_[*other]->fiber);
    return;
  }
}

/// Who goes before the running party's step; itself if a store became visible; nobody.
std::optional<unsigned> World::choose(unsigned me) {
  std::vector<unsigned> others;
  for (unsigned i = 0; i < parties_.size(); ++i) {
    if (i != me && runnable(*parties_[i])) others.push_back(i);
  }
  const auto stores = committable();
  const auto switches = static_cast<unsigned>(others.size());
  const auto alternatives = static_cast<unsigned>(1 + switches + stores.size());
  const unsigned picked = alternatives > 1 ? chooser_.pick(alternatives) : 0;
  if (picked == 0) return std::nullopt;
  if (picked <= switches) return others[picked - 1];
  const auto [owner, index] = stores[picked - switches - 1];
  commit(*owner, index);
  return me;
}

void World::step() {
  scheduling_point();
}

void World::load(const void* at, void* value, unsigned bytes) {
  if (!shared(at)) return;
  scheduling_point();
  std::memcpy(value, at, bytes);
  Party& party = *parties_[running_];
  for (const Store& store : party.stores) {  // its own, the newest last
    if (store.at <= at && at < store.at + store.bytes.size()) {
      std::memcpy(value, store.bytes.data() + (static_cast<const std::byte*>(at) - store.at),
                  bytes);
    }
  }
  tell("loads", at, value, bytes);
  for (const Place& place : party.loaded) {
    if (place.at == at) return;
  }
  Place place{.at = const_cast<void*>(at), .bytes = bytes, .value = 0};
  std::memcpy(&place.value, value, std::min<size_t>(bytes, sizeof(place.value)));
  party.loaded.push_back(place);
}

void World::store(void* at, const void* value, size_t bytes, bool release) {
  if (!shared(at)) {
    std::memcpy(at, value, bytes);
    return;
  }
  scheduling_point();
  release = release && !lies_in(weak_, at);
  Party& party = *parties_[running_];
  const auto* const from = static_cast<const std::byte*>(value);
  party.stores.push_back(
      {.at = static_cast<std::byte*>(at), .bytes = {from, from + bytes}, .release = release});
  if (stores_linger && chooser_.pick(2) == 1) return;
  // Visible at once, if what must go before it may.
  const bool alone = std::none_of(party.stores.begin(), party.stores.end() - 1,
                                  [&](const Store& early) { return early.at == at; });
  if (release || !alone) return commit_all(party);
  commit(party, party.stores.size() - 1);
}

void World::commit(Party& party, size_t index) {
  const Store store = std::move(party.stores[index]);
  party.stores.erase(party.stores.begin() + static_cast<std::ptrdiff_t>(index));
  std::memcpy(store.at, store.bytes.data(), store.bytes.size());
  tell("commits", store.at, store.at, store.bytes.size());
  ++changes_;
}

void World::commit_all(Party& party) {
  while (!party.stores.empty()) commit(party, 0);
}

std::vector<std::pair<World::Party*, size_t>> World::committable() const {
  std::vector<std::pair<Party*, size_t>> found;
  for (const auto& party : parties_) {
    const std::vector<Store>& stores = party->stores;
    for (size_t i = 0; i < stores.size(); ++i) {
      const auto blocks = [&late = stores[i]](const Store& early) {
        return late.release ||
               (early.at < late.at + late.bytes.size() && late.at < early.at + early.bytes.size());
      };
      const auto end = stores.begin() + static_cast<std::ptrdiff_t>(i);
      if (std::none_of(stores.begin(), end, blocks)) found.emplace_back(party.get(), i);
    }
  }
  return found;
}

void World::tell(const char* what, const void* at, const void* value, size_t bytes) const {
  if (!trace) return;
  uint64_t word = 0;
  std::memcpy(&word, value, std::min(bytes, sizeof(word)));
  const auto place = static_cast<const std::byte*>(at) - shared_.front().first;
  std::fprintf(stderr, "  %u %s +%td %#" PRIx64 "\n", running_, what, place, word);
}

void World::fence() {
  scheduling_point();
  commit_all(*parties_[running_]);
}

void World::heavy_fence() {
  scheduling_point();
  if (!heavy_fences) return;
  for (auto& party : parties_) commit_all(*party);
}

bool World::wait_for_change(uint64_t seen) {
  return wait_until([this, seen] { return changes_ != seen; });
}

bool World::wait_until(const std::function<bool()>& condition) {
  Party& party = *parties_[running_];
  if (condition()) return true;
  party.condition = &condition;
  leave();
  party.condition = nullptr;
  return !std::exchange(party.timed_out, false);
}

void World::fail(std::string what) {
  violation_ = std::move(what);
  leave();
  std::abort();  // nobody resumes a party of a world that failed
}

}  // namespace braid::explore
