// What a program says to the C interface in words: targets and settings. What is accepted obeys the
// rules that later code relies on, and a refusal has words. The first byte chooses the parser.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "capi/disk_name.h"
#include "capi/settings.h"
#include "tests/fuzz/reached.h"

namespace {

using namespace braid::capi;

braid::fuzz::Verdicts targets("target"), settings("setting");

void require(bool condition) {
  if (!condition) std::abort();
}

void fuzz_target(std::string_view text) {
  const auto name = parse_disk_name(text);
  if (!targets.count(name.ok())) return require(!name.error().message().empty());
  const DiskName disk = *braid::base::Result<DiskName>(name);
  if (const auto* const file = std::get_if<FileDisk>(&disk)) {
    require(file->folder.starts_with('/') && !file->name.empty());
    require(file->name.find('/') == std::string::npos);
    require((file->folder + file->name).find('\0') == std::string::npos);
  } else if (const auto* const remote = std::get_if<braid::reach::Target>(&disk)) {
    require(!remote->paths.empty() && !remote->export_name.empty());
  } else {
    const auto* const memory = std::get_if<MemoryDisk>(&disk);
    require((memory != nullptr ? memory->size_bytes : std::get<NullDisk>(disk).size_bytes) > 0);
  }
}

void fuzz_setting(std::string_view text) {
  const size_t equal = text.find('=');
  if (equal == std::string_view::npos) return;
  for (const bool begun : {false, true}) {
    Settings all;
    const auto done = set(all, text.substr(0, equal), text.substr(equal + 1), begun);
    if (!settings.count(done.ok())) require(!done.error().message().empty());
    require(all.queue_depth >= 1 && all.queue_depth <= kQueueDepthMax);
    require(all.name.size() <= 254 && all.give_up_after_ns > 0 && all.lost_after_ns > 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  data[0] == 't' ? fuzz_target(text) : fuzz_setting(text);
  return 0;
}
