#include "cli/serve_arguments.h"

#include <algorithm>
#include <bit>
#include <filesystem>

#include "bnbd/backends.h"
#include "cli/resolve.h"
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

namespace {

Result<SyntheticExport> parse_one(const std::string& text, bnbd::NamedExport::Kind kind) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos)
    return Error(Errc::kInvalid, "want NAME=SIZE, for example ram=1G");
  SyntheticExport one;
  one.name = text.substr(0, equals);
  BRAID_CHECK(bnbd::check_export_name(one.name));
  BRAID_TRY(one.size_bytes, parse_size(text.substr(equals + 1)));
  if (one.size_bytes % 4096 != 0)
    return Error(Errc::kInvalid, "the size must be a multiple of 4096 bytes");
  if (kind == bnbd::NamedExport::Kind::kMemory && one.size_bytes > bnbd::kMemoryDeviceBytesMax)
    return make_error(Errc::kInvalid, "{} of memory; {} are the most", size_text(one.size_bytes),
                      size_text(bnbd::kMemoryDeviceBytesMax));
  return one;
}

}  // namespace

Result<std::vector<SyntheticExport>> parse_synthetic(const std::vector<std::string>& texts,
                                                     bnbd::NamedExport::Kind kind) {
  std::vector<SyntheticExport> exports;
  for (const std::string& text : texts) {
    auto one = parse_one(text, kind);
    if (!one.ok())
      return one.error().with(
          "{} \"{}\"", kind == bnbd::NamedExport::Kind::kMemory ? "--memory" : "--null", text);
    exports.push_back(std::move(*one));
  }
  return exports;
}

Result<vhca::Address> parse_listen(const std::string& text) {
  BRAID_TRY(vhca::Address address, parse_address(text));
  if (!is_ip(address.ip))
    return make_error(Errc::kInvalid, "address \"{}\": want an IP address, IP[:PORT]", text);
  return address;
}

base::Status check_huge_pages(const ServeOptions& options) {
  if (!options.huge_pages || !options.memory.empty()) return {};
  return Error(Errc::kInvalid,
               "--huge-pages is how memory is exported: give --memory NAME=SIZE, too, or leave it "
               "out");
}

Result<ServeOptions> ServeArguments::options() const {
  if (!any())
    return Error(Errc::kInvalid,
                 "nothing to export: name a directory, or --memory NAME=SIZE, or --null NAME=SIZE");
  BRAID_TRY(ServeOptions options, options_without_exports());
  BRAID_TRY(options.memory, parse_synthetic(memory, bnbd::NamedExport::Kind::kMemory));
  BRAID_TRY(options.null, parse_synthetic(null, bnbd::NamedExport::Kind::kNull));
  BRAID_CHECK(check_huge_pages(options));
  return options;
}

Result<ServeOptions> ServeArguments::options_without_exports() const {
  ServeOptions options;
  // The node leaves the working directory.
  if (!root.empty()) options.root = std::filesystem::absolute(root);
  if (!keys.empty()) options.keys_file = std::filesystem::absolute(keys);
  options.huge_pages = huge_pages;
  options.read_only = read_only;
  options.block_devices = block_devices;
  options.reactors = reactors;
  options.queue_depth = queue_depth;
  for (const trs::ChunkGuard guard : {trs::ChunkGuard::kWindows, trs::ChunkGuard::kCopy}) {
    if (chunk_guard == to_string(guard)) options.chunk_guard = guard;
  }
  BRAID_TRY(options.listen, parse_listen(listen.empty() ? ":1234" : listen.front()));
  for (size_t i = 1; i < listen.size(); ++i) {
    BRAID_TRY(vhca::Address further, parse_listen(listen[i]));
    options.listen_further.push_back(std::move(further));
  }
  const auto beyond = [](const vhca::Address& address) { return !is_loopback(address.ip); };
  options.listen_tcp =
      wire == "tcp" || (!listen.empty() && beyond(options.listen)) ||
      std::any_of(options.listen_further.begin(), options.listen_further.end(), beyond);
  BRAID_TRY(const uint64_t max_io_bytes, parse_size(max_io));
  if (max_io_bytes < 4096 || max_io_bytes > (16 << 20) || max_io_bytes % 4096 != 0)
    return make_error(Errc::kInvalid, "--max-io \"{}\": want a multiple of 4 KiB from 4K to 16M",
                      max_io);
  options.max_io_bytes = static_cast<uint32_t>(max_io_bytes);
  BRAID_CHECK(check_queue_depth(queue_depth, options.max_io_bytes));
  return options;
}

}  // namespace braid::cli
