#include "cli/serve_arguments.h"

#include <algorithm>
#include <bit>
#include <filesystem>

#include "cli/target.h"
#include "trs/imm.h"

namespace braid::cli {

using base::Errc;
using base::Error;
using base::make_error;
using base::Result;

namespace {

// A chunk has room for the payload and this for headers, rounded up to a power of two (trs).
constexpr uint32_t kHeaderBytes = 4096;

base::Status check_queue_depth(uint32_t queue_depth, uint32_t max_io_bytes) {
  const uint32_t most = queue_depth_max(max_io_bytes);
  if (queue_depth <= most) return {};
  return make_error(Errc::kInvalid,
                    "--queue-depth {}: with --max-io {} at most {}; a smaller --max-io allows more",
                    queue_depth, size_text(max_io_bytes), most);
}

}  // namespace

uint32_t queue_depth_max(uint32_t max_io_bytes) {
  const uint64_t chunk_bytes = std::bit_ceil(max_io_bytes + kHeaderBytes);
  uint32_t most = kQueueDepthMax;
  while (most > kQueueDepthMin && !trs::ImmCodec::fits(most, chunk_bytes)) most /= 2;
  return most;
}

Result<std::vector<SyntheticExport>> parse_synthetic(const std::vector<std::string>& texts,
                                                     const char* option) {
  std::vector<SyntheticExport> exports;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
      return make_error(Errc::kInvalid, "{} \"{}\": want NAME=SIZE, for example ram=1G", option,
                        text);
    auto size = parse_size(text.substr(equals + 1));
    if (!size.ok()) return size.error().with("{} \"{}\"", option, text);
    if (*size % 4096 != 0)
      return make_error(Errc::kInvalid, "{} \"{}\": the size must be a multiple of 4096 bytes",
                        option, text);
    exports.push_back({text.substr(0, equals), *size});
  }
  return exports;
}

Result<ServeOptions> ServeArguments::options() const {
  if (!any())
    return Error(Errc::kInvalid,
                 "nothing to export: name a directory, or --memory NAME=SIZE, or --null NAME=SIZE");
  ServeOptions options;
  // The node leaves the working directory.
  if (!root.empty()) options.root = std::filesystem::absolute(root);
  if (!keys.empty()) options.keys_file = std::filesystem::absolute(keys);
  options.read_only = read_only;
  options.block_devices = block_devices;
  options.reactors = reactors;
  options.queue_depth = queue_depth;
  for (const trs::ChunkGuard guard : {trs::ChunkGuard::kWindows, trs::ChunkGuard::kCopy}) {
    if (chunk_guard == to_string(guard)) options.chunk_guard = guard;
  }
  BRAID_TRY(options.listen, parse_address(listen.empty() ? ":1234" : listen.front()));
  for (size_t i = 1; i < listen.size(); ++i) {
    BRAID_TRY(vhca::Address further, parse_address(listen[i]));
    options.listen_further.push_back(std::move(further));
  }
  const auto beyond = [](const vhca::Address& address) { return !is_loopback(address.ip); };
  options.listen_tcp =
      wire == "tcp" || (!listen.empty() && beyond(options.listen)) ||
      std::any_of(options.listen_further.begin(), options.listen_further.end(), beyond);
  BRAID_TRY(options.memory, parse_synthetic(memory, "--memory"));
  BRAID_TRY(options.null, parse_synthetic(null, "--null"));
  BRAID_TRY(const uint64_t max_io_bytes, parse_size(max_io));
  if (max_io_bytes < 4096 || max_io_bytes > (16 << 20) || max_io_bytes % 4096 != 0)
    return make_error(Errc::kInvalid, "--max-io \"{}\": want a multiple of 4 KiB from 4K to 16M",
                      max_io);
  options.max_io_bytes = static_cast<uint32_t>(max_io_bytes);
  BRAID_CHECK(check_queue_depth(queue_depth, options.max_io_bytes));
  return options;
}

}  // namespace braid::cli
