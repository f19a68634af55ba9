// Every parser of BNBD messages, as a peer's bytes reach it. What is accepted obeys the rules that
// later code relies on, and what this side would send for it is accepted again.

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "bnbd/server.h"
#include "bnbd/wire.h"
#include "tests/fuzz/reached.h"

namespace {

namespace wire = braid::bnbd::wire;

braid::fuzz::Verdicts opens("OPEN"), open_answers("answer to OPEN"), ios("I/O"), news_asked("NEWS"),
    news_told("answer to NEWS");

void require(bool condition) {
  if (!condition) std::abort();
}

void fuzz_open(std::span<const std::byte> bytes) {
  auto open = wire::parse_open(bytes);
  if (!opens.count(open.ok())) return;
  require(!open->name.empty() && open->name.find('\0') == std::string::npos);
  const std::string name = braid::bnbd::normal_export_name(open->name);
  require(!name.empty() && braid::bnbd::normal_export_name(name) == name);
  require(!name.starts_with('/') || name.find_first_not_of("/.") == std::string::npos);
  auto again = wire::make_open(open->name, open->mode);
  require(again.ok() && wire::parse_open(wire::bytes_of(*again)).ok());
  const wire::ClaimingOpen claiming = wire::make_claim(*again, open->tenure, open->remap);
  auto claimed = wire::parse_open(wire::bytes_of(claiming));
  require(claimed.ok() && claimed->tenure == open->tenure);
  require(claimed->remap == open->remap && claimed->again);
}

void fuzz_news(std::span<const std::byte> bytes) {
  auto seen = wire::parse_news(bytes);
  if (news_asked.count(seen.ok()))
    require(*wire::parse_news(wire::bytes_of(wire::make_news(*seen))) == *seen);
  auto news = wire::parse_news_answer(bytes);
  if (!news_told.count(news.ok())) return;
  require(news->items.size() <= wire::kNewsItemsMax);
  for (const wire::DeviceNews& told : news->items) {
    require(told.device_id != 0);
    require(told.kind == wire::NewsKind::kResized || told.kind == wire::NewsKind::kClosed);
    require(told.size_bytes % wire::kSectorBytes == 0);
  }
  const auto same = [](const wire::DeviceNews& a, const wire::DeviceNews& b) {
    return a.device_id == b.device_id && a.kind == b.kind && a.size_bytes == b.size_bytes;
  };
  auto again = wire::parse_news_answer(wire::make_news_answer(*news));
  require(again.ok() && again->newest == news->newest);
  require(std::equal(again->items.begin(), again->items.end(), news->items.begin(),
                     news->items.end(), same));
}

void fuzz_open_answer(std::span<const std::byte> bytes) {
  auto opened = wire::parse_open_answer(bytes);
  if (!open_answers.count(opened.ok())) return;
  require(opened->device_id != wire::kNoDevice);
  require(opened->logical_block_bytes >= wire::kSectorBytes);
  require(opened->size_bytes % opened->logical_block_bytes == 0);
  require(opened->max_io_bytes >= opened->logical_block_bytes);
  const wire::OpenAnswer answer = wire::make_open_answer(*opened);
  require(wire::parse_open_answer(wire::bytes_of(answer)).ok());
}

void fuzz_io(std::span<const std::byte> bytes) {
  wire::Io io;
  if (!ios.count(wire::parse_io(bytes, io) == nullptr)) return;
  require(wire::operation_of(io) <= wire::Operation::kWriteZeroes);
  require(wire::operation_of(io) == wire::Operation::kFlush ||
          io.sector <= UINT64_MAX / wire::kSectorBytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  // An exact copy, so that a sanitizer sees a read past its end.
  std::vector<std::byte> copy(size_bytes);
  std::transform(data, data + size_bytes, copy.begin(), [](uint8_t b) { return std::byte{b}; });
  const std::span<const std::byte> bytes(copy);
  (void)wire::request_type(bytes);
  (void)wire::parse_session_info(bytes, wire::MessageType::kSessionInfo);
  (void)wire::parse_session_info(bytes, wire::MessageType::kSessionInfoAnswer);
  (void)wire::parse_close(bytes);
  fuzz_open(bytes);
  fuzz_open_answer(bytes);
  fuzz_io(bytes);
  fuzz_news(bytes);
  return 0;
}
