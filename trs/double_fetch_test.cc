// The parser of requests on memory that changes while it looks, as a client's chunk may: the
// machine stops at each access of the chunk, and behind any one of them all of the chunk becomes
// another message. What was checked must be what is used, whatever the compiler made of it.
//
// Each access of the chunk faults; the instruction then runs alone (single step), and the memory
// is locked again.
#include <gtest/gtest.h>

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)  // it keeps signals back

#include <signal.h>    // lint: allow(os) single steps
#include <sys/mman.h>  // lint: allow(os) as above
#include <ucontext.h>  // lint: allow(os) as above

#include <cstring>
#include <functional>

#include "trs/wire.h"

namespace braid::trs::wire {
namespace {

constexpr size_t kChunkBytes = 4096;  // a page
constexpr uint32_t kMaxIoBytes = 2048;
constexpr uint32_t kOffset = 1024;  // of the message
constexpr greg_t kTrapFlag = 0x100;

/// A chunk that is one message, and another from the chosen access on.
class ChangingChunk {
 public:
  ChangingChunk() {
    void* const made =
        mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    BRAID_ASSERT(made != MAP_FAILED);
    page_ = static_cast<std::byte*>(made);
    current = this;
    struct sigaction act {};
    act.sa_flags = SA_SIGINFO;
    act.sa_sigaction = &ChangingChunk::accessed;
    sigaction(SIGSEGV, &act, &former_fault_);
    act.sa_sigaction = &ChangingChunk::stepped;
    sigaction(SIGTRAP, &act, &former_trap_);
  }
  ~ChangingChunk() {
    sigaction(SIGSEGV, &former_fault_, nullptr);
    sigaction(SIGTRAP, &former_trap_, nullptr);
    munmap(page_, kChunkBytes);
    current = nullptr;
  }
  ChangingChunk(const ChangingChunk&) = delete;
  ChangingChunk& operator=(const ChangingChunk&) = delete;

  std::span<const std::byte> bytes() const { return {page_, kChunkBytes}; }
  /// Runs `look` on `before`, which becomes `after` behind access number `change_at` (from 1). How
  /// many accesses there were.
  unsigned watch(std::span<const std::byte> before, std::span<const std::byte> after,
                 unsigned change_at, const std::function<void()>& look) {
    std::memcpy(page_, before.data(), kChunkBytes);
    after_ = after.data();
    change_at_ = change_at;
    accesses_ = 0;
    mprotect(page_, kChunkBytes, PROT_NONE);
    look();
    mprotect(page_, kChunkBytes, PROT_READ | PROT_WRITE);
    return accesses_;
  }

 private:
  static void accessed(int, siginfo_t* info, void* context) {
    const auto* const at = static_cast<const std::byte*>(info->si_addr);
    const bool ours = at >= current->page_ && at < current->page_ + kChunkBytes;
    if (!ours) {  // the access comes again, and is told as ever
      sigaction(SIGSEGV, &current->former_fault_, nullptr);
      return;
    }
    mprotect(current->page_, kChunkBytes, PROT_READ | PROT_WRITE);
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
  }
  static void stepped(int, siginfo_t*, void* context) {
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
    if (++current->accesses_ == current->change_at_) {
      std::memcpy(current->page_, current->after_, kChunkBytes);
    }
    mprotect(current->page_, kChunkBytes, PROT_NONE);
  }

  static inline ChangingChunk* current = nullptr;
  std::byte* page_ = nullptr;
  const std::byte* after_ = nullptr;
  unsigned change_at_ = 0;
  unsigned accesses_ = 0;
  struct sigaction former_fault_ {
  }, former_trap_{};
};

using Chunk = std::array<std::byte, kChunkBytes>;

template <typename... Parts>
Chunk chunk_with(const Parts&... parts) {
  Chunk chunk{};
  size_t at = kOffset;
  const auto put = [&](const auto& part) {
    std::memcpy(chunk.data() + at, &part, sizeof(part));
    at += sizeof(part);
  };
  (put(parts), ...);
  return chunk;
}

Chunk write_chunk(uint16_t usr_len) {
  WriteMsg message;
  message.type = static_cast<uint16_t>(MessageType::kWrite);
  message.usr_len = usr_len;
  return chunk_with(message);
}

Chunk read_chunk(uint16_t usr_len, uint32_t length, uint16_t targets) {
  ReadMsg message;
  message.type = static_cast<uint16_t>(MessageType::kRead);
  message.usr_len = usr_len;
  message.sg_cnt = targets;
  SgDescriptor target;
  target.length = length;
  return chunk_with(message, target);
}

Chunk sequenced_chunk(bool read, uint16_t usr_len, uint32_t length, uint32_t number) {
  SequencedMsg message;
  message.type =
      static_cast<uint16_t>(read ? MessageType::kSequencedRead : MessageType::kSequencedWrite);
  message.usr_len = usr_len;
  message.sg_cnt = read ? 1 : 0;
  message.epoch = number;
  message.sequence = number;
  SgDescriptor target;
  target.length = length;
  return read ? chunk_with(message, target) : chunk_with(message);
}

Chunk nonsense() {
  Chunk chunk;
  chunk.fill(std::byte{0xff});
  return chunk;
}

void expect_fits(const ParsedRequest& parsed) {
  EXPECT_LE(parsed.user_header_bytes, kUserHeaderBytesMax);
  EXPECT_LE(parsed.data_bytes, kMaxIoBytes);
  EXPECT_LE(parsed.data_bytes + parsed.user_header_bytes, kOffset);
  if (parsed.direction == Direction::kWrite) {
    EXPECT_EQ(parsed.data_bytes + parsed.user_header_bytes, kOffset);
  } else {
    EXPECT_EQ(parsed.data_bytes, parsed.target.length);
  }
  if (!parsed.sequenced) return;
  EXPECT_NE(parsed.epoch, 0u);
  EXPECT_NE(parsed.sequence, 0u);
}

TEST(DoubleFetch, RequestThatChangesWhileItIsReadIsUsedAsItWasChecked) {
  ChangingChunk memory;
  const Chunk messages[] = {write_chunk(24),
                            write_chunk(0xffff),
                            read_chunk(24, 512, 1),
                            read_chunk(0, 1024, 1),
                            read_chunk(24, 0xffffffff, 1),
                            read_chunk(1024, 512, 0),
                            sequenced_chunk(false, 24, 0, 7),
                            sequenced_chunk(true, 24, 512, 7),
                            sequenced_chunk(true, 900, 1024, 0),
                            nonsense()};
  unsigned taken = 0, changes = 0;
  for (const Chunk& before : messages) {
    for (const Chunk& after : messages) {
      for (unsigned change_at = 1;; ++change_at) {
        // As long as the header may be, so that a longer one would be seen.
        std::array<std::byte, kUserHeaderBytesMax> header;
        ParsedRequest parsed;
        const char* wrong = nullptr;
        const unsigned accesses = memory.watch(before, after, change_at, [&] {
          wrong = parse_request(memory.bytes(), kOffset, kMaxIoBytes, header, parsed);
        });
        ASSERT_GT(accesses, 0u) << "nothing was seen";
        if (wrong == nullptr) {
          ++taken;
          expect_fits(parsed);
        }
        if (accesses <= change_at) break;  // it changed behind the last access, or not at all
        ++changes;
      }
    }
  }
  EXPECT_GT(taken, 50u);
  EXPECT_GT(changes, 100u);
}

}  // namespace
}  // namespace braid::trs::wire

#endif
