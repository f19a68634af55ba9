#include "bench/peers/process_vm.h"

#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "bench/floor/shared_pages.h"
#include "bench/spin.h"
#include "bench/workload.h"

namespace braid::bench {
namespace {

// The same address in each process, and memory of its own there from the first write on, whoever
// writes: nobody may clear it once both run, as the other may have written already.
using Word = std::atomic<uint64_t>;

class PrivatePage {
 public:
  PrivatePage() {
    void* const at =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    BRAID_ASSERT(at != MAP_FAILED);
    word_ = new (at) Word(0);
  }
  ~PrivatePage() { munmap(word_, kBytes); }
  PrivatePage(const PrivatePage&) = delete;
  PrivatePage& operator=(const PrivatePage&) = delete;
  Word& word() const { return *word_; }

 private:
  static constexpr size_t kBytes = 4096;
  Word* word_;
};

void send(pid_t peer, const Word& word, uint64_t number) {
  const iovec from{&number, sizeof number};
  const iovec to{const_cast<Word*>(&word), sizeof number};
  if (process_vm_writev(peer, &from, 1, &to, 1, 0) != sizeof number)
    throw std::runtime_error(fmt::format("process_vm_writev: {}", std::strerror(errno)));
}

void wait_for(const Word& word, uint64_t number) {
  Spinner spinner;
  while (word.load(std::memory_order_acquire) != number) spinner.turn();
}

class ProcessVmPing : public Candidate {
 public:
  std::string name() const override { return "process_vm_writev, bare"; }
  std::string threads() const override { return "one a side; both spin, no yield"; }
  base::Status prepare(Bench&) override { return base::ok_status(); }

  base::Result<Sample> run(Bench& bench) override {
    const PrivatePage page;
    const SharedPages shared(sizeof(std::atomic<pid_t>));
    auto& asker = *new (shared.data()) std::atomic<pid_t>(0);
    BRAID_TRY(Process server, Process::call(bench.interrupts, bench.cpus.server, [&](Channel&) {
                Spinner spinner;
                while (asker.load() == 0) spinner.turn();
                for (uint64_t number = 1;; ++number) {
                  wait_for(page.word(), number);
                  send(asker.load(), page.word(), number);
                }
              }));
    const bool quick = bench.options.quick;
    BRAID_TRY(
        Process client, Process::call(bench.interrupts, bench.cpus.client, [&](Channel& channel) {
          asker.store(getpid());
          uint64_t number = 0;
          const auto round_trip = [&] {
            send(server.pid(), page.word(), ++number);
            wait_for(page.word(), number);
          };
          channel.send(to_json(one_way(
              measure_operations(quick ? 5 : 1000, quick ? 2 : 300, server.pid(), round_trip))));
        }));
    BRAID_TRY(const auto message, client.receive(60'000));
    return sample_from_json(message);
  }
};

}  // namespace

std::unique_ptr<Candidate> process_vm_ping() {
  return std::make_unique<ProcessVmPing>();
}

}  // namespace braid::bench
