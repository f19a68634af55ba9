// World: two parties over shared memory, stepped by hand. Each access to a shared word is a step; a
// Chooser says who takes the next one, and when a store becomes visible to the other party.
//
// Parties are fibers. The model of memory is that of stores which linger: a party sees its own at
// once, the other sees them when they are committed. Stores to one place keep their order; a
// release store waits for all before it, a relaxed one for none. Loads happen in program order. A
// heavy fence (membarrier) commits the stores of all parties.
//
// One world at a time; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace braid::explore {

/// Decides. pick(n) is called for n > 1 alternatives; 0 is what an undisturbed run does.
class Chooser {
 public:
  virtual ~Chooser() = default;
  virtual unsigned pick(unsigned alternatives) = 0;
};

/// A value that an adversary writes just before a party's step.
struct Scribble {
  unsigned party = 0;
  unsigned step = 0;
  void* at = nullptr;
  uint64_t value = 0;
  unsigned bytes = 0;
};

class World {
 public:
  explicit World(Chooser& chooser);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  static World* current();

  // --- before run()
  /// Accesses to this memory are steps. What lies elsewhere is private.
  void share(const void* begin, size_t bytes);
  void add_party(std::function<void()> body);
  /// The party's process dies just before its step of this number. What it stored, becomes visible.
  void kill_at(unsigned party, unsigned step) { kill_ = {party, step}; }
  void scribble(const Scribble& scribble) { scribble_ = scribble; }
  bool stores_linger = true;
  /// Planted bugs: heavy fences do nothing; scenarios sleep without a second look; release stores
  /// to such places are relaxed.
  bool heavy_fences = true;
  bool recheck = true;
  std::string weak_place;
  /// Names some shared memory for `weak_place`.
  void name_place(const std::string& name, const void* begin, size_t bytes);
  bool trace = false;  // tells of each step on stderr

  /// Until all parties have ended, died, or wait for what nobody will do.
  void run();

  // --- within a party
  void load(const void* at, void* value, unsigned bytes);
  void store(void* at, const void* value, size_t bytes, bool release);
  void step();         // a step without access
  void fence();        // std::atomic_thread_fence(seq_cst)
  void heavy_fence();  // Host::heavy_fence()
  /// Waits until something was committed, or somebody died, since changes() was `seen`. False:
  /// nobody will do either.
  bool wait_for_change(uint64_t seen);
  uint64_t changes() const { return changes_; }
  /// Waits until then; false if it never came about (everybody else has ended or waits too). The
  /// condition looks at private memory.
  bool wait_until(const std::function<bool()>& condition);
  /// Ends the run. The parties' stacks are left as they are: they may own nothing.
  [[noreturn]] void fail(std::string what);

  // --- any time
  bool dead(unsigned party) const { return parties_[party]->dead; }
  unsigned steps(unsigned party) const { return parties_[party]->steps; }
  unsigned parties() const { return static_cast<unsigned>(parties_.size()); }
  /// For the judgement after run().
  void violate(const std::string& what) {
    if (violation_.empty()) violation_ = what;
  }
  /// What went wrong; empty if nothing.
  const std::string& violation() const { return violation_; }
  /// The places that a party loaded from, each once, with their sizes.
  struct Place {
    void* at;
    unsigned bytes;
    uint64_t value;  // when first seen
  };
  const std::vector<Place>& places(unsigned party) const { return parties_[party]->loaded; }

 private:
  struct Fiber;
  struct Store {
    std::byte* at;
    std::vector<std::byte> bytes;
    bool release;
  };
  struct Party {
    std::function<void()> body;
    std::unique_ptr<Fiber> fiber;
    std::vector<Store> stores;  // not visible yet, in program order
    std::vector<Place> loaded;
    const std::function<bool()>* condition = nullptr;  // it waits for this
    bool timed_out = false;
    bool ended = false;
    bool dead = false;
    unsigned steps = 0;
  };
  bool shared(const void* at) const;
  bool runnable(const Party& party) const;
  void scheduling_point();
  std::optional<unsigned> choose(unsigned me);
  /// The stores that may become visible next: party and index.
  std::vector<std::pair<Party*, size_t>> committable() const;
  void tell(const char* what, const void* at, const void* value, size_t bytes) const;
  void commit(Party& party, size_t index);
  void commit_all(Party& party);
  void resume(unsigned party);
  void leave();
  static void enter();

  Chooser& chooser_;
  std::vector<std::unique_ptr<Party>> parties_;
  std::vector<std::pair<const std::byte*, size_t>> shared_;
  std::vector<std::pair<const std::byte*, size_t>> weak_;  // release stores there are relaxed
  std::optional<std::pair<unsigned, unsigned>> kill_;
  std::optional<Scribble> scribble_;
  std::unique_ptr<Fiber> scheduler_;
  unsigned running_ = 0;
  uint64_t changes_ = 0;
  std::string violation_;
};

}  // namespace braid::explore
